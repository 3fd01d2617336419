/* Grouping equal ids: see base/dedup.h. Least significant digit first, two pairs of arrays that take turns. */
#include "base/dedup.h"

#include <string.h>

#include "base/memory.h"
#include "base/units.h"

enum {
    MOST_DIGIT_BITS = 11, /* 2,048 counters: 16 KiB of stack, well within the first-level cache */
    FEW_DIGIT_BITS = 6,   /* where clearing 2,048 counters would cost more than another pass */
    FEW_IDS = 512,
    ARRAYS = 5 /* rows, positions, their counterparts and the starts */
};

size_t td_dedup_scratch_bytes(int64_t n)
{
    int64_t entries, bytes;
    if (!td_add_checked(n, 1, &entries) || !td_multiply_checked(entries, ARRAYS * (int64_t)sizeof(int64_t), &bytes))
        return 0;
    return (size_t)bytes;
}

td_status *td_dedup_bad_id(const void *ids, td_dtype dtype, int64_t position, int64_t offset, int64_t table_rows)
{
    int64_t id = td_dedup_row(ids, dtype, position, 0);
    if (offset)
        return TD_ERROR(TD_DATA_ERROR, "id %lld (+ offset %lld) at position %lld is outside its table of %s",
                        (long long)id, (long long)offset, (long long)position, TD_COUNTED(table_rows, "row"));
    return TD_ERROR(TD_DATA_ERROR, "id %lld at position %lld is outside its table of %s", (long long)id,
                    (long long)position, TD_COUNTED(table_rows, "row"));
}

typedef struct pairs {
    int64_t *rows, *positions;
} pairs;

static int row_bits(int64_t table_rows)
{
    return table_rows > 1 ? 64 - __builtin_clzll((unsigned long long)(table_rows - 1)) : 0;
}

/* One stable pass: `from` ordered by the digit at `shift`, into `to`. */
static void sort_by_digit(pairs from, pairs to, int64_t n, int shift, int bits, int64_t *counters)
{
    size_t buckets = (size_t)1 << bits;
    uint64_t mask = buckets - 1;
    memset(counters, 0, buckets * sizeof *counters);
    for (int64_t i = 0; i < n; i++)
        counters[((uint64_t)from.rows[i] >> shift) & mask]++;
    int64_t before = 0;
    for (size_t b = 0; b < buckets; b++) {
        int64_t count = counters[b];
        counters[b] = before;
        before += count;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = counters[((uint64_t)from.rows[i] >> shift) & mask]++;
        to.rows[at] = from.rows[i];
        to.positions[at] = from.positions[i];
    }
}

/* Keeps one of each run of equal rows, in place, and notes where each run starts. */
static int64_t mark_runs(int64_t *rows, int64_t n, int64_t *starts)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && rows[i] == rows[found - 1])
            continue;
        starts[found] = i;
        rows[found++] = rows[i];
    }
    starts[found] = n;
    return found;
}

void td_dedup_pairs(int64_t *const arrays[4], int64_t *starts, int64_t n, int64_t table_rows, td_dedup *out_dedup)
{
    int64_t counters[1 << MOST_DIGIT_BITS];
    pairs now = {arrays[0], arrays[1]}, other = {arrays[2], arrays[3]};
    int digit = n <= FEW_IDS ? FEW_DIGIT_BITS : MOST_DIGIT_BITS, bits = n > 1 ? row_bits(table_rows) : 0;
    for (int shift = 0; shift < bits; shift += digit) {
        sort_by_digit(now, other, n, shift, digit, counters);
        pairs turn = now;
        now = other;
        other = turn;
    }
    *out_dedup = (td_dedup){mark_runs(now.rows, n, starts), now.rows, starts, now.positions};
}

td_status *td_dedup_group(const void *ids, td_dtype dtype, int64_t n, int64_t offset, int64_t table_rows, void *scratch,
                          td_dedup *out_dedup)
{
    int64_t *memory = scratch;
    int64_t *const arrays[4] = {memory, memory + n, memory + 2 * n, memory + 3 * n};
    *out_dedup = (td_dedup){0};
    for (int64_t i = 0; i < n; i++) {
        int64_t row = td_dedup_row(ids, dtype, i, offset);
        if (row < 0 || row >= table_rows)
            return td_dedup_bad_id(ids, dtype, i, offset, table_rows);
        arrays[0][i] = row;
        arrays[1][i] = i;
    }
    td_dedup_pairs(arrays, memory + 4 * n, n, table_rows, out_dedup);
    return NULL;
}
