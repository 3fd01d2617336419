/* The optimizer offloaded: a model on an accelerator whose updates are made on the host gives the losses, parameters and state of
 * the same model without, bit for bit, for every optimizer, with and without clipping; what does not fit otherwise trains; the
 * device's peak is the ledger's; held steps, evaluations and checkpoints see replicas that equal their parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "optim/rule.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/support/dense_run.h"

enum { HIDDEN = 97, STEPS = 5 };

/* Two layers, the first of which is used twice: its gradients are summed where they are made. */
static td_value build(td_graph *graph, td_value x, td_value y)
{
    td_value tied =
        td_parameter(graph, "tied.weight", TD_F32, TD_SHAPE(DENSE_WIDTH, DENSE_WIDTH), td_init_normal(0, 0.3));
    td_value first = td_matmul(x, tied, false, false);
    td_name(first, "first");
    td_value second = td_matmul(td_tanh(first), tied, false, false);
    td_name(second, "second");
    td_value h = td_tanh(second);
    return td_mse(td_linear(td_relu(td_linear(h, HIDDEN, "hidden")), 1, "top"), y);
}

static dense_run prepare(const char *optimizer, double clip_norm, td_offload offload, const char *accelerator)
{
    td_value x, y;
    dense_run r = dense_run_inputs(&x, &y);
    r.loss = build(r.graph, x, y);
    r.options.clip_norm = clip_norm;
    r.options.offload_optimizer = offload;
    td_add_device(&r.options, "accel", accelerator);
    td_group(&r.options, "top.*", td_sgd(0.01, .momentum = 0.9));
    td_group(&r.options, "*", (td_optimizer){.name = optimizer, .lr = 0.01});
    return r;
}

static dense_losses train(dense_run *r, dense_batches *b)
{
    dense_losses l = {.n = 0};
    dense_run_train(r, b, 0, STEPS, &l);
    return l;
}

static int64_t total(const td_ledger *ledger)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
        bytes += ledger->bytes[k];
    return bytes;
}

/* Bytes that hold the model and half of what the optimizer's state adds. */
static void tight_accelerator(const char *optimizer, double clip_norm, char text[64])
{
    dense_run all = prepare(optimizer, clip_norm, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"),
              none = prepare(optimizer, clip_norm, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    assert_ok(td_plan_train(all.graph, all.loss, &all.options, &all.plan));
    assert_ok(td_plan_train(none.graph, none.loss, &none.options, &none.plan));
    uint64_t most = td_plan_device(all.plan, 1).peak_bytes, least = td_plan_device(none.plan, 1).peak_bytes;
    snprintf(text, 64, "emulated:memory=%llu,cores=1", (unsigned long long)(least + (most - least) / 2));
    dense_run_end(&all);
    dense_run_end(&none);
}

/* `plain` has been trained. */
static void check_same(const dense_run *plain, const dense_losses *expected, dense_run *offloaded, dense_batches *b)
{
    dense_run_start(offloaded);
    dense_losses found = train(offloaded, b);
    assert_true(found.n == STEPS && !found.skipped);
    dense_run_check_same(plain, expected, offloaded, &found);
    for (int32_t d = 0; d < 2; d++) {
        td_ledger ledger = td_plan_ledger(offloaded->plan, d);
        assert_int_equal(td_session_device(offloaded->session, d).peak_bytes, total(&ledger));
    }
    dense_run_end(offloaded);
}

static void check_optimizer(const td_rule *rule, double clip_norm, dense_batches *b)
{
    char tight[64];
    dense_run plain = prepare(rule->name, clip_norm, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1");
    dense_run_start(&plain);
    dense_losses expected = train(&plain, b);
    assert_int_equal(expected.n, STEPS);
    dense_run all = prepare(rule->name, clip_norm, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1"), half, some;
    check_same(&plain, &expected, &all, b);
    half = prepare(rule->name, clip_norm, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    half.options.offload_ratio = 0.5;
    check_same(&plain, &expected, &half, b);
    tight_accelerator(rule->name, clip_norm, tight);
    some = prepare(rule->name, clip_norm, TD_OFFLOAD_AUTO, tight);
    check_same(&plain, &expected, &some, b);
    dense_run_end(&plain);
}

static void test_an_offloaded_update_gives_the_same_bits_for_every_optimizer_and_share(void **state)
{
    (void)state;
    dense_batches b;
    dense_batches_fill(&b, -1);
    for (int32_t i = 0; i < td_rule_count(); i++)
        for (int clip = 0; clip < 2 && !td_rule_at(i)->refuses_dense; clip++)
            check_optimizer(td_rule_at(i), clip ? 0.05 : 0, &b);
}

static int64_t moments_on(const td_plan *plan, int32_t device)
{
    return td_plan_ledger(plan, device).bytes[TD_LEDGER_MOMENTS];
}

/* auto: all where there is room, no more on the host than there must be where there is not; refused where even none is too much. */
static void test_auto_keeps_what_fits(void **state)
{
    (void)state;
    char tight[64];
    tight_accelerator("adam", 0, tight);
    dense_run roomy = prepare("adam", 0, TD_OFFLOAD_AUTO, "emulated:memory=64MiB,cores=1"),
              some = prepare("adam", 0, TD_OFFLOAD_AUTO, tight),
              none = prepare("adam", 0, TD_OFFLOAD_AUTO, "emulated:memory=4KiB,cores=1");
    assert_ok(td_plan_train(roomy.graph, roomy.loss, &roomy.options, &roomy.plan));
    assert_int_equal(moments_on(roomy.plan, 0), 0);
    assert_ok(td_plan_train(some.graph, some.loss, &some.options, &some.plan));
    assert_true(moments_on(some.plan, 0) > 0);
    assert_true(moments_on(some.plan, 1) > 0);
    td_status *status = td_plan_train(none.graph, none.loss, &none.options, &none.plan);
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    td_status_destroy(status);
    dense_run_end(&roomy);
    dense_run_end(&some);
    dense_run_end(&none);
}

static void test_a_ratio_moves_at_least_that_share_and_keeps_what_is_read_first(void **state)
{
    (void)state;
    for (int i = 0; i <= 10; i++) {
        dense_run r = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
        r.options.offload_ratio = 0.1 * i;
        assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
        td_ledger host = td_plan_ledger(r.plan, 0);
        double share = (double)host.bytes[TD_LEDGER_MASTERS] / (4.0 * (double)td_plan_parameter_count(r.plan));
        assert_true(share >= 0.1 * i - 1e-9); /* padding counts on the host only */
        assert_true(i > 0 || host.bytes[TD_LEDGER_MASTERS] == 0);
        assert_true(i < 10 || td_plan_ledger(r.plan, 1).bytes[TD_LEDGER_MOMENTS] == 0);
        dense_run_end(&r);
    }
}

/* What the accelerator may hold is one number here: between what the plan needs with and without. */
static void test_a_model_refused_for_its_state_trains_with_the_one_key(void **state)
{
    (void)state;
    dense_batches b;
    dense_batches_fill(&b, -1);
    dense_run r = prepare("adam", 0, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"), same;
    dense_run_start(&r);
    uint64_t needs = td_plan_device(r.plan, 1).peak_bytes;
    char accelerator[64];
    snprintf(accelerator, sizeof accelerator, "emulated:memory=%llu,cores=1", (unsigned long long)needs - 64);
    same = prepare("adam", 0, TD_OFFLOAD_NONE, accelerator);
    td_status *status = td_plan_train(same.graph, same.loss, &same.options, &same.plan);
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    assert_non_null(strstr(td_status_message(status), "(64 B short)"));
    assert_non_null(strstr(td_status_message(status), "\n  try: offload.optimizer: cpu (then accel needs "));
    td_status_destroy(status);
    same.options.offload_optimizer = TD_OFFLOAD_CPU;
    dense_run_start(&same);
    (void)train(&r, &b);
    (void)train(&same, &b);
    check_same_stores(r.store, same.store);
    dense_run_end(&r);
    dense_run_end(&same);
}

static void test_the_devices_peak_is_the_ledgers_to_the_byte(void **state)
{
    (void)state;
    dense_batches b;
    dense_batches_fill(&b, -1);
    dense_run r = prepare("adam", 1, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    dense_run_start(&r);
    (void)train(&r, &b);
    for (int32_t d = 0; d < 2; d++) {
        td_ledger ledger = td_plan_ledger(r.plan, d);
        assert_int_equal(td_session_device(r.session, d).peak_bytes, total(&ledger));
    }
    td_ledger accel = td_plan_ledger(r.plan, 1), host = td_plan_ledger(r.plan, 0), before;
    assert_true(td_plan_ledger_without(r.plan, 1, &before));
    assert_int_equal(accel.bytes[TD_LEDGER_MOMENTS], 0);
    assert_int_equal(accel.bytes[TD_LEDGER_PARAMETERS], before.bytes[TD_LEDGER_PARAMETERS]);
    assert_int_equal(host.bytes[TD_LEDGER_MASTERS], accel.bytes[TD_LEDGER_PARAMETERS]);
    assert_int_equal(host.bytes[TD_LEDGER_MOMENTS], before.bytes[TD_LEDGER_MOMENTS]);
    dense_run plain = prepare("adam", 1, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1");
    dense_run_start(&plain);
    assert_int_equal(total(&before), td_plan_device(plain.plan, 1).peak_bytes);
    assert_false(td_plan_ledger_without(plain.plan, 1, &before));
    dense_run_end(&r);
    dense_run_end(&plain);
}

/* Gradients cross once, however often a parameter is used; parameters come back once. */
static void test_a_step_copies_each_gradient_and_each_parameter_once(void **state)
{
    (void)state;
    dense_batches b;
    dense_batches_fill(&b, -1);
    dense_run r = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    dense_run_start(&r);
    (void)train(&r, &b);
    int64_t bytes = td_plan_parameter_count(r.plan) * 4;
    td_offload_traffic traffic = td_plan_offload_traffic(r.plan);
    assert_int_equal(traffic.gradient_bytes, bytes);
    assert_int_equal(traffic.parameter_bytes, bytes);
    td_session_counters counters = td_session_read_counters(r.session);
    assert_int_equal(counters.to_host_bytes, counters.planned_to_host_bytes);
    assert_int_equal(counters.to_device_bytes, counters.planned_to_device_bytes);
    assert_int_equal(counters.to_host_bytes, STEPS * (bytes + 4));
    dense_run_end(&r);
}

/* A step whose loss is no number leaves parameters, state and replicas: training goes on as if the batch had not been there. */
static void test_a_held_step_leaves_masters_and_replicas(void **state)
{
    (void)state;
    dense_batches b;
    dense_batches_fill(&b, -1);
    dense_run plain = prepare("adam", 0, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"),
              offloaded = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    b.x[1][3] = NAN;
    plain.options.on_nan = offloaded.options.on_nan = TD_NAN_SKIP;
    dense_run_start(&plain);
    dense_run_start(&offloaded);
    dense_losses a = train(&plain, &b), c = train(&offloaded, &b);
    assert_true(a.n == STEPS && a.skipped == 1);
    dense_run_check_same(&plain, &a, &offloaded, &c);
    dense_run_end(&plain);
    dense_run_end(&offloaded);
}

static float evaluate(dense_run *r, dense_batches *b)
{
    td_plan *plan = NULL;
    td_session *session = NULL;
    td_batch batch = dense_batches_at(b, 0);
    td_step_report report;
    assert_ok(td_plan_evaluate(r->graph, &r->loss, 1, &r->options, r->store, &plan));
    assert_ok(td_session_create(plan, r->store, &session));
    assert_ok(td_session_step(session, &batch, &report));
    float loss = *(const float *)report.outputs[0].data;
    int64_t copied = td_session_read_counters(session).to_device_bytes;
    int64_t x_bytes = r->options.precision == TD_FP32 ? 4 : 2;
    assert_int_equal(copied, DENSE_BATCH * (DENSE_WIDTH * x_bytes + 4)); /* the batch: no parameter crosses */
    td_session_destroy(session);
    td_plan_release(plan);
    return loss;
}

static void test_an_evaluation_and_a_loaded_checkpoint_use_the_replicas(void **state)
{
    (void)state;
    dense_batches b;
    char folder[] = "/tmp/tandem_offload_XXXXXX", path[64];
    td_data_position position = {0};
    dense_batches_fill(&b, -1);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/saved", folder);
    dense_run plain = prepare("adam", 0, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"),
              offloaded = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1"),
              resumed = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    dense_run_start(&plain);
    dense_run_start(&offloaded);
    dense_run_start(&resumed);
    (void)train(&plain, &b);
    (void)train(&offloaded, &b);
    float expected = evaluate(&plain, &b), offloaded_loss = evaluate(&offloaded, &b);
    assert_memory_equal(&expected, &offloaded_loss, sizeof expected);
    assert_ok(td_store_save(plain.store, path, position)); /* without offload, gone on from with it */
    assert_ok(td_store_load(resumed.store, path, &position));
    float loaded_loss = evaluate(&resumed, &b);
    assert_memory_equal(&expected, &loaded_loss, sizeof expected);
    (void)train(&plain, &b);
    (void)train(&resumed, &b);
    check_same_stores(plain.store, resumed.store);
    dense_run_end(&plain);
    dense_run_end(&offloaded);
    dense_run_end(&resumed);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- 16 bit ------------------------------------------------------------------------------------------------------------- */

/* Two bytes a parameter on the device and on the link: gradients with each micro-batch, parameters once a window; a checkpoint
 * that is loaded, and an evaluation, see them rounded as training does. */
static void check_narrow(td_precision precision, int32_t accumulate)
{
    dense_batches b;
    char folder[] = "/tmp/tandem_offload_XXXXXX", path[64], command[128];
    td_data_position position = {0};
    dense_batches_fill(&b, -1);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/saved", folder);
    dense_run r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = prepare("adam", 0.05, i ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1");
        r[i].options.precision = precision;
        r[i].options.loss_scale.initial = 64;
        r[i].options.accumulate = accumulate;
        dense_run_start(&r[i]);
    }
    dense_losses plain = train(&r[0], &b), offloaded = train(&r[1], &b);
    dense_run_check_same(&r[0], &plain, &r[1], &offloaded);
    int64_t parameters = td_plan_parameter_count(r[1].plan);
    td_offload_traffic traffic = td_plan_offload_traffic(r[1].plan);
    assert_int_equal(traffic.parameter_bytes, 2 * parameters);
    assert_int_equal(traffic.gradient_bytes, 2 * parameters * accumulate);
    td_session_counters n = td_session_read_counters(r[1].session);
    assert_int_equal(n.to_host_bytes, n.planned_to_host_bytes);
    assert_int_equal(n.to_device_bytes, n.planned_to_device_bytes);
    int64_t batch_bytes = ((STEPS - 1) * DENSE_BATCH + 3) * (DENSE_WIDTH * 2 + 4);
    assert_int_equal(n.to_device_bytes, (plain.n - plain.skipped) * 2 * parameters + batch_bytes);
    float expected = evaluate(&r[0], &b), found = evaluate(&r[1], &b);
    assert_memory_equal(&expected, &found, sizeof expected);
    assert_ok(td_store_save(r[0].store, path, position));
    assert_ok(td_store_load(r[2].store, path, &position));
    float loaded = evaluate(&r[2], &b);
    assert_memory_equal(&expected, &loaded, sizeof expected);
    (void)train(&r[0], &b);
    (void)train(&r[2], &b);
    check_same_stores(r[0].store, r[2].store);
    for (int i = 0; i < 3; i++)
        dense_run_end(&r[i]);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_sixteen_bit_parameters_take_two_bytes_on_the_device_and_on_the_link(void **state)
{
    (void)state;
    check_narrow(TD_MIXED_BF16, 1);
    check_narrow(TD_MIXED_BF16, 2);
    check_narrow(TD_MIXED_FP16, 4);
}

/* ---- no master ----------------------------------------------------------------------------------------------------------- */

static dense_run without_master(const char *optimizer, td_offload offload, double ratio, int32_t accumulate,
                                bool stochastic)
{
    dense_run r = prepare(optimizer, 0.05, offload, "emulated:memory=64MiB,cores=1");
    r.options.precision = TD_MIXED_BF16;
    r.options.no_master = true;
    r.options.offload_ratio = ratio;
    r.options.accumulate = accumulate;
    r.options.stochastic_rounding = stochastic;
    return r;
}

/* Every parameter and state is the same wherever it is updated; parameters hold no more than bf16 does. */
static void check_without_master(const td_rule *rule, int32_t accumulate, bool stochastic, dense_batches *b)
{
    dense_run r[3];
    dense_losses l[3];
    for (int i = 0; i < 3; i++) {
        r[i] =
            without_master(rule->name, i ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE, i == 2 ? 0.5 : 1, accumulate, stochastic);
        dense_run_start(&r[i]);
        l[i] = train(&r[i], b);
        dense_run_check_same(&r[0], &l[0], &r[i], &l[i]);
    }
    for (int i = 0; i < 3; i++)
        dense_run_end(&r[i]);
}

static void test_without_masters_the_bits_are_the_same_wherever_updates_are_made(void **state)
{
    (void)state;
    dense_batches b;
    dense_batches_fill(&b, -1);
    for (int32_t i = 0; i < td_rule_count(); i++)
        if (td_rule_is_elementwise(td_rule_at(i)))
            check_without_master(td_rule_at(i), 1 + i % 2, i % 3 == 0, &b);
}

/* Two bytes a parameter on the device and two on the host, and the moments: the ledger has both ways beside each other. */
static void test_the_ledger_without_masters_is_two_bytes_a_parameter(void **state)
{
    (void)state;
    dense_run r = without_master("adam", TD_OFFLOAD_CPU, 1, 1, false),
              with = prepare("adam", 0.05, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    with.options.precision = TD_MIXED_BF16;
    r.options.no_speculation = with.options.no_speculation = true;
    assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
    assert_ok(td_plan_train(with.graph, with.loss, &with.options, &with.plan));
    int64_t parameters = td_plan_parameter_count(r.plan), entries = 5;
    td_ledger host = td_plan_ledger(r.plan, 0), accel = td_plan_ledger(r.plan, 1),
              host_with = td_plan_ledger(with.plan, 0);
    assert_in_range(host.bytes[TD_LEDGER_MASTERS], 2 * parameters, 2 * parameters + 64 * entries);
    assert_in_range(accel.bytes[TD_LEDGER_PARAMETERS], 2 * parameters, 2 * parameters + 64 * entries);
    assert_in_range(host_with.bytes[TD_LEDGER_MASTERS], 4 * parameters, 4 * parameters + 64 * entries);
    assert_int_equal(host.bytes[TD_LEDGER_MOMENTS], host_with.bytes[TD_LEDGER_MOMENTS]);
    assert_true(host.bytes[TD_LEDGER_STAGING] < host_with.bytes[TD_LEDGER_STAGING]); /* nothing is copied out */
    dense_run_end(&r);
    dense_run_end(&with);
}

static void expect_refusal(dense_run *r, td_code code, const char *words)
{
    td_status *status = td_plan_train(r->graph, r->loss, &r->options, &r->plan);
    if (td_status_code(status) != code || !strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
    dense_run_end(r);
}

static void test_what_needs_masters_is_refused_with_the_reason(void **state)
{
    (void)state;
    dense_run lamb = without_master("lamb", TD_OFFLOAD_CPU, 1, 1, false),
              wide = without_master("adam", TD_OFFLOAD_CPU, 1, 1, false);
    wide.options.precision = TD_FP32;
    expect_refusal(&lamb, TD_UNSUPPORTED, "takes the norm of a whole parameter");
    expect_refusal(&wide, TD_INVALID_ARGUMENT, "train.precision is fp32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_offloaded_update_gives_the_same_bits_for_every_optimizer_and_share),
        cmocka_unit_test(test_auto_keeps_what_fits),
        cmocka_unit_test(test_a_ratio_moves_at_least_that_share_and_keeps_what_is_read_first),
        cmocka_unit_test(test_a_model_refused_for_its_state_trains_with_the_one_key),
        cmocka_unit_test(test_the_devices_peak_is_the_ledgers_to_the_byte),
        cmocka_unit_test(test_a_step_copies_each_gradient_and_each_parameter_once),
        cmocka_unit_test(test_a_held_step_leaves_masters_and_replicas),
        cmocka_unit_test(test_an_evaluation_and_a_loaded_checkpoint_use_the_replicas),
        cmocka_unit_test(test_sixteen_bit_parameters_take_two_bytes_on_the_device_and_on_the_link),
        cmocka_unit_test(test_without_masters_the_bits_are_the_same_wherever_updates_are_made),
        cmocka_unit_test(test_the_ledger_without_masters_is_two_bytes_a_parameter),
        cmocka_unit_test(test_what_needs_masters_is_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
