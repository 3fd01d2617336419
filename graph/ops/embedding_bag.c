/* embedding_bag: the sum or mean of the rows of each bag of ids, optionally weighted, and its gradients.
 *
 * out[bag] = sum over its positions in ascending order of weight * row, from zero, one fma each (without weights: one
 * addition); the mean then divides by the number of ids. An empty bag is zeros. Seen from the table, the gradient of a
 * position is out_gradient[bag], times its weight, divided by the number of ids, each rounded; positions of one row are
 * added in ascending order (the first is taken as it is). */
#include <math.h>

#include "base/memory.h"
#include "base/sums.h"
#include "graph/ops/lookup_rules.h"

enum { TABLE, IDS, WEIGHTS };

#define BAG_ATTRS                                                                                                      \
    {.name = "pooling", .type = TD_ATTR_STRING, .s = "sum", .help = "sum or mean of a bag's rows"},                    \
    {                                                                                                                  \
        .name = "offset", .type = TD_ATTR_INT, .help = "added to each id before the lookup"                            \
    }

static const td_attr_spec bag_attrs[] = {
    BAG_ATTRS, {.name = "dense", .type = TD_ATTR_BOOL, .help = "the gradient is a whole table, not row-sparse"}, {0}};
static const td_attr_spec gradient_attrs[] = {
    BAG_ATTRS, {.name = "rows", .type = TD_ATTR_INT, .required = true, .help = "rows of the table"}, {0}};
static const td_attr_spec weights_gradient_attrs[] = {BAG_ATTRS, {0}};

static bool is_mean(const td_attr *attrs, int32_t n_attrs)
{
    return strcmp(td_attr_string(attrs, n_attrs, "pooling", "sum"), "mean") == 0;
}

/* Ids ragged [bags], dense [bags] or [bags, length]; weights (may be absent) f32, one per id; known pooling. */
static td_status *require_bags(const td_infer *infer, int32_t ids_index, int32_t weights_index)
{
    TD_TRY(lookup_require_ids(infer, ids_index, true));
    const td_type *ids = &infer->inputs[ids_index];
    if (ids->shape.rank < 1 || ids->shape.rank > 2)
        return TD_SHAPE_ERROR(infer, "ids must be ragged, [bags] or [bags, length], not of rank %d", ids->shape.rank);
    const char *pooling = td_attr_string(infer->attrs, infer->n_attrs, "pooling", "sum");
    if (strcmp(pooling, "sum") != 0 && strcmp(pooling, "mean") != 0)
        return TD_SHAPE_ERROR(infer, "pooling must be \"sum\" or \"mean\", not \"%s\"", pooling);
    if (weights_index >= infer->n_inputs || infer->inputs[weights_index].kind == TD_NONE)
        return NULL;
    TD_TRY(td_infer_require(infer, weights_index, TD_DENSE, TD_F32));
    td_shape expected = ids->shape;
    if (ids->kind == TD_RAGGED)
        expected = td_shape_of(1, &ids->entries);
    char have[128], want[128];
    if (!td_shape_equal(&infer->inputs[weights_index].shape, &expected))
        return TD_SHAPE_ERROR(infer, "weights are %s, ids need one each: %s",
                              td_shape_text(infer->graph, &infer->inputs[weights_index].shape, have, sizeof have),
                              td_shape_text(infer->graph, &expected, want, sizeof want));
    return NULL;
}

/* Input `index` is f32 [bags, dim] with the bags of `ids`. */
static td_status *require_bag_gradient(const td_infer *infer, int32_t index, const td_type *ids)
{
    TD_TRY(td_infer_require(infer, index, TD_DENSE, TD_F32));
    const td_shape *shape = &infer->inputs[index].shape;
    char text[128];
    if (shape->rank != 2 || !td_dim_equal(shape->dims[0], ids->shape.dims[0]))
        return TD_SHAPE_ERROR(infer, "the gradient must be [bags, dim], not %s",
                              td_shape_text(infer->graph, shape, text, sizeof text));
    return NULL;
}

static void lookup_of(td_lookup *lookup, const td_kernel_call *call, const td_tensor *ids, int64_t rows)
{
    td_lookup_init(lookup, call, ids, false, td_attr_int(call->attrs, call->n_attrs, "offset", 0), rows);
}

static bool has_weights(const td_kernel_call *call, int32_t index)
{
    return index < call->n_inputs && call->inputs[index].kind != TD_NONE;
}

static const float *weights_of(const td_kernel_call *call, int32_t index)
{
    return has_weights(call, index) ? call->inputs[index].data : NULL;
}

static int64_t ids_of(const td_tensor *ids)
{
    return ids->kind == TD_RAGGED ? ids->entries : td_tensor_elements(ids);
}

/* ---- forward ------------------------------------------------------------------------------------------------------- */

static td_status *bag_infer(td_infer *infer)
{
    TD_TRY(lookup_require_table(infer));
    TD_TRY(require_bags(infer, IDS, WEIGHTS));
    const td_dim dims[2] = {infer->inputs[IDS].shape.dims[0], infer->inputs[TABLE].shape.dims[1]};
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(2, dims)};
    return NULL;
}

static void bag_cost(const td_kernel_call *call, td_cost *out)
{
    const double ids = (double)ids_of(&call->inputs[IDS]), dim = (double)call->inputs[TABLE].dims[1];
    double read = 4 * ids * dim + (double)td_tensor_bytes(&call->inputs[IDS]);
    if (has_weights(call, WEIGHTS))
        read += 4 * ids;
    *out =
        (td_cost){(has_weights(call, WEIGHTS) ? 2 : 1) * ids * dim, read, (double)td_tensor_bytes(&call->outputs[0])};
}

static td_status *bag_reference(const td_kernel_call *call)
{
    const td_tensor *table = &call->inputs[TABLE];
    const bool mean = is_mean(call->attrs, call->n_attrs);
    const float *weights = weights_of(call, WEIGHTS);
    const int64_t dim = table->dims[1];
    td_lookup lookup;
    lookup_of(&lookup, call, &call->inputs[IDS], table->dims[0]);
    TD_TRY(td_lookup_check(&lookup));
    for (int64_t bag = 0; bag < lookup.bags; bag++) {
        float *out = (float *)call->outputs[0].data + bag * dim;
        const int64_t begin = td_lookup_begin(&lookup, bag), end = td_lookup_begin(&lookup, bag + 1);
        for (int64_t k = 0; k < dim; k++)
            out[k] = 0;
        for (int64_t i = begin; i < end; i++) {
            const int64_t row = td_lookup_row(&lookup, i) * dim;
            for (int64_t k = 0; k < dim; k++)
                out[k] = weights ? fmaf(weights[i], lookup_element(table, row + k), out[k])
                                 : out[k] + lookup_element(table, row + k);
        }
        for (int64_t k = 0; mean && begin < end && k < dim; k++)
            out[k] /= (float)(end - begin);
    }
    return NULL;
}

static td_status *bag_gradient(td_differentiate *d)
{
    const td_value table = d->inputs[TABLE], ids = d->inputs[IDS], gradient = d->output_gradients[0];
    const td_value weights = d->n_inputs > WEIGHTS ? d->inputs[WEIGHTS] : TD_NO_VALUE;
    const char *pooling = td_attr_string(d->attrs, d->n_attrs, "pooling", "sum");
    const int64_t offset = td_attr_int(d->attrs, d->n_attrs, "offset", 0);
    const td_attr attrs[3] = {TD_STRING("pooling", pooling), TD_INT("offset", offset),
                              TD_INT("rows", td_value_dim(table, 0))};
    if (d->wanted[TABLE]) {
        const bool dense = td_attr_int(d->attrs, d->n_attrs, "dense", 0) || lookup_is_made(table);
        const td_value inputs[3] = {ids, gradient, weights};
        d->input_gradients[TABLE] = td_graph_add1(
            d->graph, dense ? "embedding_bag_gradient_dense" : "embedding_bag_gradient", NULL, inputs, 3, attrs, 3);
    }
    if (weights.id >= 0 && d->wanted[WEIGHTS]) {
        const td_value inputs[3] = {table, ids, gradient};
        d->input_gradients[WEIGHTS] =
            td_graph_add1(d->graph, "embedding_bag_weights_gradient", NULL, inputs, 3, attrs, 2);
    }
    return NULL;
}

const td_op td_op_embedding_bag = {
    .name = "embedding_bag",
    .summary = "sum or mean of a table's rows per bag of ids: -> [bags, dim]",
    .inputs = {{"table", 0}, {"ids", TD_PORT_NO_GRADIENT}, {"weights", TD_PORT_OPTIONAL}},
    .outputs = {{"output", 0}},
    .attrs = bag_attrs,
    .infer = bag_infer,
    .gradient = bag_gradient,
    .cost = bag_cost,
    .reference = bag_reference,
};

/* ---- gradient of the table ------------------------------------------------------------------------------------------- */

enum { GRADIENT_IDS, GRADIENT, GRADIENT_WEIGHTS };

static td_status *table_gradient_infer(td_infer *infer, bool dense)
{
    const td_type *ids = &infer->inputs[GRADIENT_IDS];
    TD_TRY(require_bags(infer, GRADIENT_IDS, GRADIENT_WEIGHTS));
    TD_TRY(require_bag_gradient(infer, GRADIENT, ids));
    return lookup_infer_table_gradient(infer, ids, infer->inputs[GRADIENT].shape.dims[1], dense);
}

static td_status *gradient_infer(td_infer *infer)
{
    return table_gradient_infer(infer, false);
}

static td_status *gradient_dense_infer(td_infer *infer)
{
    return table_gradient_infer(infer, true);
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const td_tensor *gradient = &call->inputs[GRADIENT];
    const double ids = (double)ids_of(&call->inputs[GRADIENT_IDS]), dim = (double)gradient->dims[1];
    double read = (double)td_tensor_bytes(gradient) + (double)td_tensor_bytes(&call->inputs[GRADIENT_IDS]);
    if (has_weights(call, GRADIENT_WEIGHTS))
        read += 4 * ids;
    *out = (td_cost){ids * dim, read, (double)td_tensor_bytes(&call->outputs[0])};
}

/* One element of the gradient of one position's row. */
static float position_gradient(float gradient, const float *weight, int64_t divisor)
{
    if (weight)
        gradient *= *weight;
    return divisor ? gradient / (float)divisor : gradient;
}

static td_status *table_gradient_reference(const td_kernel_call *call)
{
    const td_tensor *out = &call->outputs[0];
    const bool mean = is_mean(call->attrs, call->n_attrs), dense = out->kind == TD_DENSE;
    const float *weights = weights_of(call, GRADIENT_WEIGHTS);
    const int64_t dim = out->dims[1];
    float *table = out->data;
    td_lookup lookup;
    lookup_of(&lookup, call, &call->inputs[GRADIENT_IDS], out->dims[0]);
    TD_TRY(td_lookup_check(&lookup));
    if (!dense)
        *(int64_t *)out->count = 0;
    for (int64_t i = 0; dense && i < td_tensor_elements(out); i++)
        table[i] = 0;
    for (int64_t bag = 0; bag < lookup.bags; bag++) {
        const float *gradient = (const float *)call->inputs[GRADIENT].data + bag * dim;
        const int64_t begin = td_lookup_begin(&lookup, bag), end = td_lookup_begin(&lookup, bag + 1);
        for (int64_t i = begin; i < end; i++) {
            const int64_t id_row = td_lookup_row(&lookup, i);
            bool fresh = false;
            float *row = dense ? table + id_row * dim : row_sparse_place(out, id_row, dim, &fresh);
            for (int64_t k = 0; k < dim; k++) {
                const float term = position_gradient(gradient[k], weights ? weights + i : NULL, mean ? end - begin : 0);
                row[k] = fresh ? term : row[k] + term;
            }
        }
    }
    return NULL;
}

const td_op td_op_embedding_bag_gradient = {
    .name = "embedding_bag_gradient",
    .summary = "row-sparse gradient of embedding_bag's table: duplicates summed in position order",
    .inputs = {{"ids", TD_PORT_NO_GRADIENT}, {"gradient", 0}, {"weights", TD_PORT_OPTIONAL}},
    .outputs = {{"table_gradient", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = table_gradient_reference,
};

const td_op td_op_embedding_bag_gradient_dense = {
    .name = "embedding_bag_gradient_dense",
    .summary = "whole gradient of embedding_bag's table: rows added in position order",
    .inputs = {{"ids", TD_PORT_NO_GRADIENT}, {"gradient", 0}, {"weights", TD_PORT_OPTIONAL}},
    .outputs = {{"table_gradient", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_dense_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = table_gradient_reference,
};

/* ---- gradient of the weights ------------------------------------------------------------------------------------------ */

static td_status *weights_gradient_infer(td_infer *infer)
{
    TD_TRY(lookup_require_table(infer));
    TD_TRY(require_bags(infer, 1, infer->n_inputs));
    const td_type *ids = &infer->inputs[1];
    TD_TRY(require_bag_gradient(infer, 2, ids));
    if (!td_dim_equal(infer->inputs[2].shape.dims[1], infer->inputs[0].shape.dims[1]))
        return TD_SHAPE_ERROR(infer, "the gradient's rows must be as long as the table's");
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = ids->shape};
    if (ids->kind == TD_RAGGED)
        infer->outputs[0].shape = td_shape_of(1, &ids->entries);
    return NULL;
}

static void weights_gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const double ids = (double)ids_of(&call->inputs[1]), dim = (double)call->inputs[0].dims[1];
    *out = (td_cost){
        2 * ids * dim,
        4 * ids * dim + (double)td_tensor_bytes(&call->inputs[1]) + (double)td_tensor_bytes(&call->inputs[2]), 4 * ids};
}

/* The dot product (base/sums.h order) of a position's row and its bag's gradient, divided by the count for the mean. */
static td_status *weights_gradient_reference(const td_kernel_call *call)
{
    const td_tensor *table = &call->inputs[0];
    const bool mean = is_mean(call->attrs, call->n_attrs);
    const int64_t dim = table->dims[1];
    float *out = call->outputs[0].data;
    td_lookup lookup;
    lookup_of(&lookup, call, &call->inputs[1], table->dims[0]);
    TD_TRY(td_lookup_check(&lookup));
    float *row = NULL;
    TD_TRY(TD_NEW(row, dim));
    for (int64_t bag = 0; bag < lookup.bags; bag++) {
        const float *gradient = (const float *)call->inputs[2].data + bag * dim;
        const int64_t begin = td_lookup_begin(&lookup, bag), end = td_lookup_begin(&lookup, bag + 1);
        for (int64_t i = begin; i < end; i++) {
            for (int64_t k = 0; k < dim; k++)
                row[k] = lookup_element(table, td_lookup_row(&lookup, i) * dim + k);
            out[i] = td_dot(row, gradient, dim);
            if (mean)
                out[i] /= (float)(end - begin);
        }
    }
    td_free(row);
    return NULL;
}

const td_op td_op_embedding_bag_weights_gradient = {
    .name = "embedding_bag_weights_gradient",
    .summary = "gradient of embedding_bag's per-id weights: row times gradient, per id",
    .inputs = {{"table", 0}, {"ids", TD_PORT_NO_GRADIENT}, {"gradient", 0}},
    .outputs = {{"weights_gradient", 0}},
    .attrs = weights_gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = weights_gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = weights_gradient_cost,
    .reference = weights_gradient_reference,
};

/* ---- builders ----------------------------------------------------------------------------------------------------------- */

td_value td_embedding_bag(td_value table, td_value ids, td_pooling pooling)
{
    return td_embedding_bag_with(table, ids, (td_embedding_options){.pooling = pooling});
}

td_value td_embedding_bag_with(td_value table, td_value ids, td_embedding_options options)
{
    const td_value inputs[3] = {table, ids, options.weights.graph ? options.weights : TD_NO_VALUE};
    const td_attr attrs[3] = {TD_STRING("pooling", options.pooling == TD_MEAN ? "mean" : "sum"),
                              TD_INT("offset", options.offset), TD_FLAG("dense", options.dense)};
    return td_graph_add1(table.graph, "embedding_bag", NULL, inputs, 3, attrs, 3);
}
