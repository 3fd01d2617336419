/* The vectors that the own matrix product computes with: one register of floats, or a few lanes where the compiler has no
 * better. Not a kernel. Every operation rounds each lane as the scalar one would. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_VECTORS_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

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
#undef GEMM_EACH_LANE
#endif
enum { GEMM_COLUMNS = 2 * GEMM_LANES };

#endif
