/* The own matrix product of bf16 in pairs (pairs.h): gemm.c is compiled with this instead of gemm_pack.h's panels of floats. Not a
 * kernel.
 *
 * An entry of a panel is a pair, so panels are half as long. Pairs begin at even k of the piece, whatever the blocking: the bits of a
 * sum depend on where it is cut into parts alone. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_PAIRS_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_PAIRS_H

#include "backends/cpu/kernels/gemm_pack.h"
#include "backends/cpu/kernels/pairs.h"

static inline __attribute__((always_inline)) void add_entry(const float *a, gemm_vector b0, gemm_vector b1,
                                                            gemm_vector sum[2])
{
#if defined(TD_ISA_avx512_bf16)
    sum[0] = pairs_add(a, b0, sum[0]);
    sum[1] = pairs_add(a, b1, sum[1]);
#else
    pairs_add_lanes(a, &b0, &sum[0], GEMM_LANES);
    pairs_add_lanes(a, &b1, &sum[1], GEMM_LANES);
#endif
}

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

/* Neighbours of a line are a pair as they lie there. */
static inline void gemm_pack_panels_across(gemm_source s, int64_t width, int64_t lines, int64_t k, float *to)
{
    for (int64_t line = 0; line < lines; line += width, to += gemm_entries(k) * width) {
        gemm_source panel = gemm_source_at(s, line, 0), words = panel;
        const int64_t here = lines - line < width ? lines - line : width;
        words.narrow = TD_GEMM_F32;
        gemm_pack_panel_across(words, width, here, k / 2, line + width >= lines, to);
        for (int64_t i = 0; k % 2 && i < width; i++)
            pairs_put(to + k / 2 * width + i, i < here ? gemm_bits(panel, i, k - 1) : 0, 0);
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
        pairs_put(to + i, i < here ? gemm_bits(s, k, i) : 0, i < here && both ? gemm_bits(s, k + 1, i) : 0);
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
