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
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 8, WIDTH = 13, HIDDEN = 97, STEPS = 5, MOST = 4096 };

typedef struct run {
    td_graph *graph;
    td_value x, y, loss, out;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} run;

/* Two layers, the first of which is used twice: its gradients are summed where they are made. */
static void build(run *r)
{
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    r->x = td_input(r->graph, "x", TD_F32, TD_SHAPE(batch, WIDTH));
    r->y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value tied = td_parameter(r->graph, "tied.weight", TD_F32, TD_SHAPE(WIDTH, WIDTH), td_init_normal(0, 0.3));
    td_value first = td_matmul(r->x, tied, false, false);
    td_name(first, "first");
    td_value second = td_matmul(td_tanh(first), tied, false, false);
    td_name(second, "second");
    td_value h = td_tanh(second);
    r->out = td_linear(td_relu(td_linear(h, HIDDEN, "hidden")), 1, "top");
    r->loss = td_mse(r->out, r->y);
}

static run prepare(const char *optimizer, double clip_norm, td_offload offload, const char *accelerator)
{
    run r = {.options = td_train_defaults()};
    build(&r);
    r.options.clip_norm = clip_norm;
    r.options.offload_optimizer = offload;
    td_add_device(&r.options, "accel", accelerator);
    td_group(&r.options, "top.*", td_sgd(0.01, .momentum = 0.9));
    td_group(&r.options, "*", (td_optimizer){.name = optimizer, .lr = 0.01});
    return r;
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

typedef struct batches {
    float x[STEPS][BATCH * WIDTH], y[STEPS][BATCH];
    td_field fields[STEPS][2];
    int64_t at;
} batches;

static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    batches *b = self;
    *out_end = b->at == STEPS;
    if (*out_end)
        return NULL;
    int64_t samples = b->at == 2 ? 3 : BATCH; /* a short one among them */
    td_field *fields = b->fields[b->at];
    fields[0] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, WIDTH}, .data = b->x[b->at]}};
    fields[1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = b->y[b->at]}};
    *out_batch = (td_batch){.samples = samples, .n_fields = 2, .fields = fields};
    b->at++;
    return NULL;
}

static void keep_batch(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static void fill_batches(batches *b)
{
    uint32_t state = 1;
    memset(b, 0, sizeof *b);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < BATCH * WIDTH; i++)
            b->x[s][i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 23) - 1;
        for (int i = 0; i < BATCH; i++)
            b->y[s][i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 22) - 2;
    }
}

typedef struct losses {
    float loss[STEPS];
    int32_t n;
} losses;

static bool on_step(void *context, const td_step_report *report)
{
    losses *l = context;
    if (!report->skipped)
        l->loss[l->n++] = report->loss;
    return true;
}

static losses train(run *r, batches *b)
{
    losses l = {.n = 0};
    td_source source = {.self = b, .next = next_batch, .release = keep_batch};
    b->at = 0;
    assert_ok(td_session_run(r->session, &source, 0, on_step, &l));
    return l;
}

/* Every parameter and state of both. */
static void assert_same_stores(const run *a, const run *b)
{
    float x[MOST], y[MOST];
    uint64_t sums[2];
    assert_int_equal(td_store_count(a->store), td_store_count(b->store));
    for (int32_t i = 0; i < td_store_count(a->store); i++) {
        const char *name = td_store_name(a->store, i), *device;
        td_tensor tensor;
        bool is_parameter;
        assert_ok(td_store_describe(a->store, i, &tensor, &is_parameter, &device));
        int64_t n = 1;
        for (int32_t k = 0; k < tensor.rank; k++)
            n *= tensor.dims[k];
        assert_true(n <= MOST);
        assert_ok(td_store_read(a->store, i, 0, n, x));
        assert_ok(td_store_read(b->store, td_store_find(b->store, name), 0, n, y));
        if (memcmp(x, y, (size_t)n * sizeof *x) != 0)
            fail_msg("\"%s\" differs", name);
    }
    assert_ok(td_store_checksum(a->store, &sums[0]));
    assert_ok(td_store_checksum(b->store, &sums[1]));
    assert_true(sums[0] == sums[1]);
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
    run all = prepare(optimizer, clip_norm, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"),
        none = prepare(optimizer, clip_norm, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    assert_ok(td_plan_train(all.graph, all.loss, &all.options, &all.plan));
    assert_ok(td_plan_train(none.graph, none.loss, &none.options, &none.plan));
    uint64_t most = td_plan_device(all.plan, 1).peak_bytes, least = td_plan_device(none.plan, 1).peak_bytes;
    snprintf(text, 64, "emulated:memory=%llu,cores=1", (unsigned long long)(least + (most - least) / 2));
    stop(&all);
    stop(&none);
}

/* `plain` has been trained. */
static void check_same(const run *plain, const losses *expected, run *offloaded, batches *b)
{
    start(offloaded);
    losses found = train(offloaded, b);
    assert_int_equal(found.n, STEPS);
    assert_memory_equal(expected->loss, found.loss, sizeof found.loss);
    assert_same_stores(plain, offloaded);
    for (int32_t d = 0; d < 2; d++) {
        td_ledger ledger = td_plan_ledger(offloaded->plan, d);
        assert_int_equal(td_session_device(offloaded->session, d).peak_bytes, total(&ledger));
    }
    stop(offloaded);
}

static void check_optimizer(const td_rule *rule, double clip_norm, batches *b)
{
    char tight[64];
    run plain = prepare(rule->name, clip_norm, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1");
    start(&plain);
    losses expected = train(&plain, b);
    assert_int_equal(expected.n, STEPS);
    run all = prepare(rule->name, clip_norm, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1"), half, some;
    check_same(&plain, &expected, &all, b);
    half = prepare(rule->name, clip_norm, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    half.options.offload_ratio = 0.5;
    check_same(&plain, &expected, &half, b);
    tight_accelerator(rule->name, clip_norm, tight);
    some = prepare(rule->name, clip_norm, TD_OFFLOAD_AUTO, tight);
    check_same(&plain, &expected, &some, b);
    stop(&plain);
}

static void test_an_offloaded_update_gives_the_same_bits_for_every_optimizer_and_share(void **state)
{
    (void)state;
    batches b;
    fill_batches(&b);
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
    run roomy = prepare("adam", 0, TD_OFFLOAD_AUTO, "emulated:memory=64MiB,cores=1"),
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
    stop(&roomy);
    stop(&some);
    stop(&none);
}

static void test_a_ratio_moves_at_least_that_share_and_keeps_what_is_read_first(void **state)
{
    (void)state;
    for (int i = 0; i <= 10; i++) {
        run r = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
        r.options.offload_ratio = 0.1 * i;
        assert_ok(td_plan_train(r.graph, r.loss, &r.options, &r.plan));
        td_ledger host = td_plan_ledger(r.plan, 0);
        double share = (double)host.bytes[TD_LEDGER_MASTERS] / (4.0 * (double)td_plan_parameter_count(r.plan));
        assert_true(share >= 0.1 * i - 1e-9); /* padding counts on the host only */
        assert_true(i > 0 || host.bytes[TD_LEDGER_MASTERS] == 0);
        assert_true(i < 10 || td_plan_ledger(r.plan, 1).bytes[TD_LEDGER_MOMENTS] == 0);
        stop(&r);
    }
}

/* What the accelerator may hold is one number here: between what the plan needs with and without. */
static void test_a_model_refused_for_its_state_trains_with_the_one_key(void **state)
{
    (void)state;
    batches b;
    fill_batches(&b);
    run r = prepare("adam", 0, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"), same;
    start(&r);
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
    start(&same);
    (void)train(&r, &b);
    (void)train(&same, &b);
    assert_same_stores(&r, &same);
    stop(&r);
    stop(&same);
}

static void test_the_devices_peak_is_the_ledgers_to_the_byte(void **state)
{
    (void)state;
    batches b;
    fill_batches(&b);
    run r = prepare("adam", 1, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    start(&r);
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
    run plain = prepare("adam", 1, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1");
    start(&plain);
    assert_int_equal(total(&before), td_plan_device(plain.plan, 1).peak_bytes);
    assert_false(td_plan_ledger_without(plain.plan, 1, &before));
    stop(&r);
    stop(&plain);
}

/* Gradients cross once, however often a parameter is used; parameters come back once. */
static void test_a_step_copies_each_gradient_and_each_parameter_once(void **state)
{
    (void)state;
    batches b;
    fill_batches(&b);
    run r = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    start(&r);
    (void)train(&r, &b);
    int64_t bytes = td_plan_parameter_count(r.plan) * 4;
    td_offload_traffic traffic = td_plan_offload_traffic(r.plan);
    assert_int_equal(traffic.gradient_bytes, bytes);
    assert_int_equal(traffic.parameter_bytes, bytes);
    td_session_counters counters = td_session_read_counters(r.session);
    assert_int_equal(counters.to_host_bytes, counters.planned_to_host_bytes);
    assert_int_equal(counters.to_device_bytes, counters.planned_to_device_bytes);
    assert_int_equal(counters.to_host_bytes, STEPS * (bytes + 4));
    stop(&r);
}

/* A step whose loss is no number leaves parameters, state and replicas: training goes on as if the batch had not been there. */
static void test_a_held_step_leaves_masters_and_replicas(void **state)
{
    (void)state;
    batches b;
    fill_batches(&b);
    run plain = prepare("adam", 0, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"),
        offloaded = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    b.x[1][3] = NAN;
    plain.options.on_nan = offloaded.options.on_nan = TD_NAN_SKIP;
    start(&plain);
    start(&offloaded);
    losses a = train(&plain, &b), c = train(&offloaded, &b);
    assert_int_equal(a.n, STEPS - 1);
    assert_memory_equal(a.loss, c.loss, sizeof a.loss);
    assert_same_stores(&plain, &offloaded);
    stop(&plain);
    stop(&offloaded);
}

static float evaluate(run *r, batches *b)
{
    td_plan *plan = NULL;
    td_session *session = NULL;
    td_batch batch;
    td_step_report report;
    bool end;
    assert_ok(td_plan_evaluate(r->graph, &r->loss, 1, &r->options, r->store, &plan));
    assert_ok(td_session_create(plan, r->store, &session));
    b->at = 0;
    assert_ok(next_batch(b, &batch, &end));
    assert_ok(td_session_step(session, &batch, &report));
    float loss = *(const float *)report.outputs[0].data;
    int64_t copied = td_session_read_counters(session).to_device_bytes;
    int64_t x_bytes = r->options.precision == TD_FP32 ? 4 : 2;
    assert_int_equal(copied, BATCH * (WIDTH * x_bytes + 4)); /* the batch: no parameter crosses */
    td_session_destroy(session);
    td_plan_release(plan);
    return loss;
}

static void test_an_evaluation_and_a_loaded_checkpoint_use_the_replicas(void **state)
{
    (void)state;
    batches b;
    char folder[] = "/tmp/tandem_offload_XXXXXX", path[64];
    td_data_position position = {0};
    fill_batches(&b);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/saved", folder);
    run plain = prepare("adam", 0, TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1"),
        offloaded = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1"),
        resumed = prepare("adam", 0, TD_OFFLOAD_CPU, "emulated:memory=64MiB,cores=1");
    start(&plain);
    start(&offloaded);
    start(&resumed);
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
    assert_same_stores(&plain, &resumed);
    stop(&plain);
    stop(&offloaded);
    stop(&resumed);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- 16 bit ------------------------------------------------------------------------------------------------------------- */

/* Two bytes a parameter on the device and on the link: gradients with each micro-batch, parameters once a window; a checkpoint
 * that is loaded, and an evaluation, see them rounded as training does. */
static void check_narrow(td_precision precision, int32_t accumulate)
{
    batches b;
    char folder[] = "/tmp/tandem_offload_XXXXXX", path[64], command[128];
    td_data_position position = {0};
    fill_batches(&b);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/saved", folder);
    run r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = prepare("adam", 0.05, i ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE, "emulated:memory=64MiB,cores=1");
        r[i].options.precision = precision;
        r[i].options.loss_scale.initial = 64;
        r[i].options.accumulate = accumulate;
        start(&r[i]);
    }
    losses plain = train(&r[0], &b), offloaded = train(&r[1], &b);
    assert_memory_equal(plain.loss, offloaded.loss, (size_t)plain.n * sizeof *plain.loss);
    assert_same_stores(&r[0], &r[1]);
    int64_t parameters = td_plan_parameter_count(r[1].plan);
    td_offload_traffic traffic = td_plan_offload_traffic(r[1].plan);
    assert_int_equal(traffic.parameter_bytes, 2 * parameters);
    assert_int_equal(traffic.gradient_bytes, 2 * parameters * accumulate);
    td_session_counters n = td_session_read_counters(r[1].session);
    assert_int_equal(n.to_host_bytes, n.planned_to_host_bytes);
    assert_int_equal(n.to_device_bytes, n.planned_to_device_bytes);
    int64_t batch_bytes = ((STEPS - 1) * BATCH + 3) * (WIDTH * 2 + 4);
    assert_int_equal(n.to_device_bytes, plain.n * 2 * parameters + batch_bytes);
    float expected = evaluate(&r[0], &b), found = evaluate(&r[1], &b);
    assert_memory_equal(&expected, &found, sizeof expected);
    assert_ok(td_store_save(r[0].store, path, position));
    assert_ok(td_store_load(r[2].store, path, &position));
    float loaded = evaluate(&r[2], &b);
    assert_memory_equal(&expected, &loaded, sizeof expected);
    (void)train(&r[0], &b);
    (void)train(&r[2], &b);
    assert_same_stores(&r[0], &r[2]);
    for (int i = 0; i < 3; i++)
        stop(&r[i]);
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

static run without_master(const char *optimizer, td_offload offload, double ratio, int32_t accumulate, bool stochastic)
{
    run r = prepare(optimizer, 0.05, offload, "emulated:memory=64MiB,cores=1");
    r.options.precision = TD_MIXED_BF16;
    r.options.no_master = true;
    r.options.offload_ratio = ratio;
    r.options.accumulate = accumulate;
    r.options.stochastic_rounding = stochastic;
    return r;
}

/* Every parameter and state is the same wherever it is updated; parameters hold no more than bf16 does. */
static void check_without_master(const td_rule *rule, int32_t accumulate, bool stochastic, batches *b)
{
    run r[3];
    losses l[3];
    for (int i = 0; i < 3; i++) {
        r[i] =
            without_master(rule->name, i ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE, i == 2 ? 0.5 : 1, accumulate, stochastic);
        start(&r[i]);
        l[i] = train(&r[i], b);
        assert_memory_equal(l[0].loss, l[i].loss, (size_t)l[0].n * sizeof *l[0].loss);
        uint64_t sums[2];
        assert_ok(td_store_checksum(r[0].store, &sums[0]));
        assert_ok(td_store_checksum(r[i].store, &sums[1]));
        assert_true(sums[0] == sums[1]);
    }
    for (int i = 0; i < 3; i++)
        stop(&r[i]);
}

static void test_without_masters_the_bits_are_the_same_wherever_updates_are_made(void **state)
{
    (void)state;
    batches b;
    fill_batches(&b);
    for (int32_t i = 0; i < td_rule_count(); i++)
        if (td_rule_is_elementwise(td_rule_at(i)))
            check_without_master(td_rule_at(i), 1 + i % 2, i % 3 == 0, &b);
}

/* Two bytes a parameter on the device and two on the host, and the moments: the ledger has both ways beside each other. */
static void test_the_ledger_without_masters_is_two_bytes_a_parameter(void **state)
{
    (void)state;
    run r = without_master("adam", TD_OFFLOAD_CPU, 1, 1, false),
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
    stop(&r);
    stop(&with);
}

static void expect_refusal(run *r, td_code code, const char *words)
{
    td_status *status = td_plan_train(r->graph, r->loss, &r->options, &r->plan);
    if (td_status_code(status) != code || !strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
    stop(r);
}

static void test_what_needs_masters_is_refused_with_the_reason(void **state)
{
    (void)state;
    run lamb = without_master("lamb", TD_OFFLOAD_CPU, 1, 1, false),
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
