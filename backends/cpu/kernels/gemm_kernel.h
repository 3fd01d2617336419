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

static inline bool is_dense_f32(const td_tensor *tensor)
{
    return td_cpu_is(tensor, TD_DENSE, TD_F32);
}

/* All of f32, or all of bf16. */
static inline bool are_alike_f32_or_bf16(const td_kernel_call *call)
{
    td_dtype dtype = call->inputs[0].dtype;
    if (dtype != TD_F32 && dtype != TD_BF16)
        return false;
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].kind != TD_NONE && !td_cpu_is(&call->inputs[i], TD_DENSE, dtype))
            return false;
    return true;
}

static inline bool is_bf16(const td_kernel_call *call)
{
    return call->inputs[0].dtype == TD_BF16;
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
