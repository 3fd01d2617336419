/* slice: elements [begin, begin + size) of an axis; its gradient puts them back between zeros. The axis has a constant
 * size, so that a short batch never cuts into the slice. */
#include <string.h>

#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis is cut"},
    {.name = "begin", .type = TD_ATTR_INT, .required = true, .help = "first element"},
    {.name = "size", .type = TD_ATTR_INT, .required = true, .help = "how many elements"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    const td_shape *x = &infer->inputs[0].shape;
    TD_TRY(td_infer_axis(infer, x->rank, &axis));
    int64_t begin = td_attr_int(infer->attrs, infer->n_attrs, "begin", 0);
    int64_t size = td_attr_int(infer->attrs, infer->n_attrs, "size", 0);
    char text[160];
    td_dim dim = x->dims[axis];
    if (dim.extent >= 0)
        return TD_SHAPE_ERROR(
            infer, "x is %s; axis %d differs from batch to batch, only an axis of constant size can be sliced",
            td_shape_text(infer->graph, x, text, sizeof text), (int)axis);
    if (begin < 0 || size < 0 || begin > dim.constant || size > dim.constant - begin)
        return TD_SHAPE_ERROR(infer, "x is %s; elements [%lld, %lld + %lld) are outside axis %d",
                              td_shape_text(infer->graph, x, text, sizeof text), (long long)begin, (long long)begin,
                              (long long)size, (int)axis);
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape.dims[axis] = td_dim_constant(size);
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    int32_t axis = (int32_t)td_attr_int(d->attrs, d->n_attrs, "axis", 0);
    if (!d->wanted[0])
        return NULL;
    td_attr given[] = {TD_INT("axis", axis), TD_INT("begin", td_attr_int(d->attrs, d->n_attrs, "begin", 0)),
                       TD_INT("size", td_value_shape(d->inputs[0]).dims[axis].constant)};
    d->input_gradients[0] = td_build1("slice_gradient", NULL, d->output_gradients[0], given, 3);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    out_cost->bytes_written = (double)td_tensor_bytes(&call->outputs[0]);
    out_cost->bytes_read = (double)td_tensor_bytes(&call->inputs[0]);
    if (out_cost->bytes_read > out_cost->bytes_written)
        out_cost->bytes_read = out_cost->bytes_written;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t begin = td_attr_int(call->attrs, call->n_attrs, "begin", 0);
    int64_t outer = td_outer_elements(x, axis), inner = td_inner_elements(x, axis);
    size_t size = td_dtype_bytes(x->dtype), bytes = (size_t)(y->dims[axis] * inner) * size;
    for (int64_t o = 0; o < outer && bytes; o++)
        memcpy((char *)y->data + (size_t)o * bytes,
               (const char *)x->data + (size_t)((o * x->dims[axis] + begin) * inner) * size, bytes);
    return NULL;
}

const td_op td_op_slice = {
    .name = "slice",
    .summary = "elements [begin, begin + size) of an axis",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

/* ---- slice_gradient ------------------------------------------------------------------------------------------------------ */

static const td_attr_spec gradient_attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis grows"},
    {.name = "begin", .type = TD_ATTR_INT, .required = true, .help = "where dy goes"},
    {.name = "size", .type = TD_ATTR_INT, .required = true, .help = "how many elements the axis gets"},
    {0},
};

static td_status *infer_gradient(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    const td_shape *dy = &infer->inputs[0].shape;
    TD_TRY(td_infer_axis(infer, dy->rank, &axis));
    int64_t begin = td_attr_int(infer->attrs, infer->n_attrs, "begin", 0);
    int64_t size = td_attr_int(infer->attrs, infer->n_attrs, "size", 0);
    td_dim dim = dy->dims[axis];
    char text[160];
    if (dim.extent >= 0 || begin < 0 || size < begin || dim.constant > size - begin)
        return TD_SHAPE_ERROR(infer, "dy is %s; it does not fit at %lld of %lld along axis %d",
                              td_shape_text(infer->graph, dy, text, sizeof text), (long long)begin, (long long)size,
                              (int)axis);
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape.dims[axis] = td_dim_constant(size);
    return NULL;
}

static td_status *reference_gradient(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t begin = td_attr_int(call->attrs, call->n_attrs, "begin", 0);
    int64_t outer = td_outer_elements(dx, axis), inner = td_inner_elements(dx, axis);
    size_t size = td_dtype_bytes(dx->dtype), bytes = (size_t)(dy->dims[axis] * inner) * size;
    if (td_tensor_elements(dx))
        memset(dx->data, 0, (size_t)td_tensor_elements(dx) * size);
    for (int64_t o = 0; o < outer && bytes; o++)
        memcpy((char *)dx->data + (size_t)((o * dx->dims[axis] + begin) * inner) * size,
               (const char *)dy->data + (size_t)o * bytes, bytes);
    return NULL;
}

const td_op td_op_slice_gradient = {
    .name = "slice_gradient",
    .summary = "dy between zeros along an axis",
    .inputs = {{"dy", 0}},
    .outputs = {{"dx", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost,
    .reference = reference_gradient,
};

td_value td_slice(td_value x, int32_t axis, int64_t begin, int64_t size)
{
    return td_build1("slice", NULL, x,
                     (td_attr[]){TD_INT("axis", td_axis_of(x, axis)), TD_INT("begin", begin), TD_INT("size", size)}, 3);
}
