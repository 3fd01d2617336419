/* rank_sum: values summed over the replicas of a distributed job, in their order. Made by the planner (partition/exchange.c) of
 * all gradients at once. The first input is the loss, of which it makes the mean over the window.
 *
 * Dense values are summed element by element. Of a row-sparse one a row is the sum over the replicas that have it, so the result
 * has room for the rows of all. The runtime runs it through the job (runtime/remote.h). */
#include "graph/op.h"

static const td_attr_spec attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "as many as inputs"},
    {.name = "replicas", .type = TD_ATTR_INT, .required = true, .help = "how many there are"},
    {0}};

static td_status *infer(td_infer *infer)
{
    const int64_t replicas = td_attr_int(infer->attrs, infer->n_attrs, "replicas", 1);
    if (infer->n_inputs != infer->n_outputs)
        return TD_SHAPE_ERROR(infer, "%d inputs, %d outputs", infer->n_inputs, infer->n_outputs);
    for (int32_t i = 0; i < infer->n_inputs; i++) {
        const td_type *in = &infer->inputs[i];
        if (in->dtype != TD_F32 || (in->kind != TD_DENSE && in->kind != TD_ROW_SPARSE))
            return TD_SHAPE_ERROR(infer, "input %d must be f32, dense or row-sparse", i);
        infer->outputs[i] = *in;
        if (in->kind != TD_ROW_SPARSE)
            continue;
        const int64_t rows = td_dim_capacity(infer->graph, in->shape.dims[0]);
        const int64_t room = replicas * td_dim_capacity(infer->graph, in->entries);
        infer->outputs[i].entries = td_dim_constant(room < rows ? room : rows);
    }
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t i = 0; i < call->n_inputs; i++) {
        out->bytes_read += (double)td_tensor_bytes(&call->inputs[i]);
        out->bytes_written += (double)td_tensor_bytes(&call->outputs[i]);
    }
}

const td_op td_op_rank_sum = {
    .name = "rank_sum",
    .summary = "sums over the replicas of a distributed job, in their order",
    .inputs = {{"x", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .outputs = {{"sum", TD_PORT_VARIADIC}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = infer,
    .no_gradient = "it sums gradients",
    .cost = cost,
};
