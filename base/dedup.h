/* Groups equal ids: which rows a batch touches, and at which positions. What row-sparse gradients are made of.
 *
 * Always holds: rows ascend and are distinct; the positions of one row ascend, so that whoever adds up duplicates does it
 * in position order (first one copied, the others added from left to right) and gets the same bits everywhere. The time is
 * linear in n: a stable radix sort over as many digits as the table needs. Plain, one thread; no allocation, the caller
 * brings the scratch memory. It checks ids, so nobody need check them again. */
#ifndef TANDEM_BASE_DEDUP_H
#define TANDEM_BASE_DEDUP_H

#include "tandem/backend.h"
#include "tandem/status.h"

/* All arrays lie in the scratch memory and live as long. */
typedef struct td_dedup {
    int64_t n_rows;           /* distinct rows */
    const int64_t *rows;      /* [n_rows] ascending */
    const int64_t *starts;    /* [n_rows + 1]: row i has positions[starts[i]] up to positions[starts[i + 1]] */
    const int64_t *positions; /* [n] */
} td_dedup;

/* Bytes of scratch memory for n ids; 0 when that overflows. */
size_t td_dedup_scratch_bytes(int64_t n);

/* Groups `ids` [n] (TD_I64 or TD_I32) after adding `offset` to each; each sum must lie in [0, table_rows). Scratch: as
 * above, 8-byte aligned. Fails with TD_DATA_ERROR naming the first bad id and its position. */
td_status *td_dedup_group(const void *ids, td_dtype dtype, int64_t n, int64_t offset, int64_t table_rows, void *scratch,
                          td_dedup *out_dedup) TD_MUST_USE;

/* The same for rows that are known already, as pairs with positions of the caller's own, which may have gaps but ascend.
 * `pairs`: four arrays of n numbers, the first two filled with rows in [0, table_rows) and positions; `starts`: room for
 * n + 1. All are overwritten, and hold the result. */
void td_dedup_pairs(int64_t *const pairs[4], int64_t *starts, int64_t n, int64_t table_rows, td_dedup *out_dedup);

/* The same for keys that are spread evenly over all 64-bit numbers (base/key.h): out_keys [n] gets the distinct ones, ascending,
 * out_places [n] where each is among them; returns how many. Two passes over n, whatever the range is. Scratch: as for
 * td_dedup_group. */
int64_t td_dedup_keys(const int64_t *keys, int64_t n, void *scratch, int64_t *out_keys, int64_t *out_places);

/* The row of one id: its value plus `offset`, which may lie outside the table. */
static inline int64_t td_dedup_row(const void *ids, td_dtype dtype, int64_t position, int64_t offset)
{
    int64_t id = dtype == TD_I32 ? ((const int32_t *)ids)[position] : ((const int64_t *)ids)[position];
    int64_t row;
    return __builtin_add_overflow(id, offset, &row) ? -1 : row;
}

/* The error for a row outside its table. */
td_status *td_dedup_bad_id(const void *ids, td_dtype dtype, int64_t position, int64_t offset,
                           int64_t table_rows) TD_MUST_USE;

#endif
