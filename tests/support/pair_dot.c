/* See pair_dot.h. */
#include "tests/support/pair_dot.h"

#include <math.h>

#include "base/math.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

const uint16_t td_hard_bf16[TD_HARD_BF16] = {0x3f80, 0xbf80, 0x3f81, 0x3fff, 0x4b80, 0xcb80, 0x3380, 0xb380, 0x0080,
                                             0x8080, 0x00ff, 0x0040, 0x8001, 0x1f80, 0x2000, 0x9f80, 0x7f00, 0x7f7f,
                                             0xff7f, 0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x3eab, 0xc2f7};

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* fma that takes and gives no subnormal numbers. What would be subnormal if exponents had no end is flushed, so a result of
 * 2^-126 that came of rounding is computed again further up, where there is room below. */
float td_flushing_fma(float a, float b, float c)
{
    a = flushed(a);
    b = flushed(b);
    c = flushed(c);
    const float sum = fmaf(a, b, c);
    if (fabsf(sum) > 0x1p-126f || sum == 0 || isnan(sum))
        return sum;
    return fabsf(fmaf(a * 0x1p64f, b, c * 0x1p64f)) < 0x1p-62f ? copysignf(0, sum) : sum;
}

float td_pair_dot(float sum, uint32_t a, uint32_t b)
{
    sum = td_flushing_fma(td_bits_float(a & 0xffff0000u), td_bits_float(b & 0xffff0000u), sum);
    return td_flushing_fma(td_bits_float(a << 16), td_bits_float(b << 16), sum);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vl,avx512bf16"))) float td_pair_dot_by_instruction(float sum, uint32_t a,
                                                                                        uint32_t b)
{
    const __m128i pairs_a = _mm_cvtsi32_si128((int32_t)a), pairs_b = _mm_cvtsi32_si128((int32_t)b);
    return _mm_cvtss_f32(_mm_dpbf16_ps(_mm_set_ss(sum), (__m128bh)pairs_a, (__m128bh)pairs_b));
}
#else
float td_pair_dot_by_instruction(float sum, uint32_t a, uint32_t b)
{
    return td_pair_dot(sum, a, b);
}
#endif
