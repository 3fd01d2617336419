/* bce_with_logits: binary cross entropy of sigmoid(logit) against a label in [0, 1], ln(1 + e^x) - x y, mean over elements.
 *
 * Its gradient is (sigmoid(x) - y) times the output's gradient over the number of elements. */
#include "base/math.h"
#include "graph/ops/loss.h"

enum { FLOPS = 40, GRADIENT_FLOPS = 25 };

static td_status *bce_infer(td_infer *infer)
{
    TD_TRY(loss_require_alike(infer));
    loss_infer_output(infer);
    return NULL;
}

static void bce_cost(const td_kernel_call *call, td_cost *out)
{
    loss_cost(call, FLOPS, out);
}

static float element_loss(const td_kernel_call *call, int64_t i)
{
    const float x = ((const float *)call->inputs[0].data)[i], y = ((const float *)call->inputs[1].data)[i];
    return td_bce_with_logitsf(x, y);
}

static td_status *bce_reference(const td_kernel_call *call)
{
    *(float *)call->outputs[0].data = loss_mean(call, td_tensor_elements(&call->inputs[0]), element_loss);
    return NULL;
}

static td_status *bce_gradient(td_differentiate *d)
{
    const td_value inputs[3] = {d->inputs[0], d->inputs[1], d->output_gradients[0]};
    d->input_gradients[0] = td_graph_add1(d->graph, "bce_with_logits_gradient", NULL, inputs, 3, NULL, 0);
    return NULL;
}

const td_op td_op_bce_with_logits = {
    .name = "bce_with_logits",
    .summary = "mean binary cross entropy of sigmoid(logit) against labels in [0, 1]",
    .inputs = {{"logit", 0}, {"label", TD_PORT_NO_GRADIENT}},
    .outputs = {{"loss", 0}},
    .flags = TD_OP_LOSS,
    .infer = bce_infer,
    .gradient = bce_gradient,
    .cost = bce_cost,
    .reference = bce_reference,
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
    loss_cost(call, GRADIENT_FLOPS, out);
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const int64_t n = td_tensor_elements(&call->inputs[0]);
    const float *logit = call->inputs[0].data, *label = call->inputs[1].data;
    const float factor = loss_factor(&call->inputs[2], n);
    float *out = call->outputs[0].data;
    for (int64_t i = 0; i < n; i++)
        out[i] = factor * (td_sigmoidf(logit[i]) - label[i]);
    return NULL;
}

const td_op td_op_bce_with_logits_gradient = {
    .name = "bce_with_logits_gradient",
    .summary = "gradient of bce_with_logits's logit",
    .inputs = {{"logit", 0}, {"label", TD_PORT_NO_GRADIENT}, {"gradient", 0}},
    .outputs = {{"logit_gradient", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .in_place = {{1, 1}},
    .reference = gradient_reference,
};

td_value td_bce_with_logits(td_value logit, td_value label)
{
    const td_value inputs[2] = {logit, label};
    return td_graph_add1(logit.graph, "bce_with_logits", NULL, inputs, 2, NULL, 0);
}
