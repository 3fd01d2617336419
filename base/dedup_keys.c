/* td_dedup_keys: see base/dedup.h. Equal keys meet in a table of as many places as fit; then the distinct ones are sorted, which for
 * evenly spread keys is putting each near its place and moving it there. */
#include <string.h>

#include "base/dedup.h"
#include "base/key.h"

/* A place for each of n numbers: monotone in the key. n is at most 2^62. */
static int64_t near_place(int64_t key, int64_t n)
{
    const uint64_t above_least = (uint64_t)key ^ UINT64_C(1) << 63;
    return (int64_t)((unsigned __int128)above_least * (uint64_t)n >> 64);
}

/* Which distinct key, in the order of arrival, each one is; those into `distinct`. `table` [2 n]: number + 1 of each, 0: free. */
static int64_t find_distinct(const int64_t *keys, int64_t n, int64_t *table, int64_t *distinct, int64_t *out_numbers)
{
    int64_t found = 0;
    memset(table, 0, (size_t)(2 * n) * sizeof *table);
    for (int64_t i = 0; i < n; i++) {
        int64_t place = near_place(keys[i], 2 * n);
        while (table[place] && distinct[table[place] - 1] != keys[i])
            place = place + 1 < 2 * n ? place + 1 : 0;
        if (!table[place]) {
            distinct[found] = keys[i];
            table[place] = ++found;
        }
        out_numbers[i] = table[place] - 1;
    }
    return found;
}

/* The numbers of distinct keys in the order of the keys. The table has them so already, but for those that had to move on from
 * their places: few, and not far; those that went around its end come first. */
static void sort_numbers(const int64_t *table, int64_t places, const int64_t *distinct, int64_t *out)
{
    int64_t n = 0;
    for (int64_t p = 0; p < places; p++) {
        if (!table[p])
            continue;
        const int64_t number = table[p] - 1;
        int64_t at = n++;
        for (; at > 0 && distinct[out[at - 1]] > distinct[number]; at--)
            out[at] = out[at - 1];
        out[at] = number;
    }
}

int64_t td_dedup_keys(const int64_t *keys, int64_t n, void *scratch, int64_t *out_keys, int64_t *out_places)
{
    int64_t *table = scratch, *distinct = table + 2 * n, *order = distinct + n;
    const int64_t found = find_distinct(keys, n, table, distinct, out_places);
    sort_numbers(table, 2 * n, distinct, order);
    for (int64_t r = 0; r < found; r++) {
        out_keys[r] = distinct[order[r]];
        table[order[r]] = r; /* the table is not needed any more: the rank of each number */
    }
    for (int64_t i = 0; i < n; i++)
        out_places[i] = table[out_places[i]];
    return found;
}
