/* Dealing ids to partitions: see row_groups.h. Positions are cut into segments; each segment counts, then, when it is known
 * where every (partition, segment) begins, puts its items there. So each partition keeps the order of sources and positions. */
#include "backends/cpu/row_groups.h"

#include "base/prefetch.h"

enum { SEGMENT = 8192, IDS_PER_PARTITION = 512 };

int32_t td_row_partitions(int64_t count)
{
    int32_t partitions = 1;
    while (count > TD_FEW_IDS && partitions < TD_MOST_PARTITIONS && (int64_t)partitions * IDS_PER_PARTITION < count)
        partitions *= 2;
    return partitions;
}

int64_t td_row_segments(int64_t count)
{
    return count / SEGMENT + (count % SEGMENT != 0);
}

/* A segment of a source; all segments of all dealt tables are numbered through. */
typedef struct segment {
    const td_row_table *table;
    const td_lookup *source;
    int64_t begin, end;
    uint32_t *ends; /* [partitions] */
} segment;

typedef struct deal {
    td_row_table *tables;
    int32_t n;
} deal;

static void find_segment(const deal *d, int64_t index, segment *out)
{
    const td_row_table *table = d->tables;
    for (; !table->items || index >= table->segments; table++)
        index -= table->items ? table->segments : 0;
    out->table = table;
    out->ends = table->ends + index * table->partitions;
    const td_lookup *const *source = table->sources;
    for (; index >= td_row_segments((*source)->count); source++)
        index -= td_row_segments((*source)->count);
    out->source = *source;
    out->begin = index * SEGMENT;
    out->end = out->begin + SEGMENT < (*source)->count ? out->begin + SEGMENT : (*source)->count;
}

static void count_segment(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    segment s;
    find_segment(context, index, &s);
    const int shift = 64 - s.table->partition_bits;
    memset(s.ends, 0, (size_t)s.table->partitions * sizeof *s.ends);
    for (int64_t i = s.begin; i < s.end; i++)
        s.ends[td_row_hash(td_lookup_row(s.source, i)) >> shift]++;
}

/* Counts become where each segment puts its next item of each partition. */
static void place_segments(td_row_table *table)
{
    uint32_t before = 0;
    for (int32_t p = 0; p < table->partitions; p++) {
        table->begins[p] = before;
        for (int64_t s = 0; s < table->segments; s++) {
            uint32_t *count = &table->ends[s * table->partitions + p], here = *count;
            *count = before;
            before += here;
        }
    }
    table->begins[table->partitions] = before;
}

/* The first bag that ends beyond a position. */
static int64_t find_bag(const td_lookup *source, int64_t position)
{
    int64_t low = 0, high = source->bags;
    if (!source->offsets)
        return position / source->length;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (source->offsets[middle + 1] <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void deal_segment(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    segment s;
    find_segment(context, index, &s);
    const int shift = 64 - s.table->partition_bits;
    int64_t bag = find_bag(s.source, s.begin);
    for (int64_t i = s.begin; i < s.end; bag++) {
        int64_t end = td_lookup_begin(s.source, bag + 1);
        for (end = end < s.end ? end : s.end; i < end; i++) {
            const int64_t row = td_lookup_row(s.source, i);
            td_row_item *item = s.table->items + s.ends[td_row_hash(row) >> shift]++;
            __builtin_prefetch(item + TD_PREFETCH_LINE / sizeof *item, 1);
            *item = (td_row_item){row, (uint32_t)bag, (uint32_t)i};
        }
    }
}

void td_row_deal(td_row_table *tables, int32_t n, td_team *team)
{
    deal d = {tables, n};
    int64_t segments = 0;
    for (int32_t t = 0; t < n; t++)
        segments += tables[t].items ? tables[t].segments : 0;
    if (!segments)
        return;
    td_team_run_dynamic(team, segments, count_segment, &d);
    for (int32_t t = 0; t < n; t++)
        if (tables[t].items)
            place_segments(&tables[t]);
    td_team_run_dynamic(team, segments, deal_segment, &d);
}

/* ---- grouping ------------------------------------------------------------------------------------------------------------ */

/* The items of a table that is not dealt. */
static void list_items(const td_row_table *table, td_row_item *out_items)
{
    for (int32_t s = 0; s < table->n_sources; s++) {
        const td_lookup *source = table->sources[s];
        for (int64_t bag = 0, i = 0; i < source->count; bag++)
            for (const int64_t end = td_lookup_begin(source, bag + 1); i < end; i++)
                *out_items++ = (td_row_item){td_lookup_row(source, i), (uint32_t)bag, (uint32_t)i};
    }
}

/* A hash table from rows to groups, at most half full. */
typedef struct grouping {
    int64_t *rows;
    uint32_t *starts, *group_of, *order, *slots, n;
    uint64_t mask;
    int shift;
} grouping;

static void lay_out(grouping *g, char *space, int64_t n, int partition_bits)
{
    int bits = 1;
    while (((int64_t)1 << bits) < 2 * n)
        bits++;
    *g = (grouping){.rows = (int64_t *)space, .mask = ((uint64_t)1 << bits) - 1, .shift = 64 - bits - partition_bits};
    g->starts = (uint32_t *)(g->rows + n);
    g->group_of = g->starts + n + 1;
    g->order = g->group_of + n;
    g->slots = g->order + n;
    memset(g->slots, 0, ((size_t)1 << bits) * sizeof *g->slots);
}

/* The group of a row, a new one if it is met for the first time. */
static inline uint32_t group_of_row(grouping *g, int64_t row)
{
    uint64_t at = (td_row_hash(row) >> g->shift) & g->mask;
    while (g->slots[at] && g->rows[g->slots[at] - 1] != row)
        at = (at + 1) & g->mask;
    if (g->slots[at])
        return g->slots[at] - 1;
    g->rows[g->n] = row;
    g->starts[g->n] = 0;
    g->slots[at] = ++g->n;
    return g->n - 1;
}

/* Sizes become beginnings, items are put in order, and beginnings, which that has moved to ends, move on by one group. */
static void order_items(grouping *g, int64_t n)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const uint32_t size = g->starts[i];
        g->starts[i] = before;
        before += size;
    }
    for (int64_t i = 0; i < n; i++)
        g->order[g->starts[g->group_of[i]]++] = (uint32_t)i;
    for (uint32_t i = g->n; i > 0; i--)
        g->starts[i] = g->starts[i - 1];
    g->starts[0] = 0;
}

void td_row_groups_find(const td_row_table *table, int32_t partition, td_row_workspace *workspace, td_row_groups *out)
{
    const int64_t n = td_row_partition_size(table, partition);
    const td_row_item *items = table->items ? table->items + table->begins[partition] : workspace->items;
    grouping g;
    for (int64_t i = 0; table->items && i < n; i += TD_PREFETCH_LINE / sizeof *items) /* written by other cores */
        __builtin_prefetch(items + i);
    if (!table->items)
        list_items(table, workspace->items);
    lay_out(&g,
            n <= TD_FEW_IDS ? workspace->space
                            : table->space + (size_t)table->begins[partition] * TD_GROUP_BYTES_PER_ID,
            n, table->partition_bits);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t group = group_of_row(&g, items[i].row);
        g.group_of[i] = group;
        g.starts[group]++;
    }
    order_items(&g, n);
    *out = (td_row_groups){g.n, items, g.rows, g.starts, g.order};
}
