/* Which keys come most, in fixed memory: a space-saving counter (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and
 * top-k elements in data streams, 2005) over a sample of each batch's ids.
 *
 * A key that is not among the counted ones takes the place of the rarest, and its count. So counts are too high by at most the least
 * of all counts, and a key that makes more than one in TD_HOT_KEYS of what was seen is always there. */
#ifndef TANDEM_RUNTIME_HOT_KEYS_H
#define TANDEM_RUNTIME_HOT_KEYS_H

#include <stdint.h>

enum { TD_HOT_KEYS = 64, TD_HOT_KEYS_SAMPLE = 256 };

typedef struct td_hot_keys {
    int64_t keys[TD_HOT_KEYS], counts[TD_HOT_KEYS], n;
    int64_t seen;                   /* keys that were sampled */
    int64_t batches, ids, distinct; /* of all batches, each exact */
} td_hot_keys;

/* A batch of n keys, of which so many are distinct. At most TD_HOT_KEYS_SAMPLE of them are looked at. */
void td_hot_keys_add(td_hot_keys *hot, const int64_t *keys, int64_t n, int64_t distinct);
/* Most first. */
void td_hot_keys_sort(td_hot_keys *hot);

#endif
