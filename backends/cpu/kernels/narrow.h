/* Runs of 16-bit floats to and from f32, with the bits of base/half.h. Not a kernel. bf16 loops become vector code as they are;
 * f16 has instructions for it where there is AVX2, of which rounding is told to be to nearest even. They take as much at once as
 * loops of f32 do, for what one loop has just stored another can only load at once if it is one of its stores. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_NARROW_H
#define TANDEM_BACKENDS_CPU_KERNELS_NARROW_H

#include <stdint.h>

#include "base/half.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

static inline void widen_bf16(const uint16_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = td_bf16_to_f32(from[i]);
}

static inline void round_to_bf16(const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = td_f32_to_bf16(from[i]);
}

static inline void widen_f16(const uint16_t *from, int64_t n, float *to)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));
#endif
#if defined(__F16C__) && defined(__AVX2__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = td_f16_to_f32(from[i]);
}

static inline void round_to_f16(const float *from, int64_t n, uint16_t *to)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
#if defined(__F16C__) && defined(__AVX2__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    for (; i < n; i++)
        to[i] = td_f32_to_f16(from[i]);
}

#endif
