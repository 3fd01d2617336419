/* The own matrix product of bf16 by an instruction that adds the products of two neighbours of a sum: VDPBF16PS. Not a kernel:
 * gemm.c is compiled with this instead of gemm_pack.h's panels of floats.
 *
 * An entry of a panel is a pair: the numbers of k (even) in the low half of 32 bits, those of k + 1 in the high half, with zeros
 * beyond an odd end of the sum and beyond the edge. So a panel of pairs is one of floats whose bits are never looked at, half as
 * long. Pairs begin at even k of the piece, whatever the blocking: the bits of a sum depend on where it is cut into parts alone.
 *
 * What the instruction computes is the processor's affair. Intel's manual: first the product of the high halves is added with
 * fma, then that of the low halves; subnormal numbers count as zero, going in and coming out. Tests compile this with
 * td_gemm_pair_dot, which does that in C, where there is no such instruction. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_PAIRS_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_PAIRS_H

#include "backends/cpu/kernels/gemm_pack.h"

#if defined(TD_ISA_avx512_bf16)
/* The instruction takes its pair of a from memory by itself. Compilers load it into a register, once for both, and are not told
 * otherwise by intrinsics: by llvm-mca's tables of Zen 4 that is three times as slow. */
static inline __attribute__((always_inline)) void add_entry(const float *a, gemm_vector b0, gemm_vector b1,
                                                            gemm_vector sum[2])
{
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum[0]) : "v"(b0), "m"(*a));
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum[1]) : "v"(b1), "m"(*a));
}
#else
/* `a`, `b`: pairs. */
float td_gemm_pair_dot(float sum, uint32_t a, uint32_t b);

static inline void add_entry(const float *a, gemm_vector b0, gemm_vector b1, gemm_vector sum[2])
{
    const gemm_vector b[2] = {b0, b1};
    uint32_t pair_a, pairs_b[GEMM_COLUMNS];
    float sums[GEMM_COLUMNS];
    memcpy(&pair_a, a, sizeof pair_a);
    memcpy(pairs_b, b, sizeof b);
    memcpy(sums, sum, sizeof sums);
    for (int i = 0; i < GEMM_COLUMNS; i++)
        sums[i] = td_gemm_pair_dot(sums[i], pair_a, pairs_b[i]);
    memcpy(sum, sums, sizeof sums);
}
#endif

/* Spans begin at even k, and are as many bytes as spans of floats. */
enum { GEMM_SPAN = 2 * TD_GEMM_SPAN, GEMM_SPAN_UNIT = 2 };

/* Entries of a panel over k numbers. */
static inline int64_t gemm_entries(int64_t k)
{
    return (k + 1) / 2;
}

static inline uint16_t gemm_bits(gemm_source s, int64_t line, int64_t i)
{
    uint16_t bits;
    memcpy(&bits, gemm_source_at(s, line, i).data, sizeof bits);
    return bits;
}

static inline void gemm_put_pair(float *to, uint16_t low, uint16_t high)
{
    const uint32_t pair = low | (uint32_t)high << 16;
    memcpy(to, &pair, sizeof pair);
}

/* Neighbours of a line are a pair as they lie there. */
static inline void gemm_pack_panels_across(gemm_source s, int64_t width, int64_t lines, int64_t k, float *to)
{
    for (int64_t line = 0; line < lines; line += width, to += gemm_entries(k) * width) {
        gemm_source panel = gemm_source_at(s, line, 0), words = panel;
        const int64_t here = lines - line < width ? lines - line : width;
        words.narrow = TD_GEMM_F32;
        gemm_pack_across(words, width, here, k / 2, to);
        for (int64_t i = 0; k % 2 && i < width; i++)
            gemm_put_pair(to + k / 2 * width + i, i < here ? gemm_bits(panel, i, k - 1) : 0, 0);
    }
}

/* One entry of a panel of which `here` numbers are left; `both`: k + 1 is in the sum too. */
static inline void gemm_pack_pairs(gemm_source s, int64_t k, bool both, int64_t here, int64_t width, float *to)
{
    int64_t i = 0;
#if defined(TD_ISA_avx2) || defined(TD_ISA_avx512)
    for (; both && i + 8 <= here; i += 8) {
        const __m128i low = _mm_loadu_si128(gemm_source_at(s, k, i).data);
        const __m128i high = _mm_loadu_si128(gemm_source_at(s, k + 1, i).data);
        const __m256i pairs =
            _mm256_or_si256(_mm256_cvtepu16_epi32(low), _mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16));
        _mm256_storeu_ps(to + i, _mm256_castsi256_ps(pairs));
    }
    for (; both && i + 4 <= here; i += 4) {
        const __m128i low = _mm_loadl_epi64(gemm_source_at(s, k, i).data);
        const __m128i high = _mm_loadl_epi64(gemm_source_at(s, k + 1, i).data);
        _mm_storeu_ps(to + i, _mm_castsi128_ps(_mm_unpacklo_epi16(low, high)));
    }
#endif
    for (; i < width; i++)
        gemm_put_pair(to + i, i < here ? gemm_bits(s, k, i) : 0, i < here && both ? gemm_bits(s, k + 1, i) : 0);
}

static inline void gemm_pack_panels_along(gemm_source s, int64_t width, int64_t count, int64_t k, float *to)
{
    for (int64_t first = 0; first < k; first += GEMM_PACK_K) {
        const int64_t end = first + GEMM_PACK_K < k ? first + GEMM_PACK_K : k;
        for (int64_t i = 0; i < count; i += width) {
            const gemm_source from = gemm_source_at(s, 0, i);
            float *panel = to + i * gemm_entries(k);
            const int64_t here = count - i < width ? count - i : width;
            for (int64_t l = first; l < end; l += 2) {
                __builtin_prefetch(gemm_source_at(from, l + GEMM_PACK_K, 0).data);
                __builtin_prefetch(gemm_source_at(from, l + GEMM_PACK_K + 1, 0).data);
                gemm_pack_pairs(from, l, l + 1 < k, here, width, panel + l / 2 * width);
            }
        }
    }
}

#endif
