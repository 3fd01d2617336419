/* copy: the input again, in memory of its own. On another device it is what moves a value across. */
#include <string.h>

#include "graph/op.h"

static td_status *infer(td_infer *infer)
{
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    d->input_gradients[0] = d->output_gradients[0];
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t bytes = td_tensor_bytes(x);
    if (x->kind == TD_RAGGED) {
        bytes -= (x->dims[0] + 1) * 8;
        memcpy(y->index, x->index, (size_t)(x->dims[0] + 1) * 8);
    }
    if (x->kind == TD_ROW_SPARSE) {
        bytes -= (x->entries + 1) * 8;
        memcpy(y->index, x->index, (size_t)x->entries * 8);
        memcpy(y->count, x->count, 8);
    }
    if (bytes)
        memcpy(y->data, x->data, (size_t)bytes);
    return NULL;
}

const td_op td_op_copy = {
    .name = "copy",
    .summary = "the input again, in memory of its own",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .reference = reference,
};

td_value td_copy(td_value x)
{
    return td_graph_add1(x.graph, "copy", NULL, &x, 1, NULL, 0);
}
