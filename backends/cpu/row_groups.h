/* Grouping the ids of a lookup by row over a team, in linear time: what fused updates walk through.
 *
 * Rows are dealt to partitions by a hash, so that frequent ids (which often are neighbours) spread; each partition holds
 * all positions of its rows, in order, and is then grouped by one thread. The number of partitions follows from the number
 * of ids alone. Partitions come largest first, so that a thread with a frequent id starts on it early. */
#ifndef TANDEM_BACKENDS_CPU_ROW_GROUPS_H
#define TANDEM_BACKENDS_CPU_ROW_GROUPS_H

#include "base/dedup.h"
#include "base/lookup.h"
#include "base/team.h"

enum { TD_MOST_PARTITIONS = 128 };

typedef struct td_row_groups {
    const td_lookup *lookup;
    int64_t *pairs[4]; /* [count] each: rows and positions by partition, and their counterparts */
    int64_t *starts;   /* [count + partitions] */
    int64_t *bags;     /* [count]: the bag of each position; NULL where position and bag are the same */
    int64_t *counts;   /* [segments, partitions] */
    int64_t segments;
    int32_t partitions;
    int64_t begins[TD_MOST_PARTITIONS + 1]; /* of each partition in pairs */
    int32_t order[TD_MOST_PARTITIONS];      /* partitions, largest first */
} td_row_groups;

/* How many partitions `count` ids get, and the scratch memory they need; 0 bytes: too many to address. */
int32_t td_row_groups_partitions(int64_t count);
size_t td_row_groups_scratch_bytes(int64_t count);

/* Checks all offsets and ids, and deals them. `lookup` must outlive `out_groups`; scratch 8-byte aligned. */
td_status *td_row_groups_deal(const td_lookup *lookup, td_team *team, void *scratch,
                              td_row_groups *out_groups) TD_MUST_USE;

/* Groups one partition, by any thread: the result lies in the scratch memory. */
void td_row_groups_group(const td_row_groups *groups, int32_t partition, td_dedup *out_dedup);

static inline int64_t td_row_groups_bag(const td_row_groups *groups, int64_t position)
{
    return groups->bags ? groups->bags[position] : position;
}

#endif
