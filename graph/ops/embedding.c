/* embedding: one row of a table per id, and its gradients.
 *
 * The gradient of the table is row-sparse: touched rows ascending, each the sum over its positions in ascending order (the
 * first is taken as it is, not added to zero). With the attribute `dense` it is a whole table, for devices that hold it.
 * embedding_update (optim) fuses the row-sparse form with an optimizer and gives the same bits. */
#include "graph/ops/lookup_rules.h"

static const td_attr_spec embedding_attrs[] = {
    {.name = "offset", .type = TD_ATTR_INT, .help = "added to each id before the lookup"},
    {.name = "dense", .type = TD_ATTR_BOOL, .help = "the gradient is a whole table, not row-sparse"},
    {0}};

static td_status *embedding_infer(td_infer *infer)
{
    TD_TRY(lookup_require_table(infer));
    TD_TRY(lookup_require_ids(infer, 1, false));
    const td_shape *ids = &infer->inputs[1].shape;
    if (ids->rank >= TD_MAX_RANK)
        return TD_SHAPE_ERROR(infer, "ids have %d dimensions, at most %d are allowed", ids->rank, TD_MAX_RANK - 1);
    td_shape shape = *ids;
    shape.dims[shape.rank++] = infer->inputs[0].shape.dims[1];
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = shape};
    return NULL;
}

static void embedding_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->outputs[0]);
    *out = (td_cost){0, bytes + (double)td_tensor_bytes(&call->inputs[1]), bytes};
}

static td_status *embedding_reference(const td_kernel_call *call)
{
    const td_tensor *table = &call->inputs[0];
    td_lookup lookup;
    td_lookup_init(&lookup, call, &call->inputs[1], true, td_attr_int(call->attrs, call->n_attrs, "offset", 0),
                   table->dims[0]);
    TD_TRY(td_lookup_check(&lookup));
    const int64_t dim = table->dims[1];
    float *out = call->outputs[0].data;
    for (int64_t i = 0; i < lookup.count; i++)
        for (int64_t k = 0; k < dim; k++)
            out[i * dim + k] = lookup_element(table, td_lookup_row(&lookup, i) * dim + k);
    return NULL;
}

static td_status *embedding_gradient(td_differentiate *d)
{
    if (!d->wanted[0])
        return NULL;
    const td_value table = d->inputs[0];
    /* Only a parameter can take a row-sparse gradient: ops that made a table want it whole. */
    const bool dense = td_attr_int(d->attrs, d->n_attrs, "dense", 0) || lookup_is_made(table);
    const td_value inputs[2] = {d->inputs[1], d->output_gradients[0]};
    const td_attr attrs[2] = {TD_INT("rows", td_value_dim(table, 0)),
                              TD_INT("offset", td_attr_int(d->attrs, d->n_attrs, "offset", 0))};
    d->input_gradients[0] =
        td_graph_add1(d->graph, dense ? "embedding_gradient_dense" : "embedding_gradient", NULL, inputs, 2, attrs, 2);
    return NULL;
}

const td_op td_op_embedding = {
    .name = "embedding",
    .summary = "rows of a table picked by ids: [..] -> [.., dim]",
    .inputs = {{"table", 0}, {"ids", TD_PORT_NO_GRADIENT}},
    .outputs = {{"output", 0}},
    .attrs = embedding_attrs,
    .infer = embedding_infer,
    .gradient = embedding_gradient,
    .cost = embedding_cost,
    .reference = embedding_reference,
};

/* ---- gradient of the table ---------------------------------------------------------------------------------------- */

static const td_attr_spec gradient_attrs[] = {
    {.name = "rows", .type = TD_ATTR_INT, .required = true, .help = "rows of the table"},
    {.name = "offset", .type = TD_ATTR_INT, .help = "added to each id before the lookup"},
    {0}};

static td_status *require_gradient(const td_infer *infer)
{
    TD_TRY(lookup_require_ids(infer, 0, false));
    TD_TRY(td_infer_require(infer, 1, TD_DENSE, TD_F32));
    const td_shape *ids = &infer->inputs[0].shape, *gradient = &infer->inputs[1].shape;
    bool fits = gradient->rank == ids->rank + 1;
    for (int32_t axis = 0; fits && axis < ids->rank; axis++)
        fits = td_dim_equal(ids->dims[axis], gradient->dims[axis]);
    if (fits)
        return NULL;
    char ids_text[128], gradient_text[128];
    return TD_SHAPE_ERROR(infer, "ids %s need a gradient of one dimension more, not %s",
                          td_shape_text(infer->graph, ids, ids_text, sizeof ids_text),
                          td_shape_text(infer->graph, gradient, gradient_text, sizeof gradient_text));
}

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(require_gradient(infer));
    const td_shape *gradient = &infer->inputs[1].shape;
    return lookup_infer_table_gradient(infer, &infer->inputs[0], gradient->dims[gradient->rank - 1], false);
}

static td_status *gradient_dense_infer(td_infer *infer)
{
    TD_TRY(require_gradient(infer));
    const td_shape *gradient = &infer->inputs[1].shape;
    return lookup_infer_table_gradient(infer, &infer->inputs[0], gradient->dims[gradient->rank - 1], true);
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->inputs[1]);
    *out = (td_cost){bytes / 4, bytes + (double)td_tensor_bytes(&call->inputs[0]),
                     (double)td_tensor_bytes(&call->outputs[0])};
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const td_tensor *out = &call->outputs[0];
    td_lookup lookup;
    td_lookup_init(&lookup, call, &call->inputs[0], true, td_attr_int(call->attrs, call->n_attrs, "offset", 0),
                   out->dims[0]);
    TD_TRY(td_lookup_check(&lookup));
    const int64_t dim = out->dims[1];
    *(int64_t *)out->count = 0;
    for (int64_t i = 0; i < lookup.count; i++) {
        const float *gradient = (const float *)call->inputs[1].data + i * dim;
        bool fresh;
        float *row = row_sparse_place(out, td_lookup_row(&lookup, i), dim, &fresh);
        for (int64_t k = 0; k < dim; k++)
            row[k] = fresh ? gradient[k] : row[k] + gradient[k];
    }
    return NULL;
}

static td_status *gradient_dense_reference(const td_kernel_call *call)
{
    const td_tensor *out = &call->outputs[0];
    td_lookup lookup;
    td_lookup_init(&lookup, call, &call->inputs[0], true, td_attr_int(call->attrs, call->n_attrs, "offset", 0),
                   out->dims[0]);
    TD_TRY(td_lookup_check(&lookup));
    const int64_t dim = out->dims[1];
    float *table = out->data;
    for (int64_t i = 0; i < td_tensor_elements(out); i++)
        table[i] = 0;
    for (int64_t i = 0; i < lookup.count; i++) {
        const float *gradient = (const float *)call->inputs[1].data + i * dim;
        float *row = table + td_lookup_row(&lookup, i) * dim;
        for (int64_t k = 0; k < dim; k++)
            row[k] += gradient[k];
    }
    return NULL;
}

const td_op td_op_embedding_gradient = {
    .name = "embedding_gradient",
    .summary = "row-sparse gradient of embedding's table: duplicates summed in position order",
    .inputs = {{"ids", TD_PORT_NO_GRADIENT}, {"gradient", 0}},
    .outputs = {{"table_gradient", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = gradient_reference,
};

const td_op td_op_embedding_gradient_dense = {
    .name = "embedding_gradient_dense",
    .summary = "whole gradient of embedding's table: rows added in position order",
    .inputs = {{"ids", TD_PORT_NO_GRADIENT}, {"gradient", 0}},
    .outputs = {{"table_gradient", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_dense_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = gradient_dense_reference,
};

td_value td_embedding(td_value table, td_value ids, td_embedding_options options)
{
    const td_value inputs[2] = {table, ids};
    const td_attr attrs[2] = {TD_INT("offset", options.offset), TD_FLAG("dense", options.dense)};
    if (table.graph && options.weights.graph)
        td_graph_fail(table.graph,
                      TD_ERROR(TD_INVALID_ARGUMENT,
                               "embedding of %s: per-id weights need embedding_bag; multiply the rows instead",
                               td_value_name(table)));
    return td_graph_add1(table.graph, "embedding", NULL, inputs, 2, attrs, 2);
}
