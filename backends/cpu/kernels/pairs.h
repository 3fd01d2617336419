/* Products of bf16 in pairs: an instruction that adds the products of two neighbours of a sum to it, VDPBF16PS. Not a kernel; what
 * includes it is compiled for TD_ISA_AVX512_BF16 alone (TD_PAIRS), beside the form that takes f32 or widens.
 *
 * A pair is 32 bits: the term of k (even) in the low half, that of k + 1 in the high half, zero beyond an odd end of the sum. So
 * memory of pairs is memory of floats whose bits are never looked at, and kernels that move floats about move pairs.
 *
 * What the instruction computes is the processor's affair. Intel's manual: first the product of the high halves is added with
 * fma, then that of the low halves; subnormal numbers count as zero, going in and coming out. Tests compile the kernels with
 * td_pair_dot, which does that in C, for machines without such an instruction. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_PAIRS_H
#define TANDEM_BACKENDS_CPU_KERNELS_PAIRS_H

#include <stdint.h>
#include <string.h>

#include "base/half.h"

#if defined(TD_ISA_avx512_bf16)
#include <immintrin.h>

/* The instruction takes its pair of a from memory by itself. Compilers load it into a register, once for several, and are not told
 * otherwise by intrinsics: by llvm-mca's tables of Zen 4 that is three times as slow. */
static inline __attribute__((always_inline)) __m512 pairs_add(const float *a, __m512 b, __m512 sum)
{
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
    return sum;
}
#else
/* `a`, `b`: pairs. */
float td_pair_dot(float sum, uint32_t a, uint32_t b);

/* `b` and `sum`: so many lanes of vectors. */
static inline void pairs_add_lanes(const float *a, const void *b, void *sum, int lanes)
{
    uint32_t pair_a, pair_b;
    float lane;
    memcpy(&pair_a, a, sizeof pair_a);
    for (int i = 0; i < lanes; i++) {
        memcpy(&pair_b, (const char *)b + 4 * i, sizeof pair_b);
        memcpy(&lane, (const char *)sum + 4 * i, sizeof lane);
        lane = td_pair_dot(lane, pair_a, pair_b);
        memcpy((char *)sum + 4 * i, &lane, sizeof lane);
    }
}
#endif

static inline void pairs_put(float *to, uint16_t low, uint16_t high)
{
    const uint32_t pair = low | (uint32_t)high << 16;
    memcpy(to, &pair, sizeof pair);
}

#endif
