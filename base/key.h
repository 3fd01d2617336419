/* Keys of hash tables: any 64-bit id, spread evenly over all 64-bit numbers by a bijection, so that equal stretches of keys hold
 * about as many rows whatever the ids are. Whoever sorts, compares or owns rows of a hash table does it by key; initial values,
 * checkpoints and people go by id. */
#ifndef TANDEM_BASE_KEY_H
#define TANDEM_BASE_KEY_H

#include <stdint.h>

/* Steele, Lea and Flood's finalizer with its inverse: each is a bijection of 64-bit numbers. */
static inline uint64_t td_key_mix(uint64_t x)
{
    const uint64_t factor = UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * factor;
    x = (x ^ x >> 32) * factor;
    return x ^ x >> 32;
}

static inline uint64_t td_key_unmix(uint64_t x)
{
    const uint64_t inverse = UINT64_C(0xcfee444d8b59a89b); /* of the factor, modulo 2^64 */
    x = (x ^ x >> 32) * inverse;
    x = (x ^ x >> 32) * inverse;
    return x ^ x >> 32;
}

static inline int64_t td_key_of_id(int64_t id)
{
    return (int64_t)td_key_mix((uint64_t)id);
}

static inline int64_t td_id_of_key(int64_t key)
{
    return (int64_t)td_key_unmix((uint64_t)key);
}

/* Which of `parts`, a power of two, equal stretches of keys, ascending, a key lies in. */
static inline int32_t td_key_part(int64_t key, int32_t parts)
{
    const uint64_t above_least = (uint64_t)key ^ UINT64_C(1) << 63;
    return (int32_t)((unsigned __int128)above_least * (uint64_t)parts >> 64);
}

/* The least key of a part below `parts`. */
static inline int64_t td_key_part_begin(int32_t part, int32_t parts)
{
    const uint64_t above_least = (uint64_t)(((unsigned __int128)part << 64) / (uint64_t)parts);
    return (int64_t)(above_least ^ UINT64_C(1) << 63);
}

#endif
