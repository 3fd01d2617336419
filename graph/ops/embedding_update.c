/* embedding_update: an embedding's backward and its optimizer in one, without a gradient in between.
 *
 * The same bits as embedding_gradient or embedding_bag_gradient (duplicates of a row summed in position order, the
 * first taken as it is) followed by the rule on each touched row. A row is touched when its id is there, whatever its
 * gradient. Nothing is written unless every id and offset is good. */
#include <string.h>

#include "base/dedup.h"
#include "base/memory.h"
#include "graph/ops/lookup_rules.h"
#include "graph/ops/update_rules.h"

enum { TABLE, GRADIENT, IDS, WEIGHTS, COEFFICIENTS, STATES };

static const td_attr_spec attrs[] = {
    {.name = "rule", .type = TD_ATTR_STRING, .required = true, .help = "the optimizer, by name"},
    {.name = "pooling",
     .type = TD_ATTR_STRING,
     .s = "sum",
     .help = "sum or mean of a bag's rows; none: one row per id"},
    {.name = "offset", .type = TD_ATTR_INT, .help = "added to each id before the lookup"},
    UPDATE_ROUNDING_ATTR,
    {0}};

static bool pooling_is(const td_attr *given, int32_t n, const char *pooling)
{
    return strcmp(td_attr_string(given, n, "pooling", "sum"), pooling) == 0;
}

/* ---- shapes -------------------------------------------------------------------------------------------------------------------------- */

static td_status *find_rule(const td_infer *infer, const td_rule **out_rule)
{
    const char *name = td_attr_string(infer->attrs, infer->n_attrs, "rule", "");
    *out_rule = td_rule_find(name);
    if (!*out_rule)
        return TD_SHAPE_ERROR(infer, "there is no optimizer \"%s\"; did you mean \"%s\"?", name, td_rule_nearest(name));
    if ((*out_rule)->refuses_row_sparse)
        return TD_SHAPE_ERROR(infer, "%s takes no row-sparse gradient: %s", name, (*out_rule)->refuses_row_sparse);
    return NULL;
}

/* The gradient has the lookup's output shape: [.., dim] of ids [..], or [bags, dim]. */
static td_status *require_gradient(const td_infer *infer, bool plain)
{
    TD_TRY(td_infer_require(infer, GRADIENT, TD_DENSE, TD_F32));
    td_shape expected = infer->inputs[IDS].shape;
    if (!plain)
        expected.rank = 1;
    if (expected.rank >= TD_MAX_RANK)
        return TD_SHAPE_ERROR(infer, "ids have %d dimensions, at most %d are allowed", expected.rank, TD_MAX_RANK - 1);
    expected.dims[expected.rank++] = infer->inputs[TABLE].shape.dims[1];
    char have[128], want[128];
    if (!td_shape_equal(&infer->inputs[GRADIENT].shape, &expected))
        return TD_SHAPE_ERROR(infer, "the gradient must be %s, not %s",
                              td_shape_text(infer->graph, &expected, want, sizeof want),
                              td_shape_text(infer->graph, &infer->inputs[GRADIENT].shape, have, sizeof have));
    return NULL;
}

static td_status *require_weights(const td_infer *infer, bool plain)
{
    const td_type *ids = &infer->inputs[IDS], *weights = &infer->inputs[WEIGHTS];
    if (weights->kind == TD_NONE)
        return NULL;
    if (plain)
        return TD_SHAPE_ERROR(infer, "per-id weights need bags: pooling sum or mean");
    TD_TRY(td_infer_require(infer, WEIGHTS, TD_DENSE, TD_F32));
    td_shape expected = ids->kind == TD_RAGGED ? td_shape_of(1, &ids->entries) : ids->shape;
    if (!td_shape_equal(&weights->shape, &expected))
        return TD_SHAPE_ERROR(infer, "there must be one weight per id");
    return NULL;
}

static td_status *infer_update(td_infer *infer)
{
    const td_rule *rule;
    bool plain = pooling_is(infer->attrs, infer->n_attrs, "none");
    TD_TRY(find_rule(infer, &rule));
    TD_TRY(lookup_require_table(infer));
    TD_TRY(lookup_require_ids(infer, IDS, !plain));
    if (!plain && !pooling_is(infer->attrs, infer->n_attrs, "sum") && !pooling_is(infer->attrs, infer->n_attrs, "mean"))
        return TD_SHAPE_ERROR(infer, "pooling must be \"sum\", \"mean\" or \"none\", not \"%s\"",
                              td_attr_string(infer->attrs, infer->n_attrs, "pooling", ""));
    if (!plain && (infer->inputs[IDS].shape.rank < 1 || infer->inputs[IDS].shape.rank > 2))
        return TD_SHAPE_ERROR(infer, "ids must be ragged, [bags] or [bags, length], not of rank %d",
                              infer->inputs[IDS].shape.rank);
    TD_TRY(require_gradient(infer, plain));
    TD_TRY(require_weights(infer, plain));
    TD_TRY(update_require_coefficients(infer, COEFFICIENTS));
    return update_require_states(infer, rule, STATES, &infer->inputs[TABLE].shape);
}

/* As if all ids were distinct. */
static void cost_update(const td_kernel_call *call, td_cost *out)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    const td_tensor *ids = &call->inputs[IDS];
    update_target target = update_bind(rule, call, COEFFICIENTS, STATES);
    double count = (double)(ids->kind == TD_RAGGED ? ids->entries : td_tensor_elements(ids));
    double rows = count < (double)call->inputs[TABLE].dims[0] ? count : (double)call->inputs[TABLE].dims[0];
    double state_bytes = rows * update_row_bytes(rule, target.dtype, target.n_states, target.dim);
    double read = (double)td_tensor_bytes(ids) + (double)td_tensor_bytes(&call->inputs[WEIGHTS]) +
                  4.0 * count * (double)target.dim;
    *out = (td_cost){(UPDATE_FLOPS * rows + count) * (double)target.dim, state_bytes + read, state_bytes};
}

/* ---- reference ----------------------------------------------------------------------------------------------------------------------- */

typedef struct work {
    const td_kernel_call *call;
    td_lookup lookup;
    td_dedup dedup;
    update_target target;
    int64_t *bags; /* of each position */
    float *row;    /* a row's gradient */
    void *scratch;
    bool mean;
} work;

static td_status *allocate(work *w)
{
    w->scratch = td_calloc(1, td_dedup_scratch_bytes(w->lookup.count));
    if (!w->scratch)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s %s: out of memory", w->call->op, w->call->name);
    TD_TRY(TD_NEW(w->row, w->target.dim));
    return TD_NEW(w->bags, w->lookup.count + 1);
}

static void release(work *w)
{
    td_free(w->scratch);
    td_free(w->row);
    td_free(w->bags);
}

/* Adds the gradient of one position to w->row, or puts it there. */
static void take_position(work *w, int64_t position, bool first)
{
    int64_t bag = w->bags[position], dim = w->target.dim;
    const float *gradient = (const float *)w->call->inputs[GRADIENT].data + bag * dim;
    const float *weights = w->call->inputs[WEIGHTS].kind == TD_NONE ? NULL : w->call->inputs[WEIGHTS].data;
    float count = (float)(td_lookup_begin(&w->lookup, bag + 1) - td_lookup_begin(&w->lookup, bag));
    for (int64_t k = 0; k < dim; k++) {
        float term = weights ? gradient[k] * weights[position] : gradient[k];
        term = w->mean ? term / count : term;
        w->row[k] = first ? term : w->row[k] + term;
    }
}

static td_status *update_rows(work *w)
{
    const td_lookup *lookup = &w->lookup;
    for (int64_t bag = 0; bag < lookup->bags; bag++)
        for (int64_t i = td_lookup_begin(lookup, bag); i < td_lookup_begin(lookup, bag + 1); i++)
            w->bags[i] = bag;
    TD_TRY(td_dedup_group(lookup->ids, lookup->wide ? TD_I64 : TD_I32, lookup->count, lookup->offset, lookup->rows,
                          w->scratch, &w->dedup));
    for (int64_t r = 0; r < w->dedup.n_rows; r++) {
        for (int64_t k = w->dedup.starts[r]; k < w->dedup.starts[r + 1]; k++)
            take_position(w, w->dedup.positions[k], k == w->dedup.starts[r]);
        TD_TRY(update_row(&w->target, w->dedup.rows[r], w->row));
    }
    return NULL;
}

static td_status *reference_update(const td_kernel_call *call)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    work w = {.call = call, .target = update_bind(rule, call, COEFFICIENTS, STATES)};
    w.mean = pooling_is(call->attrs, call->n_attrs, "mean");
    td_lookup_init(&w.lookup, call, &call->inputs[IDS], pooling_is(call->attrs, call->n_attrs, "none"),
                   td_attr_int(call->attrs, call->n_attrs, "offset", 0), call->inputs[TABLE].dims[0]);
    TD_TRY(td_lookup_check(&w.lookup));
    td_status *status = allocate(&w);
    if (!status)
        status = update_rows(&w);
    release(&w);
    return status;
}

const td_op td_op_embedding_update = {
    .name = "embedding_update",
    .summary = "an embedding's backward and its optimizer in one: updates the touched rows of a table",
    .inputs = {{"table", TD_PORT_WRITES},
               {"gradient", TD_PORT_NO_GRADIENT},
               {"ids", TD_PORT_NO_GRADIENT},
               {"weights", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"coefficients", TD_PORT_NO_GRADIENT},
               {"state", TD_PORT_WRITES | TD_PORT_VARIADIC | TD_PORT_OPTIONAL}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_update,
    .no_gradient = "it is an update",
    .cost = cost_update,
    .reference = reference_update,
};
