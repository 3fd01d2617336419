/* constant: one number in every element of a value of a given shape. What the optimizer makes of ops that it computes. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of the result"},
    {.name = "dtype", .type = TD_ATTR_STRING, .s = "f32", .help = "f32, f16 or bf16"},
    {.name = "value", .type = TD_ATTR_FLOAT, .required = true, .help = "rounded to f32, then to the dtype"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    td_type *y = &infer->outputs[0];
    y->kind = TD_DENSE;
    TD_TRY(td_infer_dtype_attr(infer, &y->dtype));
    if (!(TD_FLOATS >> y->dtype & 1))
        return TD_SHAPE_ERROR(infer, "dtype is %s; it must be f32, f16 or bf16", td_dtype_name(y->dtype));
    return td_infer_shape_attr(infer, &y->shape);
}

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
    .infer = infer,
    .no_gradient = "a constant depends on nothing",
    .reference = reference,
};
