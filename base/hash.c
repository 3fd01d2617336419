/* See base/hash.h. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

uint64_t td_hash_bytes(const void *data, size_t bytes, uint64_t seed)
{
    return XXH64(data, bytes, seed);
}

uint64_t td_hash_string(const char *text, uint64_t seed)
{
    return XXH64(text, strlen(text), seed);
}

uint64_t td_hash_number(uint64_t number, uint64_t seed)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    return XXH64(bytes, sizeof bytes, seed);
}
