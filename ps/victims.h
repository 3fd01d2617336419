/* Which keys of a set go first: the least recently, or least often used ones of each part, found without a list through all keys.
 *
 * A look at all keys now and then collects the first 256th of each part, in order; what is used afterwards comes back in at its
 * new place where that lies among them, as long as there is room for as many again. So taking the first one is exact, and costs on
 * average the look at some keys. The order is total: count (where asked for), last use, key. It does not depend on when all keys are
 * looked at, nor on slots. */
#ifndef TANDEM_PS_VICTIMS_H
#define TANDEM_PS_VICTIMS_H

#include "ps/key_index.h"
#include "ps/key_marks.h"

typedef struct td_victim {
    uint32_t rank, slot; /* rank: td_key_marks_rank */
    int64_t key;
} td_victim;

typedef struct td_victim_heap {
    td_victim *items; /* the first one on top */
    int64_t n, capacity;
    td_victim bound; /* keys that are not here come after it */
    bool is_known;   /* false: look at all keys first */
} td_victim_heap;

typedef struct td_victims {
    td_victim_heap *heaps; /* of each part; NULL until all keys are looked at first */
    int32_t parts;
    bool any_known;
} td_victims;

/* What there is to choose among. */
typedef struct td_victim_view {
    const td_key_index *index;
    const td_key_marks *marks;
    bool by_count; /* false: only the last use counts */
} td_victim_view;

void td_victims_init(td_victims *victims, int32_t parts);
void td_victims_deinit(td_victims *victims);
/* Forgets what was collected: everything may have changed. */
void td_victims_forget(td_victims *victims);
/* The key in `slot` was used, or is new. Without memory to note that, what was collected is forgotten. */
void td_victims_touch(td_victims *victims, const td_victim_view *view, int64_t slot);
/* The first key of a part, or TD_NO_SLOT: there is none, or its rank is above `latest` (UINT32_MAX: whatever it is). It stays
 * until it is used or removed. */
td_status *td_victims_first(td_victims *victims, const td_victim_view *view, int32_t part, uint32_t latest,
                            int64_t *out_slot) TD_MUST_USE;
int64_t td_victims_bytes(const td_victims *victims);

#endif
