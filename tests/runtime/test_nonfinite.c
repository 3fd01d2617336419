/* Steps whose loss is no finite number: parameters and state keep what they had, the op that made the first such number is named,
 * and with TD_NAN_SKIP a training goes on as if the batch had not been there. On one device and cut, steps overlapping. */
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

enum { BATCH = 6, ROWS = 10, DIM = 4, MOST = 12 };

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
    td_plan *plan;
    td_store *store;
    td_session *session;
} run;

static void open_windows(run *r, bool cut, td_on_nan on_nan, int32_t accumulate)
{
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value ids = td_input(r->graph, "ids", TD_I64, TD_SHAPE(batch)),
             x = td_input(r->graph, "x", TD_F32, TD_SHAPE(batch, DIM)),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value table = td_parameter(r->graph, "table.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1));
    td_value vectors = td_embedding(table, ids, (td_embedding_options){0});
    td_value squares = td_name(td_mul(x, x), "bottom/squares");
    td_value hidden = td_relu(td_linear(td_concat(2, (td_value[]){vectors, squares}, 1), 8, "bottom.0"));
    hidden = td_batch_norm(hidden, 1e-5, 0.25, "top.norm"); /* its running statistics are state like any other */
    td_value loss = td_bce_with_logits(td_linear(td_dropout(hidden, 0.25), 1, "top.0"), y);
    r->options = td_train_defaults();
    r->options.on_nan = on_nan;
    r->options.early_lookup = accumulate > 1 ? TD_AUTO : TD_ON;
    r->options.accumulate = accumulate;
    r->options.most_skipped = 3;
    if (cut) {
        td_add_device(&r->options, "accel", "emulated:memory=16MiB,cores=1");
        td_place(&r->options, "table*", "cpu");
    }
    td_group(&r->options, "table*", td_lazy_adam(0.01));
    td_group(&r->options, "*", td_adam(0.01));
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
}

static void open_run(run *r, bool cut, td_on_nan on_nan)
{
    open_windows(r, cut, on_nan, 1);
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

/* ---- batches: one per letter, 'a' to 'f' good and each another, '!' with a value whose square is infinite, '?' with a NaN ------- */

typedef struct batches {
    const char *letters;
    int64_t at, returned, reported, skipped;
    float x[MOST][BATCH * DIM], y[MOST][BATCH], losses[MOST];
    int64_t ids[MOST][BATCH];
    td_field fields[MOST][3];
} batches;

static td_batch batch_of(batches *b, int64_t i)
{
    char letter = b->letters[i];
    for (int k = 0; k < BATCH; k++) {
        b->ids[i][k] = (k * letter + letter / 3) % ROWS;
        b->y[i][k] = (float)((k + letter) % 2);
    }
    for (int k = 0; k < BATCH * DIM; k++)
        b->x[i][k] = 0.1f * (float)((k * letter) % 13) - 0.5f;
    if (letter == '!')
        b->x[i][2 * DIM + 1] = 3e38f;
    if (letter == '?')
        b->x[i][3 * DIM] = NAN;
    td_field *f = b->fields[i];
    f[0] = (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {BATCH}, .data = b->ids[i]}};
    f[1] = (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, DIM}, .data = b->x[i]}};
    f[2] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = b->y[i]}};
    return (td_batch){.samples = BATCH, .index = i, .n_fields = 3, .fields = f};
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    batches *b = self;
    *out_end = !b->letters[b->at];
    if (!*out_end)
        *out_batch = batch_of(b, b->at++);
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)batch;
    ((batches *)self)->returned++;
}

static bool on_step(void *context, const td_step_report *report)
{
    batches *b = context;
    assert_int_equal(report->batch->index, b->reported); /* in the order of the source */
    assert_true(report->skipped == !isfinite(report->loss));
    b->losses[b->reported++] = report->loss;
    b->skipped += report->skipped;
    return true;
}

static td_status *train(run *r, batches *b, const char *letters)
{
    *b = (batches){.letters = letters};
    td_source source = {b, next, release};
    td_status *status = td_session_run(r->session, &source, 0, on_step, b);
    assert_int_equal(b->at, b->returned);
    return status;
}

static uint64_t checksum_of(const run *r)
{
    uint64_t checksum = 0;
    assert_ok(td_store_checksum(r->store, &checksum));
    return checksum;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------------------- */

static void check_stop(bool cut, const char *letters, const char *words)
{
    run r = {0}, good = {0};
    batches b;
    open_run(&r, cut, TD_NAN_STOP);
    open_run(&good, cut, TD_NAN_STOP);
    assert_ok(train(&good, &b, "abc"));
    td_status *status = train(&r, &b, letters);
    assert_int_equal(td_status_code(status), TD_NOT_FINITE);
    expect_error(status, words);
    assert_int_equal(b.reported, 3);
    assert_int_equal(td_store_steps(r.store), 3);
    assert_true(checksum_of(&r) == checksum_of(&good)); /* the parameters of the step before */
    assert_true(td_session_is_usable(r.session));
    assert_ok(train(&r, &b, "d")); /* and it can go on from there */
    assert_ok(train(&good, &b, "d"));
    assert_true(checksum_of(&r) == checksum_of(&good));
    close_run(&r);
    close_run(&good);
}

static void test_stop_names_op_and_step_and_keeps_the_parameters(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        check_stop(cut, "abc!d", "step 4: the loss is ");
        check_stop(cut, "abc!d",
                   cut ? "mul \"bottom/squares\" on accel is the first op to make such a number: inf in "
                         "\"bottom/squares\" (row 2, element 1)"
                       : "mul \"bottom/squares\" on cpu is the first op to make such a number: inf in "
                         "\"bottom/squares\" (row 2, element 1)");
        check_stop(cut, "abc?", "input \"x\" of its batch has nan (row 3, element 0)");
    }
}

/* With `letters` less its bad ones it ends the same, on one device and cut. */
static void check_skip(bool cut, const char *letters, const char *good_ones)
{
    run r = {0}, good = {0};
    batches b, g;
    open_run(&r, cut, TD_NAN_SKIP);
    open_run(&good, false, TD_NAN_STOP);
    assert_ok(train(&r, &b, letters));
    assert_ok(train(&good, &g, good_ones));
    assert_int_equal(b.reported, strlen(letters));
    assert_int_equal(b.skipped, strlen(letters) - strlen(good_ones));
    assert_int_equal(td_store_steps(r.store), strlen(letters));
    assert_int_equal(td_store_updates(r.store), strlen(good_ones));
    assert_int_equal(td_session_read_counters(r.session).skipped_steps, b.skipped);
    assert_true(checksum_of(&r) == checksum_of(&good));
    for (int64_t i = 0, k = 0; letters[i]; i++)
        if (isfinite(b.losses[i]))
            assert_memory_equal(&b.losses[i], &g.losses[k++], sizeof(float));
    assert_true(td_store_last_loss(r.store) == (double)g.losses[g.reported - 1]);
    close_run(&r);
    close_run(&good);
}

static void test_skipped_steps_are_as_if_they_had_not_been(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        check_skip(cut, "abc!def", "abcdef");
        check_skip(cut, "!ab?!cd!", "abcd");
        check_skip(cut, "a!b!c!d!", "abcd");
    }
}

static void test_a_window_with_one_bad_batch_leaves_no_trace(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        static const char *const letters[] = {"abc!efbd", "ab!cefbd", "ab?!efbd"};
        for (int i = 0; i < 3; i++) {
            run r = {0}, good = {0};
            batches b = {.letters = letters[i]}, g = {.letters = "abefbd"};
            open_windows(&r, cut, TD_NAN_SKIP, 2);
            open_windows(&good, false, TD_NAN_STOP, 2);
            td_source source = {&b, next, release}, good_source = {&g, next, release};
            assert_ok(td_session_run(r.session, &source, 0, NULL, NULL));
            assert_ok(td_session_run(good.session, &good_source, 0, NULL, NULL));
            assert_int_equal(td_store_updates(r.store), 3);
            assert_true(checksum_of(&r) == checksum_of(&good));
            close_run(&r);
            close_run(&good);
        }
    }
}

static void test_a_run_that_only_skips_ends(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        run r = {0};
        batches b;
        open_run(&r, cut, TD_NAN_SKIP);
        assert_ok(train(&r, &b, "a!!b!!c"));
        expect_error(train(&r, &b, "d!!!e"), "with it 3 steps in a row would be skipped, which is all that "
                                             "train.most_skipped allows");
        assert_int_equal(td_store_updates(r.store), 4);
        assert_true(td_session_is_usable(r.session));
        close_run(&r);
    }
}

static int64_t warnings;
static void count_warning(void *context, td_log_level level, const char *message)
{
    (void)context;
    warnings += level == TD_LOG_WARNING && strstr(message, "its update is skipped") && strstr(message, "step 2: ");
}

static void test_a_skip_is_never_silent(void **state)
{
    (void)state;
    run r = {0};
    batches b = {.letters = "a!"};
    td_step_report report;
    open_run(&r, false, TD_NAN_SKIP);
    td_log_set(count_warning, NULL, TD_LOG_WARNING);
    td_batch first = batch_of(&b, 0), second = batch_of(&b, 1);
    assert_ok(td_session_step(r.session, &first, &report));
    assert_false(report.skipped);
    assert_ok(td_session_step(r.session, &second, &report));
    assert_true(report.skipped);
    assert_int_equal(report.step, 2);
    td_log_set(NULL, NULL, TD_LOG_NULL);
    assert_int_equal(warnings, 1);
    close_run(&r);
}

/* Skipping cannot help where the parameters are spoilt already. */
static void test_parameters_that_are_no_numbers_end_the_run(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        run r = {0};
        batches b;
        const float nan = NAN;
        open_run(&r, cut, TD_NAN_SKIP);
        assert_ok(td_store_write(r.store, td_store_find(r.store, "bottom.0.weight"), 5, 1, &nan));
        expect_error(train(&r, &b, "ab"),
                     "parameter \"bottom.0.weight\" has nan (row 0, element 5) since an earlier update");
        assert_false(td_session_is_usable(r.session));
        expect_error(train(&r, &b, "ab"), "load a checkpoint into a new store");
        close_run(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_names_op_and_step_and_keeps_the_parameters),
        cmocka_unit_test(test_skipped_steps_are_as_if_they_had_not_been),
        cmocka_unit_test(test_a_skip_is_never_silent),
        cmocka_unit_test(test_a_window_with_one_bad_batch_leaves_no_trace),
        cmocka_unit_test(test_a_run_that_only_skips_ends),
        cmocka_unit_test(test_parameters_that_are_no_numbers_end_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
