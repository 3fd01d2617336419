/* constant: one number in every element of a value of a given shape. What the optimizer makes of ops that it computes. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of the result"},
    {.name = "dtype", .type = TD_ATTR_STRING, .s = "f32", .help = "f32, f16 or bf16"},
    {.name = "value", .type = TD_ATTR_FLOAT, .required = true, .help = "rounded to f32, then to the dtype"},
    {0},
};

static td_status *reference(const td_kernel_call *call)
{
    float value = (float)td_attr_float(call->attrs, call->n_attrs, "value", 0);
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(&call->outputs[0], i, value);
    return NULL;
}

const td_op td_op_constant = {
    .name = "constant",
    .summary = "one number in every element of a given shape",
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = td_infer_filled,
    .no_gradient = "a constant depends on nothing",
    .reference = reference,
};
