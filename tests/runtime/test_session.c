/* What a session refuses and survives: batches that do not fit the plan, ids outside their table, stopping, scalars, and
 * evaluating on the store of a training run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 8, ROWS = 10, DIM = 4 };

static void expect_error(td_status *status, const char *words)
{
    assert_non_null(status);
    if (!strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
}

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_value logit, loss;
    td_plan *plan;
    td_store *store;
    td_session *session;
    int64_t ids[BATCH];
    float y[BATCH];
    td_field fields[2];
    td_batch batch;
} run;

static void open_run(run *r, bool cut)
{
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value ids = td_input(r->graph, "ids", TD_I64, TD_SHAPE(batch)),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value table = td_parameter(r->graph, "table.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1));
    double factor = 1;
    td_value scalar = td_scalar(r->graph, "factor", TD_F32, 1, &factor);
    td_value vectors = td_name(td_dropout(td_embedding(table, ids, (td_embedding_options){0}), 0.5), "top/dropout");
    r->logit = td_linear(td_scale_by(vectors, scalar), 1, "top.0");
    r->loss = td_bce_with_logits(r->logit, y);
    r->options = td_train_defaults();
    if (cut) {
        td_add_device(&r->options, "accel", "emulated:memory=16MiB,cores=1");
        td_place(&r->options, "table*", "cpu");
    }
    td_group(&r->options, "*", td_sgd(0.1, .momentum = 0.9));
    assert_ok(td_plan_train(r->graph, r->loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
    for (int i = 0; i < BATCH; i++) {
        r->ids[i] = i % ROWS;
        r->y[i] = (float)(i % 2);
    }
    r->fields[0] = (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {BATCH}, .data = r->ids}};
    r->fields[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = r->y}};
    r->batch = (td_batch){.samples = BATCH, .n_fields = 2, .fields = r->fields};
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

static void test_batches_that_do_not_fit_the_plan_are_refused(void **state)
{
    (void)state;
    run r = {0};
    td_step_report report;
    open_run(&r, false);
    r.batch.n_fields = 1;
    expect_error(td_session_step(r.session, &r.batch, &report), "no field \"y\"");
    r.batch.n_fields = 2;
    r.fields[0].tensor.dims[0] = BATCH + 1;
    expect_error(td_session_step(r.session, &r.batch, &report), "capacity");
    r.fields[0].tensor.dims[0] = BATCH - 1;
    expect_error(td_session_step(r.session, &r.batch, &report), "another input");
    r.fields[0].tensor.dims[0] = BATCH;
    r.fields[1].tensor.dtype = TD_F64;
    expect_error(td_session_step(r.session, &r.batch, &report), "the graph wants f32");
    r.fields[1].tensor.dtype = TD_F32;
    assert_ok(td_session_step(r.session, &r.batch, &report)); /* and the session is none the worse for it */
    assert_int_equal(report.step, 1);
    close_run(&r);
}

static void check_bad_id(bool cut)
{
    run r = {0};
    td_step_report report;
    uint64_t before = 0, after = 0;
    open_run(&r, cut);
    assert_ok(td_session_step(r.session, &r.batch, &report));
    assert_ok(td_store_checksum(r.store, &before));
    r.ids[3] = ROWS;
    expect_error(td_session_step(r.session, &r.batch, &report), "table");
    assert_ok(td_store_checksum(r.store, &after));
    assert_true(before == after);
    assert_int_equal(td_store_steps(r.store), 1);
    r.ids[3] = 0;
    assert_ok(td_session_step(r.session, &r.batch, &report));
    assert_int_equal(report.step, 2);
    close_run(&r);
}

static void test_an_id_outside_its_table_changes_nothing(void **state)
{
    (void)state;
    check_bad_id(false);
    check_bad_id(true);
}

typedef struct endless {
    run *r;
    td_session *session;
    int64_t handed, returned, reported, stop_at;
} endless;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    endless *e = self;
    *out_end = false;
    *out_batch = e->r->batch;
    e->handed++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)batch;
    ((endless *)self)->returned++;
}

static bool stop_later(void *context, const td_step_report *report)
{
    endless *e = context;
    (void)report;
    if (++e->reported == e->stop_at)
        td_session_stop(e->session);
    return true;
}

static void test_stop_ends_a_run_and_every_batch_goes_back(void **state)
{
    (void)state;
    run r = {0};
    open_run(&r, true);
    endless e = {.r = &r, .session = r.session, .stop_at = 7};
    td_source source = {&e, next, release};
    assert_ok(td_session_run(r.session, &source, 0, stop_later, &e));
    assert_true(e.reported >= 7 && e.reported <= 8); /* steps in flight are finished */
    assert_int_equal(e.handed, e.returned);
    assert_int_equal(td_store_steps(r.store), e.reported);
    assert_ok(td_session_run(r.session, &source, 5, NULL, NULL)); /* exactly as many as asked */
    assert_int_equal(td_store_steps(r.store), e.reported + 5);
    assert_int_equal(e.handed, e.returned);
    close_run(&r);
}

/* The third batch lacks its fields: by then the second step may be in flight. */
static td_status *next_good_good_bad(void *self, td_batch *out_batch, bool *out_end)
{
    td_status *status = next(self, out_batch, out_end);
    if (((endless *)self)->handed == 3)
        out_batch->n_fields = 0;
    return status;
}

static void test_a_batch_that_is_refused_lets_the_steps_in_flight_end(void **state)
{
    (void)state;
    run r = {0};
    open_run(&r, true);
    endless e = {.r = &r, .session = r.session};
    td_source source = {&e, next_good_good_bad, release};
    expect_error(td_session_run(r.session, &source, 0, stop_later, &e), "the batch has no field");
    assert_int_equal(e.reported, 2);
    assert_int_equal(td_store_steps(r.store), 2);
    assert_int_equal(e.handed, e.returned);
    assert_ok(td_session_run(r.session, &source, 4, stop_later, &e)); /* the step that was refused never was */
    assert_int_equal(td_store_steps(r.store), 6);
    assert_int_equal(e.reported, 6);
    assert_int_equal(e.handed, e.returned);
    close_run(&r);
}

/* The same with an error while running: the id is wrong in the third batch, in memory of its own. */
static td_status *next_with_a_bad_id(void *self, td_batch *out_batch, bool *out_end)
{
    static int64_t bad[64] = {ROWS};
    static td_field fields[8];
    td_status *status = next(self, out_batch, out_end);
    if (((endless *)self)->handed != 3)
        return status;
    assert_true(out_batch->n_fields <= 8);
    for (int32_t i = 0; i < out_batch->n_fields; i++) {
        fields[i] = out_batch->fields[i];
        if (strcmp(fields[i].name, "ids") == 0)
            fields[i].tensor.data = bad;
    }
    out_batch->fields = fields;
    return status;
}

static void test_a_step_that_fails_with_others_in_flight_leaves_the_session_usable(void **state)
{
    (void)state;
    run r = {0};
    open_run(&r, true);
    endless e = {.r = &r, .session = r.session};
    td_source source = {&e, next_with_a_bad_id, release};
    expect_error(td_session_run(r.session, &source, 0, stop_later, &e), "table");
    assert_int_equal(e.reported, 2);
    assert_int_equal(td_store_steps(r.store), 2);
    assert_int_equal(e.handed, e.returned);
    assert_ok(td_session_run(r.session, &source, 4, stop_later, &e));
    assert_int_equal(td_store_steps(r.store), 6);
    assert_int_equal(e.handed, e.returned);
    close_run(&r);
}

static void test_evaluation_uses_the_store_without_dropout_or_change(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        run r = {0};
        td_plan *plan = NULL;
        td_session *session = NULL;
        td_step_report first, second;
        uint64_t before = 0, after = 0;
        float logits[BATCH];
        open_run(&r, cut);
        assert_ok(td_session_step(r.session, &r.batch, &first));
        assert_ok(td_store_checksum(r.store, &before));
        assert_ok(td_plan_evaluate(r.graph, &r.logit, 1, &r.options, r.store, &plan));
        assert_ok(td_session_create(plan, r.store, &session));
        r.batch.n_fields = 1; /* no label is needed */
        assert_ok(td_session_step(session, &r.batch, &first));
        assert_int_equal(first.n_outputs, 1);
        memcpy(logits, first.outputs[0].data, sizeof logits);
        assert_ok(td_session_step(session, &r.batch, &second));
        assert_memory_equal(logits, second.outputs[0].data, sizeof logits);
        assert_true(logits[0] != logits[1]);
        double zero = 0;
        assert_ok(td_session_set_scalar(session, "factor", &zero, 1));
        assert_ok(td_session_step(session, &r.batch, &second));
        assert_true(((const float *)second.outputs[0].data)[0] == ((const float *)second.outputs[0].data)[1]);
        expect_error(td_session_set_scalar(session, "facto", &zero, 1), "facto");
        assert_ok(td_store_checksum(r.store, &after));
        assert_true(before == after);
        assert_int_equal(td_store_updates(r.store), 1);
        td_session_destroy(session);
        td_plan_release(plan);
        close_run(&r);
    }
}

static void test_an_evaluation_plan_knows_what_the_store_holds(void **state)
{
    (void)state;
    run r = {0};
    td_plan *plan = NULL;
    open_run(&r, true);
    td_train_options *options = &r.options;
    assert_ok(td_plan_evaluate(r.graph, &r.logit, 1, options, r.store, &plan));
    for (int32_t i = 0; i < td_plan_summarize(plan).devices; i++) {
        td_plan_device_summary train = td_plan_device(r.plan, i), evaluate = td_plan_device(plan, i);
        uint64_t store = train.peak_bytes - train.activation_bytes;
        assert_int_equal(evaluate.peak_bytes - evaluate.activation_bytes, store);
    }
    td_plan_release(plan);
    close_run(&r);
}

/* On one device and cut over two, where times of an asynchronous device are complete; and bits do not depend on it. */
static void check_op_times(bool cut)
{
    enum { MOST = 64, STEPS = 4 };
    run r = {0}, plain = {0};
    td_step_report report, expected;
    td_op_time times[MOST];
    open_run(&r, cut);
    open_run(&plain, cut);
    assert_ok(td_session_step(r.session, &r.batch, &report));
    assert_ok(td_session_step(plain.session, &plain.batch, &expected));
    int32_t n = td_session_op_times(r.session, MOST, times);
    assert_true(n > 4 && n < MOST);
    for (int32_t i = 0; i < n; i++)
        assert_true(times[i].runs == 0 && times[i].seconds == 0);
    td_session_time_ops(r.session, true);
    for (int i = 0; i < STEPS; i++) {
        assert_ok(td_session_step(r.session, &r.batch, &report));
        assert_ok(td_session_step(plain.session, &plain.batch, &expected));
        assert_true(report.loss == expected.loss);
    }
    td_session_time_ops(r.session, false);
    assert_ok(td_session_step(r.session, &r.batch, &report));
    assert_int_equal(td_session_op_times(r.session, MOST, times), n);
    bool update = false;
    double accelerator_s = 0;
    for (int32_t i = 0; i < n; i++) {
        bool on_accelerator = !strcmp(times[i].device, "accel");
        assert_int_equal(times[i].runs, STEPS);
        assert_true(on_accelerator ? times[i].seconds >= 0 : times[i].seconds > 0);
        accelerator_s += on_accelerator ? times[i].seconds : 0;
        assert_true(cut || !on_accelerator);
        if (!strcmp(times[i].op, "embedding_update")) {
            update = true;
            assert_false(on_accelerator);
        }
    }
    assert_true(update && cut == (accelerator_s > 0));
    close_run(&r);
    close_run(&plain);
}

static void test_ops_are_timed_while_that_is_asked_for(void **state)
{
    (void)state;
    check_op_times(false);
    check_op_times(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_that_do_not_fit_the_plan_are_refused),
        cmocka_unit_test(test_an_id_outside_its_table_changes_nothing),
        cmocka_unit_test(test_stop_ends_a_run_and_every_batch_goes_back),
        cmocka_unit_test(test_a_batch_that_is_refused_lets_the_steps_in_flight_end),
        cmocka_unit_test(test_a_step_that_fails_with_others_in_flight_leaves_the_session_usable),
        cmocka_unit_test(test_evaluation_uses_the_store_without_dropout_or_change),
        cmocka_unit_test(test_ops_are_timed_while_that_is_asked_for),
        cmocka_unit_test(test_an_evaluation_plan_knows_what_the_store_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
