/* from_scalar: a host number (f32 or f64) as a dense value of one f32 element, for ops that take no scalar.
 *
 * Backward starts from a scalar. The loss ops take it as it is; where another op makes the loss (a weighted sum of losses,
 * say), this one stands between. */
#include "graph/op.h"

static const td_attr_spec attrs[] = {
    {.name = "rank", .type = TD_ATTR_INT, .i = 1, .help = "of the result, each of whose dimensions is 1"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    const td_type *scalar = &infer->inputs[0];
    int64_t rank = td_attr_int(infer->attrs, infer->n_attrs, "rank", 1);
    if (scalar->kind != TD_SCALAR || (scalar->dtype != TD_F32 && scalar->dtype != TD_F64) || scalar->shape.rank != 1 ||
        !td_dim_is(scalar->shape.dims[0], 1))
        return TD_SHAPE_ERROR(infer, "the input must be a scalar of one number, f32 or f64");
    if (rank < 0 || rank > TD_MAX_RANK)
        return TD_SHAPE_ERROR(infer, "rank is %d; it must be 0 to %d", (int)rank, TD_MAX_RANK);
    td_type *y = &infer->outputs[0];
    *y = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = {.rank = (int32_t)rank}};
    for (int32_t i = 0; i < y->shape.rank; i++)
        y->shape.dims[i] = td_dim_constant(1);
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *scalar = &call->inputs[0];
    *(float *)call->outputs[0].data =
        scalar->dtype == TD_F64 ? (float)*(const double *)scalar->data : *(const float *)scalar->data;
    return NULL;
}

const td_op td_op_from_scalar = {
    .name = "from_scalar",
    .summary = "a scalar as a dense value of one element",
    .inputs = {{"scalar", TD_PORT_NO_GRADIENT}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "host numbers are not trained",
    .reference = reference,
};
