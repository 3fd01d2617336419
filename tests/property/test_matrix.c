/* Every optimizer under every way of making one update out of micro-batches, wherever updates are made: the product of the axes below
 * and of the places.
 *
 * Of each combination the run on one device, with nothing offloaded, is trained first. An offload of the whole optimizer, of half of it,
 * and of what a device has no room for (offload.optimizer: cpu, {ratio: 0.5}, auto), and for some a cut without offload, then give
 * its bits; or the combination is refused when it is planned, with its reason. Where sums of micro-batches and one large batch are the same in exact arithmetic, they agree
 * up to rounding. To widen the matrix, add a row to an axis, or an axis with its line in `configure`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "optim/rule.h"
#include "partition/plan.h"
#include "tandem/ops.h"
#include "tandem/session.h"

/* ---- the axes --------------------------------------------------------------------------------------------------------------- */

typedef enum axis { PRECISION, WINDOW, CLIP, GRADIENT, AXES } axis;

static const struct {
    const char *name;
    const char *values[4]; /* NULL ends them */
} axes[AXES] = {
    [PRECISION] = {"precision", {"fp32", "bf16", "fp16"}},
    [WINDOW] = {"accumulate", {"1", "4", "a short window"}},
    [CLIP] = {"clip", {"none", "0.05"}},
    [GRADIENT] = {"gradient of the table", {"row-sparse", "dense"}},
};

typedef struct combination {
    const td_rule *rule;
    int32_t at[AXES];
} combination;

typedef struct place {
    const char *name;
    const char *on_host[2]; /* a pattern of what stays there: where the table's gradient is row-sparse, and dense */
    td_offload optimizer;
    double ratio; /* of what goes to the host */
} place;

/* Where the gradient of the table is row-sparse, the table is on the host, and an offload takes the rest with it; a dense gradient of a
 * table on the host is refused whatever else, so there the table is on the accelerator, and an offload takes its update too. */
enum { ONE_DEVICE, CUT, OFFLOAD_ALL, OFFLOAD_HALF, ROWS_STAY, OFFLOAD_AUTO, PLACES };
static const place places[PLACES] = {
    [ONE_DEVICE] = {"one device", {NULL, NULL}, TD_OFFLOAD_NONE, 1},
    [CUT] = {"an accelerator, offload.optimizer: none", {"table*", "fc.0*"}, TD_OFFLOAD_NONE, 1},
    [OFFLOAD_ALL] = {"offload.optimizer: cpu", {"table*", NULL}, TD_OFFLOAD_CPU, 1},
    [OFFLOAD_HALF] = {"offload.optimizer: {ratio: 0.5}", {"table*", NULL}, TD_OFFLOAD_CPU, 0.5},
    [ROWS_STAY] = {"offload.optimizer: cpu with the table on the accelerator", {NULL, NULL}, TD_OFFLOAD_CPU, 1},
    [OFFLOAD_AUTO] = {"offload.optimizer: auto", {"table*", NULL}, TD_OFFLOAD_AUTO, 1},
};
#if TD_HAS_ASAN || TD_HAS_TSAN || !defined(NDEBUG)
enum { EVERY = 17 }; /* no divisor of the number of combinations of a rule */
#else
enum { EVERY = 1 };
#endif
enum { CUTS = 5 }; /* one in so many is cut as well */

static int32_t values_of(int32_t a)
{
    int32_t n = 0;
    while (n < 4 && axes[a].values[n])
        n++;
    return n;
}

/* The next combination of a rule and a gradient; false after the last. */
static bool next_combination(combination *c)
{
    for (int32_t a = 0; a < GRADIENT; a++) {
        if (++c->at[a] < values_of(a))
            return true;
        c->at[a] = 0;
    }
    return false;
}

static void fail_at(const combination *c, const char *where, const char *what)
{
    char text[256];
    int at = snprintf(text, sizeof text, "%s", c->rule->name);
    for (int32_t a = 0; a < AXES && at > 0 && (size_t)at < sizeof text; a++)
        at += snprintf(text + at, sizeof text - (size_t)at, ", %s %s", axes[a].name, axes[a].values[c->at[a]]);
    fail_msg("%s, on %s: %s", text, where, what);
}

static void configure(const combination *c, td_train_options *options)
{
    static const td_precision precisions[] = {TD_FP32, TD_MIXED_BF16, TD_MIXED_FP16};
    options->precision = precisions[c->at[PRECISION]];
    options->loss_scale.initial = 64;
    options->accumulate = c->at[WINDOW] ? 4 : 1;
    options->clip_norm = c->at[CLIP] ? 0.05 : 0;
}

/* ---- the model and its data: samples of which batches are spans ------------------------------------------------------------- */

enum { ROWS = 20, DIM = 8, BAG = 3, HIDDEN = 300, BATCH = 4, SAMPLES = 56 };

typedef struct data {
    int64_t ids[SAMPLES * BAG];
    float y[SAMPLES];
} data;

static void make_data(data *d)
{
    for (int64_t i = 0; i < SAMPLES * BAG; i++)
        d->ids[i] = (i * i * 7 + i * 3 + i / 5) % ROWS;
    for (int64_t i = 0; i < SAMPLES; i++)
        d->y[i] = (float)((i * 37 + 11) % 29) / 14 - 1;
}

static td_graph *build(int64_t batch, bool dense, td_value *out_loss)
{
    td_graph *graph = NULL;
    assert_null(td_graph_create(&graph));
    td_dim extent = td_extent(graph, "B", batch);
    td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(extent, BAG)),
             y = td_input(graph, "y", TD_F32, TD_SHAPE(extent, 1));
    td_value table = td_parameter(graph, "table", TD_F32, TD_SHAPE(ROWS, DIM), td_init_uniform(0.7f));
    td_value x = td_embedding_bag_with(table, ids, (td_embedding_options){.pooling = TD_MEAN, .dense = dense});
    x = td_linear(td_sigmoid(td_linear(x, HIDDEN, "fc.0")), 1, "fc.1");
    *out_loss = td_mse(x, y);
    return graph;
}

/* Hands out [at, to) in batches. */
typedef struct span_source {
    data *d;
    int64_t at, to, batch;
    td_field fields[8][2];
    int64_t n;
} span_source;

static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    span_source *s = self;
    int64_t n = s->to - s->at < s->batch ? s->to - s->at : s->batch;
    td_field *fields = s->fields[s->n++ % 8];
    *out_end = n <= 0;
    if (*out_end)
        return NULL;
    fields[0] = (td_field){
        "ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 2, .dims = {n, BAG}, .data = s->d->ids + s->at * BAG}};
    fields[1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {n, 1}, .data = s->d->y + s->at}};
    *out_batch = (td_batch){.samples = n, .n_fields = 2, .fields = fields};
    s->at += n;
    return NULL;
}

static void release_batch(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

/* ---- one run ------------------------------------------------------------------------------------------------------------------ */

enum { NUMBERS = ROWS * DIM + (DIM + 1) * HIDDEN + HIDDEN + 1, MOST_STEPS = 16 };

typedef struct trace {
    float parameters[NUMBERS], losses[MOST_STEPS], norms[MOST_STEPS];
    int64_t steps, skipped;
    bool refused, partial; /* partial: updates are made on both sides */
    int64_t peak, without; /* bytes that the accelerator holds, and would with nothing offloaded */
} trace;

static bool keep(void *context, const td_step_report *report)
{
    trace *t = context;
    t->losses[t->steps] = report->loss;
    t->norms[t->steps++] = report->gradient_norm;
    t->skipped += report->skipped;
    return true;
}

static void read_parameters(const td_store *store, trace *t)
{
    static const char *const names[] = {"table", "fc.0.weight", "fc.0.bias", "fc.1.weight", "fc.1.bias"};
    static const int64_t sizes[] = {ROWS * DIM, DIM * HIDDEN, HIDDEN, HIDDEN, 1};
    int64_t at = 0;
    for (int32_t i = 0; i < 5; at += sizes[i++])
        assert_null(td_store_read(store, td_store_find(store, names[i]), 0, sizes[i], t->parameters + at));
    assert_int_equal(at, NUMBERS);
}

/* Why its rule does not take this combination; NULL: it does. */
static const char *refusal_of(const combination *c)
{
    return c->at[GRADIENT] == 0 ? c->rule->refuses_row_sparse : c->rule->refuses_dense;
}

/* What the rule does not take is refused with the rule's reason; all else is planned. */
static bool is_refused(const combination *c, const place *p, td_status *status)
{
    const char *reason = refusal_of(c);
    if (!status && !reason)
        return false;
    if (!status)
        fail_at(c, p->name, "it is planned, though its rule does not take it");
    if (!reason || td_status_code(status) != TD_UNSUPPORTED || !strstr(td_status_message(status), reason))
        fail_at(c, p->name, td_status_message(status));
    td_status_destroy(status);
    return true;
}

static void look_at(const td_plan *plan, trace *out)
{
    int32_t here = 0, there = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        here += plan->values[v].kept;
        there += plan->values[v].offloaded || plan->values[v].split;
    }
    out->partial = here && there;
    if (plan->n_sites < 2)
        return;
    out->peak = (int64_t)td_plan_device(plan, 1).peak_bytes;
    for (int32_t k = 0; k < TD_LEDGER_CLASSES && plan->without; k++)
        out->without += plan->without[1].bytes[k];
}

/* On the first `samples`, in batches of `batch`. */
static void run(const combination *c, const place *p, td_train_options *options, int64_t samples, int64_t batch,
                trace *out)
{
    static data d;
    make_data(&d);
    td_value loss;
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    *out = (trace){0};
    td_graph *graph = build(batch, c->at[GRADIENT] == 1, &loss);
    out->refused = is_refused(c, p, td_plan_train(graph, loss, options, &plan));
    if (!out->refused) {
        look_at(plan, out);
        span_source spans = {.d = &d, .to = samples, .batch = batch};
        td_source source = {.self = &spans, .next = next_batch, .release = release_batch};
        assert_null(td_store_create(plan, &store));
        assert_null(td_session_create(plan, store, &session));
        td_status *status = td_session_run(session, &source, 0, keep, out);
        if (status)
            fail_at(c, p->name, td_status_message(status));
        read_parameters(store, out);
        td_session_counters n = td_session_read_counters(session);
        if (!out->skipped &&
            (n.to_device_bytes != n.planned_to_device_bytes || n.to_host_bytes != n.planned_to_host_bytes))
            fail_at(c, p->name, "copied bytes are not what the plan says");
    }
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_graph_destroy(graph);
}

/* ---- what must hold ----------------------------------------------------------------------------------------------------------- */

/* Two windows of a batch, or one of four batches, or one of these and then a batch and a half. */
static int64_t samples_of(const combination *c)
{
    static const int64_t samples[] = {2 * BATCH, 4 * BATCH, 4 * BATCH + BATCH + BATCH / 2};
    return samples[c->at[WINDOW]];
}

static void check_bits(const combination *c, const place *p, const trace *a, const trace *b)
{
    if (a->steps != b->steps || memcmp(a->losses, b->losses, sizeof a->losses) != 0 ||
        memcmp(a->norms, b->norms, sizeof a->norms) != 0)
        fail_at(c, p->name, "losses or norms have other bits than on one device");
    if (memcmp(a->parameters, b->parameters, sizeof a->parameters) != 0)
        fail_at(c, p->name, "parameters have other bits than on one device");
}

/* The same samples in a batch that holds a whole window: the same losses and parameters but for rounding. */
static void check_large_batch(const combination *c, td_train_options *options, const trace *micro)
{
    trace large;
    options->accumulate = 1;
    run(c, &places[ONE_DEVICE], options, samples_of(c), 4 * BATCH, &large);
    options->accumulate = 4;
    if (large.steps != micro->steps)
        fail_at(c, "large batches", "there are other steps");
    for (int64_t i = 0; i < large.steps; i++)
        if (!(fabs((double)large.losses[i] - (double)micro->losses[i]) <= 2e-5 * (double)large.losses[i]) ||
            (c->at[CLIP] && !(fabs((double)large.norms[i] / (double)micro->norms[i] - 1) <= 1e-4)))
            fail_at(c, "large batches", "a loss or a norm differs by more than rounding");
    for (int64_t i = 0; i < NUMBERS; i++)
        if (!(fabs((double)large.parameters[i] - (double)micro->parameters[i]) <= 2e-5))
            fail_at(c, "large batches", "a parameter differs by more than rounding");
}

static bool has_epsilon(const td_rule *rule)
{
    for (const td_setting *s = rule->settings; s->name; s++)
        if (strcmp(s->name, "epsilon") == 0)
            return true;
    return false;
}

/* `memory`: of the accelerator. */
static void open_place(const combination *c, int32_t which, long long memory, td_train_options *options)
{
    const place *p = &places[which];
    char accelerator[64];
    (void)snprintf(accelerator, sizeof accelerator, "emulated:memory=%lld,cores=1", memory);
    *options = td_train_defaults();
    td_add_device(options, "cpu", "cpu:cores=1");
    if (which != ONE_DEVICE)
        td_add_device(options, "accel", accelerator);
    if (p->on_host[c->at[GRADIENT]])
        td_place(options, p->on_host[c->at[GRADIENT]], "cpu");
    options->offload_optimizer = p->optimizer;
    options->offload_ratio = p->ratio;
    td_group(options, "table",
             (td_optimizer){.name = c->rule->name, .lr = 0.01, .epsilon = has_epsilon(c->rule) ? 1e-2 : 0});
    td_group(options, "*", c->rule->refuses_dense ? td_sgd(0.05) : options->groups.items[0].optimizer);
}

/* ---- the product ------------------------------------------------------------------------------------------------------------- */

typedef struct tally {
    int32_t combinations, refused, halves, divided, spared; /* spared: by an offload of all, some bytes of the device */
} tally;

/* The accelerator has half of what the offload of all would spare, so that auto must divide. */
static void check_auto(const combination *c, const trace *all, const trace *one, tally *t)
{
    static trace found;
    td_train_options options;
    const long long memory = all->peak < all->without ? (all->peak + all->without) / 2 : 16 << 20;
    open_place(c, OFFLOAD_AUTO, memory, &options);
    configure(c, &options);
    run(c, &places[OFFLOAD_AUTO], &options, samples_of(c), BATCH, &found);
    check_bits(c, &places[OFFLOAD_AUTO], one, &found);
    if (found.peak > memory)
        fail_at(c, places[OFFLOAD_AUTO].name, "the device holds more than it has");
    t->spared += all->peak < all->without;
    t->divided += found.partial;
    td_train_options_deinit(&options);
}

/* The table's row-sparse gradient cannot be offloaded from where it is looked up: a refusal that says what to do. */
static void check_refused_rows(const combination *c, td_train_options *options)
{
    td_value loss;
    td_plan *plan = NULL;
    td_graph *graph = build(BATCH, false, &loss);
    td_status *status = td_plan_train(graph, loss, options, &plan);
    if (td_status_code(status) != TD_UNSUPPORTED ||
        !strstr(td_status_message(status), "\"table\" is read by rows on accel, so its update cannot be offloaded") ||
        !strstr(td_status_message(status), "try: offload.embedding: cpu"))
        fail_at(c, places[ROWS_STAY].name, status ? td_status_message(status) : "it is planned");
    td_status_destroy(status);
    td_graph_destroy(graph);
}

static void check(const combination *c, td_train_options *options, tally *t)
{
    static trace one, others[PLACES];
    for (int32_t p = 0; p < OFFLOAD_AUTO; p++)
        configure(c, &options[p]);
    for (int32_t p = 0; p < ROWS_STAY; p++) {
        if (p == CUT && t->combinations % CUTS != 0)
            continue;
        run(c, &places[p], &options[p], samples_of(c), BATCH, p ? &others[p] : &one);
        if (p)
            check_bits(c, &places[p], &one, &others[p]);
    }
    t->combinations++;
    t->refused += one.refused;
    if (one.refused)
        return;
    t->halves += others[OFFLOAD_HALF].partial;
    if (c->at[GRADIENT] == 0)
        check_refused_rows(c, &options[ROWS_STAY]);
    check_auto(c, &others[OFFLOAD_ALL], &one, t);
    if (c->at[WINDOW] > 0 && c->at[PRECISION] == 0)
        check_large_batch(c, &options[ONE_DEVICE], &one);
}

static void test_every_optimizer_window_and_place_agree(void **state)
{
    (void)state;
    tally t = {0};
    int32_t turn = 0;
    for (int32_t r = 0; r < td_rule_count(); r++)
        for (int32_t gradient = 0; gradient < 2; gradient++) {
            combination c = {.rule = td_rule_at(r), .at[GRADIENT] = gradient};
            td_train_options options[PLACES];
            for (int32_t p = 0; p < OFFLOAD_AUTO; p++)
                open_place(&c, p, 16 << 20, &options[p]);
            do {
                if (turn++ % EVERY == 0)
                    check(&c, options, &t);
            } while (next_combination(&c));
            for (int32_t p = 0; p < OFFLOAD_AUTO; p++)
                td_train_options_deinit(&options[p]);
        }
    print_message("%d combinations, %d refused, %d with half of the optimizer offloaded, %d with what does not fit\n",
                  t.combinations, t.refused, t.halves, t.divided);
    assert_int_equal(t.halves, t.combinations - t.refused);
    assert_true(t.divided > 0);
    assert_int_equal(t.divided, t.spared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_optimizer_window_and_place_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
