/* Random numbers without a stream: Philox4x32-10, a function from (key, counter) to 128 random bits.
 *
 *     td_philox_key key = td_philox_key_of(seed, "dropout", "hidden/dropout");
 *     uint32_t bits[4];
 *     td_philox_block(key, sample, update, bits);          // the same on every machine, in any order, on any thread
 *     float u = td_philox_uniform(bits[0]);
 *
 * Nothing is kept between calls, so there is nothing to save in a checkpoint and no order to respect. Salmon, Moraes,
 * Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Not for secrets. */
#ifndef TANDEM_BASE_PHILOX_H
#define TANDEM_BASE_PHILOX_H

#include <stdint.h>

typedef struct td_philox_key {
    uint32_t words[2];
} td_philox_key;

/* The key of one purpose ("initial", "dropout", "shuffle", ...) and name under a seed. */
td_philox_key td_philox_key_of(uint64_t seed, const char *purpose, const char *name);

/* 128 random bits for the counter (index, update). Inline, so that kernels' loops over it become vector code. */
static inline void td_philox_block(td_philox_key key, uint64_t index, uint64_t update, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)update, c3 = (uint32_t)(update >> 32);
    uint32_t k0 = key.words[0], k1 = key.words[1];
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)c0 * 0xD2511F53u, product1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform on [0, 1): multiples of 2^-24. */
static inline float td_philox_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}
/* Uniform on [0, 1): multiples of 2^-53. */
static inline double td_philox_uniform_double(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}
/* Uniform on 0 .. n - 1, n > 0, up to a bias of n / 2^64. */
static inline uint64_t td_philox_below(uint32_t high, uint32_t low, uint64_t n)
{
    return (uint64_t)((unsigned __int128)((uint64_t)high << 32 | low) * n >> 64);
}

/* Two independent standard normal numbers from one block of bits (Box and Muller, in double, with functions of our own,
 * so the same on every machine). Largest magnitude: 8.6. */
void td_philox_normal(const uint32_t bits[4], double out[2]);

typedef enum td_random_kind {                         /* numbered as td_initializer_kind */
                              TD_RANDOM_CONSTANT = 0, /* a */
                              TD_RANDOM_UNIFORM,      /* [a, b) */
                              TD_RANDOM_NORMAL        /* mean a, standard deviation b */
} td_random_kind;

/* Elements first .. first + n - 1 of the endless sequence that key, kind, a and b define. Element i depends on i and
 * not on where a call begins, so rows of a table can be made in any order and any number of pieces. */
void td_random_fill(float *out, int64_t first, int64_t n, td_philox_key key, td_random_kind kind, double a, double b);

#endif
