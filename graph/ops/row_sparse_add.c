/* row_sparse_add and row_sparse_add_dense: sums of gradients where one table is used more than once.
 *
 * Made by differentiation only. Row-sparse plus row-sparse stays row-sparse, plus dense becomes dense. Where both sides
 * hold a row it is a + b, in this order; a row on one side only is taken as it is, never added to zero. */
#include <string.h>

#include "graph/op.h"

static td_status *require_row_sparse(const td_infer *infer, int32_t index)
{
    return td_infer_require(infer, index, TD_ROW_SPARSE, TD_F32);
}

static td_status *require_same_table(const td_infer *infer)
{
    char a[128], b[128];
    if (td_shape_equal(&infer->inputs[0].shape, &infer->inputs[1].shape))
        return NULL;
    return TD_SHAPE_ERROR(infer, "gradients of different tables, %s and %s, cannot be added",
                          td_shape_text(infer->graph, &infer->inputs[0].shape, a, sizeof a),
                          td_shape_text(infer->graph, &infer->inputs[1].shape, b, sizeof b));
}

static td_status *add_infer(td_infer *infer)
{
    TD_TRY(require_row_sparse(infer, 0));
    TD_TRY(require_row_sparse(infer, 1));
    TD_TRY(require_same_table(infer));
    infer->outputs[0] = infer->inputs[0];
    td_dim *entries = &infer->outputs[0].entries;
    const td_dim a = infer->inputs[0].entries, b = infer->inputs[1].entries;
    if (!td_dim_add(a, b, entries)) /* two extents: room for both at capacity */
        *entries = td_dim_constant(td_dim_capacity(infer->graph, a) + td_dim_capacity(infer->graph, b));
    return NULL;
}

static int64_t row_elements(const td_tensor *t)
{
    int64_t n = 1;
    for (int32_t axis = 1; axis < t->rank; axis++)
        n *= t->dims[axis];
    return n;
}

static void add_cost(const td_kernel_call *call, td_cost *out)
{
    const double read = (double)td_tensor_bytes(&call->inputs[0]) + (double)td_tensor_bytes(&call->inputs[1]);
    *out = (td_cost){read / 8, read, read};
}

static td_status *add_reference(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1], *out = &call->outputs[0];
    const int64_t *a_rows = a->index, *b_rows = b->index, a_count = *(int64_t *)a->count,
                  b_count = *(int64_t *)b->count;
    const int64_t elements = row_elements(out);
    int64_t *rows = out->index, n = 0;
    for (int64_t i = 0, j = 0; i < a_count || j < b_count; n++) {
        const bool from_a = i < a_count && (j == b_count || a_rows[i] <= b_rows[j]);
        const bool from_b = j < b_count && (i == a_count || b_rows[j] <= a_rows[i]);
        const float *x = from_a ? (const float *)a->data + i * elements : NULL;
        const float *y = from_b ? (const float *)b->data + j * elements : NULL;
        float *sum = (float *)out->data + n * elements;
        rows[n] = from_a ? a_rows[i] : b_rows[j];
        for (int64_t k = 0; k < elements; k++)
            sum[k] = !y ? x[k] : !x ? y[k] : x[k] + y[k];
        i += from_a;
        j += from_b;
    }
    *(int64_t *)out->count = n;
    return NULL;
}

const td_op td_op_row_sparse_add = {
    .name = "row_sparse_add",
    .summary = "sum of two row-sparse gradients of one table",
    .inputs = {{"a", 0}, {"b", 0}},
    .outputs = {{"sum", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = add_infer,
    .no_gradient = "it sums gradients",
    .cost = add_cost,
    .reference = add_reference,
};

static td_status *add_dense_infer(td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    TD_TRY(require_row_sparse(infer, 1));
    TD_TRY(require_same_table(infer));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static void add_dense_cost(const td_kernel_call *call, td_cost *out)
{
    const double dense = (double)td_tensor_bytes(&call->inputs[0]), sparse = (double)td_tensor_bytes(&call->inputs[1]);
    *out = (td_cost){sparse / 4, sparse + dense, dense};
}

static td_status *add_dense_reference(const td_kernel_call *call)
{
    const td_tensor *dense = &call->inputs[0], *sparse = &call->inputs[1], *out = &call->outputs[0];
    const int64_t elements = row_elements(out), count = *(int64_t *)sparse->count;
    for (int64_t i = 0; i < td_tensor_elements(out); i++)
        ((float *)out->data)[i] = ((const float *)dense->data)[i];
    for (int64_t i = 0; i < count; i++) {
        const float *x = (const float *)sparse->data + i * elements;
        float *row = (float *)out->data + ((const int64_t *)sparse->index)[i] * elements;
        for (int64_t k = 0; k < elements; k++)
            row[k] += x[k];
    }
    return NULL;
}

const td_op td_op_row_sparse_add_dense = {
    .name = "row_sparse_add_dense",
    .summary = "a dense gradient plus a row-sparse one of the same table",
    .inputs = {{"dense", 0}, {"row_sparse", 0}},
    .outputs = {{"sum", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = add_dense_infer,
    .no_gradient = "it sums gradients",
    .cost = add_dense_cost,
    .in_place = {{1, 1}},
    .reference = add_dense_reference,
};
