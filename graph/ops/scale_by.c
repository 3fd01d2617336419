/* scale_by: x times a number that each step may change (a td_scalar of one f32). */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_require(infer, 1, TD_SCALAR, TD_F32));
    const td_shape *scalar = &infer->inputs[1].shape;
    if (scalar->rank != 1 || !td_dim_is(scalar->dims[0], 1))
        return TD_SHAPE_ERROR(infer, "the scalar must be one number (td_scalar with n = 1)");
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    if (d->wanted[0])
        d->input_gradients[0] = td_scale_by(d->output_gradients[0], d->inputs[1]);
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    float factor = *(const float *)call->inputs[1].data;
    int64_t n = td_tensor_elements(y);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(y, i, td_get_f32(x, i) * factor);
    return NULL;
}

const td_op td_op_scale_by = {
    .name = "scale_by",
    .summary = "x times a scalar that each step may change",
    .inputs = {{"x", 0}, {"scalar", TD_PORT_NO_GRADIENT}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .in_place = {{1, 1}},
    .reference = reference,
};

td_value td_scale_by(td_value x, td_value scalar)
{
    return td_build2("scale_by", NULL, x, scalar, NULL, 0);
}
