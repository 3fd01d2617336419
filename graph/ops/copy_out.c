/* copy_out: a parameter as this step's update leaves it, in 16 bit, rounded to nearest. The planner makes it where a parameter is updated in
 * one place and read in 16 bit in another, and the rule has no update_mixed (partition/fold.c). */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "dtype", .type = TD_ATTR_STRING, .required = true, .help = "of the copy: bf16 or f16"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    infer->outputs[0] = infer->inputs[0];
    TD_TRY(td_infer_dtype_attr(infer, &infer->outputs[0].dtype));
    if (infer->outputs[0].dtype != TD_BF16 && infer->outputs[0].dtype != TD_F16)
        return TD_SHAPE_ERROR(infer, "the copy must be bf16 or f16");
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const int64_t n = td_tensor_elements(&call->inputs[0]);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(&call->outputs[0], i, ((const float *)call->inputs[0].data)[i]);
    return NULL;
}

const td_op td_op_copy_out = {
    .name = "copy_out",
    .summary = "a parameter after its update, in 16 bit",
    .inputs = {{"parameter", TD_PORT_AFTER | TD_PORT_NO_GRADIENT}},
    .outputs = {{"copy", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is part of an update",
    .reference = reference,
};
