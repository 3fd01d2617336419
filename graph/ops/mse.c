/* mse: the mean squared difference of prediction and target.
 *
 * The gradient of the prediction is 2 (p - t) times the output's gradient over the number of elements; the target's is the
 * same with both exchanged. */
#include "graph/ops/loss.h"

static td_status *mse_infer(td_infer *infer)
{
    TD_TRY(loss_require_alike(infer));
    loss_infer_output(infer);
    return NULL;
}

static void mse_cost(const td_kernel_call *call, td_cost *out)
{
    loss_cost(call, 3, out);
}

static float element_loss(const td_kernel_call *call, int64_t i)
{
    const float difference = ((const float *)call->inputs[0].data)[i] - ((const float *)call->inputs[1].data)[i];
    return difference * difference;
}

static td_status *mse_reference(const td_kernel_call *call)
{
    *(float *)call->outputs[0].data = loss_mean(call, td_tensor_elements(&call->inputs[0]), element_loss);
    return NULL;
}

static td_status *mse_gradient(td_differentiate *d)
{
    const td_value inputs[3] = {d->inputs[0], d->inputs[1], d->output_gradients[0]};
    const td_value swapped[3] = {d->inputs[1], d->inputs[0], d->output_gradients[0]};
    if (d->wanted[0])
        d->input_gradients[0] = td_graph_add1(d->graph, "mse_gradient", NULL, inputs, 3, NULL, 0);
    if (d->wanted[1])
        d->input_gradients[1] = td_graph_add1(d->graph, "mse_gradient", NULL, swapped, 3, NULL, 0);
    return NULL;
}

const td_op td_op_mse = {
    .name = "mse",
    .summary = "mean squared difference of prediction and target",
    .inputs = {{"prediction", 0}, {"target", 0}},
    .outputs = {{"loss", 0}},
    .flags = TD_OP_LOSS,
    .infer = mse_infer,
    .gradient = mse_gradient,
    .cost = mse_cost,
    .reference = mse_reference,
};

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(loss_require_alike(infer));
    TD_TRY(loss_require_gradient(infer, 2));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    loss_cost(call, 2, out);
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const int64_t n = td_tensor_elements(&call->inputs[0]);
    const float *prediction = call->inputs[0].data, *target = call->inputs[1].data;
    const float factor = 2 * loss_factor(&call->inputs[2], n);
    float *out = call->outputs[0].data;
    for (int64_t i = 0; i < n; i++)
        out[i] = factor * (prediction[i] - target[i]);
    return NULL;
}

const td_op td_op_mse_gradient = {
    .name = "mse_gradient",
    .summary = "gradient of mse's prediction",
    .inputs = {{"prediction", 0}, {"target", 0}, {"gradient", 0}},
    .outputs = {{"prediction_gradient", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .in_place = {{1, 1}, {1, 2}},
    .reference = gradient_reference,
};

td_value td_mse(td_value prediction, td_value target)
{
    const td_value inputs[2] = {prediction, target};
    return td_graph_add1(prediction.graph, "mse", NULL, inputs, 2, NULL, 0);
}
