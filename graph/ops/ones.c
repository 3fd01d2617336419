/* ones: a value of ones of a given shape. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of the result"},
    {.name = "dtype", .type = TD_ATTR_STRING, .s = "f32", .help = "f32, f16 or bf16"},
    {0},
};

static td_status *reference(const td_kernel_call *call)
{
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(&call->outputs[0], i, 1.0f);
    return NULL;
}

const td_op td_op_ones = {
    .name = "ones",
    .summary = "ones of a given shape",
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = td_infer_filled,
    .no_gradient = "ones depend on nothing",
    .reference = reference,
};
