/* A backend that compiles subgraphs is handed whole ones, and what it computes is what op by op gives. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"
#include "where.h"

enum { IN = 6, BATCH = 8, STEPS = 5 };

static const char library[] = TD_BINARY_DIR "/tests/runtime_delegate_backend.so";

static long runs(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    long *counter = dlsym(handle, "delegate_runs");
    assert_non_null(counter);
    long value = *counter;
    (void)dlclose(handle);
    return value;
}

static uint64_t train(const char *options_text)
{
    td_graph *graph = NULL;
    char device[400];
    assert_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", BATCH);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, IN)),
             y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value hidden = td_reshape(td_relu(td_linear(x, 8, "fc.0")), TD_SHAPE(batch, 2, 4));
    hidden = td_name(td_reshape(td_tanh(hidden), TD_SHAPE(batch, 8)), "back");
    td_value loss = td_mse(td_linear(hidden, 1, "fc.1"), y);
    td_train_options options = td_train_defaults();
    (void)snprintf(device, sizeof device, "%s:%s", library, options_text);
    td_add_device(&options, "accel", device);
    td_group(&options, "*", td_sgd(0.1));
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    assert_ok(td_plan_train(graph, loss, &options, &plan));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t samples = i == STEPS - 1 ? BATCH - 3 : BATCH;
        float inputs[BATCH * IN], targets[BATCH];
        td_random_fill(inputs, i * BATCH * IN, BATCH * IN, td_philox_key_of(9, "test", "x"), TD_RANDOM_UNIFORM, -1, 1);
        td_random_fill(targets, i * BATCH, BATCH, td_philox_key_of(9, "test", "y"), TD_RANDOM_UNIFORM, -1, 1);
        td_field fields[2] = {
            {"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, IN}, .data = inputs}},
            {"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = targets}}};
        td_batch b = {.samples = samples, .n_fields = 2, .fields = fields};
        td_step_report report;
        assert_ok(td_session_step(session, &b, &report));
    }
    uint64_t checksum = 0;
    assert_ok(td_store_checksum(store, &checksum));
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    return checksum;
}

static void test_a_delegate_runs_whole_subgraphs_with_the_same_result(void **state)
{
    (void)state;
    long before = runs();
    uint64_t one_by_one = train("compile=0");
    assert_int_equal(runs(), before);
    uint64_t whole = train("compile=1");
    assert_true(runs() >= before + STEPS);
    assert_true(one_by_one == whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_delegate_runs_whole_subgraphs_with_the_same_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
