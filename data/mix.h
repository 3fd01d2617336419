/* Hashing of a 64-bit number: the finaliser of MurmurHash3 (Appleby, public domain), a bijection whose every output bit
 * depends on every input bit. For scattering, not for secrets. */
#ifndef TANDEM_DATA_MIX_H
#define TANDEM_DATA_MIX_H

#include <stdint.h>

static inline uint64_t td_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x;
}

#endif
