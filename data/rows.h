/* Parsed rows: one record of fixed size per row, `n_ids` ids (4 or 8 bytes each), then `n_numbers` floats. A whole row
 * lies together because shuffled batches read rows, not columns. Records lie in chunks while a file is parsed: in memory, or
 * in a working file, whose pages the system may take back at any time; or in one read-only mapping of a cache file. */
#ifndef TANDEM_DATA_ROWS_H
#define TANDEM_DATA_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/work_file.h"
#include "tandem/status.h"

typedef struct td_rows {
    int32_t n_ids, n_numbers, id_bytes, shift; /* shift: row >> shift is its chunk */
    int64_t stride, count;
    unsigned char **chunks;
    int64_t n_chunks, chunks_capacity;
    void *map; /* the mapping, where there is one */
    size_t map_bytes;
    td_work_file *spill; /* owned; the first chunks are mapped from it; NULL: all are memory */
    int64_t n_spilled;
    td_status *spill_ended; /* owned: why no further chunk lies in the file */
} td_rows;

/* No rows yet. `most_id`: the largest id that will be stored; it decides between 4 and 8 bytes. */
void td_rows_init(td_rows *rows, int32_t n_ids, int32_t n_numbers, int64_t most_id);
/* The same layout over `count` records at `records`, inside the mapping, which is taken. */
td_status *td_rows_init_mapped(td_rows *rows, int32_t n_ids, int32_t n_numbers, int32_t id_bytes, int64_t count,
                               void *records, void *map, size_t map_bytes) TD_MUST_USE;
void td_rows_deinit(td_rows *rows);
/* From now on chunks lie in this file, which is taken; if it cannot grow, further ones are memory, and rows->spill_ended says why.
 * Before the first record. */
void td_rows_spill(td_rows *rows, td_work_file *file);
/* Advice: this pass over the rows is through with the chunk of `row`, if this is its last row. */
void td_rows_pass(const td_rows *rows, int64_t row);
/* Room for one more record, zeroed; it counts from now on. */
td_status *td_rows_append(td_rows *rows, unsigned char **out_record) TD_MUST_USE;
int64_t td_rows_stride(int32_t n_ids, int32_t n_numbers, int32_t id_bytes);

static inline unsigned char *td_rows_at(const td_rows *rows, int64_t row)
{
    return rows->chunks[row >> rows->shift] + (row & (((int64_t)1 << rows->shift) - 1)) * rows->stride;
}

static inline int64_t td_record_id(const td_rows *rows, const unsigned char *record, int32_t column)
{
    if (rows->id_bytes == 4)
        return ((const uint32_t *)(const void *)record)[column];
    return ((const int64_t *)(const void *)record)[column];
}

static inline void td_record_set_id(const td_rows *rows, unsigned char *record, int32_t column, int64_t id)
{
    if (rows->id_bytes == 4)
        ((uint32_t *)(void *)record)[column] = (uint32_t)id;
    else
        ((int64_t *)(void *)record)[column] = id;
}

static inline float *td_record_numbers(const td_rows *rows, unsigned char *record)
{
    return (float *)(void *)(record + (int64_t)rows->n_ids * rows->id_bytes);
}

#endif
