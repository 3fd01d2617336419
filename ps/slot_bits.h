/* A bit for each slot of a table: which have begun, have a key, have changed. The words are address space, so bits that were never
 * set take no memory; those of slots that are not there are never set. */
#ifndef TANDEM_PS_SLOT_BITS_H
#define TANDEM_PS_SLOT_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_SLOT_WORD = 64 }; /* slots */

static inline size_t td_slot_bits_bytes(int64_t slots)
{
    return (size_t)(slots / TD_SLOT_WORD + 1) * sizeof(uint64_t);
}

static inline bool td_slot_bit(const uint64_t *bits, int64_t slot)
{
    return bits[slot / TD_SLOT_WORD] >> (slot % TD_SLOT_WORD) & 1;
}

static inline void td_slot_bit_set(uint64_t *bits, int64_t slot)
{
    bits[slot / TD_SLOT_WORD] |= UINT64_C(1) << (slot % TD_SLOT_WORD);
}

static inline void td_slot_bit_clear(uint64_t *bits, int64_t slot)
{
    bits[slot / TD_SLOT_WORD] &= ~(UINT64_C(1) << (slot % TD_SLOT_WORD));
}

/* The first slot from `slot` on, below `end`, whose bit is set, or -1. */
static inline int64_t td_slot_bits_next(const uint64_t *bits, int64_t slot, int64_t end)
{
    while (slot < end) {
        const uint64_t word = bits[slot / TD_SLOT_WORD] >> (slot % TD_SLOT_WORD);
        if (word)
            return slot + __builtin_ctzll(word);
        slot = (slot / TD_SLOT_WORD + 1) * TD_SLOT_WORD;
    }
    return -1;
}

#endif
