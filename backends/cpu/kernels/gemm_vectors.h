/* The vectors that the own matrix product computes with: one register of floats, or a few lanes where the compiler has no
 * better. Not a kernel. Every operation rounds each lane as the scalar one would. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_VECTORS_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

/* GEMM_ROWS x two vectors of C stay in registers: as many as the instruction set has room for beside the operands. */
#if defined(TD_ISA_avx512)
#include <immintrin.h>
enum { GEMM_LANES = 16, GEMM_ROWS = 12 };
typedef __m512 gemm_vector;
#define gemm_load(p) _mm512_loadu_ps(p)
#define gemm_store(p, v) _mm512_storeu_ps(p, v)
#define gemm_set(x) _mm512_set1_ps(x)
#define gemm_add(a, b) _mm512_add_ps(a, b)
#define gemm_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
/* c < 0 ? 0 : c, NaN and -0 kept: of two equal or unordered operands, max gives the second. */
#define gemm_relu(c) _mm512_max_ps(_mm512_setzero_ps(), c)
/* y <= 0 ? 0 : c */
#define gemm_where_positive(y, c)                                                                                      \
    _mm512_maskz_mov_ps((__mmask16)~_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LE_OQ), c)

/* To and from 16 bit with the bits of base/half.h. */
static inline gemm_vector gemm_load_bf16(const uint16_t *p)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

static inline void gemm_store_bf16(uint16_t *p, gemm_vector v)
{
    const __m512i bits = _mm512_castps_si512(v),
                  even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), even);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x00400000));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16)));
}

static inline gemm_vector gemm_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void gemm_store_f16(uint16_t *p, gemm_vector v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(TD_ISA_avx2)
#include <immintrin.h>
enum { GEMM_LANES = 8, GEMM_ROWS = 6 };
typedef __m256 gemm_vector;
#define gemm_load(p) _mm256_loadu_ps(p)
#define gemm_store(p, v) _mm256_storeu_ps(p, v)
#define gemm_set(x) _mm256_set1_ps(x)
#define gemm_add(a, b) _mm256_add_ps(a, b)
#define gemm_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define gemm_relu(c) _mm256_max_ps(_mm256_setzero_ps(), c)
#define gemm_where_positive(y, c) _mm256_andnot_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_LE_OQ), c)

static inline gemm_vector gemm_load_bf16(const uint16_t *p)
{
    const __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

static inline void gemm_store_bf16(uint16_t *p, gemm_vector v)
{
    const __m256i bits = _mm256_castps_si256(v),
                  even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256 is_nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256 result = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
    const __m256i halves = _mm256_srli_epi32(_mm256_castps_si256(result), 16);
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}

static inline gemm_vector gemm_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void gemm_store_f16(uint16_t *p, gemm_vector v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
enum { GEMM_LANES = 4, GEMM_ROWS = 2 };
typedef struct gemm_vector {
    float lane[GEMM_LANES];
} gemm_vector;
#define GEMM_EACH_LANE for (int i = 0; i < GEMM_LANES; i++)

static inline gemm_vector gemm_load(const float *p)
{
    gemm_vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void gemm_store(float *p, gemm_vector v)
{
    memcpy(p, &v, sizeof v);
}

static inline gemm_vector gemm_set(float x)
{
    gemm_vector v;
    GEMM_EACH_LANE v.lane[i] = x;
    return v;
}

static inline gemm_vector gemm_add(gemm_vector a, gemm_vector b)
{
    GEMM_EACH_LANE a.lane[i] += b.lane[i];
    return a;
}

static inline gemm_vector gemm_fma(gemm_vector a, gemm_vector b, gemm_vector c)
{
    GEMM_EACH_LANE c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
    return c;
}

static inline gemm_vector gemm_relu(gemm_vector c)
{
    GEMM_EACH_LANE c.lane[i] = c.lane[i] < 0.0f ? 0.0f : c.lane[i];
    return c;
}

static inline gemm_vector gemm_where_positive(gemm_vector y, gemm_vector c)
{
    GEMM_EACH_LANE c.lane[i] = y.lane[i] <= 0.0f ? 0.0f : c.lane[i];
    return c;
}

static inline gemm_vector gemm_load_bf16(const uint16_t *p)
{
    gemm_vector v;
    GEMM_EACH_LANE v.lane[i] = td_bf16_to_f32(p[i]);
    return v;
}

static inline void gemm_store_bf16(uint16_t *p, gemm_vector v)
{
    GEMM_EACH_LANE p[i] = td_f32_to_bf16(v.lane[i]);
}

static inline gemm_vector gemm_load_f16(const uint16_t *p)
{
    gemm_vector v;
    GEMM_EACH_LANE v.lane[i] = td_f16_to_f32(p[i]);
    return v;
}

static inline void gemm_store_f16(uint16_t *p, gemm_vector v)
{
    GEMM_EACH_LANE p[i] = td_f32_to_f16(v.lane[i]);
}
#undef GEMM_EACH_LANE
#endif
enum { GEMM_COLUMNS = 2 * GEMM_LANES };

#endif
