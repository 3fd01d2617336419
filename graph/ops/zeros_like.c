/* zeros_like: zeros of another value's type. Its input is looked at for its shape alone. */
#include <string.h>

#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    out_cost->bytes_written = (double)td_tensor_bytes(&call->outputs[0]);
}

static td_status *reference(const td_kernel_call *call)
{
    if (td_tensor_elements(&call->outputs[0]))
        memset(call->outputs[0].data, 0, (size_t)td_tensor_bytes(&call->outputs[0]));
    return NULL;
}

const td_op td_op_zeros_like = {
    .name = "zeros_like",
    .summary = "zeros of the input's shape and dtype",
    .inputs = {{"x", TD_PORT_NO_GRADIENT}},
    .outputs = {{"y", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "zeros depend on nothing",
    .cost = cost,
    .reference = reference,
};
