/* Every optimizer under every way of making one update out of micro-batches: a matrix of axes, each a row of the table below.
 *
 * Of each combination the run on one device is trained first; then another place must give its bits, or refuse the combination
 * when it is planned, with a reason: places take turns, so that each meets every value of every axis. Where sums of micro-batches and one large batch are the same in exact
 * arithmetic, they agree up to rounding. To widen the matrix, add a row to an axis, or an axis with its line in `configure`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "optim/rule.h"
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
    bool accelerator;
    const char *on_host; /* a pattern of what stays there */
    td_offload optimizer;
    const char *gradient; /* the only one that it is for; NULL: any */
    double ratio;         /* of what goes to the host; 0: all */
} place;

/* A dense gradient of a table on the host is refused whatever else, so there such tables are on the accelerator. */
static const place places[] = {
    {"one device", false, NULL, TD_OFFLOAD_NONE, NULL, 0},
    {"an accelerator with the table on the host", true, "table*", TD_OFFLOAD_NONE, "row-sparse", 0},
    {"an accelerator with a layer on the host", true, "fc.0*", TD_OFFLOAD_NONE, "dense", 0},
    {"offload.optimizer: cpu with the table on the host", true, "table*", TD_OFFLOAD_CPU, "row-sparse", 0},
    {"offload.optimizer: cpu", true, NULL, TD_OFFLOAD_CPU, "dense", 0},
    {"offload.optimizer: {ratio: 0.5}", true, NULL, TD_OFFLOAD_CPU, "dense", 0.5},
    {"offload.optimizer: auto, where all fits", true, NULL, TD_OFFLOAD_AUTO, "dense", 0},
    {"offload.optimizer: {ratio: 0.5} with the table on the host", true, "table*", TD_OFFLOAD_CPU, "row-sparse", 0.5},
    {"offload.optimizer: auto with the table on the host", true, "table*", TD_OFFLOAD_AUTO, "row-sparse", 0},
};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
enum { EVERY = 7 }; /* no divisor of the number of combinations of a rule */
#else
enum { EVERY = 1 };
#endif
enum { PLACES = sizeof places / sizeof *places };

static int32_t values_of(int32_t a)
{
    int32_t n = 0;
    while (n < 4 && axes[a].values[n])
        n++;
    return n;
}

/* The next combination of a rule; false after the last. */
static bool next_combination(combination *c)
{
    for (int32_t a = 0; a < AXES; a++) {
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

enum { ROWS = 20, DIM = 6, BAG = 3, HIDDEN = 5, BATCH = 4, SAMPLES = 56 };

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
    bool refused;
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

/* A refusal says why: its message is more than that it refuses. */
static bool is_refused(const combination *c, const place *p, td_status *status, trace *out)
{
    if (!status)
        return false;
    if (td_status_code(status) != TD_UNSUPPORTED || strlen(td_status_message(status)) < 40)
        fail_at(c, p->name, td_status_message(status));
    td_status_destroy(status);
    out->refused = true;
    return true;
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
    if (!is_refused(c, p, td_plan_train(graph, loss, options, &plan), out)) {
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

/* Whole windows of four batches of four; or, at the end, one of a batch and a half. */
static int64_t samples_of(const combination *c)
{
    return c->at[WINDOW] == 2 ? 4 * BATCH + BATCH + BATCH / 2 : 2 * 4 * BATCH;
}

static void check_bits(const combination *c, const place *p, const trace *a, const trace *b)
{
    if (a->refused != b->refused)
        fail_at(c, p->name, "only one of this place and one device refuses");
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
    run(c, &places[0], options, samples_of(c), 4 * BATCH, &large);
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

static bool refuses(const combination *c)
{
    return (c->at[GRADIENT] == 0 ? c->rule->refuses_row_sparse : c->rule->refuses_dense) != NULL;
}

/* Of the places beside one device that are for the combination's gradient, the one whose turn it is. */
static int32_t other_place(const combination *c, int32_t turn)
{
    int32_t fits[PLACES], n = 0;
    for (int32_t p = 1; p < PLACES; p++)
        if (!places[p].gradient || strcmp(places[p].gradient, axes[GRADIENT].values[c->at[GRADIENT]]) == 0)
            fits[n++] = p;
    for (int32_t a = 0; a < GRADIENT; a++)
        turn += c->at[a];
    return fits[turn % n];
}

static void check(const combination *c, int32_t turn, td_train_options options[PLACES])
{
    static trace one, other;
    int32_t p = other_place(c, turn);
    configure(c, &options[0]);
    configure(c, &options[p]);
    run(c, &places[0], &options[0], samples_of(c), BATCH, &one);
    run(c, &places[p], &options[p], samples_of(c), BATCH, &other);
    check_bits(c, &places[p], &one, &other);
    if (one.refused != refuses(c))
        fail_at(c, places[0].name, "it refuses what its rule takes, or the other way round");
    if (!one.refused && c->at[WINDOW] > 0 && c->at[PRECISION] == 0)
        check_large_batch(c, &options[0], &one);
}

static bool has_epsilon(const td_rule *rule)
{
    for (const td_setting *s = rule->settings; s->name; s++)
        if (strcmp(s->name, "epsilon") == 0)
            return true;
    return false;
}

static void open_place(const td_rule *rule, const place *p, td_train_options *options)
{
    *options = td_train_defaults();
    td_add_device(options, "cpu", "cpu:cores=1");
    if (p->accelerator)
        td_add_device(options, "accel", "emulated:memory=16MiB,cores=1");
    if (p->on_host)
        td_place(options, p->on_host, "cpu");
    options->offload_optimizer = p->optimizer;
    options->offload_ratio = p->ratio > 0 ? p->ratio : 1;
    td_group(options, "table", (td_optimizer){.name = rule->name, .lr = 0.01, .epsilon = has_epsilon(rule) ? 1e-2 : 0});
    td_group(options, "*", rule->refuses_dense ? td_sgd(0.05) : options->groups.items[0].optimizer);
}

static void test_every_optimizer_window_and_place_agree(void **state)
{
    (void)state;
    int32_t combinations = 0;
    for (int32_t r = 0; r < td_rule_count(); r++) {
        combination c = {.rule = td_rule_at(r)};
        td_train_options options[PLACES];
        for (int32_t p = 0; p < PLACES; p++)
            open_place(c.rule, &places[p], &options[p]);
        do {
            if (combinations++ % EVERY == 0)
                check(&c, r, options);
        } while (next_combination(&c));
        for (int32_t p = 0; p < PLACES; p++)
            td_train_options_deinit(&options[p]);
    }
    print_message("%d combinations\n", combinations);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_optimizer_window_and_place_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
