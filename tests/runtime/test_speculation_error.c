/* An error that strikes when some updates of a step have been made early and others never will be: parameters and state are exactly what
 * they were, the session stays usable, and goes on to the bits of a training that met no error.
 *
 *     x -> near  -----------------> mse -+-> loss        near's gradients need nothing of the host call, so it can wait until near's
 *     x -> host call -> far ------> mse -+               update has been made early, and fail then
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "runtime/session.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/support/same_stores.h"

enum { BATCH = 4, WIDTH = 7, HIDDEN = 19, BATCHES = 4 };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
    float x[BATCHES][BATCH * WIDTH], y[BATCHES][BATCH];
    td_field fields[2];
    int64_t at, fails; /* fails: the batch with the error, once; -1: none */
    bool waited;
} run;

static int32_t node_named(const td_plan *plan, const char *name)
{
    int32_t node = td_name_map_get(&plan->graph->node_names, name);
    assert_true(node >= 0);
    return node;
}

/* Whether all that settling near's update waits for has ended, but what comes after the host call. */
static bool is_made_early(const run *r, int64_t step)
{
    const td_plan *plan = r->plan;
    const int32_t settle = plan->nodes[node_named(plan, "near.weight/update")].cluster,
                  call = plan->nodes[node_named(plan, "call")].cluster;
    const td_cluster *cluster = &plan->clusters[settle];
    int32_t later = 0;
    for (int32_t i = 0; i < cluster->n_before; i++)
        later += cluster->before[i] == call || td_cluster_reaches(plan, call, cluster->before[i]);
    return atomic_load(&r->session->slots[step % TD_STEP_SLOTS].waiting[settle]) <= later;
}

static td_status *call(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    run *r = context;
    const int64_t step = r->at, begin = td_clock_ns(), most_ns = 5000000000;
    (void)n_inputs;
    memcpy(output->data, inputs[0].data, sizeof r->x[0]);
    if (step != r->fails + 1)
        return NULL;
    r->fails = -1;
    while (!r->waited && td_clock_ns() - begin < most_ns)
        r->waited = is_made_early(r, step);
    return TD_ERROR(TD_IO, "the disk is gone");
}

static void start(run *r, int64_t fails)
{
    uint32_t state = 1;
    *r = (run){.options = td_train_defaults(), .fails = fails};
    for (int s = 0; s < BATCHES; s++)
        for (int i = 0; i < BATCH * WIDTH; i++) {
            r->x[s][i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 23) - 1;
            r->y[s][i % BATCH] = r->x[s][i];
        }
    assert_ok(td_graph_create(&r->graph));
    const td_shape shape = TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(WIDTH));
    td_value x = td_input(r->graph, "x", TD_F32, shape),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(1)));
    td_value called = td_host_call(r->graph, call, r, 1, &x, TD_F32, shape, "call");
    td_value near = td_mse(td_linear(td_tanh(td_linear(x, HIDDEN, "near")), 1, "near_top"), y),
             far = td_mse(td_linear(td_tanh(td_linear(called, HIDDEN, "far")), 1, "far_top"), y);
    td_value loss = td_add(near, far);
    r->options.clip_norm = 1e9;
    r->options.offload_optimizer = TD_OFFLOAD_CPU;
    r->options.no_pipeline = true;
    td_add_device(&r->options, "cpu", "cpu:cores=2,lanes=2");
    td_add_device(&r->options, "accel", "emulated:memory=64MiB,cores=1");
    td_place(&r->options, "call", "cpu");
    td_group(&r->options, "*", (td_optimizer){.name = "adam", .lr = 0.01});
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
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

static td_status *step(run *r, int64_t batch)
{
    td_step_report report;
    r->fields[0] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, WIDTH}, .data = r->x[batch]}};
    r->fields[1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = r->y[batch]}};
    r->at++;
    return td_session_step(r->session, &(td_batch){.samples = BATCH, .n_fields = 2, .fields = r->fields}, &report);
}

static void test_an_error_after_early_updates_leaves_the_old_bits(void **state)
{
    (void)state;
    run plain, struck;
    start(&plain, -1);
    start(&struck, 1);
    assert_ok(step(&plain, 0));
    assert_ok(step(&struck, 0));
    td_status *status = step(&struck, 1);
    assert_non_null(status);
    assert_non_null(strstr(td_status_message(status), "the disk is gone"));
    td_status_destroy(status);
    assert_true(struck.waited); /* near's update had been made */
    assert_true(td_session_is_usable(struck.session));
    check_same_stores(plain.store, struck.store);
    for (int64_t i = 1; i < BATCHES; i++) {
        assert_ok(step(&plain, i));
        assert_ok(step(&struck, i));
    }
    check_same_stores(plain.store, struck.store);
    stop(&plain);
    stop(&struck);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_an_error_after_early_updates_leaves_the_old_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
