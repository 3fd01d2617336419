/* What the kernels on top of a matrix product share: their state is a td_gemm. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_KERNEL_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_KERNEL_H

#include "backends/cpu/gemm.h"

/* Leading dimensions as rows of a matrix. */
static inline int64_t rows_of(const td_tensor *tensor)
{
    return td_cpu_product(tensor, 0, tensor->rank - 1);
}

static inline int64_t last_of(const td_tensor *tensor)
{
    return tensor->dims[tensor->rank - 1];
}

/* All of f32, all of bf16, or all of f16. */
static inline bool are_alike_floats(const td_kernel_call *call)
{
    td_dtype dtype = call->inputs[0].dtype;
    if (dtype != TD_F32 && dtype != TD_BF16 && dtype != TD_F16)
        return false;
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].kind != TD_NONE && !td_cpu_is(&call->inputs[i], TD_DENSE, dtype))
            return false;
    return true;
}

static inline td_gemm_narrow narrow_of(const td_kernel_call *call)
{
    const td_dtype dtype = call->inputs[0].dtype;
    return dtype == TD_BF16 ? TD_GEMM_BF16 : dtype == TD_F16 ? TD_GEMM_F16 : TD_GEMM_F32;
}

static inline void destroy_gemm(void *state)
{
    td_gemm_destroy(state);
}

static inline size_t gemm_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)call;
    return td_gemm_scratch_bytes(state);
}

#endif
