/* lookup_early and lookup_rest: a lookup in two parts, put in by the planner so that most of step i + 1's lookup may run
 * before the update of step i has.
 *
 * The update of step i writes exactly the rows that batch i names. lookup_early gets the ids of both batches: a bag that
 * shares no row with the batch before is looked up and marked ready; the others are left. lookup_rest does those, after the
 * update. Both together give, bit for bit, what embedding or embedding_bag gives ("pooling": none, sum or mean). */
#include <math.h>
#include <string.h>

#include "graph/ops/lookup_rules.h"

enum { TABLE, IDS, PREVIOUS, EARLY_WEIGHTS };            /* inputs of lookup_early */
enum { PARTIAL_IN = 2, READY_IN = 3, REST_WEIGHTS = 4 }; /* of lookup_rest, after TABLE and IDS */
enum { PARTIAL, READY, N_READY };                        /* outputs of lookup_early */

static const td_attr_spec lookup_attrs[] = {
    {.name = "pooling",
     .type = TD_ATTR_STRING,
     .s = "none",
     .help = "none (one id each), or sum or mean of a bag's rows"},
    {.name = "offset", .type = TD_ATTR_INT, .help = "added to each id before the lookup"},
    {0}};

static bool is_plain(const td_attr *attrs, int32_t n)
{
    return strcmp(td_attr_string(attrs, n, "pooling", "none"), "none") == 0;
}

/* Looked-up vectors: [ids.., dim] or [bags, dim]; marks: one per bag. */
static void infer_shapes(const td_infer *infer, td_shape *vectors, td_shape *marks)
{
    *marks = infer->inputs[IDS].shape;
    if (!is_plain(infer->attrs, infer->n_attrs))
        marks->rank = 1;
    *vectors = *marks;
    vectors->dims[vectors->rank++] = infer->inputs[TABLE].shape.dims[1];
}

static td_status *early_infer(td_infer *infer)
{
    td_shape vectors, marks;
    td_dim one = td_dim_constant(1);
    TD_TRY(lookup_require_table(infer));
    TD_TRY(lookup_require_ids(infer, IDS, true));
    TD_TRY(lookup_require_ids(infer, PREVIOUS, true));
    if (infer->inputs[IDS].shape.rank >= TD_MAX_RANK)
        return TD_SHAPE_ERROR(infer, "ids have too many dimensions");
    infer_shapes(infer, &vectors, &marks);
    infer->outputs[PARTIAL] =
        (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = vectors, .entries = td_dim_constant(0)};
    infer->outputs[READY] = (td_type){.kind = TD_DENSE, .dtype = TD_U8, .shape = marks, .entries = td_dim_constant(0)};
    infer->outputs[N_READY] =
        (td_type){.kind = TD_DENSE, .dtype = TD_I64, .shape = td_shape_of(1, &one), .entries = td_dim_constant(0)};
    return NULL;
}

static td_status *rest_infer(td_infer *infer)
{
    td_shape vectors, marks;
    char text[128];
    TD_TRY(lookup_require_table(infer));
    TD_TRY(lookup_require_ids(infer, IDS, true));
    infer_shapes(infer, &vectors, &marks);
    if (!td_shape_equal(&infer->inputs[PARTIAL_IN].shape, &vectors) ||
        !td_shape_equal(&infer->inputs[READY_IN].shape, &marks))
        return TD_SHAPE_ERROR(infer, "partial results must be %s, as lookup_early makes them",
                              td_shape_text(infer->graph, &vectors, text, sizeof text));
    infer->outputs[0] = infer->inputs[PARTIAL_IN];
    return NULL;
}

/* ---- reference ------------------------------------------------------------------------------------------------------------- */

static void init_lookup(td_lookup *lookup, const td_kernel_call *call, const td_tensor *ids)
{
    td_lookup_init(lookup, call, ids, is_plain(call->attrs, call->n_attrs),
                   td_attr_int(call->attrs, call->n_attrs, "offset", 0), call->inputs[TABLE].dims[0]);
}

static const float *weights_of(const td_kernel_call *call, int32_t index)
{
    return index < call->n_inputs && call->inputs[index].kind != TD_NONE ? call->inputs[index].data : NULL;
}

static bool shares_a_row(const td_lookup *lookup, const td_lookup *previous, int64_t bag)
{
    for (int64_t i = td_lookup_begin(lookup, bag); i < td_lookup_begin(lookup, bag + 1); i++)
        for (int64_t k = 0; k < previous->count; k++)
            if (td_lookup_id(previous, k) == td_lookup_id(lookup, i))
                return true;
    return false;
}

static void look_up(const td_kernel_call *call, const td_lookup *lookup, const float *weights, int64_t bag, float *out)
{
    const td_tensor *table = &call->inputs[TABLE];
    const int64_t dim = table->dims[1], begin = td_lookup_begin(lookup, bag), end = td_lookup_begin(lookup, bag + 1);
    const char *pooling = td_attr_string(call->attrs, call->n_attrs, "pooling", "none");
    if (is_plain(call->attrs, call->n_attrs)) {
        for (int64_t k = 0; k < dim; k++)
            out[k] = lookup_element(table, td_lookup_row(lookup, bag) * dim + k);
        return;
    }
    for (int64_t k = 0; k < dim; k++)
        out[k] = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = td_lookup_row(lookup, i) * dim;
        for (int64_t k = 0; k < dim; k++)
            out[k] = weights ? fmaf(weights[i], lookup_element(table, row + k), out[k])
                             : out[k] + lookup_element(table, row + k);
    }
    for (int64_t k = 0; strcmp(pooling, "mean") == 0 && begin < end && k < dim; k++)
        out[k] /= (float)(end - begin);
}

static td_status *early_reference(const td_kernel_call *call)
{
    td_lookup lookup, previous;
    uint8_t *ready = call->outputs[READY].data;
    int64_t n_ready = 0, dim = call->inputs[TABLE].dims[1];
    init_lookup(&lookup, call, &call->inputs[IDS]);
    init_lookup(&previous, call, &call->inputs[PREVIOUS]);
    TD_TRY(td_lookup_check(&lookup));
    for (int64_t bag = 0; bag < lookup.bags; bag++) {
        ready[bag] = !shares_a_row(&lookup, &previous, bag);
        n_ready += ready[bag];
        if (ready[bag])
            look_up(call, &lookup, weights_of(call, EARLY_WEIGHTS), bag,
                    (float *)call->outputs[PARTIAL].data + bag * dim);
    }
    memcpy(call->outputs[N_READY].data, &n_ready, sizeof n_ready);
    return NULL;
}

static td_status *rest_reference(const td_kernel_call *call)
{
    td_lookup lookup;
    const td_tensor *partial = &call->inputs[PARTIAL_IN], *out = &call->outputs[0];
    const uint8_t *ready = call->inputs[READY_IN].data;
    const int64_t dim = call->inputs[TABLE].dims[1];
    init_lookup(&lookup, call, &call->inputs[IDS]);
    TD_TRY(td_lookup_check(&lookup));
    if (out->data != partial->data && td_tensor_elements(out))
        memcpy(out->data, partial->data, (size_t)td_tensor_bytes(out));
    for (int64_t bag = 0; bag < lookup.bags; bag++)
        if (!ready[bag])
            look_up(call, &lookup, weights_of(call, REST_WEIGHTS), bag, (float *)out->data + bag * dim);
    return NULL;
}

/* The two parts share the rows between them: each is counted as half of a lookup. */
static void lookup_cost(const td_kernel_call *call, td_cost *out)
{
    const td_tensor *ids = &call->inputs[IDS];
    const double n = (double)(ids->kind == TD_RAGGED ? ids->entries : td_tensor_elements(ids));
    const double dim = (double)call->inputs[TABLE].dims[1];
    *out = (td_cost){0.5 * n * dim, 2 * n * dim + 2 * (double)td_tensor_bytes(ids),
                     0.5 * (double)td_tensor_bytes(&call->outputs[0])};
}

const td_op td_op_lookup_early = {
    .name = "lookup_early",
    .summary = "the part of a lookup that shares no row with the batch before, made by the planner",
    .inputs = {{"table", 0},
               {"ids", TD_PORT_NO_GRADIENT},
               {"previous", TD_PORT_NO_GRADIENT},
               {"weights", TD_PORT_OPTIONAL}},
    .outputs = {{"partial", 0}, {"ready", 0}, {"n_ready", 0}},
    .attrs = lookup_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = early_infer,
    .no_gradient = "it is put in after differentiation",
    .cost = lookup_cost,
    .reference = early_reference,
};

const td_op td_op_lookup_rest = {
    .name = "lookup_rest",
    .summary = "the rest of a lookup, after the update of the batch before, made by the planner",
    .inputs = {{"table", 0}, {"ids", TD_PORT_NO_GRADIENT}, {"partial", 0}, {"ready", 0}, {"weights", TD_PORT_OPTIONAL}},
    .outputs = {{"output", 0}},
    .attrs = lookup_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = rest_infer,
    .no_gradient = "it is put in after differentiation",
    .cost = lookup_cost,
    .in_place = {{1, PARTIAL_IN + 1}},
    .reference = rest_reference,
};
