/* relu: max(x, 0), and its gradient from the output. A NaN stays one. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    return td_infer_all_same(infer);
}

static td_status *gradient(td_differentiate *d)
{
    if (d->wanted[0])
        d->input_gradients[0] = td_build2("relu_gradient", NULL, d->outputs[0], d->output_gradients[0], NULL, 0);
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        float x = td_get_f32(&call->inputs[0], i);
        td_set_f32(&call->outputs[0], i, x < 0.0f ? 0.0f : x);
    }
    return NULL;
}

const td_op td_op_relu = {
    .name = "relu",
    .summary = "max(x, 0)",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .in_place = {{1, 1}},
    .reference = reference,
};

static td_status *reference_gradient(const td_kernel_call *call)
{
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        float y = td_get_f32(&call->inputs[0], i), dy = td_get_f32(&call->inputs[1], i);
        td_set_f32(&call->outputs[0], i, y <= 0.0f ? 0.0f : dy);
    }
    return NULL;
}

const td_op td_op_relu_gradient = {
    .name = "relu_gradient",
    .summary = "dy where y > 0, else 0",
    .inputs = {{"y", 0}, {"dy", 0}},
    .outputs = {{"dx", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is a gradient itself",
    .in_place = {{1, 2}, {1, 1}},
    .reference = reference_gradient,
};

td_value td_relu(td_value x)
{
    return td_build1("relu", NULL, x, NULL, 0);
}
