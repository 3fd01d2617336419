/* Windows of micro-batches: how sums are folded, to the bit; when windows end; what is counted and reported; what becomes of a window
 * with a loss that is no number; windows from batches in hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

/* ---- a model whose gradient of a batch is what the test says ------------------------------------------------------------------- */

/* One number w, 0 at first, a parameter of its own or row 1 of a table; the loss is the mean of (w - y)^2. While w is 0, a sample's
 * gradient is -2y exactly, so y = -g/2 makes it g. */
typedef enum place_of_number { DENSE, ROW_OF_TABLE, ROW_ON_HOST } place_of_number;

enum { BATCH = 2, MOST = 12 };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_value loss;
    td_plan *plan;
    td_store *store;
    td_session *session;
    bool rows;
    /* batches: gradients of their samples, and their epochs */
    int64_t n, at, returned, epochs[MOST], samples[MOST];
    float x[MOST][BATCH], y[MOST][BATCH];
    int64_t ids[MOST][BATCH];
    td_field fields[MOST][2];
    /* reports */
    int64_t steps, micro_batches[MOST], step_samples[MOST], skipped, stop_after;
    float losses[MOST];
} run;

static void build(run *r, place_of_number where)
{
    *r = (run){.options = td_train_defaults(), .rows = where != DENSE};
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1)), w;
    if (where == DENSE)
        w = td_matmul(td_input(r->graph, "x", TD_F32, TD_SHAPE(batch, 1)),
                      td_parameter(r->graph, "w", TD_F32, TD_SHAPE(1, 1), td_init_constant(0)), false, false);
    else
        w = td_embedding(td_parameter(r->graph, "w", TD_F32, TD_SHAPE(3, 1), td_init_constant(0)),
                         td_input(r->graph, "x", TD_I64, TD_SHAPE(batch)), (td_embedding_options){0});
    r->loss = td_mse(w, y);
    td_group(&r->options, "*", td_sgd(1.0));
    if (where == ROW_ON_HOST) {
        td_add_device(&r->options, "accel", "emulated:memory=16MiB,cores=1");
        td_place(&r->options, "w*", "cpu");
    }
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

/* A batch of `samples` equal samples: their mean loss has the gradient `gradient`. */
static void add_batch(run *r, int64_t samples, float gradient, int64_t epoch)
{
    for (int64_t i = 0; i < samples; i++) {
        r->x[r->n][i] = 1;
        r->ids[r->n][i] = 1;
        r->y[r->n][i] = -gradient / 2;
    }
    r->samples[r->n] = samples;
    r->epochs[r->n++] = epoch;
}

static td_batch batch_of(run *r, int64_t i)
{
    td_field *f = r->fields[i];
    f[0] = (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {r->samples[i], 1}, .data = r->x[i]}};
    if (r->rows)
        f[0].tensor =
            (td_tensor){.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {r->samples[i]}, .data = r->ids[i]};
    f[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {r->samples[i], 1}, .data = r->y[i]}};
    return (td_batch){.samples = r->samples[i], .index = i, .epoch = r->epochs[i], .n_fields = 2, .fields = f};
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    run *r = self;
    *out_end = r->at == r->n;
    if (!*out_end)
        *out_batch = batch_of(r, r->at++);
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)batch;
    ((run *)self)->returned++;
}

static bool on_step(void *context, const td_step_report *report)
{
    run *r = context;
    r->micro_batches[r->steps] = report->micro_batches;
    r->step_samples[r->steps] = report->samples;
    r->losses[r->steps++] = report->loss;
    r->skipped += report->skipped;
    return !r->stop_after || r->steps < r->stop_after;
}

static td_status *train(run *r, int64_t steps)
{
    td_source source = {.self = r, .next = next, .release = release};
    td_status *status = td_session_run(r->session, &source, steps, on_step, r);
    assert_int_equal(r->at, r->returned);
    return status;
}

static float number(const run *r)
{
    float w = NAN;
    assert_ok(td_store_read(r->store, td_store_find(r->store, "w"), r->rows ? 1 : 0, 1, &w));
    return w;
}

static const place_of_number everywhere[] = {DENSE, ROW_OF_TABLE, ROW_ON_HOST};
enum { PLACES = sizeof everywhere / sizeof *everywhere };

/* ---- sums --------------------------------------------------------------------------------------------------------------------- */

/* Four batches of the gradients 1e8, 1, -1e8 and 1: every order of folding has another sum in f32. */
static float folded(place_of_number where, int32_t accumulate, int32_t replicas, td_reduction reduction)
{
    run r;
    build(&r, where);
    r.options.accumulate = accumulate;
    r.options.replicas = replicas;
    r.options.reduction = reduction;
    start(&r);
    static const float gradients[] = {1e8f, 1, -1e8f, 1};
    for (int32_t i = 0; i < 4; i++)
        add_batch(&r, BATCH, gradients[i], 0);
    assert_ok(train(&r, 0));
    assert_int_equal(r.steps, 1);
    assert_int_equal(r.micro_batches[0], 4);
    assert_int_equal(r.step_samples[0], 4 * BATCH);
    float w = number(&r);
    stop(&r);
    return w;
}

static void test_micro_batches_are_folded_per_replica_and_replicas_in_order(void **state)
{
    (void)state;
    for (int32_t i = 0; i < PLACES; i++) {
        assert_true(folded(everywhere[i], 4, 1, TD_REDUCE_MEAN) == -0.25f); /* ((1e8 + 1) - 1e8) + 1 is 1 */
        assert_true(folded(everywhere[i], 1, 4, TD_REDUCE_MEAN) == -0.25f);
        assert_true(folded(everywhere[i], 2, 2, TD_REDUCE_MEAN) == 0); /* (1e8 + 1) + (-1e8 + 1) is 0 */
        assert_true(folded(everywhere[i], 4, 1, TD_REDUCE_SUM) == -1);
    }
}

static void test_a_short_window_is_the_mean_of_its_samples(void **state)
{
    (void)state;
    for (int32_t i = 0; i < PLACES; i++)
        for (int32_t reduction = 0; reduction < 2; reduction++) {
            run r;
            build(&r, everywhere[i]);
            r.options.accumulate = 4;
            r.options.reduction = (td_reduction)reduction;
            start(&r);
            add_batch(&r, 2, 3, 0);
            add_batch(&r, 1, 6, 0);
            assert_ok(train(&r, 0));
            assert_int_equal(r.step_samples[0], 3);
            assert_true(number(&r) == (reduction ? -(3 + 6 / 2.0f) : -(2 * 3 + 6) / 3.0f));
            assert_true(fabs((double)r.losses[0] - (2 * 2.25 + 9) / 3) < 1e-6); /* mean of (g / 2)^2 */
            stop(&r);
        }
}

/* ---- when windows end ------------------------------------------------------------------------------------------------------------ */

static void expect_windows(const run *r, int64_t n, const int64_t *sizes)
{
    assert_int_equal(r->steps, n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(r->micro_batches[i], sizes[i]);
    assert_int_equal(td_store_steps(r->store), n);
    assert_int_equal(td_store_updates(r->store), n - r->skipped);
}

static void test_windows_follow_the_schedule_and_end_with_the_epoch(void **state)
{
    (void)state;
    run r;
    build(&r, ROW_ON_HOST);
    td_accumulate_from(&r.options, 3, 3);
    td_accumulate_from(&r.options, 4, 2);
    start(&r);
    for (int32_t i = 0; i < 10; i++)
        add_batch(&r, BATCH, 1, i / 9);
    assert_int_equal(td_plan_window(r.plan, 2), 1);
    assert_int_equal(td_plan_window(r.plan, 3), 3);
    assert_int_equal(td_plan_window(r.plan, 1000), 2);
    assert_ok(train(&r, 0));
    expect_windows(&r, 6, (int64_t[]){1, 1, 3, 2, 2, 1}); /* the ninth batch ends the first epoch */
    stop(&r);
}

static void test_a_run_pulls_whole_windows_and_no_more(void **state)
{
    (void)state;
    run r;
    build(&r, ROW_ON_HOST);
    r.options.accumulate = 3;
    start(&r);
    for (int32_t i = 0; i < 10; i++)
        add_batch(&r, BATCH, 1, 0);
    assert_ok(train(&r, 2));
    expect_windows(&r, 2, (int64_t[]){3, 3});
    assert_int_equal(r.at, 6);
    r.stop_after = 3; /* a window that has begun by then still ends */
    assert_ok(train(&r, 0));
    assert_true(r.steps == 3 || r.steps == 4);
    assert_int_equal(r.at, r.steps == 3 ? 9 : 10);
    stop(&r);
}

/* ---- losses that are no numbers ------------------------------------------------------------------------------------------------- */

static void skip_window(place_of_number where, int32_t bad)
{
    run r, without;
    build(&r, where);
    build(&without, where);
    r.options.on_nan = without.options.on_nan = TD_NAN_SKIP;
    r.options.accumulate = without.options.accumulate = 3;
    start(&r);
    start(&without);
    for (int32_t i = 0; i < 9; i++) {
        bool second = i >= 3 && i < 6;
        add_batch(&r, BATCH, i == bad ? NAN : (float)i, 0);
        if (!second)
            add_batch(&without, BATCH, (float)i, 0);
    }
    assert_ok(train(&r, 0));
    assert_ok(train(&without, 0));
    expect_windows(&r, 3, (int64_t[]){3, 3, 3});
    assert_int_equal(r.skipped, 1);
    assert_int_equal(r.step_samples[1], 3 * BATCH);
    assert_int_equal(td_session_read_counters(r.session).skipped_steps, 1);
    assert_true(number(&r) == number(&without) && number(&r) != 0);
    stop(&r);
    stop(&without);
}

static void test_one_loss_that_is_no_number_skips_its_window(void **state)
{
    (void)state;
    td_log_set(NULL, NULL, TD_LOG_NULL);
    for (int32_t i = 0; i < PLACES; i++)
        for (int32_t bad = 3; bad < 6; bad++)
            skip_window(everywhere[i], bad);
}

static void test_one_loss_that_is_no_number_stops_before_its_window_is_applied(void **state)
{
    (void)state;
    for (int32_t bad = 2; bad < 4; bad++) {
        run r;
        build(&r, ROW_ON_HOST);
        r.options.accumulate = 2;
        start(&r);
        for (int32_t i = 0; i < 6; i++)
            add_batch(&r, BATCH, i == bad ? NAN : 1, 0);
        assert_error(train(&r, 0), TD_NOT_FINITE, "step 2: the loss is nan");
        assert_int_equal(td_store_steps(r.store), 1);
        assert_true(number(&r) == -1 && td_session_is_usable(r.session));
        stop(&r);
    }
}

/* ---- windows in hand ---------------------------------------------------------------------------------------------------------------- */

static void test_a_window_of_batches_in_hand_is_one_step(void **state)
{
    (void)state;
    for (int32_t i = 0; i < PLACES; i++) {
        run r;
        td_step_report report;
        build(&r, everywhere[i]);
        r.options.accumulate = 3;
        start(&r);
        for (int32_t k = 0; k < 4; k++)
            add_batch(&r, BATCH, (float)(1 + k), 0);
        td_batch batches[4] = {batch_of(&r, 0), batch_of(&r, 1), batch_of(&r, 2), batch_of(&r, 3)};
        assert_error(td_session_step_window(r.session, batches, 4, &report), TD_INVALID_ARGUMENT,
                     "step 1 takes 1 to 3 micro-batches (replicas x accumulate), not 4");
        assert_ok(td_session_step_window(r.session, batches, 3, &report));
        assert_true(report.step == 1 && report.micro_batches == 3 && report.samples == 3 * BATCH);
        assert_true(report.batch == &batches[2] && number(&r) == -2); /* the mean of 1, 2, 3 */
        assert_ok(td_session_step(r.session, &batches[0], &report));
        assert_true(report.step == 2 && report.micro_batches == 1);
        assert_true(number(&r) == -2 - 2 * (-2 + 0.5f)); /* 2 (w - y) */
        stop(&r);
    }
}

/* ---- plans ------------------------------------------------------------------------------------------------------------------------- */

static void test_a_plan_says_what_windows_take(void **state)
{
    (void)state;
    run r, plain;
    build(&r, ROW_ON_HOST);
    build(&plain, ROW_ON_HOST);
    r.options.accumulate = 4;
    start(&r);
    start(&plain);
    td_plan_summary with = td_plan_summarize(r.plan), without = td_plan_summarize(plain.plan);
    assert_true(with.micro_batches == 4 && without.micro_batches == 1 && without.accumulated_bytes == 0);
    assert_int_equal(with.accumulated_bytes,
                     64 * 4); /* three rows, their numbers, how many, their order: each aligned */
    assert_int_equal(with.to_device_bytes_per_step, 4 * without.to_device_bytes_per_step);
    assert_true(td_plan_device(r.plan, 0).accumulated_bytes == 256);
    stop(&r);
    stop(&plain);
}

static void test_what_cannot_be_accumulated_is_refused(void **state)
{
    (void)state;
    static const struct {
        int32_t accumulate, replicas;
        int64_t from;
        td_switch early;
        td_code code;
        const char *words;
    } cases[] = {
        {0, 1, 0, TD_AUTO, TD_INVALID_ARGUMENT, "accumulate is 0; it must be 1 to"},
        {1, -1, 0, TD_AUTO, TD_INVALID_ARGUMENT, "replicas is -1; it must be 1 to"},
        {1 << 20, 2, 0, TD_AUTO, TD_INVALID_ARGUMENT, "replicas x accumulate is 2097152"},
        {1, 1, 1, TD_AUTO, TD_INVALID_ARGUMENT, "steps must ascend from 2"},
        {2, 1, 0, TD_ON, TD_UNSUPPORTED, "early lookup knows the rows of one batch"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        td_plan *plan = NULL;
        build(&r, ROW_ON_HOST);
        r.options.accumulate = cases[i].accumulate;
        r.options.replicas = cases[i].replicas;
        r.options.early_lookup = cases[i].early;
        if (cases[i].from)
            td_accumulate_from(&r.options, cases[i].from, 2);
        assert_error(td_plan_train(r.graph, r.loss, &r.options, &plan), cases[i].code, cases[i].words);
        stop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches_are_folded_per_replica_and_replicas_in_order),
        cmocka_unit_test(test_a_short_window_is_the_mean_of_its_samples),
        cmocka_unit_test(test_windows_follow_the_schedule_and_end_with_the_epoch),
        cmocka_unit_test(test_a_run_pulls_whole_windows_and_no_more),
        cmocka_unit_test(test_one_loss_that_is_no_number_skips_its_window),
        cmocka_unit_test(test_one_loss_that_is_no_number_stops_before_its_window_is_applied),
        cmocka_unit_test(test_a_window_of_batches_in_hand_is_one_step),
        cmocka_unit_test(test_a_plan_says_what_windows_take),
        cmocka_unit_test(test_what_cannot_be_accumulated_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
