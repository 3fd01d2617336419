/* Elementary functions with the same bits on every machine and for every instruction set.
 *
 * Each is a fixed sequence of IEEE operations (add, multiply, divide, fma, compare, select) without branches or tables,
 * so that a compiler turns a loop over it into vector code and a vector lane computes what scalar code would. The C
 * library promises neither. Include this where the kernels are compiled once per instruction set; without an fma
 * instruction, fmaf is a call that gives the same result.
 *
 * Polynomials are minimax fits (Remez) of the stated function on the stated range, rounded to float. Largest errors
 * seen over every 53rd float: expf 0.97 ulp, logf 0.81, log1pf 1.44, tanhf 1.33, sigmoidf 2.4, erff 1.13,
 * softplusf 1.9. Subnormals are results and arguments like any others; infinities and NaN are those of C99 Annex F, a
 * zero keeps its sign where the function is odd. */
#ifndef TANDEM_BASE_MATH_H
#define TANDEM_BASE_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t td_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float td_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint64_t td_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double td_bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x = 2^n e^r with |r| <= ln(2)/2; e^r = 1 + r + r^2 q(r). Returns e^r; n as an integer. */
static inline float td_expf_parts(float x, int32_t *out_n)
{
    const float round_bias = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    float biased = fmaf(x, 0x1.715476p+0f, round_bias);
    float n = biased - round_bias;
    float r = fmaf(-n, 0x1.62e430p-1f, x);
    r = fmaf(-n, -0x1.05c610p-29f, r);
    float q = 0x1.9f0810p-13f;
    q = fmaf(q, r, 0x1.6d8db0p-10f);
    q = fmaf(q, r, 0x1.111272p-7f);
    q = fmaf(q, r, 0x1.55548ep-5f);
    q = fmaf(q, r, 0x1.555554p-3f);
    q = fmaf(q, r, 0.5f);
    *out_n = (int32_t)(td_float_bits(biased) - td_float_bits(round_bias));
    return fmaf(r * r, q, r) + 1.0f;
}

/* 2^n is multiplied in two halves, so that results below the normal range are rounded once. What is 0 is not computed: processors take
 * a hundred cycles for a product below that range. */
static inline float td_expf(float x)
{
    int32_t n;
    float y = x < -104.0f ? 0.0f : x;
    y = y > 89.0f ? 89.0f : y; /* beyond: infinity all the same */
    float power = td_expf_parts(y, &n);
    int32_t half = n >> 1;
    float first = td_bits_float((uint32_t)(half + 127) << 23);
    float second = td_bits_float((uint32_t)(n - half + 127) << 23);
    float result = power * first * second;
    result = x < -104.0f ? 0.0f : result;
    return x != x ? x : result;
}

/* e^x in two thirds of td_expf's operations, with its bits, for x in [-87, 88], where e^x is a normal number; e^-87 below it and
 * infinity soon above it. For what is added to a number near one. */
static inline float td_expf_bounded(float x)
{
    int32_t n;
    float y = x < -87.0f ? -87.0f : x;
    y = y > 89.0f ? 89.0f : y; /* 2^128, as bits, is infinity */
    float power = td_expf_parts(y, &n);
    return power * td_bits_float((uint32_t)(n + 127) << 23);
}

/* ln x = k ln 2 + ln(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); ln(1 + f) = f - f^2/2 + f^3 q(f). */
static inline float td_logf(float x)
{
    const uint32_t root_half = 0x3f3504f3u;
    float scaled = x * 8388608.0f;
    int32_t subnormal = x < 0x1p-126f;
    uint32_t bits = td_float_bits(subnormal ? scaled : x) - root_half;
    int32_t k = ((int32_t)bits >> 23) - (subnormal ? 23 : 0);
    float f = td_bits_float((bits & 0x007fffffu) + root_half) - 1.0f;
    float q = 0x1.1457a4p-4f;
    q = fmaf(q, f, -0x1.de3c12p-4f);
    q = fmaf(q, f, 0x1.e6f06ap-4f);
    q = fmaf(q, f, -0x1.fc2208p-4f);
    q = fmaf(q, f, 0x1.233768p-3f);
    q = fmaf(q, f, -0x1.555c4ep-3f);
    q = fmaf(q, f, 0x1.99a4b6p-3f);
    q = fmaf(q, f, -0x1.000006p-2f);
    q = fmaf(q, f, 0x1.555548p-2f);
    float square = f * f, exponent = (float)k;
    float tail = fmaf(square * f, q, -0.5f * square);
    tail = fmaf(exponent, -0x1.05c610p-29f, tail);
    float result = fmaf(exponent, 0x1.62e430p-1f, f + tail);
    result = x == INFINITY ? x : result;
    result = x == 0.0f ? -INFINITY : result;
    result = x < 0.0f ? NAN : result;
    return x != x ? x : result;
}

/* ln(1 + x): the logarithm of the rounded sum, corrected by what the rounding lost. */
static inline float td_log1pf(float x)
{
    float sum = 1.0f + x;
    float lost = (x - (sum - 1.0f)) / sum;
    lost = sum == INFINITY || sum == 0.0f ? 0.0f : lost;
    float result = td_logf(sum) + lost;
    return x == 0.0f ? x : result;
}

/* ln(1 + e^x), without overflow. */
static inline float td_softplusf(float x)
{
    float positive = x > 0.0f ? x : 0.0f;
    float result = positive + td_log1pf(td_expf(-fabsf(x)));
    return x != x ? x : result;
}

/* 1 / (1 + e^-x). */
static inline float td_sigmoidf(float x)
{
    float e = td_expf(-fabsf(x));
    float above = x >= 0.0f ? 1.0f : e;
    return above / (1.0f + e);
}

/* Binary cross entropy of sigmoid(x) against a label y in [0, 1], ln(1 + e^x) - x y. Where the logit is far on the label's side
 * the loss is as exact for 1 as for 0: it is not what is left of a sum. */
static inline float td_bce_with_logitsf(float x, float y)
{
    return fmaf(-x, y, x > 0.0f ? x : 0.0f) + td_softplusf(-fabsf(x));
}

/* |x| < 0.625: x + x^3 q(x^2); beyond: 1 - 2 / (e^2x + 1). */
static inline float td_tanhf(float x)
{
    float a = fabsf(x), z = a * a;
    float q = 0x1.18db1cp-9f;
    q = fmaf(q, z, -0x1.0bf334p-7f);
    q = fmaf(q, z, 0x1.638b00p-6f);
    q = fmaf(q, z, -0x1.b9ee88p-5f);
    q = fmaf(q, z, 0x1.111066p-3f);
    q = fmaf(q, z, -0x1.555554p-2f);
    float near = fmaf(a * z, q, a);
    float far = 1.0f - 2.0f / (td_expf(2.0f * a) + 1.0f);
    float result = a < 0.625f ? near : far;
    return copysignf(result, x);
}

/* |x| < 1: x + x p(x^2); beyond: 1 - e^-q(x), q = -ln erfc on [1, 4], where float has reached 1. */
static inline float td_erff(float x)
{
    float a = fabsf(x), z = a * a;
    float p = 0x1.496a2ep-14f;
    p = fmaf(p, z, -0x1.a3f6fep-11f);
    p = fmaf(p, z, 0x1.5405b2p-8f);
    p = fmaf(p, z, -0x1.b7f90cp-6f);
    p = fmaf(p, z, 0x1.ce2cf8p-4f);
    p = fmaf(p, z, -0x1.81273ep-2f);
    p = fmaf(p, z, 0x1.06eba8p-3f);
    float near = fmaf(a, p, a);
    float b = a > 4.0f ? 4.0f : a;
    float q = 0x1.570d16p-16f;
    q = fmaf(q, b, -0x1.bf83d0p-12f);
    q = fmaf(q, b, 0x1.0ed992p-8f);
    q = fmaf(q, b, -0x1.99dc1cp-6f);
    q = fmaf(q, b, 0x1.bad6c8p-4f);
    q = fmaf(q, b, 0x1.445a5ap-1f);
    q = fmaf(q, b, 0x1.2122b2p+0f);
    q = fmaf(q, b, -0x1.4a7bcep-13f);
    float far = 1.0f - td_expf(-q);
    float result = a < 1.0f ? near : far;
    return copysignf(result, x);
}

/* ---- double: for numbers made once (initial values, bias corrections), not for kernels' inner loops
 * ------------------- */

/* As td_expf, with the Taylor polynomial of degree 13 (remainder below 2^-57). Error below 1.1 ulp. */
static inline double td_exp(double x)
{
    const double round_bias = 6755399441055744.0; /* 1.5 * 2^52 */
    double y = x < -746.0 ? -746.0 : x;
    y = y > 710.0 ? 710.0 : y;
    double biased = fma(y, 0x1.71547652b82fep+0, round_bias);
    double n = biased - round_bias;
    double r = fma(-n, 0x1.62e42fefa39efp-1, y);
    r = fma(-n, 0x1.abc9e3b39803fp-56, r);
    double q = 1.0 / 6227020800.0;
    q = fma(q, r, 1.0 / 479001600.0);
    q = fma(q, r, 1.0 / 39916800.0);
    q = fma(q, r, 1.0 / 3628800.0);
    q = fma(q, r, 1.0 / 362880.0);
    q = fma(q, r, 1.0 / 40320.0);
    q = fma(q, r, 1.0 / 5040.0);
    q = fma(q, r, 1.0 / 720.0);
    q = fma(q, r, 1.0 / 120.0);
    q = fma(q, r, 1.0 / 24.0);
    q = fma(q, r, 1.0 / 6.0);
    q = fma(q, r, 0.5);
    double power = fma(r * r, q, r) + 1.0;
    int64_t exponent = (int64_t)(td_double_bits(biased) - td_double_bits(round_bias));
    int64_t half = exponent >> 1;
    double first = td_bits_double((uint64_t)(half + 1023) << 52);
    double second = td_bits_double((uint64_t)(exponent - half + 1023) << 52);
    double result = power * first * second;
    return x != x ? x : result;
}

/* ln x = k ln 2 + 2 atanh(s), s = f / (2 + f), by its series to s^21 (|s| < 0.172). Error below 1.1 ulp. */
static inline double td_log(double x)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcdu;
    double scaled = x * 0x1p52;
    int64_t subnormal = x < 0x1p-1022;
    uint64_t bits = td_double_bits(subnormal ? scaled : x) - root_half;
    int64_t k = ((int64_t)bits >> 52) - (subnormal ? 52 : 0);
    double f = td_bits_double((bits & 0x000fffffffffffffu) + root_half) - 1.0;
    double s = f / (2.0 + f), z = s * s;
    double q = 2.0 / 21.0;
    q = fma(q, z, 2.0 / 19.0);
    q = fma(q, z, 2.0 / 17.0);
    q = fma(q, z, 2.0 / 15.0);
    q = fma(q, z, 2.0 / 13.0);
    q = fma(q, z, 2.0 / 11.0);
    q = fma(q, z, 2.0 / 9.0);
    q = fma(q, z, 2.0 / 7.0);
    q = fma(q, z, 2.0 / 5.0);
    q = fma(q, z, 2.0 / 3.0);
    /* 2s = f - s f exactly, which keeps the leading term free of the division's rounding */
    double exponent = (double)k;
    double tail = fma(s, fma(z, q, -f), exponent * 0x1.abc9e3b39803fp-56);
    double result = fma(exponent, 0x1.62e42fefa39efp-1, f + tail);
    result = x == (double)INFINITY ? x : result;
    result = x == 0.0 ? -(double)INFINITY : result;
    result = x < 0.0 ? (double)NAN : result;
    return x != x ? x : result;
}

#endif
