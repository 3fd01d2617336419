/* 64-bit hashes (XXH64): checksums, keys of random streams, hash tables. Not for secrets. The same on every machine. */
#ifndef TANDEM_BASE_HASH_H
#define TANDEM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t td_hash_bytes(const void *data, size_t bytes, uint64_t seed);
/* Of the characters, without the final zero. */
uint64_t td_hash_string(const char *text, uint64_t seed);
/* Of one number, as eight little-endian bytes. Chain it: td_hash_number(index, td_hash_string(name, 0)). */
uint64_t td_hash_number(uint64_t number, uint64_t seed);

#endif
