/* Rows of 16-bit floats: widened exactly, narrowed to nearest or stochastically. What tables of bf16 and f16 are updated with.
 *
 * The arithmetic of a rule is that of f32; only what is kept is rounded, once per update. Stochastic rounding goes up with the
 * probability of the part that is cut off, so that steps smaller than the last place are not lost on average. Its random bits
 * are Philox's (base/philox.h) under the key of (seed, "rounding", parameter), at the counter (element / 8, update); element i
 * takes the i % 8-th 16 bits of its block. So they depend on neither threads nor devices, and nothing need be saved. */
#ifndef TANDEM_BASE_ROWS16_H
#define TANDEM_BASE_ROWS16_H

#include "base/half.h"
#include "base/philox.h"
#include "tandem/backend.h"

/* Where the coefficients of a step hold the number of the update: low 20 bits, and the rest. Exact up to 2^44. */
enum { TD_COEFFICIENT_UPDATE = 14, TD_UPDATE_BITS = 20 };

static inline uint64_t td_update_of(const float *coefficients)
{
    return (uint64_t)coefficients[TD_COEFFICIENT_UPDATE] +
           ((uint64_t)coefficients[TD_COEFFICIENT_UPDATE + 1] << TD_UPDATE_BITS);
}

static inline void td_set_update(float *coefficients, int64_t update)
{
    const int64_t low = update & ((INT64_C(1) << TD_UPDATE_BITS) - 1);
    coefficients[TD_COEFFICIENT_UPDATE] = (float)low;
    coefficients[TD_COEFFICIENT_UPDATE + 1] = (float)(update >> TD_UPDATE_BITS);
}

/* A key as an attribute: never 0, which says to nearest. */
static inline int64_t td_rounding_key_pack(td_philox_key key)
{
    const uint64_t packed = (uint64_t)key.words[1] << 32 | key.words[0];
    return (int64_t)(packed ? packed : 1);
}

static inline void td_widen_row(const uint16_t *from, td_dtype dtype, int64_t n, float *out)
{
    if (dtype == TD_BF16)
        for (int64_t i = 0; i < n; i++)
            out[i] = td_bf16_to_f32(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = td_f16_to_f32(from[i]);
}

static inline void td_narrow_row_to_nearest(const float *from, td_dtype dtype, int64_t n, uint16_t *out)
{
    if (dtype == TD_BF16)
        for (int64_t i = 0; i < n; i++)
            out[i] = td_f32_to_bf16(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = td_f32_to_f16(from[i]);
}

/* Elements first .. first + n - 1 of a parameter. key 0: to nearest, ties to even. */
static inline void td_narrow_row(const float *from, td_dtype dtype, int64_t first, int64_t n, int64_t key,
                                 uint64_t update, uint16_t *out)
{
    enum { PER_BLOCK = 8 };
    const td_philox_key philox = {{(uint32_t)(uint64_t)key, (uint32_t)((uint64_t)key >> 32)}};
    uint32_t bits[4];
    if (key == 0) {
        td_narrow_row_to_nearest(from, dtype, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t lane = (first + i) % PER_BLOCK;
        if (i == 0 || lane == 0)
            td_philox_block(philox, (uint64_t)((first + i) / PER_BLOCK), update, bits);
        const uint32_t random = bits[lane / 2] >> (lane % 2 * 16);
        out[i] =
            dtype == TD_BF16 ? td_f32_to_bf16_stochastic(from[i], random) : td_f32_to_f16_stochastic(from[i], random);
    }
}

#endif
