/* add_n: the sum of equal-shaped values, left to right, in f32, rounded once. Differentiation sums the gradients of a value
 * with several consumers by it. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    return td_infer_all_same(infer);
}

static td_status *gradient(td_differentiate *d)
{
    for (int32_t i = 0; i < d->n_inputs; i++)
        if (d->wanted[i])
            d->input_gradients[i] = d->output_gradients[0];
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = (double)(call->n_inputs - 1) * (double)td_tensor_elements(&call->outputs[0]);
}

static td_status *reference(const td_kernel_call *call)
{
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        float sum = td_get_f32(&call->inputs[0], i);
        for (int32_t k = 1; k < call->n_inputs; k++)
            sum += td_get_f32(&call->inputs[k], i);
        td_set_f32(&call->outputs[0], i, sum);
    }
    return NULL;
}

const td_op td_op_add_n = {
    .name = "add_n",
    .summary = "the sum of equal-shaped values, left to right",
    .inputs = {{"x", TD_PORT_VARIADIC}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .in_place = {{1, 1}},
    .reference = reference,
};
