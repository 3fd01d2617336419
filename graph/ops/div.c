/* div: elementwise quotient with NumPy broadcasting. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    return td_infer_elementwise(infer, TD_FLOATS);
}

/* y = a / b: da = dy / b and db = -dy y / b, each summed over what broadcasting repeated. */
static td_status *gradient(td_differentiate *d)
{
    td_value dy = d->output_gradients[0], b = d->inputs[1];
    if (d->wanted[0])
        d->input_gradients[0] = td_reduce_to(td_div(dy, b), d->inputs[0]);
    if (d->wanted[1])
        d->input_gradients[1] = td_scale(td_reduce_to(td_div(td_mul(dy, d->outputs[0]), b), b), -1.0);
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
    int64_t n = td_tensor_elements(y);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(y, i, td_get_f32(a, td_broadcast_index(y, a, i)) / td_get_f32(b, td_broadcast_index(y, b, i)));
    return NULL;
}

const td_op td_op_div = {
    .name = "div",
    .summary = "elementwise quotient, with broadcasting",
    .inputs = {{"a", 0}, {"b", 0}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .in_place = {{1, 1}, {1, 2}},
    .reference = reference,
};

td_value td_div(td_value a, td_value b)
{
    return td_build2("div", NULL, a, b, NULL, 0);
}
