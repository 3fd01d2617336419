/* Clipping: an update scaled down to the norm that is asked for, dense and row-sparse gradients together; the norm is that of a
 * whole batch however short the batch is, and where nothing exceeds it not a bit changes. Batch norm in a session: running
 * statistics move while training, and evaluation uses them and leaves them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 8, ROWS = 12, DIM = 5 };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
    td_value loss, output;
} run;

static void start(run *r)
{
    td_group(&r->options, "*", td_sgd(1.0));
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

static void read_all(const run *r, const char *name, float *out, int64_t n)
{
    int32_t index = td_store_find(r->store, name);
    assert_true(index >= 0);
    assert_ok(td_store_read(r->store, index, 0, n, out));
}

/* ---- clipping ------------------------------------------------------------------------------------------------------------------ */

/* A table looked up, times a weight: one row-sparse gradient, one dense. */
static run lookup_model(double clip_norm, bool cut)
{
    run r = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&r.graph));
    td_dim batch = td_extent(r.graph, "B", BATCH);
    td_value ids = td_input(r.graph, "ids", TD_I64, TD_SHAPE(batch));
    td_value y = td_input(r.graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value table = td_parameter(r.graph, "table", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1));
    td_value x = td_linear(td_embedding(table, ids, (td_embedding_options){0}), 1, "fc");
    r.loss = td_mse(x, y);
    r.options.clip_norm = clip_norm;
    if (cut) {
        td_add_device(&r.options, "accel", "emulated:memory=64MiB,cores=1");
        td_place(&r.options, "table*", "cpu");
    }
    start(&r);
    return r;
}

/* What one step on `samples` samples changes, as one vector; the norm that the report says. */
static double step(run *r, int64_t samples, float change[ROWS * DIM + DIM + 1])
{
    static const int64_t ids[BATCH] = {3, 0, 3, 11, 7, 7, 7, 2};
    static const float y[BATCH] = {5, -4, 3, 2, -6, 1, 0, 7};
    float before[ROWS * DIM + DIM + 1];
    const td_field fields[2] = {
        {"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {samples}, .data = (void *)(uintptr_t)ids}},
        {"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = (void *)(uintptr_t)y}}};
    const td_batch batch = {.samples = samples, .n_fields = 2, .fields = fields};
    td_step_report report;
    for (int after = 0; after < 2; after++) {
        float *to = after ? change : before;
        if (after)
            assert_ok(td_session_step(r->session, &batch, &report));
        read_all(r, "table", to, ROWS * DIM);
        read_all(r, "fc.weight", to + ROWS * DIM, DIM);
        read_all(r, "fc.bias", to + ROWS * DIM + DIM, 1);
    }
    for (int i = 0; i < ROWS * DIM + DIM + 1; i++)
        change[i] -= before[i];
    assert_int_equal(report.n_outputs, 0);
    return (double)report.gradient_norm;
}

static double length_of(const float *x)
{
    double sum = 0;
    for (int i = 0; i < ROWS * DIM + DIM + 1; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void check_clipped(int64_t samples, bool cut)
{
    float whole[ROWS * DIM + DIM + 1], clipped[ROWS * DIM + DIM + 1];
    run plain = lookup_model(0, cut), bounded = lookup_model(0.5, cut);
    assert_true(isnan(step(&plain, samples, whole)));
    const double norm = step(&bounded, samples, clipped), length = length_of(whole);
    assert_true(length > 1);
    assert_true(fabs(norm - length) < 1e-5 * length);
    assert_true(fabs(length_of(clipped) - 0.5) < 1e-5);
    for (int i = 0; i < ROWS * DIM + DIM + 1; i++)
        assert_true(fabs((double)clipped[i] - (double)whole[i] * 0.5 / length) < 1e-5);
    stop(&plain);
    stop(&bounded);
}

static void test_an_update_is_scaled_down_to_the_norm(void **state)
{
    (void)state;
    check_clipped(BATCH, false);
    check_clipped(BATCH, true);
    check_clipped(3, false);
}

static void test_a_norm_within_bounds_changes_nothing(void **state)
{
    (void)state;
    float whole[ROWS * DIM + DIM + 1], clipped[ROWS * DIM + DIM + 1];
    run plain = lookup_model(0, false), bounded = lookup_model(1e6, false);
    (void)step(&plain, BATCH, whole);
    (void)step(&bounded, BATCH, clipped);
    assert_memory_equal(whole, clipped, sizeof whole);
    stop(&plain);
    stop(&bounded);
}

static void test_a_norm_below_zero_is_refused(void **state)
{
    (void)state;
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_train_options options = td_train_defaults();
    assert_ok(td_graph_create(&graph));
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(td_extent(graph, "B", 4), 3));
    td_value loss = td_mse(td_linear(x, 3, "fc"), x);
    td_group(&options, "*", td_sgd(0.1));
    options.clip_norm = -1;
    td_status *status = td_plan_train(graph, loss, &options, &plan);
    assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    assert_non_null(strstr(td_status_message(status), "clip_norm is -1; it must be above 0"));
    td_status_destroy(status);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
}

/* ---- batch norm ----------------------------------------------------------------------------------------------------------------- */

static void test_running_statistics_move_in_training_and_serve_evaluation(void **state)
{
    (void)state;
    static const float data[4] = {1, 3, 5, 7}; /* mean 4, unbiased variance 20/3 */
    run r = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&r.graph));
    td_value x = td_input(r.graph, "x", TD_F32, TD_SHAPE(td_extent(r.graph, "B", 4), 1));
    r.output = td_batch_norm(x, 0, 0.5, "n");
    r.loss = td_mse(r.output, x);
    start(&r);
    const td_field field = {
        "x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {4, 1}, .data = (void *)(uintptr_t)data}};
    const td_batch batch = {.samples = 4, .n_fields = 1, .fields = &field};
    td_step_report report;
    float mean, variance, weight, bias;
    assert_ok(td_session_step(r.session, &batch, &report));
    read_all(&r, "n.running_mean", &mean, 1);
    read_all(&r, "n.running_variance", &variance, 1);
    read_all(&r, "n.weight", &weight, 1);
    read_all(&r, "n.bias", &bias, 1);
    assert_true(fabsf(mean - 2) < 1e-6f);
    assert_true(fabsf(variance - (0.5f + 10.0f / 3)) < 1e-5f);
    td_session_destroy(r.session);
    td_plan *plan = NULL;
    assert_ok(td_plan_evaluate(r.graph, &r.output, 1, &r.options, r.store, &plan));
    assert_ok(td_session_create(plan, r.store, &r.session));
    assert_ok(td_session_step(r.session, &batch, &report));
    for (int i = 0; i < 4; i++)
        assert_true(fabsf(((const float *)report.outputs[0].data)[i] -
                          ((data[i] - mean) / sqrtf(variance) * weight + bias)) < 1e-5f);
    float after;
    read_all(&r, "n.running_mean", &after, 1);
    assert_true(after == mean);
    td_plan_release(plan);
    stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_update_is_scaled_down_to_the_norm),
        cmocka_unit_test(test_a_norm_within_bounds_changes_nothing),
        cmocka_unit_test(test_a_norm_below_zero_is_refused),
        cmocka_unit_test(test_running_statistics_move_in_training_and_serve_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
