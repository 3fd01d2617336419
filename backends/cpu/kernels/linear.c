/* linear and the gradients of its x and its weight, f32, bf16 or f16, as matrix products (backends/cpu/gemm.h). The bias's gradient is a
 * sum of columns: reduce.c.
 *
 *   linear                  y [.., out] = x [.., in] W^T + b, perhaps max(y, 0)
 *   linear_input_gradient   dx [.., in] = dy W, perhaps 0 where x is not positive
 *   linear_weight_gradient  dW [out, in] = dy^T x, over all rows */
#include "backends/cpu/kernels/gemm_kernel.h"

/* ---- linear ----------------------------------------------------------------------------------------------------------------- */

/* linear's bias, linear_input_gradient's x. */
static bool has_third(const td_kernel_call *call)
{
    return call->n_inputs > 2 && call->inputs[2].kind != TD_NONE;
}

static td_gemm_shape linear_shape(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *weight = &call->inputs[1];
    return (td_gemm_shape){.batch = 1,
                           .m = rows_of(x),
                           .n = weight->dims[0],
                           .k = weight->dims[1],
                           .transpose_b = true,
                           .has_bias = has_third(call),
                           .relu = td_cpu_attr_bool(call, "relu", false),
                           .narrow = narrow_of(call)};
}

static td_status *linear_prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    td_gemm_shape shape = linear_shape(call);
    return td_gemm_create(engine, &shape, (td_gemm **)out_state);
}

static td_status *linear_run(const td_kernel_call *call, td_team *team, void *state)
{
    td_gemm_shape shape = linear_shape(call);
    td_gemm_operands operands = {.a = call->inputs[0].data,
                                 .b = call->inputs[1].data,
                                 .bias = shape.has_bias ? call->inputs[2].data : NULL,
                                 .c = call->outputs[0].data,
                                 .scratch = call->scratch};
    return td_gemm_run(state, &shape, &operands, team);
}

const td_cpu_kernel TD_KERNEL(linear) = {
    .op = "linear",
    .supports = are_alike_floats,
    .prepare = linear_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = linear_run,
};

/* ---- linear_input_gradient ---------------------------------------------------------------------------------------------------- */

static td_gemm_shape input_gradient_shape(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *weight = &call->inputs[1];
    return (td_gemm_shape){.batch = 1,
                           .m = rows_of(dy),
                           .n = weight->dims[1],
                           .k = weight->dims[0],
                           .has_mask = has_third(call),
                           .narrow = narrow_of(call)};
}

static td_status *input_gradient_prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    td_gemm_shape shape = input_gradient_shape(call);
    return td_gemm_create(engine, &shape, (td_gemm **)out_state);
}

static td_status *input_gradient_run(const td_kernel_call *call, td_team *team, void *state)
{
    td_gemm_shape shape = input_gradient_shape(call);
    td_gemm_operands operands = {.a = call->inputs[0].data,
                                 .b = call->inputs[1].data,
                                 .mask = shape.has_mask ? call->inputs[2].data : NULL,
                                 .c = call->outputs[0].data,
                                 .scratch = call->scratch};
    return td_gemm_run(state, &shape, &operands, team);
}

const td_cpu_kernel TD_KERNEL(linear_input_gradient) = {
    .op = "linear_input_gradient",
    .supports = are_alike_floats,
    .prepare = input_gradient_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = input_gradient_run,
};

/* ---- linear_weight_gradient -------------------------------------------------------------------------------------------------- */

static td_gemm_shape weight_gradient_shape(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *x = &call->inputs[1];
    return (td_gemm_shape){
        .batch = 1, .m = last_of(dy), .n = last_of(x), .k = rows_of(x), .transpose_a = true, .narrow = narrow_of(call)};
}

static td_status *weight_gradient_prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    td_gemm_shape shape = weight_gradient_shape(call);
    return td_gemm_create(engine, &shape, (td_gemm **)out_state);
}

static td_status *weight_gradient_run(const td_kernel_call *call, td_team *team, void *state)
{
    td_gemm_shape shape = weight_gradient_shape(call);
    td_gemm_operands operands = {
        .a = call->inputs[0].data, .b = call->inputs[1].data, .c = call->outputs[0].data, .scratch = call->scratch};
    return td_gemm_run(state, &shape, &operands, team);
}

const td_cpu_kernel TD_KERNEL(linear_weight_gradient) = {
    .op = "linear_weight_gradient",
    .supports = are_alike_floats,
    .prepare = weight_gradient_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = weight_gradient_run,
};
