/* The loss scale of fp16 and gradients that are not finite: an overflow leaves the step out whole and says whose gradient it was;
 * the scale halves, waits and doubles as its rules say, whether steps overlap, wherever ops run, and over a checkpoint; at the
 * minimum the run ends. Without a loss scale train.on_nan decides. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "optim/loss_scale.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 6, DIM = 4, MOST = 24 };

typedef struct setting {
    td_precision precision;
    td_loss_scale_options scale;
    td_on_nan on_nan;
    double clip_norm;
    bool cut, serial;
    int32_t accumulate; /* 0: windows of one micro-batch */
} setting;

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} run;

static void open_run(run *r, setting s)
{
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value x = td_input(r->graph, "x", TD_F32, TD_SHAPE(batch, DIM)),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value hidden = td_relu(td_linear(x, 8, "bottom"));
    td_value loss = td_mse(td_linear(hidden, 1, "top"), y);
    r->options = td_train_defaults();
    r->options.precision = s.precision;
    r->options.loss_scale = s.scale.initial > 0 ? s.scale : r->options.loss_scale;
    r->options.on_nan = s.on_nan;
    r->options.clip_norm = s.clip_norm;
    r->options.no_pipeline = s.serial;
    r->options.accumulate = s.accumulate ? s.accumulate : 1;
    if (s.cut) {
        td_add_device(&r->options, "accel", "emulated:memory=16MiB,cores=1");
        td_place(&r->options, "bottom*", "cpu");
    }
    td_group(&r->options, "*", td_adam(0.01));
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

/* ---- batches: '.' good; '*' a target of 1,000, whose gradient is beyond f16 at scales above 128 ---------------------------- */

typedef struct batches {
    const char *letters;
    int64_t at, reported, window;
    float x[MOST][BATCH * DIM], y[MOST][BATCH], losses[MOST], norms[MOST];
    double scales[MOST];
    char skipped[MOST + 1], overflowed[MOST][32];
    td_field fields[MOST][2];
} batches;

static td_batch batch_of(batches *b, int64_t i)
{
    for (int k = 0; k < BATCH; k++)
        b->y[i][k] = b->letters[i] == '*' ? 1000 : 0.25f * (float)((k + i) % 3);
    for (int k = 0; k < BATCH * DIM; k++)
        b->x[i][k] = 0.1f * (float)((k * (7 + i)) % 13) - 0.5f;
    td_field *f = b->fields[i];
    f[0] = (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, DIM}, .data = b->x[i]}};
    f[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = b->y[i]}};
    return (td_batch){.samples = BATCH, .index = i, .n_fields = 2, .fields = f};
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
    (void)self;
    (void)batch;
}

static bool on_step(void *context, const td_step_report *report)
{
    batches *b = context;
    const int64_t i = b->reported++;
    assert_int_equal(report->batch->index, (i + 1) * b->window - 1); /* the last of its window */
    b->losses[i] = report->loss;
    b->norms[i] = report->gradient_norm;
    b->scales[i] = report->loss_scale;
    b->skipped[i] = report->skipped ? '-' : '+';
    (void)snprintf(b->overflowed[i], sizeof b->overflowed[i], "%s", report->overflowed ? report->overflowed : "");
    return true;
}

/* From batch `b->at` on. */
static td_status *go_on(run *r, batches *b)
{
    td_source source = {b, next, release};
    return td_session_run(r->session, &source, 0, on_step, b);
}

static td_status *train(run *r, batches *b, const char *letters)
{
    *b = (batches){.letters = letters, .window = r->options.accumulate};
    return go_on(r, b);
}

static uint64_t checksum_of(const run *r)
{
    uint64_t checksum = 0;
    assert_ok(td_store_checksum(r->store, &checksum));
    return checksum;
}

static setting fp16(double initial, int64_t interval, int64_t hysteresis, double minimum)
{
    return (setting){.precision = TD_MIXED_FP16, .scale = {initial, interval, hysteresis, minimum}};
}

/* ---- the rules alone -------------------------------------------------------------------------------------------------------- */

static void test_the_scale_halves_after_patience_and_doubles_after_an_interval(void **state)
{
    (void)state;
    const td_loss_scale_options o = {.initial = 8, .growth_interval = 3, .hysteresis = 2, .minimum = 4};
    td_loss_scale s;
    assert_ok(td_loss_scale_check(&o));
    td_loss_scale_start(&s, &o);
    assert_true(td_loss_scale_overflow(&s, &o) && s.scale == 8); /* the first is borne */
    td_loss_scale_advance(&s, &o);
    assert_true(td_loss_scale_overflow(&s, &o) && s.scale == 4); /* one update gives no patience back */
    assert_false(td_loss_scale_overflow(&s, &o));                /* 2 is below the minimum */
    assert_int_equal(s.overflows, 2);
    for (int i = 0; i < 2; i++)
        td_loss_scale_advance(&s, &o);
    assert_true(s.scale == 4);
    td_loss_scale_advance(&s, &o);
    assert_true(s.scale == 8);
    assert_true(td_loss_scale_overflow(&s, &o) && s.scale == 8); /* patience came back with it */
}

static void test_what_is_no_power_of_two_is_refused(void **state)
{
    (void)state;
    assert_error(td_loss_scale_check(&(td_loss_scale_options){1000, 1, 1, 1}), TD_INVALID_ARGUMENT,
                 "loss_scale.initial is 1000; it must be a power of two");
    assert_error(td_loss_scale_check(&(td_loss_scale_options){1, 1, 1, 2}), TD_INVALID_ARGUMENT,
                 "loss_scale.minimum is 2; it must not be above loss_scale.initial, 1");
    assert_error(td_loss_scale_check(&(td_loss_scale_options){1, 0, 1, 1}), TD_INVALID_ARGUMENT,
                 "growth_interval is 0");
    assert_error(td_loss_scale_check(&(td_loss_scale_options){1, 1, 0, 1}), TD_INVALID_ARGUMENT, "hysteresis is 0");
}

/* ---- in a training ------------------------------------------------------------------------------------------------------------ */

static void check_scales(const batches *b, const char *skipped, const double *scales)
{
    assert_string_equal(b->skipped, skipped);
    for (int64_t i = 0; skipped[i]; i++)
        if (b->scales[i] != scales[i])
            fail_msg("step %d had scale %g, not %g", (int)i + 1, b->scales[i], scales[i]);
}

static void test_overflows_skip_steps_and_move_the_scale_however_steps_run(void **state)
{
    (void)state;
    uint64_t checksum = 0;
    for (int way = 0; way < 4; way++) {
        run r = {0};
        batches b;
        setting s = fp16(1024, 3, 2, 1);
        s.cut = way & 1;
        s.serial = way & 2;
        open_run(&r, s);
        /* borne, two good ones, halved, halved, halved, fits; then three updates in a row: doubled */
        assert_ok(train(&r, &b, ".*..***....*"));
        check_scales(&b, "+-++---++++-",
                     (const double[]){1024, 1024, 1024, 1024, 1024, 512, 256, 128, 128, 128, 256, 256});
        assert_string_equal(b.overflowed[1], "top.bias"); /* the nearest to the loss, of all that one number spoilt */
        assert_int_equal(td_store_steps(r.store), 12);
        assert_int_equal(td_store_updates(r.store), 7);
        assert_int_equal(td_store_overflows(r.store), 5);
        assert_int_equal(td_session_read_counters(r.session).skipped_steps, 5);
        assert_true(td_store_loss_scale(r.store) == 256);
        assert_true(!checksum || checksum == checksum_of(&r));
        checksum = checksum_of(&r);
        close_run(&r);
    }
}

/* An overflow in any micro-batch leaves out the whole window, also the batches after it; the scale moves once for it. */
static void test_an_overflow_in_a_micro_batch_skips_its_window(void **state)
{
    (void)state;
    uint64_t checksum = 0;
    for (int way = 0; way < 8; way++) {
        run r = {0};
        batches b;
        setting s = fp16(1024, 2, 2, 1);
        s.accumulate = 3;
        s.cut = way & 1;
        s.serial = way & 2;
        s.clip_norm = way & 4 ? 1e6 : 0; /* sums of squares say it then; nothing is clipped */
        open_run(&r, s);
        assert_ok(train(&r, &b, "...*....*.*....**...."));
        check_scales(&b, "+---+-+", (const double[]){1024, 1024, 1024, 512, 256, 256, 128});
        assert_string_equal(b.overflowed[1], "top.bias");
        assert_int_equal(td_store_updates(r.store), 3);
        assert_int_equal(td_store_overflows(r.store), 4);
        assert_true(!checksum || checksum == checksum_of(&r));
        checksum = checksum_of(&r);
        close_run(&r);
    }
}

static void test_a_skipped_step_changes_neither_parameters_nor_state(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        run r = {0}, good = {0};
        batches b;
        setting s = fp16(1024, 100, 100, 1);
        s.cut = cut;
        open_run(&r, s);
        open_run(&good, s);
        assert_ok(train(&r, &b, ".."));
        assert_ok(train(&good, &b, ".."));
        assert_ok(train(&r, &b, "**"));
        assert_string_equal(b.skipped, "--");
        for (int32_t i = 0; i < td_store_count(r.store); i++) {
            td_tensor tensor;
            bool is_parameter;
            const char *device;
            float have[64], want[64];
            assert_ok(td_store_describe(r.store, i, &tensor, &is_parameter, &device));
            assert_int_equal(tensor.dtype, TD_F32); /* masters and moments */
            int64_t n = tensor.rank == 2 ? tensor.dims[0] * tensor.dims[1] : tensor.dims[0];
            assert_ok(td_store_read(r.store, i, 0, n, have));
            assert_ok(td_store_read(good.store, i, 0, n, want));
            assert_memory_equal(have, want, (size_t)n * sizeof(float));
        }
        close_run(&r);
        close_run(&good);
    }
}

static void test_an_overflow_at_the_minimum_ends_the_run_and_spoils_nothing(void **state)
{
    (void)state;
    run r = {0};
    batches b;
    open_run(&r, fp16(1024, 100, 2, 512));
    assert_ok(train(&r, &b, "."));
    assert_error(
        train(&r, &b, ".***"), TD_NOT_FINITE,
        "step 5: the gradient of \"top.bias\" overflows at loss scale 512, which cannot be halved: the minimum is 512");
    assert_string_equal(b.skipped, "+--");
    assert_true(td_session_is_usable(r.session));
    const uint64_t before = checksum_of(&r);
    assert_ok(train(&r, &b, "."));
    assert_true(before != checksum_of(&r));
    close_run(&r);
}

static void test_a_checkpoint_keeps_the_scale_and_its_patience(void **state)
{
    (void)state;
    char folder[] = "/tmp/tandem-loss-scale-XXXXXX", path[64], command[128];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/c", folder);
    const setting s = fp16(1024, 3, 2, 1);
    run whole = {0}, first = {0}, second = {0};
    batches a, b;
    td_data_position position;
    open_run(&whole, s);
    open_run(&first, s);
    open_run(&second, s);
    assert_ok(train(&whole, &a, ".*...*..."));
    b = (batches){.letters = ".*...*...", .window = 1};
    td_source source = {&b, next, release};
    assert_ok(td_session_run(first.session, &source, 4, on_step, &b));
    assert_ok(td_store_save(first.store, path, (td_data_position){0, 4}));
    assert_ok(td_store_load(second.store, path, &position));
    assert_int_equal(td_store_overflows(second.store), 1);
    b.at = b.reported;
    assert_ok(go_on(&second, &b));
    assert_memory_equal(a.scales, b.scales, sizeof a.scales);
    assert_memory_equal(a.losses, b.losses, sizeof a.losses);
    assert_true(checksum_of(&whole) == checksum_of(&second));
    close_run(&whole);
    close_run(&first);
    close_run(&second);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* The scale is no part of the norm that clipping sees, and its sums find what overflowed. */
static void test_clipping_sees_unscaled_gradients(void **state)
{
    (void)state;
    run narrow = {0}, wide = {0};
    batches a, b;
    setting s = fp16(1024, 100, 100, 1);
    s.clip_norm = 0.5;
    open_run(&narrow, s);
    open_run(&wide, (setting){.clip_norm = 0.5});
    assert_ok(train(&narrow, &a, "..*."));
    assert_ok(train(&wide, &b, "..."));
    assert_string_equal(a.skipped, "++-+");
    assert_string_equal(a.overflowed[2], "top.bias");
    for (int i = 0; i < 2; i++)
        assert_true(fabsf(a.norms[i] - b.norms[i]) < 0.01f * b.norms[i]);
    assert_true(b.scales[0] == 0);
    close_run(&narrow);
    close_run(&wide);
}

/* ---- without a loss scale ------------------------------------------------------------------------------------------------------- */

/* bottom gives ones whatever x is, and top's large weights cancel; but they go back to bottom, and x is 1e30: a finite loss, an
 * infinite gradient. */
static void spoil_gradients(run *r, batches *b, td_batch *out)
{
    const float zeros[8 * DIM] = {0}, ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float large[8];
    for (int k = 0; k < 8; k++)
        large[k] = k % 2 ? 1e10f : -1e10f;
    assert_ok(td_store_write(r->store, td_store_find(r->store, "bottom.weight"), 0, 8 * DIM, zeros));
    assert_ok(td_store_write(r->store, td_store_find(r->store, "bottom.bias"), 0, 8, ones));
    assert_ok(td_store_write(r->store, td_store_find(r->store, "top.weight"), 0, 8, large));
    *b = (batches){.letters = "."};
    *out = batch_of(b, 0);
    for (int k = 0; k < BATCH * DIM; k++)
        b->x[0][k] = 1e30f;
}

static void check_without_scale(setting s, const char *words)
{
    run r = {0};
    batches b;
    td_batch batch;
    td_step_report report;
    open_run(&r, s);
    spoil_gradients(&r, &b, &batch);
    const uint64_t before = checksum_of(&r);
    td_status *status = td_session_step(r.session, &batch, &report);
    assert_true(isfinite(report.loss) || status);
    if (words) {
        assert_error(status, TD_NOT_FINITE, words);
        assert_int_equal(td_store_steps(r.store), 0);
    } else {
        assert_ok(status);
        assert_true(report.skipped);
        assert_string_equal(report.overflowed, "bottom.weight");
        assert_int_equal(td_store_updates(r.store), 0);
    }
    assert_true(before == checksum_of(&r));
    assert_true(td_session_is_usable(r.session));
    close_run(&r);
}

static void test_without_a_scale_on_nan_decides_about_gradients_too(void **state)
{
    (void)state;
    const char *words = "step 1: the loss is finite, but the gradient of \"bottom.weight\" is not";
    for (int cut = 0; cut < 2; cut++) {
        check_without_scale((setting){.cut = cut, .on_nan = TD_NAN_SKIP}, NULL);
        check_without_scale((setting){.cut = cut, .on_nan = TD_NAN_SKIP, .clip_norm = 1}, NULL);
        check_without_scale((setting){.cut = cut, .clip_norm = 1}, words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_scale_halves_after_patience_and_doubles_after_an_interval),
        cmocka_unit_test(test_what_is_no_power_of_two_is_refused),
        cmocka_unit_test(test_overflows_skip_steps_and_move_the_scale_however_steps_run),
        cmocka_unit_test(test_an_overflow_in_a_micro_batch_skips_its_window),
        cmocka_unit_test(test_a_skipped_step_changes_neither_parameters_nor_state),
        cmocka_unit_test(test_an_overflow_at_the_minimum_ends_the_run_and_spoils_nothing),
        cmocka_unit_test(test_a_checkpoint_keeps_the_scale_and_its_patience),
        cmocka_unit_test(test_clipping_sees_unscaled_gradients),
        cmocka_unit_test(test_without_a_scale_on_nan_decides_about_gradients_too),
    };
    td_log_set(NULL, NULL, TD_LOG_NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
