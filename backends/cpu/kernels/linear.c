/* linear and the gradient of its weight, f32, as matrix products (backends/cpu/gemm.h). The bias's gradient is a sum of
 * columns: reduce.c.
 *
 *   linear                  y [.., out] = x [.., in] W^T + b
 *   linear_weight_gradient  dW [out, in] = dy^T x, over all rows */
#include "backends/cpu/kernels/gemm_kernel.h"

/* ---- linear ----------------------------------------------------------------------------------------------------------------- */

static bool has_bias(const td_kernel_call *call)
{
    return call->n_inputs > 2 && call->inputs[2].kind != TD_NONE;
}

static bool linear_supports(const td_kernel_call *call)
{
    return is_dense_f32(&call->inputs[0]) && is_dense_f32(&call->inputs[1]) &&
           (!has_bias(call) || is_dense_f32(&call->inputs[2]));
}

static td_gemm_shape linear_shape(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *weight = &call->inputs[1];
    return (td_gemm_shape){.batch = 1,
                           .m = rows_of(x),
                           .n = weight->dims[0],
                           .k = weight->dims[1],
                           .transpose_b = true,
                           .has_bias = has_bias(call)};
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
    .supports = linear_supports,
    .prepare = linear_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = linear_run,
};

/* ---- linear_weight_gradient -------------------------------------------------------------------------------------------------- */

static bool weight_gradient_supports(const td_kernel_call *call)
{
    return is_dense_f32(&call->inputs[0]) && is_dense_f32(&call->inputs[1]);
}

static td_gemm_shape weight_gradient_shape(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *x = &call->inputs[1];
    return (td_gemm_shape){.batch = 1, .m = last_of(dy), .n = last_of(x), .k = rows_of(x), .transpose_a = true};
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
    .supports = weight_gradient_supports,
    .prepare = weight_gradient_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = weight_gradient_run,
};
