/* From 64-bit keys to slots 0, 1, 2, ... of rows: open addressing over 32-bit slots, whose keys lie in an array beside the rows.
 *
 * Linear probing from a hash of the key; removal shifts back what follows, so there are no graves. Between 40 and 80 % of the
 * places are taken once there are 64 keys: 5 to 10 bytes per key, and 8 for the key itself. A freed slot is the next to be given out. */
#ifndef TANDEM_PS_KEY_INDEX_H
#define TANDEM_PS_KEY_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TD_NO_SLOT = -1 };

typedef struct td_key_index {
    uint32_t *places; /* slot + 1; 0: free */
    uint64_t *keys;   /* of each slot; address space for most_slots */
    uint32_t *freed;  /* slots that may be given out again */
    int64_t n_places, n_slots, most_slots, n_freed, freed_capacity;
    int64_t n; /* keys */
} td_key_index;

/* Address space for `most_slots` keys (below 2^32 - 1); memory as they come. */
td_status *td_key_index_init(td_key_index *index, int64_t most_slots) TD_MUST_USE;
void td_key_index_deinit(td_key_index *index);
int64_t td_key_index_find(const td_key_index *index, uint64_t key);
/* The slot of a key, given out now if it has none: *out_new. */
td_status *td_key_index_take(td_key_index *index, uint64_t key, int64_t *out_slot, bool *out_new) TD_MUST_USE;
/* False: it was not there. */
td_status *td_key_index_remove(td_key_index *index, uint64_t key, bool *out_was_there) TD_MUST_USE;
/* Whether a slot holds a key (slots below n_slots). */
bool td_key_index_holds(const td_key_index *index, int64_t slot);
/* Asks for the place of a key that is looked up soon. */
void td_key_index_prefetch(const td_key_index *index, uint64_t key);
int64_t td_key_index_bytes(const td_key_index *index);

static inline uint64_t td_key_mix(uint64_t key)
{
    key ^= key >> 32; /* Steele, Lea and Flood's finalizer */
    key *= UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    return key ^ key >> 32;
}

#endif
