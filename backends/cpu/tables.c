/* The kernels of kernels.def, one table for each instruction set they are compiled for, and the own matrix product. */
#include "backends/cpu/gemm_own.h"

#if defined(__x86_64__)
#define TD_ISA_HAS_X86 1
#else
#define TD_ISA_HAS_X86 0
#endif

#define TD_CPU_PAIR_KERNEL(symbol)
#define TD_CPU_KERNEL(symbol) extern const td_cpu_kernel td_cpu_kernel_##symbol##_baseline;
#include "backends/cpu/kernels.def"
#undef TD_CPU_KERNEL
static const td_cpu_kernel *const baseline_kernels[] = {
#define TD_CPU_KERNEL(symbol) &td_cpu_kernel_##symbol##_baseline,
#include "backends/cpu/kernels.def"
#undef TD_CPU_KERNEL
};

#if TD_ISA_HAS_X86
#define TD_CPU_KERNEL(symbol) extern const td_cpu_kernel td_cpu_kernel_##symbol##_avx2, td_cpu_kernel_##symbol##_avx512;
#include "backends/cpu/kernels.def"
#undef TD_CPU_KERNEL
static const td_cpu_kernel *const avx2_kernels[] = {
#define TD_CPU_KERNEL(symbol) &td_cpu_kernel_##symbol##_avx2,
#include "backends/cpu/kernels.def"
#undef TD_CPU_KERNEL
};
static const td_cpu_kernel *const avx512_kernels[] = {
#define TD_CPU_KERNEL(symbol) &td_cpu_kernel_##symbol##_avx512,
#include "backends/cpu/kernels.def"
#undef TD_CPU_KERNEL
};
#endif

const td_cpu_kernel *const *td_cpu_kernels(td_isa isa, int32_t *out_count)
{
    *out_count = (int32_t)(sizeof baseline_kernels / sizeof baseline_kernels[0]);
#if TD_ISA_HAS_X86
    if (isa >= TD_ISA_AVX512)
        return avx512_kernels;
    if (isa == TD_ISA_AVX2)
        return avx2_kernels;
#endif
    return baseline_kernels;
}

extern const td_gemm_own_kernels td_cpu_kernel_gemm_own_baseline;
#if TD_ISA_HAS_X86
extern const td_gemm_own_kernels td_cpu_kernel_gemm_own_avx2, td_cpu_kernel_gemm_own_avx512,
    td_cpu_kernel_gemm_own_avx512_bf16, td_cpu_kernel_gemm_own_amx_amx_bf16;
#endif

const td_gemm_own_kernels *td_gemm_own_kernels_of(td_isa isa)
{
#if TD_ISA_HAS_X86
    if (isa >= TD_ISA_AVX512)
        return &td_cpu_kernel_gemm_own_avx512;
    if (isa == TD_ISA_AVX2)
        return &td_cpu_kernel_gemm_own_avx2;
#endif
    (void)isa;
    return &td_cpu_kernel_gemm_own_baseline;
}

#undef TD_CPU_PAIR_KERNEL
#if TD_ISA_HAS_X86
#define TD_CPU_KERNEL(symbol)
#define TD_CPU_PAIR_KERNEL(symbol)                                                                                     \
    extern const td_cpu_kernel td_cpu_kernel_##symbol##_avx512_bf16, td_cpu_kernel_##symbol##_amx_bf16;
#include "backends/cpu/kernels.def"
#undef TD_CPU_PAIR_KERNEL
static const td_cpu_kernel *const pair_kernels[] = {
#define TD_CPU_PAIR_KERNEL(symbol) &td_cpu_kernel_##symbol##_avx512_bf16,
#include "backends/cpu/kernels.def"
#undef TD_CPU_PAIR_KERNEL
};
static const td_cpu_kernel *const amx_kernels[] = {
#define TD_CPU_PAIR_KERNEL(symbol) &td_cpu_kernel_##symbol##_amx_bf16,
#include "backends/cpu/kernels.def"
#undef TD_CPU_PAIR_KERNEL
#undef TD_CPU_KERNEL
};
#endif

const td_cpu_kernel *const *td_cpu_pair_kernels(td_isa isa, int32_t *out_count)
{
#if TD_ISA_HAS_X86
    *out_count = (int32_t)(sizeof pair_kernels / sizeof pair_kernels[0]);
    return isa == TD_ISA_AMX_BF16 ? amx_kernels : pair_kernels;
#else
    (void)isa;
    *out_count = 0;
    return NULL;
#endif
}

const td_gemm_own_kernels *td_gemm_amx_kernels(void)
{
#if TD_ISA_HAS_X86
    return &td_cpu_kernel_gemm_own_amx_amx_bf16;
#else
    return NULL;
#endif
}

const td_gemm_own_kernels *td_gemm_pair_kernels(void)
{
#if TD_ISA_HAS_X86
    return &td_cpu_kernel_gemm_own_avx512_bf16;
#else
    return NULL;
#endif
}
