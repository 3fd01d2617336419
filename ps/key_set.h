/* The keys of a hash table with what is known of their use, and the rules by which keys go again: after so many windows without
 * use, and beyond so many keys. Both are exact at the end of each window, and their order is total, so what is left depends on
 * which windows named which keys alone: not on arrival, nor on how many owners the table has. For that the bound on keys holds
 * for each part of the keys by itself, and an owner has whole parts. What was named very long ago, or very often, is told apart as far
 * as key_marks.h says; `live` always is, but for `narrow`.
 *
 * Not here: rows. Windows are counted from 1; one thread at a time. */
#ifndef TANDEM_PS_KEY_SET_H
#define TANDEM_PS_KEY_SET_H

#include "ps/victims.h"

/* The most windows that can be counted. */
#define TD_MOST_WINDOWS (UINT32_MAX - 1)

enum { TD_MOST_OFTEN = 255 /* where counts that order keys stop */ };

typedef struct td_key_policy {
    int64_t capacity;    /* keys of all parts at most; 0: any number */
    int64_t live;        /* windows in a row without use after which a key goes; 0: it stays */
    int32_t parts;       /* a power of two */
    uint32_t most_count; /* how many windows named each key is kept, up to so many; 0: it is not */
    /* Beyond the capacity the keys that were named least often go (most_count is 255 then); otherwise those named longest ago. */
    bool by_count;
    /* A byte for each key is worth more than `live` to the window: with by_count, a key may stay longer, by a 16,000th of it at most. */
    bool narrow;
} td_key_policy;

typedef struct td_key_set {
    td_key_policy policy;
    td_key_index index;
    td_key_marks marks;        /* of each slot */
    int64_t *in_part;          /* keys of each; NULL without capacity */
    td_victims oldest, beyond; /* for `live`, in one part; for `capacity` */
} td_key_set;

td_status *td_key_set_init(td_key_set *set, const td_key_policy *policy, int64_t most_slots) TD_MUST_USE;
void td_key_set_deinit(td_key_set *set);
td_status *td_key_set_clear(td_key_set *set) TD_MUST_USE;
/* Window `now` names a key: its slot, given out now if it has none (*out_new). */
td_status *td_key_set_name(td_key_set *set, int64_t key, uint32_t now, int64_t *out_slot, bool *out_new) TD_MUST_USE;
/* A key with a past: of a checkpoint, or one that was in another set. */
td_status *td_key_set_put(td_key_set *set, int64_t key, uint32_t used, uint32_t count, int64_t *out_slot,
                          bool *out_new) TD_MUST_USE;
/* The same of a key that is there, in its slot. */
void td_key_set_mark(td_key_set *set, int64_t slot, uint32_t used, uint32_t count);
/* False: it was not there. */
bool td_key_set_remove(td_key_set *set, int64_t key);
/* After window `now`: the next key that must go, or TD_NO_SLOT. */
td_status *td_key_set_leaving(td_key_set *set, uint32_t now, int64_t *out_slot) TD_MUST_USE;
/* What the set takes. */
int64_t td_key_set_bytes(const td_key_set *set);

#endif
