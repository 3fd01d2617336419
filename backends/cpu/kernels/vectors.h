/* Sixteen floats as one value: one AVX-512 register, two of AVX2, or an array that the compiler makes the best of; and eight
 * (v8), of which only what is needed is here. Not a kernel.
 *
 * Every operation rounds each lane as the scalar one would, so kernels written with it give the same bits on every
 * instruction set. v16_fold adds lanes up in the order of base/sums.h. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_VECTORS_H
#define TANDEM_BACKENDS_CPU_KERNELS_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "base/sums.h"

#if defined(__AVX512F__)
#include <immintrin.h>
typedef struct v16 {
    __m512 v;
} v16;
static inline v16 v16_set(float x)
{
    return (v16){_mm512_set1_ps(x)};
}
static inline v16 v16_load(const float *from)
{
    return (v16){_mm512_loadu_ps(from)};
}
static inline void v16_store(float *to, v16 x)
{
    _mm512_storeu_ps(to, x.v);
}
static inline v16 v16_load_bf16(const uint16_t *from)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
    return (v16){_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
static inline v16 v16_load_f16(const uint16_t *from)
{
    return (v16){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from))};
}
static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm512_add_ps(a.v, b.v)};
}
static inline v16 v16_multiply(v16 a, v16 b)
{
    return (v16){_mm512_mul_ps(a.v, b.v)};
}
static inline v16 v16_divide(v16 a, v16 b)
{
    return (v16){_mm512_div_ps(a.v, b.v)};
}
/* a > b ? a : b */
static inline v16 v16_larger(v16 a, v16 b)
{
    return (v16){_mm512_max_ps(a.v, b.v)};
}
/* a * b + c, rounded once. */
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

/* Thirty-two, of which only what panels need is here. */
typedef struct v32 {
    __m512 a, b;
} v32;
static inline v32 v32_set(float x)
{
    return (v32){_mm512_set1_ps(x), _mm512_set1_ps(x)};
}
static inline v32 v32_load(const float *from)
{
    return (v32){_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)};
}
static inline void v32_store(float *to, v32 x)
{
    _mm512_storeu_ps(to, x.a);
    _mm512_storeu_ps(to + 16, x.b);
}
static inline v32 v32_add(v32 a, v32 b)
{
    return (v32){_mm512_add_ps(a.a, b.a), _mm512_add_ps(a.b, b.b)};
}
static inline v32 v32_fma(v32 a, v32 b, v32 c)
{
    return (v32){_mm512_fmadd_ps(a.a, b.a, c.a), _mm512_fmadd_ps(a.b, b.b, c.b)};
}
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
typedef struct v16 {
    __m256 a, b;
} v16;
static inline v16 v16_set(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline v16 v16_load(const float *from)
{
    return (v16){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
static inline void v16_store(float *to, v16 x)
{
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps(to + 8, x.b);
}
static inline __m256 v16_half_of_bf16(const uint16_t *from)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline v16 v16_load_bf16(const uint16_t *from)
{
    return (v16){v16_half_of_bf16(from), v16_half_of_bf16(from + 8)};
}
static inline v16 v16_load_f16(const uint16_t *from)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8)))};
}
static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)};
}
static inline v16 v16_multiply(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)};
}
static inline v16 v16_divide(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)};
}
static inline v16 v16_larger(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)};
}
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}
#else
typedef struct v16 {
    float f[16];
} v16;
#define V16_LANES for (int lane = 0; lane < 16; lane++)
static inline v16 v16_set(float x)
{
    v16 out;
    V16_LANES out.f[lane] = x;
    return out;
}
static inline v16 v16_load(const float *from)
{
    v16 out;
    memcpy(out.f, from, sizeof out.f);
    return out;
}
static inline void v16_store(float *to, v16 x)
{
    memcpy(to, x.f, sizeof x.f);
}
static inline v16 v16_load_bf16(const uint16_t *from)
{
    v16 out;
    V16_LANES out.f[lane] = td_bf16_to_f32(from[lane]);
    return out;
}
static inline v16 v16_load_f16(const uint16_t *from)
{
    v16 out;
    V16_LANES out.f[lane] = td_f16_to_f32(from[lane]);
    return out;
}
static inline v16 v16_add(v16 a, v16 b)
{
    V16_LANES a.f[lane] += b.f[lane];
    return a;
}
static inline v16 v16_multiply(v16 a, v16 b)
{
    V16_LANES a.f[lane] *= b.f[lane];
    return a;
}
static inline v16 v16_divide(v16 a, v16 b)
{
    V16_LANES a.f[lane] /= b.f[lane];
    return a;
}
static inline v16 v16_larger(v16 a, v16 b)
{
    V16_LANES a.f[lane] = a.f[lane] > b.f[lane] ? a.f[lane] : b.f[lane];
    return a;
}
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    V16_LANES c.f[lane] = fmaf(a.f[lane], b.f[lane], c.f[lane]);
    return c;
}
#undef V16_LANES
#endif

#if defined(__AVX2__) && defined(__FMA__)
typedef struct v8 {
    __m256 v;
} v8;
static inline v8 v8_set(float x)
{
    return (v8){_mm256_set1_ps(x)};
}
static inline v8 v8_load(const float *from)
{
    return (v8){_mm256_loadu_ps(from)};
}
static inline void v8_store(float *to, v8 x)
{
    _mm256_storeu_ps(to, x.v);
}
static inline v8 v8_add(v8 a, v8 b)
{
    return (v8){_mm256_add_ps(a.v, b.v)};
}
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    return (v8){_mm256_fmadd_ps(a.v, b.v, c.v)};
}
#else
typedef struct v8 {
    float f[8];
} v8;
#define V8_LANES for (int lane = 0; lane < 8; lane++)
static inline v8 v8_set(float x)
{
    v8 out;
    V8_LANES out.f[lane] = x;
    return out;
}
static inline v8 v8_load(const float *from)
{
    v8 out;
    memcpy(out.f, from, sizeof out.f);
    return out;
}
static inline void v8_store(float *to, v8 x)
{
    memcpy(to, x.f, sizeof x.f);
}
static inline v8 v8_add(v8 a, v8 b)
{
    V8_LANES a.f[lane] += b.f[lane];
    return a;
}
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    V8_LANES c.f[lane] = fmaf(a.f[lane], b.f[lane], c.f[lane]);
    return c;
}
#undef V8_LANES
#endif

/* The first n lanes (all from 16 on), the others zero; reads and writes no more than these. */
#if defined(__AVX512F__)
static inline __mmask16 v16_first(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
}
static inline v16 v16_load_first(const float *from, int64_t n)
{
    return (v16){_mm512_maskz_loadu_ps(v16_first(n), from)};
}
static inline void v16_store_first(float *to, v16 x, int64_t n)
{
    _mm512_mask_storeu_ps(to, v16_first(n), x.v);
}
#elif defined(__AVX2__) && defined(__FMA__)
/* Of eight lanes from `lane` on those below n. */
static inline __m256i v16_first(int lane, int64_t n)
{
    const __m256i lanes = _mm256_add_epi32(_mm256_set1_epi32(lane), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n >= 16 ? 16 : (int)n), lanes);
}
static inline v16 v16_load_first(const float *from, int64_t n)
{
    return (v16){_mm256_maskload_ps(from, v16_first(0, n)), _mm256_maskload_ps(from + 8, v16_first(8, n))};
}
static inline void v16_store_first(float *to, v16 x, int64_t n)
{
    _mm256_maskstore_ps(to, v16_first(0, n), x.a);
    _mm256_maskstore_ps(to + 8, v16_first(8, n), x.b);
}
#else
static inline v16 v16_load_first(const float *from, int64_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, from, (size_t)(n >= 16 ? 16 : n) * sizeof *lanes);
    return v16_load(lanes);
}
static inline void v16_store_first(float *to, v16 x, int64_t n)
{
    memcpy(to, x.f, (size_t)(n >= 16 ? 16 : n) * sizeof *to);
}
#endif

#if defined(__AVX2__) && defined(__FMA__)
/* Lane l takes l + 8, l + 4, l + 2, l + 1, all in registers: a short row's sum is not long enough to hide a way through memory. */
static inline float v16_fold(v16 x)
{
#if defined(__AVX512F__)
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
#else
    const __m256 eight = _mm256_add_ps(x.a, x.b);
#endif
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/* The largest lane, compared in the same order. */
static inline float v16_largest(v16 x)
{
#if defined(__AVX512F__)
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
#else
    const __m256 eight = _mm256_max_ps(x.a, x.b);
#endif
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#else
static inline float v16_fold(v16 x)
{
    float lanes[TD_SUM_LANES];
    v16_store(lanes, x);
    return td_fold_lanes(lanes);
}
static inline float v16_largest(v16 x)
{
    float lanes[TD_SUM_LANES];
    v16_store(lanes, x);
    for (int half = TD_SUM_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    return lanes[0];
}
#endif

/* td_sum and td_dot of base/sums.h, vectorised: the lanes of a short last piece that hold no element stay as they are. */
static inline float v16_sum(const float *x, int64_t n)
{
    v16 lanes = v16_set(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = v16_add(lanes, v16_load(x + i));
    float sums[TD_SUM_LANES];
    v16_store(sums, lanes);
    for (int lane = 0; i < n; i++, lane++)
        sums[lane] += x[i];
    return td_fold_lanes(sums);
}
static inline float v16_dot(const float *a, const float *b, int64_t n)
{
    v16 lanes = v16_set(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = v16_fma(v16_load(a + i), v16_load(b + i), lanes);
    float sums[TD_SUM_LANES];
    v16_store(sums, lanes);
    for (int lane = 0; i < n; i++, lane++)
        sums[lane] = fmaf(a[i], b[i], sums[lane]);
    return td_fold_lanes(sums);
}

#endif
