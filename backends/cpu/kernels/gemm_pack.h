/* Packing the operands of the own matrix product: panels that its inner loop reads from front to back. Not a kernel.
 *
 * A becomes panels of GEMM_ROWS rows, B panels of GEMM_COLUMNS columns; a panel holds these for one k after the other, with
 * zeros beyond the edge. An operand is stored either along the panel (a panel's numbers of one k are neighbours) or across
 * it (the k of one row or column are neighbours). 16-bit operands are widened here. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_PACK_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_PACK_H

#include <stdbool.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels/gemm_vectors.h"
#include "backends/cpu/kernels/narrow.h"

/* A matrix as stored: the lines are line_bytes apart, their elements neighbours. */
typedef struct gemm_source {
    const void *data;
    int64_t line_bytes;
    td_gemm_narrow narrow;
} gemm_source;

static inline gemm_source gemm_source_at(gemm_source s, int64_t line, int64_t i)
{
    s.data = (const char *)s.data + line * s.line_bytes + i * (s.narrow ? 2 : 4);
    return s;
}

static inline float gemm_element(gemm_source s, int64_t line, int64_t i)
{
    const void *at = gemm_source_at(s, line, i).data;
    float value;
    uint16_t bits;
    if (!s.narrow) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    memcpy(&bits, at, sizeof bits);
    return s.narrow == TD_GEMM_BF16 ? td_bf16_to_f32(bits) : td_f16_to_f32(bits);
}

enum { GEMM_PACK_K = 16 }; /* k of one panel before the next: sources are read by whole cache lines */

#if defined(TD_ISA_avx2) || defined(TD_ISA_avx512)
static inline __m256 gemm_load_eight(gemm_source s, int64_t line, int64_t i)
{
    const void *at = gemm_source_at(s, line, i).data;
    if (!s.narrow)
        return _mm256_loadu_ps(at);
    __m128i bits = _mm_loadu_si128(at);
    if (s.narrow == TD_GEMM_F16)
        return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

static inline __attribute__((always_inline)) void gemm_transpose_eight(__m256 r[8])
{
    __m256 t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
        u[h] = _mm256_shuffle_ps(t[h], t[h + 2], 0x44);
        u[h + 1] = _mm256_shuffle_ps(t[h], t[h + 2], 0xee);
        u[h + 2] = _mm256_shuffle_ps(t[h + 1], t[h + 3], 0x44);
        u[h + 3] = _mm256_shuffle_ps(t[h + 1], t[h + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x20);
        r[4 + i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x31);
    }
}

/* Eight lines and eight k of a source stored across: to[q * width + line]. */
static inline void gemm_pack_eight(gemm_source s, int64_t line, int64_t l, int64_t width, float *to)
{
    __m256 r[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = gemm_load_eight(s, line + i, l);
    gemm_transpose_eight(r);
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++)
        _mm256_storeu_ps(to + q * width, r[q]);
}

/* GEMM_ROWS is no multiple of eight: the last four or six lines of a panel. What is stored beyond the panel's width is
 * overwritten by the next k. */
static inline void gemm_pack_rest(gemm_source s, int64_t line, int64_t lines, int64_t l, int64_t width, float *to)
{
    __m256 r[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = i < lines ? gemm_load_eight(s, line + i, l) : _mm256_setzero_ps();
    gemm_transpose_eight(r);
    if (lines == 6) {
#pragma GCC unroll 8
        for (int q = 0; q < 8; q++) {
            _mm_storeu_ps(to + q * width, _mm256_castps256_ps128(r[q]));
            _mm_storel_pi((__m64 *)(void *)(to + q * width + 4), _mm256_extractf128_ps(r[q], 1));
        }
        return;
    }
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++)
        _mm_storeu_ps(to + q * width, _mm256_castps256_ps128(r[q]));
}

/* One full panel of a source stored across; returns the k it has done. The next panel's lines are fetched meanwhile, if there is one. */
static inline int64_t gemm_pack_across_fast(gemm_source s, int64_t width, int64_t k, bool is_last, float *to)
{
    int64_t l = 0, whole = width / 8 * 8;
    for (; l + 8 <= k; l += 8) {
        for (int64_t line = 0; !is_last && l % 16 == 0 && line < width; line++)
            __builtin_prefetch(gemm_source_at(s, width + line, l).data);
        for (int64_t line = 0; line < whole; line += 8)
            gemm_pack_eight(s, line, l, width, to + l * width + line);
        if (whole < width)
            gemm_pack_rest(s, whole, width - whole, l, width, to + l * width + whole);
    }
    return l;
}

/* One k of a full panel of a source stored along. `may_overrun`: eight numbers may be read and written where fewer are the
 * panel's, because more follow in both. */
static inline void gemm_pack_along_fast(gemm_source s, int64_t l, int64_t width, bool may_overrun, float *to)
{
    int64_t i = 0;
    __builtin_prefetch(gemm_source_at(s, l + GEMM_PACK_K, 0).data);
    for (; i + 8 <= width || (may_overrun && i < width); i += 8)
        _mm256_storeu_ps(to + i, gemm_load_eight(s, l, i));
    for (; i < width; i++)
        to[i] = gemm_element(s, l, i);
}
#else
static inline int64_t gemm_pack_across_fast(gemm_source s, int64_t width, int64_t k, bool is_last, float *to)
{
    (void)s, (void)width, (void)k, (void)is_last, (void)to;
    return 0;
}

static inline void gemm_pack_along_fast(gemm_source s, int64_t l, int64_t width, bool may_overrun, float *to)
{
    (void)may_overrun;
    for (int64_t i = 0; i < width; i++)
        to[i] = gemm_element(s, l, i);
}
#endif

#if defined(TD_ISA_avx512)
/* Some k of a full panel of f32 stored along, each fetched GEMM_PACK_K before; `width` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void gemm_pack_floats_along(gemm_source s, int64_t k, int64_t end,
                                                                         const int width, float *to)
{
    const __mmask16 last = (__mmask16)((1u << (width % 16)) - 1);
    for (; k < end; k++, to += width) {
        const float *from = gemm_source_at(s, k, 0).data;
        const char *ahead = gemm_source_at(s, k + GEMM_PACK_K, 0).data;
        for (int i = 0; i < width; i += 16) {
            __builtin_prefetch(ahead + 4 * i, 0, 2);
            if (i + 16 <= width)
                _mm512_storeu_ps(to + i, _mm512_loadu_ps(from + i));
            else
                _mm512_mask_storeu_ps(to + i, last, _mm512_maskz_loadu_ps(last, from + i));
        }
    }
}

/* Packs the panel if it is of f32, and says whether it did. Its width is that of a panel of B, or else of A. */
static inline bool gemm_pack_some_along(gemm_source s, int64_t k, int64_t end, int64_t width, float *to)
{
    if (s.narrow)
        return false;
    if (width == GEMM_COLUMNS)
        gemm_pack_floats_along(s, k, end, GEMM_COLUMNS, to);
    else
        gemm_pack_floats_along(s, k, end, GEMM_ROWS, to);
    return true;
}
#else
static inline bool gemm_pack_some_along(gemm_source s, int64_t k, int64_t end, int64_t width, float *to)
{
    (void)s, (void)k, (void)end, (void)width, (void)to;
    return false;
}
#endif

/* A panel of `width` lines, of which `lines` are there, over k numbers of each. */
static inline void gemm_pack_panel_across(gemm_source s, int64_t width, int64_t lines, int64_t k, bool is_last,
                                          float *to)
{
    int64_t l = lines == width ? gemm_pack_across_fast(s, width, k, is_last, to) : 0;
    for (; l < k; l++)
        for (int64_t i = 0; i < width; i++)
            to[l * width + i] = i < lines ? gemm_element(s, i, l) : 0.0f;
}

/* Panels of `width` lines each, `lines` in all, over k numbers of each; `to` has k * width floats for each panel. */
static inline void gemm_pack_across(gemm_source s, int64_t width, int64_t lines, int64_t k, float *to)
{
    for (int64_t line = 0; line < lines; line += width, to += k * width) {
        const int64_t left = lines - line;
        gemm_pack_panel_across(gemm_source_at(s, line, 0), width, left < width ? left : width, k, left <= width, to);
    }
}

static inline void gemm_pack_along(gemm_source s, int64_t width, int64_t count, int64_t k, float *to)
{
    for (int64_t first = 0; first < k; first += GEMM_PACK_K) {
        int64_t end = first + GEMM_PACK_K < k ? first + GEMM_PACK_K : k;
        for (int64_t i = 0; i < count; i += width) {
            float *packed = to + i * k;
            gemm_source from = gemm_source_at(s, 0, i);
            int64_t here = count - i < width ? count - i : width;
            if (here == width && gemm_pack_some_along(from, first, end, width, packed + first * width))
                continue;
            for (int64_t l = first; l < end; l++) {
                if (here == width) {
                    gemm_pack_along_fast(from, l, width, i + width + 8 <= count && l + 1 < end, packed + l * width);
                    continue;
                }
                for (int64_t j = 0; j < width; j++)
                    packed[l * width + j] = j < here ? gemm_element(from, l, j) : 0.0f;
            }
        }
    }
}

#endif
