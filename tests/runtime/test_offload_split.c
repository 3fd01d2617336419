/* A share of the optimizer that ends within a parameter: its first blocks are updated on the device, the rest on the host, and losses,
 * parameters and state are those of a training with nothing offloaded, bit for bit, for every optimizer and precision; the share is what
 * was asked for within a block; device and host hold what the ledger says, to the byte; a checkpoint goes on under any other share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "optim/rule.h"
#include "runtime/machine.h"
#include "tandem/job.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/support/dense_run.h"

enum { HIDDEN = 331, STEPS = 5, BLOCK = 1024 };

static const char *const roomy = "emulated:memory=64MiB,cores=1";

/* "hidden.weight" has 4,303 elements: four blocks and a rest. "tied.weight", used twice, is smaller than a block. */
static dense_run prepare(const char *optimizer, td_offload offload, double ratio, const char *accelerator)
{
    td_value x, y;
    dense_run r = dense_run_inputs(&x, &y);
    td_value tied =
        td_parameter(r.graph, "tied.weight", TD_F32, TD_SHAPE(DENSE_WIDTH, DENSE_WIDTH), td_init_normal(0, 0.3));
    td_value h = td_matmul(x, tied, false, false);
    td_name(h, "first");
    h = td_matmul(td_tanh(h), tied, false, false);
    td_name(h, "second");
    r.loss = td_mse(td_linear(td_relu(td_linear(td_tanh(h), HIDDEN, "hidden")), 1, "top"), y);
    r.options.offload_optimizer = offload;
    r.options.offload_ratio = ratio;
    r.options.loss_scale.initial = 64;
    td_add_device(&r.options, "accel", accelerator);
    td_group(&r.options, "*", (td_optimizer){.name = optimizer, .lr = 0.01});
    return r;
}

static int64_t total(const td_ledger *ledger)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
        bytes += ledger->bytes[k];
    return bytes;
}

static void check_bytes(const dense_run *r)
{
    for (int32_t d = 0; d < 2; d++) {
        td_ledger ledger = td_plan_ledger(r->plan, d);
        assert_int_equal(td_session_device(r->session, d).peak_bytes, total(&ledger));
    }
    td_session_counters n = td_session_read_counters(r->session);
    if (r->options.on_nan == TD_NAN_SKIP) /* a step that is left out copies less */
        return;
    assert_int_equal(n.to_host_bytes, n.planned_to_host_bytes);
    assert_int_equal(n.to_device_bytes, n.planned_to_device_bytes);
}

/* The host updates so many elements of the one parameter that is split. */
static void check_split(const td_plan *plan, int64_t host_elements)
{
    td_plan_split split;
    assert_true(td_plan_split_parameter(plan, &split));
    assert_string_equal(split.parameter, "hidden.weight");
    assert_int_equal(split.elements, DENSE_WIDTH * HIDDEN);
    assert_int_equal(split.host_elements, host_elements);
    assert_null(td_plan_unsplit(plan));
}

/* ---- the same bits ------------------------------------------------------------------------------------------------------- */

typedef struct variant {
    td_precision precision;
    int32_t accumulate;
    double clip_norm;
    bool has_nan, is_delayed;
} variant;

static void train(const char *optimizer, const variant *v, td_offload offload, double ratio, dense_run *out,
                  dense_losses *losses)
{
    dense_batches b;
    *out = prepare(optimizer, offload, ratio, roomy);
    dense_batches_fill(&b, v->has_nan ? 1 : -1);
    out->options.precision = v->precision;
    out->options.accumulate = v->accumulate;
    out->options.clip_norm = v->clip_norm;
    out->options.on_nan = v->has_nan ? TD_NAN_SKIP : TD_NAN_STOP;
    out->options.offload_delayed = v->is_delayed;
    *losses = (dense_losses){.n = 0};
    dense_run_start(out);
    dense_run_train(out, &b, 0, STEPS * v->accumulate, losses);
}

static void check_same(const char *optimizer, const variant *v)
{
    dense_run plain, split;
    dense_losses expected, found;
    train(optimizer, v, v->is_delayed ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE, 1, &plain, &expected);
    train(optimizer, v, TD_OFFLOAD_CPU, 0.5, &split, &found);
    assert_int_equal(found.skipped, v->has_nan);
    dense_run_check_same(&plain, &expected, &split, &found);
    check_bytes(&split);
    if (td_rule_is_elementwise(td_rule_find(optimizer)) && !v->is_delayed)
        check_split(split.plan, DENSE_WIDTH * HIDDEN - 2 * BLOCK);
    else
        assert_non_null(strstr(td_plan_unsplit(split.plan), "\"hidden.weight\" is offloaded whole: "));
    dense_run_end(&plain);
    dense_run_end(&split);
}

static void test_a_split_parameter_gives_the_same_bits_for_every_optimizer(void **state)
{
    (void)state;
    const variant v = {.accumulate = 1};
    for (int32_t i = 0; i < td_rule_count(); i++)
        if (!td_rule_at(i)->refuses_dense)
            check_same(td_rule_at(i)->name, &v);
}

static void test_a_split_parameter_gives_the_same_bits_in_every_precision_with_sums_and_clipping(void **state)
{
    (void)state;
    for (int precision = TD_FP32; precision <= TD_MIXED_FP16; precision++)
        for (int32_t accumulate = 1; accumulate <= 3; accumulate += 2)
            for (int clip = 0; clip < 2; clip++)
                check_same("adam", &(variant){(td_precision)precision, accumulate, clip ? 0.05 : 0, .has_nan = false});
}

static void test_a_step_that_is_left_out_leaves_both_parts(void **state)
{
    (void)state;
    check_same("adam", &(variant){.accumulate = 1, .has_nan = true});
    check_same("adam", &(variant){.accumulate = 1, .clip_norm = 0.05, .has_nan = true});
}

static void test_what_cannot_be_split_goes_whole_and_says_why(void **state)
{
    (void)state;
    check_same("adam", &(variant){.accumulate = 1, .is_delayed = true});
    check_same("lamb", &(variant){.accumulate = 1, .clip_norm = 0.05});
}

/* ---- read elsewhere too ----------------------------------------------------------------------------------------------------- */

/* "wide" is read by "near" and by "far", which is on another device. */
static void train_shared(td_offload offload, const char *far, dense_run *out, dense_losses *losses)
{
    dense_batches b;
    td_value x, y, both[2];
    *out = dense_run_inputs(&x, &y);
    td_value wide = td_parameter(out->graph, "wide", TD_F32, TD_SHAPE(DENSE_WIDTH, HIDDEN), td_init_normal(0, 0.3));
    both[0] = td_matmul(x, wide, false, false);
    td_name(both[0], "near");
    both[1] = td_matmul(td_tanh(x), wide, false, false);
    td_name(both[1], "far");
    out->loss = td_mse(td_linear(td_relu(td_add(both[0], both[1])), 1, "top"), y);
    out->options.offload_optimizer = offload;
    out->options.offload_ratio = 0.5;
    td_add_device(&out->options, "accel", roomy);
    td_add_device(&out->options, "second", roomy);
    td_place(&out->options, "wide", "accel");
    td_place(&out->options, "far", far);
    td_group(&out->options, "*", td_adam(0.01));
    *losses = (dense_losses){.n = 0};
    dense_batches_fill(&b, -1);
    dense_run_start(out);
    dense_run_train(out, &b, 0, STEPS, losses);
}

static void test_a_split_parameter_may_be_read_on_other_devices(void **state)
{
    (void)state;
    static const char *const others[] = {"cpu", "second"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dense_run plain, divided;
        dense_losses expected, found;
        td_plan_split split;
        train_shared(TD_OFFLOAD_NONE, others[i], &plain, &expected);
        train_shared(TD_OFFLOAD_CPU, others[i], &divided, &found);
        assert_true(td_plan_split_parameter(divided.plan, &split));
        assert_string_equal(split.parameter, "wide");
        dense_run_check_same(&plain, &expected, &divided, &found);
        dense_run_end(&plain);
        dense_run_end(&divided);
    }
}

/* ---- how much ------------------------------------------------------------------------------------------------------------ */

/* What the host holds of moments, two numbers an element, is the share; 64 bytes at most are added to each of them. */
static void test_the_share_is_what_was_asked_for_within_a_block(void **state)
{
    (void)state;
    dense_run r = prepare("adam", TD_OFFLOAD_CPU, 1, roomy);
    for (int i = 0; i <= 20; i++) {
        r.options.offload_ratio = 0.05 * i;
        assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
        const double asked = 0.05 * i * (double)td_plan_parameter_count(r.plan);
        const double found = (double)td_plan_ledger(r.plan, 0).bytes[TD_LEDGER_MOMENTS] / 8;
        assert_true(found >= asked - 1e-6);
        assert_true(found < asked + BLOCK + 5 * 16);
        td_plan_split split;
        assert_true(i % 20 || !td_plan_split_parameter(r.plan, &split));
        assert_null(td_plan_unsplit(r.plan));
        td_plan_release(r.plan);
        r.plan = NULL;
    }
    dense_run_end(&r);
}

static void test_a_process_that_trains_alone_with_own_tables_splits_as_well(void **state)
{
    (void)state;
    td_own_tables *own = NULL;
    assert_ok(td_own_tables_create(&own));
    dense_run r = prepare("adam", TD_OFFLOAD_CPU, 0.5, roomy);
    r.options.remote = td_own_tables_remote(own);
    assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
    check_split(r.plan, DENSE_WIDTH * HIDDEN - 2 * BLOCK);
    dense_run_end(&r);
    td_own_tables_destroy(own);
}

/* "tied.weight", "hidden.bias" and so many blocks of "hidden.weight" stay. */
static uint64_t peak_with(int64_t blocks)
{
    dense_run r = prepare("adam", TD_OFFLOAD_CPU, 1, roomy);
    assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
    const double all = (double)td_plan_parameter_count(r.plan);
    dense_run_end(&r);
    const int64_t kept = DENSE_WIDTH * DENSE_WIDTH + HIDDEN + blocks * BLOCK;
    r = prepare("adam", TD_OFFLOAD_CPU, 1 - ((double)kept + 0.5) / all, roomy);
    assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
    check_split(r.plan, DENSE_WIDTH * HIDDEN - blocks * BLOCK);
    uint64_t peak = td_plan_device(r.plan, 1).peak_bytes;
    dense_run_end(&r);
    return peak;
}

/* A block of moments takes 8 bytes an element: one more does not fit where less than that is left. */
static void test_auto_fills_the_device_to_within_a_block(void **state)
{
    (void)state;
    dense_batches b;
    dense_losses expected = {.n = 0};
    dense_batches_fill(&b, -1);
    dense_run plain = prepare("adam", TD_OFFLOAD_NONE, 1, roomy);
    dense_run_start(&plain);
    dense_run_train(&plain, &b, 0, STEPS, &expected);
    for (int64_t blocks = 1; blocks <= 2; blocks++) {
        char tight[64];
        dense_losses found = {.n = 0};
        const uint64_t left = blocks == 1 ? 0 : 8 * BLOCK - 1;
        snprintf(tight, sizeof tight, "emulated:memory=%llu,cores=1", (unsigned long long)(peak_with(blocks) + left));
        dense_run r = prepare("adam", TD_OFFLOAD_AUTO, 1, tight);
        dense_run_start(&r);
        dense_run_train(&r, &b, 0, STEPS, &found);
        dense_run_check_same(&plain, &expected, &r, &found);
        check_bytes(&r);
        check_split(r.plan, DENSE_WIDTH * HIDDEN - blocks * BLOCK);
        dense_run_end(&r);
    }
    dense_run_end(&plain);
}

/* ---- checkpoints --------------------------------------------------------------------------------------------------------- */

static void check_resumed(const char *path, const dense_run *expected, const dense_losses *losses, td_offload offload,
                          double ratio)
{
    dense_batches b;
    dense_losses found = {.n = 0};
    td_data_position position = {0};
    dense_batches_fill(&b, -1);
    dense_run r = prepare("adam", offload, ratio, roomy);
    dense_run_start(&r);
    assert_ok(td_store_load(r.store, path, &position));
    dense_run_train(&r, &b, STEPS, 2 * STEPS, &found);
    dense_run_check_same(expected, losses, &r, &found);
    dense_run_end(&r);
}

static void test_a_checkpoint_goes_on_under_any_share(void **state)
{
    (void)state;
    char folder[] = "/tmp/tandem_split_XXXXXX", path[64], command[128];
    dense_batches b;
    dense_losses losses = {.n = 0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/saved", folder);
    dense_batches_fill(&b, -1);
    dense_run r = prepare("adam", TD_OFFLOAD_CPU, 0.6, roomy);
    dense_run_start(&r);
    dense_run_train(&r, &b, 0, STEPS, &losses);
    assert_ok(td_store_save(r.store, path, (td_data_position){0}));
    losses = (dense_losses){.n = 0};
    dense_run_train(&r, &b, STEPS, 2 * STEPS, &losses);
    check_resumed(path, &r, &losses, TD_OFFLOAD_NONE, 1);
    check_resumed(path, &r, &losses, TD_OFFLOAD_CPU, 0.3);
    check_resumed(path, &r, &losses, TD_OFFLOAD_CPU, 0.6);
    check_resumed(path, &r, &losses, TD_OFFLOAD_CPU, 1);
    dense_run_end(&r);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Reads and writes that begin and end on either side of the border, and elements that are all on one. */
static void test_a_store_is_read_and_written_across_the_border(void **state)
{
    (void)state;
    static float numbers[DENSE_WIDTH * HIDDEN], back[DENSE_WIDTH * HIDDEN];
    const char *const names[] = {"hidden.weight", "hidden.weight/m"};
    const int64_t ranges[][2] = {{0, 4303}, {2000, 100}, {2047, 2}, {2048, 1}, {2047, 1}, {4302, 1}, {2048, 0}};
    dense_run r = prepare("adam", TD_OFFLOAD_CPU, 0.5, roomy);
    dense_run_start(&r);
    check_split(r.plan, DENSE_WIDTH * HIDDEN - 2 * BLOCK);
    for (size_t k = 0; k < 2; k++) {
        const int32_t index = td_store_find(r.store, names[k]);
        assert_true(index >= 0);
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            const int64_t first = ranges[i][0], n = ranges[i][1];
            for (int64_t e = 0; e < n; e++)
                numbers[first + e] = (float)(e + (int64_t)i);
            assert_ok(td_store_write(r.store, index, first, n, numbers + first));
            assert_ok(td_store_read(r.store, index, 0, DENSE_WIDTH * HIDDEN, back));
            assert_memory_equal(numbers, back, sizeof numbers);
            assert_ok(td_store_read(r.store, index, first, n, back));
            assert_memory_equal(numbers + first, back, (size_t)n * sizeof *back);
        }
    }
    dense_run_end(&r);
}

/* ---- without memory ------------------------------------------------------------------------------------------------------ */

/* A plan that splits, its store and session, on devices that are open, with the n-th allocation failing; 0: none. */
static td_status *begin_and_end(dense_run *r, uint64_t n, bool *out_failed)
{
    td_memory_fail_after(n);
    td_status *status = td_plan_train(r->graph, r->loss, &r->options, &r->plan);
    if (!status)
        status = td_store_create(r->plan, &r->store);
    if (!status)
        status = td_session_create(r->plan, r->store, &r->session);
    *out_failed = td_memory_failed();
    td_memory_fail_after(0);
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_machine_forget_plans(r->options.machine);
    r->session = NULL;
    r->store = NULL;
    r->plan = NULL;
    return status;
}

/* Every eleventh: all of them would take long. */
static void test_allocations_may_fail(void **state)
{
    (void)state;
    bool failed = true;
    dense_run r = prepare("sgd", TD_OFFLOAD_CPU, 0.5, roomy);
    assert_ok(begin_and_end(&r, 0, &failed)); /* what is made once per process is made */
    const uint64_t before = td_memory_read().bytes_now;
    failed = true;
    for (uint64_t n = 1; failed; n += 11) {
        td_status *status = begin_and_end(&r, n, &failed);
        assert_int_equal(td_status_code(status), failed ? TD_OUT_OF_MEMORY : TD_OK);
        td_status_destroy(status);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
    dense_run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_split_parameter_gives_the_same_bits_for_every_optimizer),
        cmocka_unit_test(test_a_split_parameter_gives_the_same_bits_in_every_precision_with_sums_and_clipping),
        cmocka_unit_test(test_a_step_that_is_left_out_leaves_both_parts),
        cmocka_unit_test(test_what_cannot_be_split_goes_whole_and_says_why),
        cmocka_unit_test(test_a_split_parameter_may_be_read_on_other_devices),
        cmocka_unit_test(test_the_share_is_what_was_asked_for_within_a_block),
        cmocka_unit_test(test_a_process_that_trains_alone_with_own_tables_splits_as_well),
        cmocka_unit_test(test_auto_fills_the_device_to_within_a_block),
        cmocka_unit_test(test_a_checkpoint_goes_on_under_any_share),
        cmocka_unit_test(test_a_store_is_read_and_written_across_the_border),
        cmocka_unit_test(test_allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
