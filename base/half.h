/* 16-bit floats: bfloat16 (8 exponent bits, 7 mantissa bits) and IEEE half (5, 10), to and from float.
 *
 * To 16 bit: to nearest, ties to even; subnormals are kept in both directions; beyond the largest number comes
 * infinity; a NaN stays a (quiet) NaN with the top of its payload, as the F16C instructions do it. Stochastic: up with
 * the probability of the cut-off part, given 16 uniform random bits. Without branches, so loops over them become vector
 * code with the same bits everywhere. */
#ifndef TANDEM_BASE_HALF_H
#define TANDEM_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/math.h"

static inline float td_bf16_to_f32(uint16_t value)
{
    return td_bits_float((uint32_t)value << 16);
}

static inline uint16_t td_f32_to_bf16(float value)
{
    uint32_t bits = td_float_bits(value);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : rounded;
    return (uint16_t)(result >> 16);
}

/* `random`: its low 16 bits count. Every bit of the cut-off part counts: the probability is exact. */
static inline uint16_t td_f32_to_bf16_stochastic(float value, uint32_t random)
{
    uint32_t bits = td_float_bits(value);
    uint32_t rounded = bits + (random & 0xffffu);
    uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : rounded;
    return (uint16_t)(result >> 16);
}

static inline float td_f16_to_f32(uint16_t value)
{
    const uint32_t exponent_mask = 0x7c00u << 13;
    uint32_t bits = (uint32_t)(value & 0x7fffu) << 13;
    uint32_t exponent = bits & exponent_mask;
    uint32_t special = bits + ((255u - 31u) << 23);
    special |= bits > exponent_mask ? 0x00400000u : 0u;
    uint32_t normal = bits + ((127u - 15u) << 23);
    /* subnormal: its mantissa under the exponent of 2^-14, minus 2^-14 */
    uint32_t subnormal = td_float_bits(td_bits_float(bits + (113u << 23)) - td_bits_float(113u << 23));
    uint32_t result = exponent == exponent_mask ? special : exponent == 0 ? subnormal : normal;
    return td_bits_float(result | (uint32_t)(value & 0x8000u) << 16);
}

/* From the bits of |value| >= 65536, infinity or NaN. */
static inline uint32_t td_f16_special(uint32_t magnitude)
{
    uint32_t quiet = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    return magnitude > 0x7f800000u ? quiet : 0x7c00u;
}

static inline uint16_t td_f32_to_f16(float value)
{
    uint32_t bits = td_float_bits(value), magnitude = bits & 0x7fffffffu;
    /* normal: rebias, round at bit 13; what rounds past 65504 carries into infinity */
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    /* subnormal: next to 0.5, whose last bit is worth 2^-24, the addition does the rounding */
    uint32_t subnormal = td_float_bits(td_bits_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x47800000u ? td_f16_special(magnitude) : result;
    return (uint16_t)(result | (bits >> 16 & 0x8000u));
}

/* `random`: its low 16 bits count, 13 of them decide. In the normal range the probability is exact; below it the
 * cut-off part is taken to 2^-13 of the last place. */
static inline uint16_t td_f32_to_f16_stochastic(float value, uint32_t random)
{
    uint32_t bits = td_float_bits(value), magnitude = bits & 0x7fffffffu;
    /* below 2^-14: a fixed-point number of 24 + 13 binary places, less than 2^23 */
    float small = magnitude < 0x38800000u ? td_bits_float(magnitude) : 0.0f;
    uint32_t fixed = (uint32_t)(int32_t)(small * 0x1p37f);
    uint32_t exact = magnitude < 0x38800000u ? fixed : magnitude - (112u << 23);
    uint32_t result = (exact + (random >> 3 & 0x1fffu)) >> 13;
    result = magnitude >= 0x47800000u ? td_f16_special(magnitude) : result;
    return (uint16_t)(result | (bits >> 16 & 0x8000u));
}

#endif
