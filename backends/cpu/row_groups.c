/* Dealing ids to partitions: see row_groups.h. Positions are cut into segments; each segment counts, then, when it is known
 * where every (partition, segment) begins, puts its positions there. So each partition keeps the order of positions. */
#include "backends/cpu/row_groups.h"

#include <string.h>

#include "base/memory.h"

enum { SEGMENT = 8192, IDS_PER_PARTITION = 512 };

int32_t td_row_groups_partitions(int64_t count)
{
    int32_t partitions = 1;
    while (partitions < TD_MOST_PARTITIONS && (int64_t)partitions * IDS_PER_PARTITION < count)
        partitions *= 2;
    return partitions;
}

static int64_t segments_of(int64_t count)
{
    return count / SEGMENT + (count % SEGMENT != 0);
}

size_t td_row_groups_scratch_bytes(int64_t count)
{
    enum { ARRAYS = 6 }; /* four of pairs, starts, bags */
    int64_t numbers;
    if (!td_multiply_checked(count, ARRAYS, &numbers))
        return 0;
    int64_t partitions = td_row_groups_partitions(count);
    if (!td_add_checked(numbers, partitions * (1 + segments_of(count)), &numbers) ||
        !td_multiply_checked(numbers, (int64_t)sizeof(int64_t), &numbers))
        return 0;
    return (size_t)numbers;
}

/* The partition of a row: high bits of a multiplicative hash (2^64 divided by the golden ratio). */
static int32_t partition_of(const td_row_groups *groups, int64_t row)
{
    uint64_t hash = (uint64_t)row * UINT64_C(0x9e3779b97f4a7c15);
    return (int32_t)((hash >> 32) & (uint64_t)(groups->partitions - 1));
}

static void segment_span(const td_row_groups *groups, int64_t segment, int64_t *out_begin, int64_t *out_end)
{
    *out_begin = segment * SEGMENT;
    *out_end = *out_begin + SEGMENT < groups->lookup->count ? *out_begin + SEGMENT : groups->lookup->count;
}

/* A bad id is left out, and marked by a count that no segment can have. */
static void count_segment(void *context, int64_t segment, int32_t thread)
{
    (void)thread;
    const td_row_groups *groups = context;
    int64_t *counts = groups->counts + segment * groups->partitions, begin, end;
    segment_span(groups, segment, &begin, &end);
    memset(counts, 0, (size_t)groups->partitions * sizeof *counts);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = td_lookup_row(groups->lookup, i);
        if (!td_lookup_valid(groups->lookup, row)) {
            counts[0] = -1 - i;
            return;
        }
        counts[partition_of(groups, row)]++;
    }
}

static td_status *find_bad_id(const td_row_groups *groups)
{
    for (int64_t segment = 0; segment < groups->segments; segment++)
        if (groups->counts[segment * groups->partitions] < 0)
            return td_lookup_error(groups->lookup, -1 - groups->counts[segment * groups->partitions]);
    return NULL;
}

/* Counts become where each segment puts its next position of each partition. */
static void place_segments(td_row_groups *groups)
{
    int64_t before = 0;
    for (int32_t p = 0; p < groups->partitions; p++) {
        groups->begins[p] = before;
        for (int64_t segment = 0; segment < groups->segments; segment++) {
            int64_t *count = &groups->counts[segment * groups->partitions + p], here = *count;
            *count = before;
            before += here;
        }
    }
    groups->begins[groups->partitions] = before;
}

static int64_t partition_size(const td_row_groups *groups, int32_t partition)
{
    return groups->begins[partition + 1] - groups->begins[partition];
}

static void order_partitions(td_row_groups *groups)
{
    for (int32_t p = 0; p < groups->partitions; p++) {
        int32_t at = p;
        for (; at > 0 && partition_size(groups, groups->order[at - 1]) < partition_size(groups, p); at--)
            groups->order[at] = groups->order[at - 1];
        groups->order[at] = p;
    }
}

static void deal_segment(void *context, int64_t segment, int32_t thread)
{
    (void)thread;
    const td_row_groups *groups = context;
    int64_t *places = groups->counts + segment * groups->partitions, begin, end;
    segment_span(groups, segment, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = td_lookup_row(groups->lookup, i), at = places[partition_of(groups, row)]++;
        groups->pairs[0][at] = row;
        groups->pairs[1][at] = i;
    }
}

/* The first bag that ends beyond a position. */
static int64_t find_bag(const td_lookup *lookup, int64_t position)
{
    int64_t low = 0, high = lookup->bags;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (td_lookup_begin(lookup, middle + 1) <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void fill_bags(void *context, int64_t segment, int32_t thread)
{
    (void)thread;
    const td_row_groups *groups = context;
    int64_t begin, end;
    segment_span(groups, segment, &begin, &end);
    int64_t bag = find_bag(groups->lookup, begin);
    for (int64_t i = begin; i < end; i++) {
        while (td_lookup_begin(groups->lookup, bag + 1) <= i)
            bag++;
        groups->bags[i] = bag;
    }
}

static void lay_out(td_row_groups *groups, int64_t *memory)
{
    int64_t count = groups->lookup->count;
    for (int i = 0; i < 4; i++, memory += count)
        groups->pairs[i] = memory;
    groups->starts = memory;
    memory += count + groups->partitions;
    bool same = !groups->lookup->offsets && groups->lookup->length == 1;
    groups->bags = same ? NULL : memory;
    groups->counts = memory + count;
}

td_status *td_row_groups_deal(const td_lookup *lookup, td_team *team, void *scratch, td_row_groups *out_groups)
{
    td_row_groups *groups = out_groups;
    *groups = (td_row_groups){.lookup = lookup,
                              .segments = segments_of(lookup->count),
                              .partitions = td_row_groups_partitions(lookup->count)};
    TD_TRY(td_lookup_check_offsets(lookup));
    lay_out(groups, scratch);
    td_team *helpers = groups->segments > 1 ? team : NULL;
    td_team_run(helpers, groups->segments, count_segment, groups);
    TD_TRY(find_bad_id(groups));
    place_segments(groups);
    order_partitions(groups);
    td_team_run(helpers, groups->segments, deal_segment, groups);
    if (groups->bags)
        td_team_run(helpers, groups->segments, fill_bags, groups);
    return NULL;
}

void td_row_groups_group(const td_row_groups *groups, int32_t partition, td_dedup *out_dedup)
{
    int64_t begin = groups->begins[partition], n = groups->begins[partition + 1] - begin;
    int64_t *const pairs[4] = {groups->pairs[0] + begin, groups->pairs[1] + begin, groups->pairs[2] + begin,
                               groups->pairs[3] + begin};
    td_dedup_pairs(pairs, groups->starts + begin + partition, n, groups->lookup->rows, out_dedup);
}
