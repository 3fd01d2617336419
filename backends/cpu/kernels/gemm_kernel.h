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
