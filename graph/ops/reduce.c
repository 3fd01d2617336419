/* reduce_sum and reduce_mean over one axis: in order, in double, rounded once; their gradients repeat dy along the axis, that of
 * the mean divided by its size. The number of elements is the actual one, also where it differs from batch to batch; a mean of
 * none is NaN. */
#include <string.h>

#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis"},
    {.name = "keep", .type = TD_ATTR_BOOL, .help = "the axis stays, with one element"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    infer->outputs[0] = infer->inputs[0];
    td_shape *y = &infer->outputs[0].shape;
    TD_TRY(td_infer_axis(infer, y->rank, &axis));
    y->dims[axis] = td_dim_constant(1);
    if (td_attr_int(infer->attrs, infer->n_attrs, "keep", 0))
        return NULL;
    y->rank--;
    for (int32_t i = axis; i < y->rank; i++)
        y->dims[i] = y->dims[i + 1];
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    bool mean = strcmp(d->graph->nodes[d->node].op->name, "reduce_mean") == 0;
    int64_t numbers[3 * TD_MAX_RANK];
    td_shape shape = td_value_shape(d->inputs[0]);
    td_attr given[] = {TD_INT("axis", td_attr_int(d->attrs, d->n_attrs, "axis", 0)), td_shape_attr(&shape, numbers)};
    if (d->wanted[0])
        d->input_gradients[0] =
            td_build1(mean ? "reduce_mean_gradient" : "reduce_sum_gradient", NULL, d->output_gradients[0], given, 2);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = (double)td_tensor_elements(&call->inputs[0]);
}

static td_status *reduce(const td_kernel_call *call, bool mean)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t outer = td_outer_elements(x, axis), inner = td_inner_elements(x, axis), size = x->dims[axis];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0.0;
            for (int64_t j = 0; j < size; j++)
                sum += (double)td_get_f32(x, (o * size + j) * inner + i);
            td_set_f32(y, o * inner + i, (float)(mean ? sum / (double)size : sum));
        }
    return NULL;
}

static td_status *reference_sum(const td_kernel_call *call)
{
    return reduce(call, false);
}

static td_status *reference_mean(const td_kernel_call *call)
{
    return reduce(call, true);
}

const td_op td_op_reduce_sum = {
    .name = "reduce_sum",
    .summary = "the sum over one axis",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference_sum,
};

const td_op td_op_reduce_mean = {
    .name = "reduce_mean",
    .summary = "the mean over one axis",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference_mean,
};

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

static const td_attr_spec gradient_attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis grows"},
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of the result"},
    {0},
};

static td_status *infer_gradient(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    infer->outputs[0] = infer->inputs[0];
    td_shape *dx = &infer->outputs[0].shape;
    TD_TRY(td_infer_shape_attr(infer, dx));
    TD_TRY(td_infer_axis(infer, dx->rank, &axis));
    td_shape reduced = *dx;
    reduced.dims[axis] = td_dim_constant(1);
    char from[160], to[160];
    if (!td_shape_same_elements(&infer->inputs[0].shape, &reduced))
        return TD_SHAPE_ERROR(infer, "dy is %s and the shape is %s; they must agree but for axis %d",
                              td_shape_text(infer->graph, &infer->inputs[0].shape, from, sizeof from),
                              td_shape_text(infer->graph, dx, to, sizeof to), (int)axis);
    return NULL;
}

static td_status *repeat(const td_kernel_call *call, bool mean)
{
    const td_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t outer = td_outer_elements(dx, axis), inner = td_inner_elements(dx, axis), size = dx->dims[axis];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < size; j++)
            for (int64_t i = 0; i < inner; i++) {
                float value = td_get_f32(dy, o * inner + i);
                td_set_f32(dx, (o * size + j) * inner + i, mean ? value / (float)size : value);
            }
    return NULL;
}

static td_status *reference_sum_gradient(const td_kernel_call *call)
{
    return repeat(call, false);
}

static td_status *reference_mean_gradient(const td_kernel_call *call)
{
    return repeat(call, true);
}

const td_op td_op_reduce_sum_gradient = {
    .name = "reduce_sum_gradient",
    .summary = "dy repeated along an axis",
    .inputs = {{"dy", 0}},
    .outputs = {{"dx", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_gradient,
    .no_gradient = "it is a gradient itself",
    .reference = reference_sum_gradient,
};

const td_op td_op_reduce_mean_gradient = {
    .name = "reduce_mean_gradient",
    .summary = "dy repeated along an axis, divided by its size",
    .inputs = {{"dy", 0}},
    .outputs = {{"dx", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_gradient,
    .no_gradient = "it is a gradient itself",
    .reference = reference_mean_gradient,
};

/* ---- builders ------------------------------------------------------------------------------------------------------------ */

static td_value build(const char *op, td_value x, int32_t axis, bool keep)
{
    return td_build1(op, NULL, x, (td_attr[]){TD_INT("axis", td_axis_of(x, axis)), TD_FLAG("keep", keep)}, 2);
}

td_value td_reduce_sum(td_value x, int32_t axis, bool keep)
{
    return build("reduce_sum", x, axis, keep);
}

td_value td_reduce_mean(td_value x, int32_t axis, bool keep)
{
    return build("reduce_mean", x, axis, keep);
}
