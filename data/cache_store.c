/* Writing a cache file: see data/cache.h. */
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/string.h"
#include "data/cache.h"
#include "data/cache_format.h"

/* What stands between the header and the records: columns, notes, padding. */
static td_status *front_matter(const td_dataset *dataset, int64_t first_note, cache_header *header, char **out_bytes,
                               int64_t *out_length)
{
    td_string text = {0};
    for (int32_t i = 0; i < dataset->n_columns; i++) {
        const td_column_counts *from = &dataset->columns[i];
        cache_column column = {.numeric = from->numeric,
                               .present = from->present,
                               .missing = from->missing,
                               .distinct = from->distinct,
                               .table_rows = from->table_rows,
                               .sum = from->sum,
                               .least = from->least,
                               .most = from->most,
                               .mean = from->mean,
                               .deviation = from->deviation};
        memcpy(column.name, from->name, sizeof column.name);
        td_string_append_bytes(&text, &column, sizeof column);
    }
    size_t before = text.length;
    for (int64_t i = first_note; i < dataset->n_notes; i++)
        td_string_append_bytes(&text, dataset->notes[i], strlen(dataset->notes[i]) + 1);
    header->n_columns = dataset->n_columns;
    header->notes_bytes = (int64_t)(text.length - before);
    *out_length = cache_records_offset(header->n_columns, header->notes_bytes) - (int64_t)sizeof *header;
    while (!text.failed && (int64_t)text.length < *out_length)
        td_string_append_bytes(&text, "", 1);
    return td_string_finish(&text, out_bytes);
}

static uint64_t records_checksum(const td_rows *rows, uint64_t checksum)
{
    for (int64_t i = 0; i < rows->count; i += (int64_t)1 << rows->shift) {
        int64_t n = rows->count - i < (int64_t)1 << rows->shift ? rows->count - i : (int64_t)1 << rows->shift;
        checksum = td_hash_bytes(td_rows_at(rows, i), (size_t)(n * rows->stride), checksum);
        td_rows_pass(rows, i + n - 1);
    }
    return checksum;
}

static td_status *write_records(const td_rows *rows, td_file_writer *writer)
{
    for (int64_t i = 0; i < rows->count; i += (int64_t)1 << rows->shift) {
        int64_t n = rows->count - i < (int64_t)1 << rows->shift ? rows->count - i : (int64_t)1 << rows->shift;
        TD_TRY(td_file_writer_append(writer, td_rows_at(rows, i), (size_t)(n * rows->stride)));
        td_rows_pass(rows, i + n - 1);
    }
    return NULL;
}

static td_status *write_file(const char *path, const cache_header *header, const char *front, int64_t front_bytes,
                             const td_rows *rows)
{
    td_file_writer *writer = NULL;
    td_status *status = NULL;
    TD_TRY(td_file_writer_open(path, &writer));
    TD_TRY_OR(status, fail, td_file_writer_append(writer, header, sizeof *header));
    TD_TRY_OR(status, fail, td_file_writer_append(writer, front, (size_t)front_bytes));
    TD_TRY_OR(status, fail, write_records(rows, writer));
    return td_file_writer_commit(writer);
fail:
    td_file_writer_discard(writer);
    return status;
}

static td_status *store(const td_cache *cache, const td_dataset *dataset)
{
    const td_rows *rows = &dataset->rows;
    cache_header header = {.magic = CACHE_MAGIC,
                           .version = CACHE_VERSION,
                           .byte_order = CACHE_BYTE_ORDER,
                           .key = cache->key,
                           .n_ids = rows->n_ids,
                           .n_numbers = rows->n_numbers,
                           .id_bytes = rows->id_bytes,
                           .rows = rows->count,
                           .train_rows = dataset->schema.train_rows,
                           .positive_rows = dataset->counts.positive_rows,
                           .bad_rows = dataset->counts.bad_rows,
                           .bad_id_rows = dataset->counts.bad_id_rows};
    char *front = NULL;
    int64_t front_bytes = 0;
    TD_TRY(front_matter(dataset, cache->first_note, &header, &front, &front_bytes));
    header.body_checksum = records_checksum(rows, td_hash_bytes(front, (size_t)front_bytes, 0));
    header.header_checksum = td_hash_bytes(&header, offsetof(cache_header, header_checksum), 0);
    td_status *status = write_file(cache->path, &header, front, front_bytes, rows);
    td_free(front);
    return status;
}

/* The folder of cache->path. */
static td_status *make_folder(const td_cache *cache)
{
    char *folder = td_strdup(cache->path);
    if (!folder)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the name of a cache folder");
    *strrchr(folder, '/') = '\0';
    td_status *status = *folder ? td_directory_create(folder) : NULL;
    td_free(folder);
    return status;
}

td_status *td_cache_store(const td_cache *cache, td_dataset *dataset)
{
    if (!cache->path)
        return NULL;
    td_status *status = make_folder(cache);
    if (!status)
        status = store(cache, dataset);
    if (!status || td_status_code(status) == TD_OUT_OF_MEMORY)
        return status;
    td_status *noted = td_dataset_add_note(dataset, td_status_message(td_status_prefix(status, "cache not written")));
    td_status_destroy(status);
    return noted;
}
