/* What the files of the memory pass share: who uses which memory, blocks of an arena, and the two ways to place them. */
#ifndef TANDEM_PARTITION_MEMORY_H
#define TANDEM_PARTITION_MEMORY_H

#include "partition/plan.h"

/* Who uses the memory of each root value: nodes[first[root] .. first[root + 1]). */
typedef struct td_users {
    int32_t *first; /* n_values + 1 */
    int32_t *nodes;
} td_users;

/* A value's bytes in its device's arena. */
typedef struct td_block {
    int32_t value, producer, first_user, n_users;
    int64_t bytes, offset;
    const char *name;
    /* kept: nobody takes it over, for the caller reads it after the step; doubled: it shares with nobody */
    bool kept, doubled;
} td_block;

/* Node a ends before node b begins, on whatever lanes they run. */
bool td_happens_before(const td_plan *plan, int32_t a, int32_t b);
/* Whoever uses `a` ends before `b` is made. */
bool td_block_ends_before(const td_plan *plan, const td_users *users, const td_block *a, const td_block *b);

/* Gives every block its offset, but the first n_fixed, which have theirs; returns the end of the last through *out_end. By size: the larger first, each at the lowest
 * offset where it shares only with those in use at another time; takes time with the square of n. In slots: in the order of
 * use, each in a slot that is free by then; for thousands of blocks. */
td_status *td_place_blocks_by_size(const td_plan *plan, const td_users *users, td_block *blocks, int64_t n,
                                   int64_t n_fixed, int64_t *out_end) TD_MUST_USE;
td_status *td_place_blocks_in_slots(const td_plan *plan, const td_users *users, td_block *blocks, int64_t n,
                                    int64_t n_fixed, int64_t *out_end) TD_MUST_USE;

#endif
