/* Parsed rows: see data/rows.h. */
#include "data/rows.h"

#include <sys/mman.h>

#include "base/memory.h"
#include "base/paging.h"

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

void td_rows_spill(td_rows *rows, td_work_file *file)
{
    rows->spill = file;
}

/* Of a chunk in a file: whole pages. */
static int64_t chunk_bytes(const td_rows *rows)
{
    int64_t page = (int64_t)td_page_bytes();
    return td_pages_of(((int64_t)1 << rows->shift) * rows->stride, page) * page;
}

/* The chunk's pages leave this process; they stay in the file and, while there is room, in the system's cache. */
static void put_away(const td_rows *rows, int64_t chunk)
{
    int64_t bytes = chunk_bytes(rows);
    td_work_file_flush_soon(rows->spill, chunk * bytes, (size_t)bytes);
    (void)madvise(rows->chunks[chunk], (size_t)bytes, MADV_DONTNEED);
}

void td_rows_pass(const td_rows *rows, int64_t row)
{
    int64_t last = ((int64_t)1 << rows->shift) - 1;
    if ((row & last) == last && row >> rows->shift < rows->n_spilled)
        put_away(rows, row >> rows->shift);
}

void td_rows_deinit(td_rows *rows)
{
    for (int64_t i = 0; i < rows->n_chunks; i++)
        if (i < rows->n_spilled)
            (void)munmap(rows->chunks[i], (size_t)chunk_bytes(rows));
        else
            td_free(rows->chunks[i]);
    td_work_file_destroy(rows->spill);
    td_status_destroy(rows->spill_ended);
    td_free(rows->chunks);
    if (rows->map)
        (void)munmap(rows->map, rows->map_bytes);
    *rows = (td_rows){0};
}

static td_status *add_chunk(td_rows *rows)
{
    void *chunk = NULL;
    if (rows->spill && !rows->spill_ended) {
        int64_t bytes = chunk_bytes(rows);
        rows->spill_ended = td_work_file_map(rows->spill, rows->n_chunks * bytes, (size_t)bytes, &chunk);
        rows->n_spilled += chunk != NULL;
    }
    if (!chunk)
        chunk = td_calloc((size_t)1 << rows->shift, (size_t)rows->stride);
    if (!chunk)
        return td_status_help(TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for more than %lld parsed rows of %lld bytes",
                                       (long long)rows->count, (long long)rows->stride),
                              "with data.cache, rows are kept in a file there");
    rows->chunks[rows->n_chunks++] = chunk;
    return NULL;
}

td_status *td_rows_append(td_rows *rows, unsigned char **out_record)
{
    if (rows->count >> rows->shift == rows->n_chunks) {
        TD_TRY(td_grow(&rows->chunks, &rows->chunks_capacity, rows->n_chunks, sizeof *rows->chunks));
        TD_TRY(add_chunk(rows));
    }
    if (rows->count > 0)
        td_rows_pass(rows, rows->count - 1);
    *out_record = td_rows_at(rows, rows->count++);
    return NULL;
}
