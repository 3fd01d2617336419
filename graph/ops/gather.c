/* gather: rows of x along axis 0, picked by indices; its gradient adds rows in the order of their positions. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    TD_TRY(td_infer_dense(infer, 1, TD_INTEGERS));
    const td_shape *x = &infer->inputs[0].shape, *indices = &infer->inputs[1].shape;
    char left[160], right[160];
    if (x->rank < 1 || indices->rank + x->rank - 1 > TD_MAX_RANK)
        return TD_SHAPE_ERROR(infer, "x is %s and indices are %s; x needs an axis, and the result at most %d",
                              td_shape_text(infer->graph, x, left, sizeof left),
                              td_shape_text(infer->graph, indices, right, sizeof right), TD_MAX_RANK);
    infer->outputs[0] = infer->inputs[0];
    td_shape *y = &infer->outputs[0].shape;
    *y = *indices;
    for (int32_t i = 1; i < x->rank; i++)
        y->dims[y->rank++] = x->dims[i];
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    int64_t numbers[3 * TD_MAX_RANK];
    td_shape shape = td_value_shape(d->inputs[0]);
    if (d->wanted[0])
        d->input_gradients[0] = td_build2("gather_gradient", NULL, d->output_gradients[0], d->inputs[1],
                                          (td_attr[]){td_shape_attr(&shape, numbers)}, 1);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    out_cost->bytes_written = (double)td_tensor_bytes(&call->outputs[0]);
    out_cost->bytes_read = out_cost->bytes_written + (double)td_tensor_bytes(&call->inputs[1]);
}

static td_status *check_index(const td_kernel_call *call, int64_t index, int64_t position, int64_t rows)
{
    if (index >= 0 && index < rows)
        return NULL;
    return TD_ERROR(TD_DATA_ERROR, "%s %s: index %" PRId64 " at position %" PRId64 " is outside the %s of x", call->op,
                    call->name, index, position, TD_COUNTED(rows, "row"));
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *indices = &call->inputs[1], *y = &call->outputs[0];
    int64_t n = td_tensor_elements(indices);
    size_t bytes = (size_t)td_inner_elements(x, 0) * td_dtype_bytes(x->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = td_get_i64(indices, i);
        TD_TRY(check_index(call, index, i, x->dims[0]));
        if (bytes)
            memcpy((char *)y->data + (size_t)i * bytes, (const char *)x->data + (size_t)index * bytes, bytes);
    }
    return NULL;
}

const td_op td_op_gather = {
    .name = "gather",
    .summary = "rows of x along axis 0, picked by indices",
    .inputs = {{"x", 0}, {"indices", TD_PORT_NO_GRADIENT}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

/* ---- gather_gradient ------------------------------------------------------------------------------------------------------ */

static const td_attr_spec gradient_attrs[] = {
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of x"},
    {0},
};

static td_status *infer_gradient(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_dense(infer, 1, TD_INTEGERS));
    infer->outputs[0] = infer->inputs[0];
    td_shape *dx = &infer->outputs[0].shape;
    TD_TRY(td_infer_shape_attr(infer, dx));
    const td_shape *dy = &infer->inputs[0].shape, *indices = &infer->inputs[1].shape;
    bool fits = dx->rank >= 1 && dy->rank == indices->rank + dx->rank - 1;
    for (int32_t i = 0; fits && i < dy->rank; i++)
        fits = td_dim_equal(dy->dims[i], i < indices->rank ? indices->dims[i] : dx->dims[i - indices->rank + 1]);
    char left[160], right[160];
    if (!fits)
        return TD_SHAPE_ERROR(infer, "dy is %s and indices are %s; dy must be [indices.., x without its first axis]",
                              td_shape_text(infer->graph, dy, left, sizeof left),
                              td_shape_text(infer->graph, indices, right, sizeof right));
    return NULL;
}

static void cost_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = (double)td_tensor_elements(&call->inputs[0]);
}

/* Each element of the result by itself, in f32, so that 16-bit results are rounded once. */
static td_status *reference_gradient(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *indices = &call->inputs[1], *dx = &call->outputs[0];
    int64_t n = td_tensor_elements(indices), rows = dx->dims[0], width = td_inner_elements(dx, 0);
    for (int64_t i = 0; i < n; i++)
        TD_TRY(check_index(call, td_get_i64(indices, i), i, rows));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < width; column++) {
            float sum = 0.0f;
            for (int64_t i = 0; i < n; i++)
                if (td_get_i64(indices, i) == row)
                    sum += td_get_f32(dy, i * width + column);
            td_set_f32(dx, row * width + column, sum);
        }
    return NULL;
}

const td_op td_op_gather_gradient = {
    .name = "gather_gradient",
    .summary = "rows of dy added to the rows they were gathered from",
    .inputs = {{"dy", 0}, {"indices", TD_PORT_NO_GRADIENT}},
    .outputs = {{"dx", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_gradient,
    .reference = reference_gradient,
};

td_value td_gather(td_value x, td_value indices)
{
    return td_build2("gather", NULL, x, indices, NULL, 0);
}
