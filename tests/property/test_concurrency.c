/* That things run at the same time, proven and not timed: two ops that each wait for the other complete. A meeting that does
 * not come about fails after a minute instead of hanging. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <pthread.h>

#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"
#include "where.h"

enum { SAMPLES = 4, WIDTH = 3, STEPS = 10, DEADLINE_S = 60 };

/* ---- host functions that meet ------------------------------------------------------------------------------------------------ */

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int present, rounds;
} meeting;

static td_status *meet(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    meeting *m = context;
    struct timespec deadline;
    int late = 0;
    (void)n_inputs;
    memcpy(output->data, inputs[0].data, (size_t)(inputs[0].dims[0] * inputs[0].dims[1]) * sizeof(float));
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += DEADLINE_S;
    pthread_mutex_lock(&m->lock);
    int round = m->rounds;
    if (++m->present == 2) {
        m->present = 0;
        m->rounds++;
        pthread_cond_broadcast(&m->changed);
    }
    while (round == m->rounds && !late)
        late = pthread_cond_timedwait(&m->changed, &m->lock, &deadline);
    bool met = round != m->rounds;
    pthread_mutex_unlock(&m->lock);
    return met ? NULL : TD_ERROR(TD_INTERNAL, "nobody came within a minute");
}

/* ---- a model with two branches --------------------------------------------------------------------------------------------------- */

typedef struct model {
    td_graph *graph;
    td_value x, y, loss;
    td_train_options options;
    float numbers[SAMPLES * WIDTH], labels[SAMPLES];
    td_field fields[2];
} model;

static void begin(model *m)
{
    *m = (model){.options = td_train_defaults()};
    assert_ok(td_graph_create(&m->graph));
    td_dim batch = td_extent(m->graph, "B", SAMPLES);
    m->x = td_input(m->graph, "x", TD_F32, TD_SHAPE(batch, WIDTH));
    m->y = td_input(m->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        m->numbers[i] = 0.1f * (float)(i % 7) - 0.3f;
    td_group(&m->options, "*", td_sgd(0.1));
    m->fields[0] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {SAMPLES, WIDTH}, .data = m->numbers}};
    m->fields[1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {SAMPLES, 1}, .data = m->labels}};
}

static void train(model *m)
{
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    const td_batch batch = {.samples = SAMPLES, .n_fields = 2, .fields = m->fields};
    assert_ok(td_plan_train(m->graph, m->loss, &m->options, &plan));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    for (int i = 0; i < STEPS; i++) {
        td_step_report report;
        assert_ok(td_session_step(session, &batch, &report));
        assert_int_equal(report.step, i + 1);
    }
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
}

static void end(model *m)
{
    td_train_options_deinit(&m->options);
    td_graph_destroy(m->graph);
}

static void test_two_ops_that_wait_for_each_other_complete_on_two_lanes_of_one_device(void **state)
{
    (void)state;
    meeting with = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    model m;
    begin(&m);
    td_add_device(&m.options, "cpu", "cpu:cores=2,lanes=2");
    td_dim batch = td_extent(m.graph, "B", SAMPLES);
    td_value a = td_host_call(m.graph, meet, &with, 1, &m.x, TD_F32, TD_SHAPE(batch, WIDTH), "a");
    td_value b = td_host_call(m.graph, meet, &with, 1, &m.x, TD_F32, TD_SHAPE(batch, WIDTH), "b");
    m.loss = td_bce_with_logits(td_linear(td_add(a, b), 1, "top"), m.y);
    train(&m);
    assert_int_equal(with.rounds, STEPS);
    end(&m);
}

static void test_two_ops_that_wait_for_each_other_complete_on_two_devices(void **state)
{
    (void)state;
    model m;
    begin(&m);
    td_add_device(&m.options, "left", TD_PARTNER_PLUGIN ":meet=tanh");
    td_add_device(&m.options, "right", TD_PARTNER_PLUGIN ":meet=tanh");
    td_value a = td_target(td_name(td_tanh(m.x), "a"), "left"), b = td_target(td_name(td_tanh(m.x), "b"), "right");
    m.loss = td_bce_with_logits(td_linear(td_add(a, b), 1, "top"), m.y);
    train(&m);
    end(&m);
}

/* Forward of both branches on four devices at once, and the branches' gradients too. */
static void test_four_ops_that_wait_for_one_another_complete_on_four_devices(void **state)
{
    (void)state;
    static const char *const names[] = {"d1", "d2", "d3", "d4"};
    td_value parts[4];
    model m;
    begin(&m);
    for (int i = 0; i < 4; i++) {
        td_add_device(&m.options, names[i], TD_PARTNER_PLUGIN ":meet=sigmoid,parties=4");
        td_value own = td_target(td_linear(m.x, WIDTH, names[i]), names[i]);
        parts[i] = td_target(td_sigmoid(own), names[i]);
    }
    m.loss = td_bce_with_logits(td_linear(td_concat(4, parts, 1), 1, "top"), m.y);
    train(&m);
    end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ops_that_wait_for_each_other_complete_on_two_lanes_of_one_device),
        cmocka_unit_test(test_two_ops_that_wait_for_each_other_complete_on_two_devices),
        cmocka_unit_test(test_four_ops_that_wait_for_one_another_complete_on_four_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
