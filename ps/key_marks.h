/* What is known of the use of each key of a set, in as few bytes as its rules need: in which window it was named last, and by how many it was
 * named.
 *
 * The last window is kept as a distance from a base that moves on with the windows, by half of what the bytes hold at a time. So
 * whatever was named longer ago than that counts as named at the base: with 3 bytes what lies between 8,388,608 and 16,777,215
 * windows back, with 2 between 32,768 and 65,535. Where 2 must do for more, they count units of a power of two windows: a key was named
 * last in any window of its unit. Base and units follow from the number of windows alone, so it does not matter when a checkpoint was
 * taken, nor who owns the key. Counts stop at the most that is asked for.
 *
 * Not here: which keys there are (key_index.h), nor what follows (key_set.h). */
#ifndef TANDEM_PS_KEY_MARKS_H
#define TANDEM_PS_KEY_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

enum {
    TD_FINE_WINDOWS = (1 << 23) - 1,  /* so far back all windows differ, with 3 bytes */
    TD_COARSE_WINDOWS = (1 << 15) - 1 /* with 2 */
};

typedef struct td_key_marks {
    uint8_t *bytes;                  /* of each slot: last use, count, least byte first; address space */
    int32_t used_bytes, count_bytes; /* 0: it is not kept */
    int32_t unit_bits;               /* a unit is 1 << unit_bits windows */
    uint32_t base, most_count;       /* base: in units */
    int64_t most_slots;
} td_key_marks;

/* used_bytes: 0, 2 or 3; most_count: 0, or where counts stop. Address space for most_slots; memory as they are written. */
td_status *td_key_marks_init(td_key_marks *marks, int32_t used_bytes, int32_t unit_bits, uint32_t most_count,
                             int64_t most_slots) TD_MUST_USE;
void td_key_marks_deinit(td_key_marks *marks);
void td_key_marks_clear(td_key_marks *marks);
/* Before anything is said of window `now`. True: the base has moved, and marks of slots below n_slots with it. */
bool td_key_marks_advance(td_key_marks *marks, uint32_t now, int64_t n_slots);
/* A window not after the one that it was advanced to; one before the base counts as the base. */
void td_key_marks_set_used(td_key_marks *marks, int64_t slot, uint32_t window);
void td_key_marks_set_count(td_key_marks *marks, int64_t slot, uint32_t count);

static inline uint32_t td_key_marks_read(const uint8_t *at, int32_t bytes)
{
    uint32_t value = 0;
    for (int32_t i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static inline const uint8_t *td_key_marks_of(const td_key_marks *marks, int64_t slot)
{
    return marks->bytes + slot * (marks->used_bytes + marks->count_bytes);
}

/* Units since the base; the first window of the unit; how many named it. 0 where that is not kept. */
static inline uint32_t td_key_marks_distance(const td_key_marks *marks, int64_t slot)
{
    return marks->used_bytes ? td_key_marks_read(td_key_marks_of(marks, slot), marks->used_bytes) : 0;
}
static inline uint32_t td_key_marks_used(const td_key_marks *marks, int64_t slot)
{
    return (marks->base + td_key_marks_distance(marks, slot)) << marks->unit_bits;
}
static inline uint32_t td_key_marks_count(const td_key_marks *marks, int64_t slot)
{
    const int32_t bytes = marks->count_bytes;
    return bytes ? td_key_marks_read(td_key_marks_of(marks, slot) + marks->used_bytes, bytes) : 0;
}
/* A number that orders slots by use, or by count and then by use, the first to go first. Counts of one byte. */
static inline uint32_t td_key_marks_rank(const td_key_marks *marks, int64_t slot, bool by_count)
{
    return (by_count ? td_key_marks_count(marks, slot) << 24 : 0) | td_key_marks_distance(marks, slot);
}

#endif
