/* offload.delayed: each update of a dense parameter is made one step late, as a reference computes it that knows of no devices; the
 * bits are the same for any share that is offloaded, whether steps overlap, with windows of several micro-batches, with clipping,
 * with steps that are left out, and over a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/op.h"
#include "optim/rule.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/support/dense_run.h"

enum { HIDDEN = 29, BATCHES = 9, MOST = 512, PARAMETERS = 4 };

typedef struct setting {
    const char *optimizer;
    double clip_norm, ratio;
    int32_t accumulate;
    td_precision precision;
    bool exact, serial;
} setting;

static dense_run prepare(setting s)
{
    dense_run r = dense_run_begin(HIDDEN);
    r.options.clip_norm = s.clip_norm;
    r.options.offload_optimizer = TD_OFFLOAD_CPU;
    r.options.offload_delayed = !s.exact;
    r.options.offload_ratio = s.ratio;
    r.options.no_pipeline = s.serial;
    r.options.accumulate = s.accumulate ? s.accumulate : 1;
    r.options.precision = s.precision;
    r.options.on_nan = TD_NAN_SKIP;
    td_group(&r.options, "*", (td_optimizer){.name = s.optimizer, .lr = 0.01});
    return r;
}

static dense_batches make_batches(int64_t bad)
{
    dense_batches b;
    dense_batches_fill(&b, bad);
    return b;
}

static void train(dense_run *r, dense_batches *b, int64_t from, int64_t to, dense_losses *out)
{
    dense_run_train(r, b, from, to, out);
    td_session_counters counters = td_session_read_counters(r->session);
    if (!out->skipped)
        assert_int_equal(counters.to_device_bytes + counters.to_host_bytes,
                         counters.planned_to_device_bytes + counters.planned_to_host_bytes);
}

static int64_t read_entry(const dense_run *r, int32_t index, float *out)
{
    td_tensor tensor;
    bool is_parameter;
    const char *device;
    assert_ok(td_store_describe(r->store, index, &tensor, &is_parameter, &device));
    const int64_t n = td_tensor_elements(&tensor);
    assert_true(n <= MOST);
    assert_ok(td_store_read(r->store, index, 0, n, out));
    return n;
}

/* ---- a reference without devices ------------------------------------------------------------------------------------------------ */

typedef struct reference {
    float p[PARAMETERS][MOST], m[PARAMETERS][MOST], v[PARAMETERS][MOST], gradient[PARAMETERS][MOST];
    int64_t n[PARAMETERS];
    int32_t index[PARAMETERS];
    double divisor;
} reference;

static const char *const names[PARAMETERS] = {"hidden.weight", "hidden.bias", "top.weight", "top.bias"};

/* Adam, by the plain rule. */
static void apply(reference *r, int64_t update)
{
    const td_rule *rule = td_rule_find("adam");
    td_optimizer settings, given = {.name = "adam", .lr = 0.01};
    float coefficients[TD_COEFFICIENTS] = {0};
    assert_ok(td_rule_resolve(rule, &given, &settings));
    rule->coefficients(&settings, 0.01, update, 1 / r->divisor, coefficients);
    for (int i = 0; i < PARAMETERS; i++)
        rule->reference(r->p[i], (float *[]){r->m[i], r->v[i]}, r->gradient[i], r->n[i], coefficients);
}

/* The gradients of a batch at the reference's parameters, by a plan whose own updates nobody looks at. */
static float compute(reference *r, dense_run *plain, dense_batches *b, int64_t i)
{
    td_step_report report;
    td_batch batch = dense_batches_at(b, i);
    for (int k = 0; k < PARAMETERS; k++)
        assert_ok(td_store_write(plain->store, r->index[k], 0, r->n[k], r->p[k]));
    assert_ok(td_session_step(plain->session, &batch, &report));
    assert_int_equal(report.n_outputs, PARAMETERS);
    for (int k = 0; k < PARAMETERS; k++)
        for (int32_t o = 0; o < report.n_outputs; o++)
            if (strncmp(td_plan_output_name(plain->plan, o), names[k], strlen(names[k])) == 0 ||
                strstr(td_plan_output_name(plain->plan, o), names[k]))
                memcpy(r->gradient[k], report.outputs[o].data, (size_t)r->n[k] * sizeof(float));
    r->divisor = (double)batch.samples / DENSE_BATCH;
    return report.loss;
}

static void test_each_update_is_made_one_step_late(void **state)
{
    (void)state;
    dense_batches b = make_batches(-1);
    dense_run late = prepare((setting){.optimizer = "adam", .ratio = 1}),
              plain = prepare((setting){.optimizer = "adam", .exact = true});
    plain.options.offload_optimizer = TD_OFFLOAD_NONE;
    td_report_gradients(&plain.options, "*");
    dense_run_start(&late);
    dense_run_start(&plain);
    dense_losses found = {.n = 0};
    train(&late, &b, 0, BATCHES, &found);
    reference *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int k = 0; k < PARAMETERS; k++) {
        r->index[k] = td_store_find(plain.store, names[k]);
        r->n[k] = read_entry(&plain, r->index[k], r->p[k]);
    }
    for (int64_t i = 0; i < BATCHES; i++) {
        reference before = *r; /* its gradient is the one of the step before */
        float loss = compute(r, &plain, &b, i);
        assert_memory_equal(&loss, &found.loss[i], sizeof loss);
        reference now = *r;
        memcpy(r->gradient, before.gradient, sizeof r->gradient);
        r->divisor = before.divisor;
        if (i > 0)
            apply(r, i);
        memcpy(r->gradient, now.gradient, sizeof r->gradient);
        r->divisor = now.divisor;
    }
    float numbers[MOST];
    for (int k = 0; k < PARAMETERS; k++) {
        (void)read_entry(&late, td_store_find(late.store, names[k]), numbers);
        assert_memory_equal(numbers, r->p[k], (size_t)r->n[k] * sizeof(float));
        char pending[64];
        (void)snprintf(pending, sizeof pending, "%s/pending", names[k]);
        (void)read_entry(&late, td_store_find(late.store, pending), numbers);
        assert_memory_equal(numbers, r->gradient[k], (size_t)r->n[k] * sizeof(float));
    }
    free(r);
    dense_run_end(&late);
    dense_run_end(&plain);
}

static void check_shares(setting s, int64_t bad)
{
    dense_batches b = make_batches(bad);
    dense_losses expected = {.n = 0};
    s.serial = true;
    s.ratio = 0;
    dense_run alone = prepare(s);
    dense_run_start(&alone);
    train(&alone, &b, 0, BATCHES, &expected);
    assert_int_equal(expected.skipped, bad >= 0);
    for (int i = 0; i < 3; i++) {
        dense_losses found = {.n = 0};
        s.serial = i == 2;
        s.ratio = i ? 1 : 0.5;
        dense_run r = prepare(s);
        dense_run_start(&r);
        train(&r, &b, 0, BATCHES, &found);
        dense_run_check_same(&alone, &expected, &r, &found);
        dense_run_end(&r);
    }
    dense_run_end(&alone);
}

static void test_the_bits_do_not_depend_on_the_share_or_on_overlap(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"adam", "sgd", "lamb"};
    for (int i = 0; i < 3; i++)
        for (int clip = 0; clip < 2; clip++)
            check_shares((setting){.optimizer = optimizers[i], .clip_norm = clip ? 0.05 : 0}, -1);
    check_shares((setting){.optimizer = "adam", .accumulate = 2, .clip_norm = 0.05}, -1);
}

/* Where nothing waits yet there is no copy in 16 bit to refresh replicas with. */
static void test_replicas_in_16_bit_are_refreshed_with_what_there_is(void **state)
{
    (void)state;
    check_shares((setting){.optimizer = "adam", .precision = TD_MIXED_BF16}, -1);
    check_shares((setting){.optimizer = "lamb", .precision = TD_MIXED_FP16}, -1);
    check_shares((setting){.optimizer = "adam", .precision = TD_MIXED_BF16}, 4);
    check_shares((setting){.optimizer = "lamb", .precision = TD_MIXED_BF16, .accumulate = 2}, 5);
}

/* A step that is left out still makes the update of the one before, and leaves none behind. */
static void test_a_step_that_is_left_out_leaves_nothing_to_be_made(void **state)
{
    (void)state;
    for (int64_t bad = 0; bad < BATCHES; bad += 4) {
        check_shares((setting){.optimizer = "adam"}, bad);
        check_shares((setting){.optimizer = "adam", .clip_norm = 0.05}, bad);
    }
    check_shares((setting){.optimizer = "adam", .accumulate = 2}, 4);
    check_shares((setting){.optimizer = "adam", .accumulate = 2}, 5);
}

static void test_a_checkpoint_carries_the_update_that_is_still_to_be_made(void **state)
{
    (void)state;
    char place[] = "/tmp/tandem-delayed-XXXXXX", command[64];
    assert_non_null(mkdtemp(place));
    dense_batches b = make_batches(-1);
    dense_losses expected = {.n = 0}, found = {.n = 0}, none = {.n = 0};
    td_data_position position;
    setting s = {.optimizer = "adam", .clip_norm = 0.05, .ratio = 1};
    dense_run whole = prepare(s), first = prepare(s), second = prepare(s), exact, late;
    dense_run_start(&whole);
    dense_run_start(&first);
    dense_run_start(&second);
    train(&whole, &b, 0, BATCHES, &expected);
    train(&first, &b, 0, 4, &found);
    assert_ok(td_store_save(first.store, place, (td_data_position){0, 4}));
    assert_ok(td_store_load(second.store, place, &position));
    train(&second, &b, 4, BATCHES, &found);
    dense_run_check_same(&whole, &expected, &second, &found);
    s.exact = true;
    exact = prepare(s);
    dense_run_start(&exact);
    assert_error(td_store_load(exact.store, place, &position), TD_DATA_ERROR,
                 "its last update is still to be made (offload.delayed)");
    train(&exact, &b, 0, 4, &none);
    assert_ok(td_store_save(exact.store, place, (td_data_position){0, 4}));
    s.exact = false;
    late = prepare(s);
    dense_run_start(&late);
    assert_ok(td_store_load(late.store, place, &position)); /* nothing waits in it */
    uint64_t sums[2];
    assert_ok(td_store_checksum(exact.store, &sums[0]));
    train(&late, &b, 4, 5, &none);
    assert_ok(td_store_checksum(late.store, &sums[1]));
    assert_true(sums[0] == sums[1]);
    (void)snprintf(command, sizeof command, "rm -r %s", place);
    assert_int_equal(system(command), 0);
    dense_run_end(&whole);
    dense_run_end(&first);
    dense_run_end(&second);
    dense_run_end(&exact);
    dense_run_end(&late);
}

static void test_a_delay_that_would_hide_nothing_is_refused(void **state)
{
    (void)state;
    dense_run r = prepare((setting){.optimizer = "adam"});
    r.options.offload_optimizer = TD_OFFLOAD_NONE;
    assert_error(td_plan_train(r.graph, r.loss, &r.options, &r.plan), TD_INVALID_ARGUMENT,
                 "offload.delayed is true and offload.optimizer is none");
    dense_run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_update_is_made_one_step_late),
        cmocka_unit_test(test_the_bits_do_not_depend_on_the_share_or_on_overlap),
        cmocka_unit_test(test_replicas_in_16_bit_are_refreshed_with_what_there_is),
        cmocka_unit_test(test_a_step_that_is_left_out_leaves_nothing_to_be_made),
        cmocka_unit_test(test_a_checkpoint_carries_the_update_that_is_still_to_be_made),
        cmocka_unit_test(test_a_delay_that_would_hide_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
