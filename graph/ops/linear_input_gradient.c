/* linear_input_gradient: dx = dy W, the gradient of linear's x; where x is the output of a relu, perhaps that relu's gradient
 * too: zero where x is not positive. Reference sums as in linear.c. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    const td_shape *dy = &infer->inputs[0].shape, *weight = &infer->inputs[1].shape;
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_dense(infer, 1, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 1));
    char found[160], other[160];
    if (dy->rank < 1 || weight->rank != 2 || !td_dim_equal(dy->dims[dy->rank - 1], weight->dims[0]))
        return TD_SHAPE_ERROR(infer,
                              "dy is %s and weight is %s; weight must be [out, in] with out = the last dimension of dy",
                              td_shape_text(infer->graph, dy, found, sizeof found),
                              td_shape_text(infer->graph, weight, other, sizeof other));
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape.dims[dy->rank - 1] = weight->dims[1];
    if (infer->n_inputs < 3 || infer->inputs[2].kind == TD_NONE)
        return NULL;
    TD_TRY(td_infer_dense(infer, 2, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 2));
    if (!td_shape_equal(&infer->inputs[2].shape, &infer->outputs[0].shape))
        return TD_SHAPE_ERROR(infer, "x is %s and the gradient is %s; they must be of one shape",
                              td_shape_text(infer->graph, &infer->inputs[2].shape, found, sizeof found),
                              td_shape_text(infer->graph, &infer->outputs[0].shape, other, sizeof other));
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 2.0 * (double)td_tensor_elements(&call->outputs[0]) * (double)td_tensor_last(&call->inputs[0]);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *weight = &call->inputs[1], *dx = &call->outputs[0];
    const td_tensor *x = call->n_inputs > 2 && call->inputs[2].kind != TD_NONE ? &call->inputs[2] : NULL;
    int64_t rows = td_tensor_rows(dy), out = td_tensor_last(dy), in = weight->dims[1];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (int64_t o = 0; o < out; o++)
                sum += (double)td_get_f32(dy, row * out + o) * (double)td_get_f32(weight, o * in + i);
            bool is_cut = x && td_get_f32(x, row * in + i) <= 0.0f;
            td_set_f32(dx, row * in + i, is_cut ? 0.0f : (float)sum);
        }
    return NULL;
}

const td_op td_op_linear_input_gradient = {
    .name = "linear_input_gradient",
    .summary = "dy W over the last axis; 0 where x, the output of a relu, is not positive",
    .inputs = {{"dy", 0}, {"weight", 0}, {"x", TD_PORT_OPTIONAL}},
    .outputs = {{"dx", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is a gradient itself",
    .cost = cost,
    .reference = reference,
};
