/* Grouping the ids of lookups by table row over a team, in linear time: what fused updates walk through.
 *
 * A table is read by one source (a lookup) or several. Its rows are dealt to partitions by a hash, so that frequent ids (which
 * often are neighbours) spread; each partition holds all positions of its rows, those of the first source first, each source's
 * in ascending order. A partition is then grouped by one thread, with a hash table that fits the first-level cache. Tables of
 * few ids are one partition that is never dealt. How many partitions there are follows from the number of ids alone, and
 * groups do not depend on it.
 *
 *     td_row_table_init(&table, ...) for each table, td_row_deal(tables, n, team), then for each partition, by any thread:
 *     td_row_groups_find(&table, partition, workspace, &groups) */
#ifndef TANDEM_BACKENDS_CPU_ROW_GROUPS_H
#define TANDEM_BACKENDS_CPU_ROW_GROUPS_H

#include <string.h>

#include "base/lookup.h"
#include "base/team.h"

enum {
    TD_MOST_PARTITIONS = 1024,
    TD_FEW_IDS = 1024,         /* that many are grouped in a workspace on the stack */
    TD_GROUP_BYTES_PER_ID = 40 /* of workspace: slots, groups, starts, order, rows; a multiple of 8 */
};

/* One id: where it is and which row it names. */
typedef struct td_row_item {
    int64_t row;
    uint32_t bag, position;
} td_row_item;

typedef struct td_row_table {
    const td_lookup *const *sources;
    int32_t n_sources, partitions, partition_bits;
    int64_t count, segments; /* ids and segments of all sources */
    td_row_item *items;      /* [count], by partition; NULL where they are not dealt */
    uint32_t *ends;          /* [segments, partitions]: where each segment's items of a partition end */
    uint32_t *begins;        /* [partitions + 1] */
    char *space;             /* [count * TD_GROUP_BYTES_PER_ID]: workspace of partitions of many ids */
} td_row_table;

int32_t td_row_partitions(int64_t count);
/* Segments that a source of `count` ids is cut into. */
int64_t td_row_segments(int64_t count);
/* Deals the ids of `n` tables, whose fields are all set. Ids and offsets must be good. */
void td_row_deal(td_row_table *tables, int32_t n, td_team *team);

typedef struct td_row_groups {
    int64_t n;
    const td_row_item *items;
    const int64_t *rows;    /* [n], in the order of their first items */
    const uint32_t *starts; /* [n + 1]: group g has the items order[starts[g]] up to order[starts[g + 1]] */
    const uint32_t *order;
} td_row_groups;

/* Room for a partition of TD_FEW_IDS ids, and for the items of one that is not dealt. */
typedef struct td_row_workspace {
    _Alignas(64) char space[TD_FEW_IDS * TD_GROUP_BYTES_PER_ID];
    td_row_item items[TD_FEW_IDS];
} td_row_workspace;

static inline int64_t td_row_partition_size(const td_row_table *table, int32_t partition)
{
    return table->items ? table->begins[partition + 1] - table->begins[partition] : table->count;
}

/* The item after the last one of a source in a partition, counted from the partition's first. */
static inline int64_t td_row_source_end(const td_row_table *table, int32_t partition, int32_t source)
{
    int64_t segments = 0, ids = 0;
    for (int32_t s = 0; s <= source; s++) {
        segments += td_row_segments(table->sources[s]->count);
        ids += table->sources[s]->count;
    }
    if (!table->items)
        return ids;
    return segments ? table->ends[(segments - 1) * table->partitions + partition] - table->begins[partition] : 0;
}

static inline uint64_t td_row_hash(int64_t row)
{
    return (uint64_t)row * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 divided by the golden ratio */
}

/* Groups one partition, by any thread. The result lies in the workspace or, of many ids, in the table's own space. */
void td_row_groups_find(const td_row_table *table, int32_t partition, td_row_workspace *workspace, td_row_groups *out);

#endif
