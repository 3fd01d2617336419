/* The store lends its arenas to the session that runs: a device's peak is the store and the largest plan (contract d), whatever
 * the number of sessions and their order; arenas move when they grow, which changes no bit; two sessions never run at once. */
#include <stdio.h>

#include "runtime/session.h"
#include "tandem/ops.h"
#include "tests/base/check.h"

enum { SMALL = 8, LARGE = 64, FEATURES = 6, ROWS = 10, DIM = 4, ACCEL = 1 };

typedef struct model {
    td_graph *graph;
    td_value logit, loss;
} model;

typedef struct data {
    int64_t ids[LARGE];
    float x[LARGE * FEATURES], y[LARGE];
    td_field fields[3];
    td_batch batch;
} data;

static void fill(data *d, int64_t samples)
{
    for (int64_t i = 0; i < samples; i++) {
        d->ids[i] = i * 3 % ROWS;
        d->y[i] = (float)(i % 2);
        for (int64_t k = 0; k < FEATURES; k++)
            d->x[i * FEATURES + k] = 0.1f * (float)((i + 2 * k) % 7);
    }
    d->fields[0] = (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {samples}, .data = d->ids}};
    d->fields[1] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, FEATURES}, .data = d->x}};
    d->fields[2] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = d->y}};
    d->batch = (td_batch){.samples = samples, .n_fields = 3, .fields = d->fields};
}

static model build(int64_t samples)
{
    model m = {0};
    assert_ok(td_graph_create(&m.graph));
    td_dim batch = td_extent(m.graph, "B", samples);
    td_value ids = td_input(m.graph, "ids", TD_I64, TD_SHAPE(batch)),
             x = td_input(m.graph, "x", TD_F32, TD_SHAPE(batch, FEATURES)),
             y = td_input(m.graph, "y", TD_F32, TD_SHAPE(batch, 1)),
             table = td_parameter(m.graph, "table.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1));
    td_value parts[] = {td_embedding(table, ids, (td_embedding_options){0}), td_relu(td_linear(x, 3 * DIM, "bottom"))};
    m.logit = td_linear(td_concat(2, parts, 1), 1, "top");
    m.loss = td_bce_with_logits(m.logit, y);
    return m;
}

typedef struct bench {
    model small, large;
    td_train_options options;
    td_plan *train, *evaluate, *evaluate_large;
    td_store *store;
    data batch, batch_large;
} bench;

static void open_bench(bench *b, const char *accelerator)
{
    *b = (bench){.small = build(SMALL), .large = build(LARGE), .options = td_train_defaults()};
    fill(&b->batch, SMALL);
    fill(&b->batch_large, LARGE);
    td_add_device(&b->options, "accel", accelerator);
    td_place(&b->options, "table*", "cpu");
    td_group(&b->options, "*", td_sgd(0.1, .momentum = 0.9));
    assert_ok(td_plan_train(b->small.graph, b->small.loss, &b->options, &b->train));
    assert_ok(td_store_create(b->train, &b->store));
    assert_ok(td_plan_evaluate(b->small.graph, &b->small.logit, 1, &b->options, b->store, &b->evaluate));
    assert_ok(td_plan_evaluate(b->large.graph, &b->large.logit, 1, &b->options, b->store, &b->evaluate_large));
}

static void close_bench(bench *b)
{
    td_store_release(b->store);
    td_plan_release(b->train);
    td_plan_release(b->evaluate);
    td_plan_release(b->evaluate_large);
    td_train_options_deinit(&b->options);
    td_graph_destroy(b->small.graph);
    td_graph_destroy(b->large.graph);
}

static void step(td_session *session, data *d)
{
    td_step_report report;
    assert_ok(td_session_step(session, &d->batch, &report));
}

static uint64_t checksum(const td_store *store)
{
    uint64_t sum = 0;
    assert_ok(td_store_checksum(store, &sum));
    return sum;
}

/* Three steps of training and nothing else. */
static uint64_t checksum_of_training_alone(void)
{
    bench b;
    td_session *train = NULL;
    open_bench(&b, "emulated:memory=16MiB,cores=1");
    assert_ok(td_session_create(b.train, b.store, &train));
    for (int i = 0; i < 3; i++)
        step(train, &b.batch);
    uint64_t sum = checksum(b.store);
    td_session_destroy(train);
    close_bench(&b);
    return sum;
}

static int64_t largest(int64_t a, int64_t b, int64_t c)
{
    int64_t most = a > b ? a : b;
    return most > c ? most : c;
}

static void test_a_peak_is_the_store_and_the_largest_plan(void **state)
{
    (void)state;
    bench b;
    td_session *sessions[3] = {0};
    open_bench(&b, "emulated:memory=16MiB,cores=1");
    td_plan *const plans[3] = {b.evaluate, b.train, b.evaluate_large}; /* each larger than the one before */
    for (int i = 0; i < 3; i++)
        assert_ok(td_session_create(plans[i], b.store, &sessions[i]));
    for (int i = 0; i < 3; i++) {
        step(sessions[1], &b.batch);
        step(sessions[0], &b.batch);
        step(sessions[2], &b.batch_large);
    }
    int64_t arena = largest(b.train->arenas[ACCEL].bytes, b.evaluate->arenas[ACCEL].bytes,
                            b.evaluate_large->arenas[ACCEL].bytes),
            held = td_store_held(b.store, ACCEL);
    assert_true(arena > b.train->arenas[ACCEL].bytes && held > 0);
    td_device_counters counters = td_session_device(sessions[0], ACCEL);
    assert_int_equal(counters.now_bytes, held + arena);
    assert_int_equal(counters.peak_bytes, held + arena);
    assert_int_equal(counters.planned_peak_bytes, held + arena);
    assert_int_equal(td_plan_device(b.evaluate_large, ACCEL).peak_bytes, held + arena); /* what was proven to fit */
    td_session_destroy(sessions[2]);
    td_session_destroy(sessions[1]);
    assert_int_equal(td_session_device(sessions[0], ACCEL).now_bytes, held + arena);
    td_session_destroy(sessions[0]);
    uint64_t now = 0, peak = 0;
    const td_plan_site *site = &b.store->machine->sites[ACCEL];
    site->api->memory_in_use(site->device, &now, &peak);
    assert_int_equal(now, held); /* the last session gave the arenas back */
    close_bench(&b);
}

static void test_arenas_that_move_change_no_bit(void **state)
{
    (void)state;
    bench b;
    td_session *train = NULL, *evaluate = NULL, *large = NULL;
    td_step_report report;
    float before[SMALL], after[SMALL];
    open_bench(&b, "emulated:memory=16MiB,cores=1");
    assert_ok(td_session_create(b.evaluate, b.store, &evaluate));
    assert_ok(td_session_create(b.train, b.store, &train));
    for (int i = 0; i < 2; i++)
        step(train, &b.batch);
    assert_ok(td_session_step(evaluate, &b.batch.batch, &report));
    memcpy(before, report.outputs[0].data, sizeof before);
    assert_true(b.store->arenas[ACCEL].bytes < b.evaluate_large->arenas[ACCEL].bytes);
    assert_ok(td_session_create(b.evaluate_large, b.store, &large));
    assert_true(b.store->arenas[ACCEL].bytes == b.evaluate_large->arenas[ACCEL].bytes);
    step(large, &b.batch_large);
    assert_ok(td_session_step(evaluate, &b.batch.batch, &report));
    memcpy(after, report.outputs[0].data, sizeof after);
    assert_memory_equal(before, after, sizeof before);
    step(train, &b.batch);
    assert_true(checksum(b.store) == checksum_of_training_alone());
    td_session_destroy(large);
    td_session_destroy(train);
    td_session_destroy(evaluate);
    close_bench(&b);
}

/* ---- one session at a time -------------------------------------------------------------------------------------------------------- */

typedef struct nested {
    bench *b;
    td_session *other;
    int32_t handed;
    td_status *refusal;
} nested;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    nested *n = self;
    *out_batch = n->b->batch.batch;
    *out_end = n->handed++ == 3;
    return NULL;
}

static void give_back(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

/* On the first step a session of a larger plan is created, and asked to run. */
static bool on_step(void *context, const td_step_report *report)
{
    nested *n = context;
    td_step_report ignored;
    (void)report;
    if (n->other)
        return true;
    void *arena = n->b->store->arenas[ACCEL].memory;
    assert_ok(td_session_create(n->b->evaluate_large, n->b->store, &n->other));
    assert_ptr_equal(arena, n->b->store->arenas[ACCEL].memory); /* it is in use: it stays where it is */
    n->refusal = td_session_step(n->other, &n->b->batch_large.batch, &ignored);
    return true;
}

static void test_a_session_cannot_run_while_another_does(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "emulated:memory=16MiB,cores=1");
    td_session *train = NULL;
    nested n = {.b = &b};
    td_source source = {&n, next, give_back};
    assert_ok(td_session_create(b.train, b.store, &train));
    assert_ok(td_session_run(train, &source, 0, on_step, &n));
    assert_error(n.refusal, TD_INVALID_ARGUMENT, "another session runs on this store");
    assert_int_equal(td_store_steps(b.store), 3);
    assert_true(checksum(b.store) == checksum_of_training_alone());
    step(n.other, &b.batch_large); /* now it may */
    assert_int_equal(td_session_device(n.other, ACCEL).peak_bytes, td_plan_device(b.evaluate_large, ACCEL).peak_bytes);
    td_session_destroy(train); /* the one that was created later is left alone with the arenas */
    step(n.other, &b.batch_large);
    td_session_destroy(n.other);
    close_bench(&b);
}

/* A plan made without the store proves that its own parameters and arena fit; the store holds optimizer state besides. */
static void test_a_plan_that_leaves_no_room_for_the_store_is_refused(void **state)
{
    (void)state;
    bench b;
    char spec[64];
    open_bench(&b, "emulated:memory=16MiB,cores=1");
    uint64_t train = td_plan_device(b.train, ACCEL).peak_bytes,
             large = td_plan_device(b.evaluate_large, ACCEL).peak_bytes;
    close_bench(&b);
    assert_true(train < large);
    b = (bench){.small = build(SMALL), .large = build(LARGE), .options = td_train_defaults()};
    (void)snprintf(spec, sizeof spec, "emulated:memory=%lluB,cores=1", (unsigned long long)large - 1);
    td_add_device(&b.options, "accel", spec);
    td_place(&b.options, "table*", "cpu");
    td_group(&b.options, "*", td_sgd(0.1, .momentum = 0.9));
    assert_ok(td_plan_train(b.small.graph, b.small.loss, &b.options, &b.train));
    assert_ok(td_store_create(b.train, &b.store));
    assert_error(td_plan_evaluate(b.large.graph, &b.large.logit, 1, &b.options, b.store, &b.evaluate), TD_DOES_NOT_FIT,
                 "accel has");
    assert_ok(td_plan_evaluate(b.large.graph, &b.large.logit, 1, &b.options, NULL, &b.evaluate_large));
    td_session *session = NULL;
    assert_error(td_session_create(b.evaluate_large, b.store, &session), TD_DOES_NOT_FIT, "the store holds");
    assert_null(session);
    assert_ok(td_session_create(b.train, b.store, &session)); /* and the store is none the worse for it */
    fill(&b.batch, SMALL);
    step(session, &b.batch);
    td_session_destroy(session);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_peak_is_the_store_and_the_largest_plan),
        cmocka_unit_test(test_arenas_that_move_change_no_bit),
        cmocka_unit_test(test_a_session_cannot_run_while_another_does),
        cmocka_unit_test(test_a_plan_that_leaves_no_room_for_the_store_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
