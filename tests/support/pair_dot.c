/* See pair_dot.h. */
#include "tests/support/pair_dot.h"

#include <math.h>

#include "base/math.h"

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
