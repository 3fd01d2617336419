/* concat: values one after another along an axis. Its gradient is a slice per input; where sizes along the axis depend on
 * an extent, one concat_gradient cuts by the inputs' own shapes. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis grows"},
    {0},
};

/* Input `index` against input `first`: equal but for the axis. */
static td_status *check_part(const td_infer *infer, int32_t first, int32_t index, int32_t axis)
{
    const td_shape *a = &infer->inputs[first].shape, *b = &infer->inputs[index].shape;
    TD_TRY(td_infer_same_dtype(infer, first, index));
    bool fits = a->rank == b->rank;
    for (int32_t i = 0; fits && i < a->rank; i++)
        fits = i == axis || td_dim_equal(a->dims[i], b->dims[i]);
    char left[160], right[160];
    if (!fits)
        return TD_SHAPE_ERROR(infer, "input %d is %s and input %d is %s; all dimensions but axis %d must be equal",
                              (int)first, td_shape_text(infer->graph, a, left, sizeof left), (int)index,
                              td_shape_text(infer->graph, b, right, sizeof right), (int)axis);
    return NULL;
}

static td_status *infer(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    TD_TRY(td_infer_axis(infer, infer->inputs[0].shape.rank, &axis));
    infer->outputs[0] = infer->inputs[0];
    td_dim *total = &infer->outputs[0].shape.dims[axis];
    for (int32_t i = 1; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_dense(infer, i, TD_ANY_DTYPE));
        TD_TRY(check_part(infer, 0, i, axis));
        if (!td_dim_add(*total, infer->inputs[i].shape.dims[axis], total))
            return TD_SHAPE_ERROR(
                infer, "axis %d would be a sum of two different extents; only sizes with one extent add up", (int)axis);
    }
    return NULL;
}

static td_status *gradient_by_slices(td_differentiate *d, int32_t axis)
{
    int64_t begin = 0;
    for (int32_t i = 0; i < d->n_inputs; i++) {
        int64_t size = td_value_shape(d->inputs[i]).dims[axis].constant;
        if (d->wanted[i])
            d->input_gradients[i] = td_slice(d->output_gradients[0], axis, begin, size);
        begin += size;
    }
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    int32_t axis = (int32_t)td_attr_int(d->attrs, d->n_attrs, "axis", 0);
    if (td_value_shape(d->outputs[0]).dims[axis].extent < 0)
        return gradient_by_slices(d, axis);
    td_value *inputs = NULL;
    TD_TRY(TD_NEW(inputs, d->n_inputs + 1));
    inputs[0] = d->output_gradients[0];
    memcpy(inputs + 1, d->inputs, (size_t)d->n_inputs * sizeof *inputs);
    td_graph_add(d->graph, "concat_gradient", NULL, inputs, d->n_inputs + 1,
                 (td_attr[]){TD_INT("axis", axis), TD_INT("outputs", d->n_inputs)}, 2, d->input_gradients, d->n_inputs);
    td_free(inputs);
    return NULL;
}

/* The part of `whole` along the axis that starts at `begin` of it, as `part`; copied to or from it. */
static void copy_part(const td_tensor *whole, const td_tensor *part, int32_t axis, int64_t begin, bool to_whole)
{
    size_t size = td_dtype_bytes(whole->dtype);
    int64_t inner = 1, outer = 1;
    for (int32_t i = 0; i < whole->rank; i++) {
        outer *= i < axis ? whole->dims[i] : 1;
        inner *= i > axis ? whole->dims[i] : 1;
    }
    size_t bytes = (size_t)(part->dims[axis] * inner) * size;
    for (int64_t o = 0; o < outer && bytes; o++) {
        char *at = (char *)whole->data + (size_t)((o * whole->dims[axis] + begin) * inner) * size;
        char *other = (char *)part->data + (size_t)o * bytes;
        memcpy(to_whole ? at : other, to_whole ? other : at, bytes);
    }
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
}

static td_status *reference(const td_kernel_call *call)
{
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t begin = 0;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        copy_part(&call->outputs[0], &call->inputs[i], axis, begin, true);
        begin += call->inputs[i].dims[axis];
    }
    return NULL;
}

const td_op td_op_concat = {
    .name = "concat",
    .summary = "values one after another along an axis",
    .inputs = {{"x", TD_PORT_VARIADIC}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

/* ---- concat_gradient --------------------------------------------------------------------------------------------------- */

static const td_attr_spec gradient_attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis is cut"},
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "how many parts"},
    {0},
};

static td_status *infer_gradient(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    TD_TRY(td_infer_axis(infer, infer->inputs[0].shape.rank, &axis));
    if (infer->n_outputs != infer->n_inputs - 1 ||
        td_attr_int(infer->attrs, infer->n_attrs, "outputs", 0) != infer->n_outputs)
        return TD_SHAPE_ERROR(infer, "%d shapes for %d parts; there must be one each", infer->n_inputs - 1,
                              infer->n_outputs);
    td_dim total = td_dim_constant(0);
    bool adds = true;
    for (int32_t i = 1; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_dense(infer, i, TD_ANY_DTYPE));
        TD_TRY(check_part(infer, 0, i, axis));
        adds = adds && td_dim_add(total, infer->inputs[i].shape.dims[axis], &total);
        infer->outputs[i - 1] = infer->inputs[i];
    }
    if (!adds || !td_dim_equal(total, infer->inputs[0].shape.dims[axis]))
        return TD_SHAPE_ERROR(infer, "the parts do not add up to dy along axis %d", (int)axis);
    return NULL;
}

static void cost_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->bytes_read = (double)td_tensor_bytes(&call->inputs[0]);
}

static td_status *reference_gradient(const td_kernel_call *call)
{
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t begin = 0;
    for (int32_t i = 0; i < call->n_outputs; i++) {
        copy_part(&call->inputs[0], &call->outputs[i], axis, begin, false);
        begin += call->outputs[i].dims[axis];
    }
    return NULL;
}

const td_op td_op_concat_gradient = {
    .name = "concat_gradient",
    .summary = "dy cut along an axis into parts shaped like the other inputs",
    .inputs = {{"dy", 0}, {"x", TD_PORT_VARIADIC}},
    .outputs = {{"dx", TD_PORT_VARIADIC}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_gradient,
    .reference = reference_gradient,
};

td_value td_concat(int32_t n, const td_value *values, int32_t axis)
{
    if (n < 1 || !values[0].graph)
        return TD_NO_VALUE;
    return td_graph_add1(values[0].graph, "concat", NULL, values, n,
                         (td_attr[]){TD_INT("axis", td_axis_of(values[0], axis))}, 1);
}
