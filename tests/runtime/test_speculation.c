/* Updates made before the norm of all gradients is known: whatever comes of them, parameters, state and losses are those of the
 * synchronous step, bit for bit: with steps that are never, always and sometimes clipped, left out for a loss or a gradient that is not
 * finite, in windows, and at rest; nothing leaves for the device before the norm is known; the log is the ledger's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/log.h"
#include "optim/rule.h"
#include "partition/plan.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/support/dense_run.h"

enum { HIDDEN = 61, BATCHES = DENSE_BATCHES, REST = 16 };

typedef struct setting {
    const char *optimizer;
    double clip_norm, ratio;
    int32_t accumulate;
    td_precision precision;
    bool waits, serial; /* waits: for the norm */
} setting;

static dense_run prepare(setting s)
{
    dense_run r = dense_run_begin(HIDDEN);
    r.options.clip_norm = s.clip_norm;
    r.options.offload_optimizer = s.ratio > 0 ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE;
    r.options.offload_ratio = s.ratio;
    r.options.no_speculation = s.waits;
    r.options.no_pipeline = s.serial;
    r.options.accumulate = s.accumulate ? s.accumulate : 1;
    r.options.on_nan = TD_NAN_SKIP;
    r.options.precision = s.precision;
    r.options.loss_scale =
        (td_loss_scale_options){.initial = 0x1p30, .growth_interval = 3, .hysteresis = 1, .minimum = 1};
    td_group(&r.options, "*", (td_optimizer){.name = s.optimizer, .lr = 0.01});
    dense_run_start(&r);
    return r;
}

static td_session_counters train(dense_run *r, int64_t bad, dense_losses *out)
{
    static dense_batches b;
    *out = (dense_losses){.n = 0};
    dense_batches_fill(&b, bad);
    dense_run_train(r, &b, 0, BATCHES, out);
    assert_true(td_session_is_usable(r->session));
    return td_session_read_counters(r->session);
}

/* The synchronous step, on the device, beside speculation on the host. Returns what the serial run counted. */
static td_session_counters check(setting s, int64_t bad)
{
    dense_losses expected, found;
    td_session_counters counters = {0};
    dense_run plain = prepare(s);
    td_session_counters none = train(&plain, bad, &expected);
    assert_int_equal(none.speculated + none.resting, 0);
    for (int i = 0; i < 3; i++) {
        s.ratio = i == 0 ? 0.5 : 1;
        s.serial = i == 2;
        dense_run r = prepare(s);
        counters = train(&r, bad, &found);
        dense_run_check_same(&plain, &expected, &r, &found);
        dense_run_end(&r);
    }
    dense_run_end(&plain);
    return counters;
}

static void test_steps_that_are_never_clipped_all_stand(void **state)
{
    (void)state;
    td_session_counters c = check((setting){.optimizer = "adam", .clip_norm = 1e9}, -1);
    assert_int_equal(c.speculated, BATCHES);
    assert_int_equal(c.missed, 0);
    assert_int_equal(c.resting, 0);
    (void)check((setting){.optimizer = "sgd", .clip_norm = 1e9, .accumulate = 3}, -1);
}

static void test_steps_that_are_always_clipped_are_made_again_and_rest(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"adam", "adamw", "rmsprop", "lion"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        td_session_counters c = check((setting){.optimizer = optimizers[i], .clip_norm = 1e-3}, -1);
        assert_int_equal(c.speculated, (BATCHES + REST) / (REST + 1));
        assert_int_equal(c.missed, c.speculated);
        assert_int_equal(c.resting, BATCHES - c.speculated);
    }
    (void)check((setting){.optimizer = "adam", .clip_norm = 1e-3, .accumulate = 3}, -1);
}

static void test_windows_that_are_left_out_leave_the_old_bits(void **state)
{
    (void)state;
    td_session_counters c = check((setting){.optimizer = "adam", .clip_norm = 1e9}, 5);
    assert_int_equal(c.missed, 1);
    assert_int_equal(c.resting, REST);
    for (int64_t bad = 0; bad < 4; bad++)
        (void)check((setting){.optimizer = "adam", .clip_norm = 1e9, .accumulate = 2}, bad);
    (void)check((setting){.optimizer = "adam", .clip_norm = 1e-3}, 7);
}

/* Without a norm nothing speculates; that of the sums which updates finish by themselves none is finite is seen all the same. */
static void test_unclipped_sums_that_overflow_leave_the_old_bits(void **state)
{
    (void)state;
    td_log_set(NULL, NULL, TD_LOG_NULL);
    for (int32_t accumulate = 2; accumulate < 4; accumulate++)
        assert_int_equal(
            check((setting){.optimizer = "adam", .precision = TD_MIXED_FP16, .accumulate = accumulate}, 9).speculated,
            0);
    (void)check((setting){.optimizer = "adam", .accumulate = 2}, 5);
}

/* The first gradients of fp16 overflow at this scale, under a finite loss. */
static void test_gradients_that_overflow_leave_the_old_bits(void **state)
{
    (void)state;
    td_log_set(NULL, NULL, TD_LOG_NULL);
    td_session_counters c = check((setting){.optimizer = "adam", .clip_norm = 1e9, .precision = TD_MIXED_FP16}, -1);
    assert_true(c.missed > 0);
    (void)check((setting){.optimizer = "adam", .clip_norm = 1, .precision = TD_MIXED_FP16, .accumulate = 2}, 9);
    (void)check((setting){.optimizer = "adam", .clip_norm = 1, .precision = TD_MIXED_BF16}, -1);
}

static int32_t node_named(const td_plan *plan, const char *parameter, const char *suffix)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s/%s", parameter, suffix);
    return td_name_map_get(&plan->graph->node_names, name);
}

static bool runs_before(const td_plan *plan, int32_t a, int32_t b)
{
    const td_plan_node *x = &plan->nodes[a], *y = &plan->nodes[b];
    return x->cluster == y->cluster ? x->position < y->position : td_cluster_reaches(plan, x->cluster, y->cluster);
}

static void test_nothing_crosses_before_the_norm_is_known_and_the_log_is_in_the_ledger(void **state)
{
    (void)state;
    static const char *const parameters[] = {"hidden.weight", "hidden.bias", "top.weight", "top.bias"};
    dense_losses losses;
    dense_run r = prepare((setting){.optimizer = "adam", .clip_norm = 1, .ratio = 1}),
              waits = prepare((setting){.optimizer = "adam", .clip_norm = 1, .ratio = 1, .waits = true});
    const int32_t clip = td_name_map_get(&r.plan->graph->node_names, "clip");
    int64_t numbers = 0, log = 0;
    for (int i = 0; i < 4; i++) {
        const int32_t early = node_named(r.plan, parameters[i], "early"),
                      settle = node_named(r.plan, parameters[i], "update"),
                      refresh = node_named(r.plan, parameters[i], "refresh@accel");
        assert_true(early >= 0 && settle >= 0 && refresh >= 0);
        assert_true(node_named(waits.plan, parameters[i], "early") < 0);
        assert_true(r.plan->graph->nodes[early].inputs[4] < 0); /* it does not wait for the factor */
        assert_true(runs_before(r.plan, early, settle) && runs_before(r.plan, clip, settle));
        assert_true(runs_before(r.plan, settle, refresh));
    }
    char *text = NULL; /* who asks for the update is told where its work is */
    assert_ok(td_plan_explain(r.plan, "top.weight/update", &text));
    assert_non_null(strstr(text, "the update itself is \"top.weight/early\" (below)\n"));
    assert_non_null(strstr(text, "\ntop.weight/early (early_update) runs on cpu\n"));
    td_text_free(text);
    numbers = td_plan_parameter_count(r.plan);
    (void)train(&r, -1, &losses);
    for (int32_t d = 0; d < 2; d++) {
        td_ledger ledger = td_plan_ledger(r.plan, d), without = td_plan_ledger(waits.plan, d);
        int64_t total = 0;
        for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
            total += ledger.bytes[k];
        assert_int_equal(td_session_device(r.session, d).peak_bytes, total);
        assert_int_equal(without.bytes[TD_LEDGER_LOG], 0);
        log += ledger.bytes[TD_LEDGER_LOG];
        assert_true(d == 0 ? log > 0 : ledger.bytes[TD_LEDGER_LOG] == 0);
    }
    /* what gradients and copies use at other times is theirs in the ledger */
    assert_true(log <= 12 * (numbers + 4 * 16));
    dense_run_end(&r);
    dense_run_end(&waits);
}

/* A rule that needs the norm of a whole parameter cannot be cut into early steps. */
static void test_other_rules_wait(void **state)
{
    (void)state;
    td_session_counters c = check((setting){.optimizer = "lamb", .clip_norm = 1e9}, -1);
    assert_int_equal(c.speculated, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_that_are_never_clipped_all_stand),
        cmocka_unit_test(test_steps_that_are_always_clipped_are_made_again_and_rest),
        cmocka_unit_test(test_windows_that_are_left_out_leave_the_old_bits),
        cmocka_unit_test(test_unclipped_sums_that_overflow_leave_the_old_bits),
        cmocka_unit_test(test_gradients_that_overflow_leave_the_old_bits),
        cmocka_unit_test(test_nothing_crosses_before_the_norm_is_known_and_the_log_is_in_the_ledger),
        cmocka_unit_test(test_other_rules_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
