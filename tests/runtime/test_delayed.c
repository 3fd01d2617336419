/* offload.delayed: each update of a dense parameter is made one step late, as a reference computes it that knows of no devices; the
 * bits are the same for any share that is offloaded, whether steps overlap, with windows of several micro-batches, with clipping,
 * with steps that are left out, and over a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "optim/rule.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 8, WIDTH = 13, HIDDEN = 29, BATCHES = 9, MOST = 512, PARAMETERS = 4 };

static void expect_error(td_status *status, const char *words)
{
    assert_non_null(status);
    if (!strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
}

typedef struct setting {
    const char *optimizer;
    double clip_norm, ratio;
    int32_t accumulate;
    td_precision precision;
    bool exact, serial;
} setting;

typedef struct run {
    td_graph *graph;
    td_value loss;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} run;

static run prepare(setting s)
{
    run r = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&r.graph));
    td_dim batch = td_extent(r.graph, "B", BATCH);
    td_value x = td_input(r.graph, "x", TD_F32, TD_SHAPE(batch, WIDTH)),
             y = td_input(r.graph, "y", TD_F32, TD_SHAPE(batch, 1));
    r.loss = td_mse(td_linear(td_tanh(td_linear(x, HIDDEN, "hidden")), 1, "top"), y);
    r.options.clip_norm = s.clip_norm;
    r.options.offload_optimizer = TD_OFFLOAD_CPU;
    r.options.offload_delayed = !s.exact;
    r.options.offload_ratio = s.ratio;
    r.options.no_pipeline = s.serial;
    r.options.accumulate = s.accumulate ? s.accumulate : 1;
    r.options.precision = s.precision;
    r.options.on_nan = TD_NAN_SKIP;
    td_add_device(&r.options, "accel", "emulated:memory=64MiB,cores=1");
    td_group(&r.options, "*", (td_optimizer){.name = s.optimizer, .lr = 0.01});
    return r;
}

static void start(run *r)
{
    assert_ok(td_plan_train(r->graph, r->loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
}

static void stop(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

typedef struct batches {
    float x[BATCHES][BATCH * WIDTH], y[BATCHES][BATCH];
    td_field fields[BATCHES][2];
    int64_t at, end, bad; /* `bad`: the batch with a NaN; -1: none */
} batches;

static td_batch batch_at(batches *b, int64_t i)
{
    int64_t samples = i == 2 ? 3 : BATCH; /* a short one among them */
    td_field *fields = b->fields[i];
    fields[0] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, WIDTH}, .data = b->x[i]}};
    fields[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = b->y[i]}};
    return (td_batch){.samples = samples, .n_fields = 2, .fields = fields};
}

static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    batches *b = self;
    *out_end = b->at == b->end;
    if (!*out_end)
        *out_batch = batch_at(b, b->at++);
    return NULL;
}

static void keep_batch(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static batches make_batches(int64_t bad)
{
    batches b = {.end = BATCHES, .bad = bad};
    uint32_t state = 1;
    for (int s = 0; s < BATCHES; s++) {
        for (int i = 0; i < BATCH * WIDTH; i++)
            b.x[s][i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 23) - 1;
        for (int i = 0; i < BATCH; i++)
            b.y[s][i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 22) - 2;
    }
    if (bad >= 0)
        b.y[bad][1] = NAN;
    return b;
}

typedef struct losses {
    float loss[BATCHES];
    int32_t n, skipped;
} losses;

static bool on_step(void *context, const td_step_report *report)
{
    losses *l = context;
    l->skipped += report->skipped;
    l->loss[l->n++] = report->skipped ? 0 : report->loss;
    return true;
}

static void train(run *r, batches *b, int64_t from, int64_t to, losses *out)
{
    td_source source = {.self = b, .next = next_batch, .release = keep_batch};
    b->at = from;
    b->end = to;
    assert_ok(td_session_run(r->session, &source, 0, on_step, out));
    td_session_counters counters = td_session_read_counters(r->session);
    if (!out->skipped)
        assert_int_equal(counters.to_device_bytes + counters.to_host_bytes,
                         counters.planned_to_device_bytes + counters.planned_to_host_bytes);
}

static int64_t read_entry(const run *r, int32_t index, float *out)
{
    td_tensor tensor;
    bool is_parameter;
    const char *device;
    assert_ok(td_store_describe(r->store, index, &tensor, &is_parameter, &device));
    int64_t n = 1;
    for (int32_t k = 0; k < tensor.rank; k++)
        n *= tensor.dims[k];
    assert_true(n <= MOST);
    assert_ok(td_store_read(r->store, index, 0, n, out));
    return n;
}

/* Every parameter and state of both, gradients that wait included. */
static void assert_same(const run *a, const losses *x, const run *b, const losses *y)
{
    float numbers[2][MOST];
    assert_int_equal(x->n, y->n);
    assert_int_equal(x->skipped, y->skipped);
    assert_memory_equal(x->loss, y->loss, sizeof x->loss);
    assert_int_equal(td_store_count(a->store), td_store_count(b->store));
    for (int32_t i = 0; i < td_store_count(a->store); i++) {
        int64_t n = read_entry(a, i, numbers[0]);
        assert_int_equal(read_entry(b, td_store_find(b->store, td_store_name(a->store, i)), numbers[1]), n);
        if (memcmp(numbers[0], numbers[1], (size_t)n * sizeof(float)) != 0)
            fail_msg("\"%s\" differs", td_store_name(a->store, i));
    }
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
static float compute(reference *r, run *plain, batches *b, int64_t i)
{
    td_step_report report;
    td_batch batch = batch_at(b, i);
    for (int k = 0; k < PARAMETERS; k++)
        assert_ok(td_store_write(plain->store, r->index[k], 0, r->n[k], r->p[k]));
    assert_ok(td_session_step(plain->session, &batch, &report));
    assert_int_equal(report.n_outputs, PARAMETERS);
    for (int k = 0; k < PARAMETERS; k++)
        for (int32_t o = 0; o < report.n_outputs; o++)
            if (strncmp(td_plan_output_name(plain->plan, o), names[k], strlen(names[k])) == 0 ||
                strstr(td_plan_output_name(plain->plan, o), names[k]))
                memcpy(r->gradient[k], report.outputs[o].data, (size_t)r->n[k] * sizeof(float));
    r->divisor = (double)batch.samples / BATCH;
    return report.loss;
}

static void test_each_update_is_made_one_step_late(void **state)
{
    (void)state;
    batches b = make_batches(-1);
    run late = prepare((setting){.optimizer = "adam", .ratio = 1}),
        plain = prepare((setting){.optimizer = "adam", .exact = true});
    plain.options.offload_optimizer = TD_OFFLOAD_NONE;
    td_report_gradients(&plain.options, "*");
    start(&late);
    start(&plain);
    losses found = {.n = 0};
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
    stop(&late);
    stop(&plain);
}

static void check_shares(setting s, int64_t bad)
{
    batches b = make_batches(bad);
    losses expected = {.n = 0};
    s.serial = true;
    s.ratio = 0;
    run alone = prepare(s);
    start(&alone);
    train(&alone, &b, 0, BATCHES, &expected);
    assert_int_equal(expected.skipped, bad >= 0);
    for (int i = 0; i < 3; i++) {
        losses found = {.n = 0};
        s.serial = i == 2;
        s.ratio = i ? 1 : 0.5;
        run r = prepare(s);
        start(&r);
        train(&r, &b, 0, BATCHES, &found);
        assert_same(&alone, &expected, &r, &found);
        stop(&r);
    }
    stop(&alone);
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
    batches b = make_batches(-1);
    losses expected = {.n = 0}, found = {.n = 0}, none = {.n = 0};
    td_data_position position;
    setting s = {.optimizer = "adam", .clip_norm = 0.05, .ratio = 1};
    run whole = prepare(s), first = prepare(s), second = prepare(s), exact, late;
    start(&whole);
    start(&first);
    start(&second);
    train(&whole, &b, 0, BATCHES, &expected);
    train(&first, &b, 0, 4, &found);
    assert_ok(td_store_save(first.store, place, (td_data_position){0, 4}));
    assert_ok(td_store_load(second.store, place, &position));
    train(&second, &b, 4, BATCHES, &found);
    assert_same(&whole, &expected, &second, &found);
    s.exact = true;
    exact = prepare(s);
    start(&exact);
    expect_error(td_store_load(exact.store, place, &position), "its last update is still to be made (offload.delayed)");
    train(&exact, &b, 0, 4, &none);
    assert_ok(td_store_save(exact.store, place, (td_data_position){0, 4}));
    s.exact = false;
    late = prepare(s);
    start(&late);
    assert_ok(td_store_load(late.store, place, &position)); /* nothing waits in it */
    uint64_t sums[2];
    assert_ok(td_store_checksum(exact.store, &sums[0]));
    train(&late, &b, 4, 5, &none);
    assert_ok(td_store_checksum(late.store, &sums[1]));
    assert_true(sums[0] == sums[1]);
    (void)snprintf(command, sizeof command, "rm -r %s", place);
    assert_int_equal(system(command), 0);
    stop(&whole);
    stop(&first);
    stop(&second);
    stop(&exact);
    stop(&late);
}

static void test_a_delay_that_would_hide_nothing_is_refused(void **state)
{
    (void)state;
    run r = prepare((setting){.optimizer = "adam"});
    r.options.offload_optimizer = TD_OFFLOAD_NONE;
    expect_error(td_plan_train(r.graph, r.loss, &r.options, &r.plan),
                 "offload.delayed is true and offload.optimizer is none");
    stop(&r);
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
