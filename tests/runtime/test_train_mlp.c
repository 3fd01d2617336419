/* The thin path: a perceptron trains on one device, and cut over two gives the same bits; evaluating it is no step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/philox.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { IN = 20, BATCH = 32, STEPS = 60 };

/* A source of STEPS batches, the last one short. */
typedef struct random_source {
    int64_t at, n;
    float x[3][BATCH * IN], y[3][BATCH];
    td_field fields[3][2];
} random_source;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    random_source *source = self;
    int64_t i = source->at % 3, samples = source->at == source->n - 1 ? BATCH / 2 - 1 : BATCH;
    *out_end = source->at == source->n;
    if (*out_end)
        return NULL;
    td_philox_key key = td_philox_key_of(3, "test", "x");
    td_random_fill(source->x[i], source->at * BATCH * IN, samples * IN, key, TD_RANDOM_NORMAL, 0, 1);
    for (int64_t s = 0; s < samples; s++)
        source->y[i][s] = source->x[i][s * IN] - 0.5f * source->x[i][s * IN + 1];
    source->fields[i][0] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, IN}, .data = source->x[i]}};
    source->fields[i][1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = source->y[i]}};
    *out_batch = (td_batch){.samples = samples, .index = source->at, .n_fields = 2, .fields = source->fields[i]};
    source->at++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

typedef struct record {
    float losses[STEPS];
    int64_t n;
} record;

static bool keep_loss(void *context, const td_step_report *report)
{
    record *r = context;
    r->losses[r->n++] = report->loss;
    return true;
}

static td_graph *build(td_value *out_loss)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", BATCH);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, IN)),
             y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value hidden = td_relu(td_linear(x, 64, "fc.0"));
    hidden = td_relu(td_linear(hidden, 32, "fc.1"));
    *out_loss = td_mse(td_linear(hidden, 1, "fc.2"), y);
    return graph;
}

static uint64_t train_in(td_precision precision, const char *keep, const char *accelerator, const char *placed,
                         record *out_record, td_session_counters *out_counters)
{
    td_value loss;
    td_graph *graph = build(&loss);
    td_train_options options = td_train_defaults();
    if (accelerator)
        td_add_device(&options, "accel", accelerator);
    if (placed)
        td_place(&options, placed, "cpu");
    options.precision = precision;
    if (keep)
        td_keep_fp32(&options, keep);
    td_group(&options, "*", td_adam(1e-2));
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    assert_ok(td_plan_train(graph, loss, &options, &plan));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    random_source *source = td_calloc(1, sizeof *source);
    source->n = STEPS;
    td_source s = {source, next, release};
    *out_record = (record){0};
    assert_ok(td_session_run(session, &s, 0, keep_loss, out_record));
    *out_counters = td_session_read_counters(session);
    for (int32_t i = 0; i < td_session_devices(session); i++) {
        td_device_counters d = td_session_device(session, i);
        assert_true(d.peak_bytes <= d.planned_peak_bytes);
    }
    uint64_t checksum = 0;
    assert_ok(td_store_checksum(store, &checksum));
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    td_free(source);
    return checksum;
}

static uint64_t train(const char *accelerator, const char *placed, record *out_record,
                      td_session_counters *out_counters)
{
    return train_in(TD_FP32, NULL, accelerator, placed, out_record, out_counters);
}

static void test_a_perceptron_learns_and_a_cut_gives_the_same_bits(void **state)
{
    (void)state;
    record one, cut, all;
    td_session_counters counters;
    uint64_t single = train(NULL, NULL, &one, &counters);
    assert_int_equal(one.n, STEPS);
    assert_true(one.losses[STEPS - 2] < 0.5f * one.losses[0]);
    uint64_t across = train("emulated:memory=64MiB,cores=1", "fc.1*", &cut, &counters);
    assert_memory_equal(one.losses, cut.losses, sizeof one.losses);
    assert_true(single == across);
    assert_true(counters.to_device_bytes > 0 && counters.to_host_bytes > 0);
    assert_int_equal(counters.to_device_bytes, counters.planned_to_device_bytes);
    assert_int_equal(counters.to_host_bytes, counters.planned_to_host_bytes);
    uint64_t accelerated = train("emulated:memory=64MiB,cores=1", NULL, &all, &counters);
    assert_true(single == accelerated);
    assert_memory_equal(one.losses, all.losses, sizeof one.losses);
}

/* bf16 has 8 bits: losses are near those of f32, not theirs; a cut changes no rounding; what is kept in f32 counts. */
static void test_layers_in_bf16_learn_alike_and_a_cut_gives_the_same_bits(void **state)
{
    (void)state;
    record full, one, cut, all, kept, last;
    td_session_counters counters;
    uint64_t in_f32 = train(NULL, NULL, &full, &counters);
    uint64_t single = train_in(TD_MIXED_BF16, NULL, NULL, NULL, &one, &counters);
    assert_true(single != in_f32);
    for (int i = 0; i < 5; i++)
        assert_true(fabsf(one.losses[i] - full.losses[i]) < 0.02f * full.losses[i]);
    assert_true(one.losses[STEPS - 2] < 0.5f * one.losses[0]);
    assert_true(single == train_in(TD_MIXED_BF16, NULL, "emulated:memory=64MiB,cores=1", "fc.1*", &cut, &counters));
    assert_memory_equal(one.losses, cut.losses, sizeof one.losses);
    assert_true(counters.to_device_bytes > 0);
    assert_true(single == train_in(TD_MIXED_BF16, NULL, "emulated:memory=64MiB,cores=1", NULL, &all, &counters));
    assert_true(in_f32 == train_in(TD_MIXED_BF16, "*", NULL, NULL, &kept, &counters));
    assert_memory_equal(full.losses, kept.losses, sizeof full.losses);
    uint64_t mixed = train_in(TD_MIXED_BF16, "fc.2/*", NULL, NULL, &last, &counters);
    assert_true(mixed != single && mixed != in_f32);
}

typedef struct steps_seen {
    int64_t n, last;
} steps_seen;

static bool see_step(void *context, const td_step_report *report)
{
    steps_seen *seen = context;
    seen->n++;
    seen->last = report->step;
    return true;
}

static steps_seen run_plan(td_plan *plan, td_store *store, int64_t steps)
{
    td_session *session = NULL;
    random_source *source = td_calloc(1, sizeof *source);
    source->n = steps;
    td_source s = {source, next, release};
    steps_seen seen = {0};
    assert_ok(td_session_create(plan, store, &session));
    assert_ok(td_session_run(session, &s, 0, see_step, &seen));
    td_session_destroy(session);
    td_free(source);
    return seen;
}

static void test_evaluating_adds_no_steps_to_the_training(void **state)
{
    (void)state;
    td_value loss;
    td_graph *graph = build(&loss);
    td_train_options options = td_train_defaults();
    td_group(&options, "*", td_adam(1e-2));
    td_plan *training = NULL, *evaluation = NULL;
    td_store *store = NULL;
    assert_ok(td_plan_train(graph, loss, &options, &training));
    assert_ok(td_store_create(training, &store));
    assert_int_equal(run_plan(training, store, 5).last, 5);
    assert_ok(td_plan_evaluate(graph, &loss, 1, &options, store, &evaluation));
    steps_seen seen = run_plan(evaluation, store, 3);
    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.last, 3);
    assert_int_equal(td_store_steps(store), 5);
    assert_int_equal(td_store_updates(store), 5);
    assert_int_equal(run_plan(training, store, 2).last, 7);
    td_store_release(store);
    td_plan_release(training);
    td_plan_release(evaluation);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_perceptron_learns_and_a_cut_gives_the_same_bits),
        cmocka_unit_test(test_layers_in_bf16_learn_alike_and_a_cut_gives_the_same_bits),
        cmocka_unit_test(test_evaluating_adds_no_steps_to_the_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
