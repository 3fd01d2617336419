/* sub: elementwise difference with NumPy broadcasting. Integers wrap around. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    return td_infer_elementwise(infer, TD_NUMERIC);
}

static td_status *gradient(td_differentiate *d)
{
    td_value dy = d->output_gradients[0];
    if (d->wanted[0])
        d->input_gradients[0] = td_reduce_to(dy, d->inputs[0]);
    if (d->wanted[1])
        d->input_gradients[1] = td_scale(td_reduce_to(dy, d->inputs[1]), -1.0);
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
    int64_t n = td_tensor_elements(y);
    for (int64_t i = 0; i < n; i++) {
        int64_t ia = td_broadcast_index(y, a, i), ib = td_broadcast_index(y, b, i);
        if (td_dtype_is_float(y->dtype))
            td_set_f32(y, i, td_get_f32(a, ia) - td_get_f32(b, ib));
        else
            td_set_i64(y, i, (int64_t)((uint64_t)td_get_i64(a, ia) - (uint64_t)td_get_i64(b, ib)));
    }
    return NULL;
}

const td_op td_op_sub = {
    .name = "sub",
    .summary = "elementwise difference, with broadcasting",
    .inputs = {{"a", 0}, {"b", 0}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .in_place = {{1, 1}, {1, 2}},
    .reference = reference,
};

td_value td_sub(td_value a, td_value b)
{
    return td_build2("sub", NULL, a, b, NULL, 0);
}
