/* Parsed rows: see data/rows.h. */
#include "data/rows.h"

#include <sys/mman.h>

#include "base/memory.h"

enum { CHUNK_BYTES = 1 << 22 };

int64_t td_rows_stride(int32_t n_ids, int32_t n_numbers, int32_t id_bytes)
{
    int64_t bytes = (int64_t)n_ids * id_bytes + (int64_t)n_numbers * (int64_t)sizeof(float);
    return (bytes + id_bytes - 1) / id_bytes * id_bytes;
}

void td_rows_init(td_rows *rows, int32_t n_ids, int32_t n_numbers, int64_t most_id)
{
    *rows = (td_rows){.n_ids = n_ids, .n_numbers = n_numbers, .id_bytes = most_id > UINT32_MAX ? 8 : 4};
    rows->stride = td_rows_stride(n_ids, n_numbers, rows->id_bytes);
    while (rows->shift < 20 && rows->stride << (rows->shift + 1) <= CHUNK_BYTES)
        rows->shift++;
}

td_status *td_rows_init_mapped(td_rows *rows, int32_t n_ids, int32_t n_numbers, int32_t id_bytes, int64_t count,
                               void *records, void *map, size_t map_bytes)
{
    *rows = (td_rows){.n_ids = n_ids,
                      .n_numbers = n_numbers,
                      .id_bytes = id_bytes,
                      .shift = 62,
                      .stride = td_rows_stride(n_ids, n_numbers, id_bytes),
                      .count = count,
                      .map = map,
                      .map_bytes = map_bytes};
    TD_TRY(TD_NEW(rows->chunks, 1)); /* else td_rows_deinit unmaps */
    rows->chunks[0] = records;       /* not counted in n_chunks: it belongs to the mapping */
    return NULL;
}

void td_rows_deinit(td_rows *rows)
{
    for (int64_t i = 0; i < rows->n_chunks; i++)
        td_free(rows->chunks[i]);
    td_free(rows->chunks);
    if (rows->map)
        (void)munmap(rows->map, rows->map_bytes);
    *rows = (td_rows){0};
}

td_status *td_rows_append(td_rows *rows, unsigned char **out_record)
{
    if (rows->count >> rows->shift == rows->n_chunks) {
        TD_TRY(td_grow(&rows->chunks, &rows->chunks_capacity, rows->n_chunks, sizeof *rows->chunks));
        unsigned char *chunk = td_calloc((size_t)1 << rows->shift, (size_t)rows->stride);
        if (!chunk)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for more than %lld parsed rows of %lld bytes",
                            (long long)rows->count, (long long)rows->stride);
        rows->chunks[rows->n_chunks++] = chunk;
    }
    *out_record = td_rows_at(rows, rows->count++);
    return NULL;
}
