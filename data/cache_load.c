/* Opening a cache file: see data/cache.h. Every check comes before what relies on it; the whole file is read once for
 * its checksum, which is as fast as the disk. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/cache.h"
#include "data/cache_format.h"

/* The file's bytes; *out_map NULL and a reason where they cannot be had. */
static const char *map_file(const char *path, void **out_map, size_t *out_bytes)
{
    struct stat about;
    const char *reason = NULL;
    *out_map = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT || errno == ENOTDIR ? "" : "it cannot be opened";
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        reason = "it is not a file";
    else if (about.st_size < (off_t)sizeof(cache_header))
        reason = "it is cut off";
    if (!reason) {
        void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        *out_map = map == MAP_FAILED ? NULL : map;
        *out_bytes = (size_t)about.st_size;
        reason = *out_map ? NULL : "it cannot be mapped";
    }
    (void)close(file);
    return reason;
}

static bool sizes_agree(const cache_header *header, size_t bytes)
{
    const int64_t most_columns = 1 << 24;
    if (header->n_ids < 0 || header->n_ids > most_columns || header->n_numbers < 1 ||
        header->n_numbers > most_columns || header->n_columns < 0 || header->n_columns > 2 * most_columns ||
        (header->id_bytes != 4 && header->id_bytes != 8) || header->notes_bytes < 0 ||
        header->notes_bytes > (int64_t)bytes || header->train_rows < 0 || header->train_rows > header->rows)
        return false;
    int64_t stride = td_rows_stride((int32_t)header->n_ids, (int32_t)header->n_numbers, (int32_t)header->id_bytes);
    int64_t records, total;
    return td_multiply_checked(header->rows, stride, &records) &&
           td_add_checked(cache_records_offset(header->n_columns, header->notes_bytes), records, &total) &&
           total == (int64_t)bytes;
}

/* As td_cache_store computed it: the front matter, then records in blocks of a chunk. */
static uint64_t body_checksum(const cache_header *header, const unsigned char *bytes)
{
    td_rows rows;
    td_rows_init(&rows, (int32_t)header->n_ids, (int32_t)header->n_numbers, header->id_bytes == 8 ? INT64_MAX : 0);
    int64_t offset = cache_records_offset(header->n_columns, header->notes_bytes), block = (int64_t)1 << rows.shift;
    uint64_t checksum = td_hash_bytes(bytes + sizeof *header, (size_t)offset - sizeof *header, 0);
    for (int64_t i = 0; i < header->rows; i += block) {
        int64_t n = header->rows - i < block ? header->rows - i : block;
        checksum = td_hash_bytes(bytes + offset + i * rows.stride, (size_t)(n * rows.stride), checksum);
    }
    return checksum;
}

/* Counts that count something (distinct: -1 where nobody did). They shape a model's tables, so they are looked at although the checksum agrees. */
static bool counts_agree(const cache_header *header, const unsigned char *columns)
{
    if (header->positive_rows < 0 || header->positive_rows > header->rows || header->bad_rows < 0 ||
        header->bad_id_rows < 0)
        return false;
    for (int64_t i = 0; i < header->n_columns; i++) {
        cache_column column;
        memcpy(&column, columns + (size_t)i * sizeof column, sizeof column);
        if (column.present < 0 || column.missing < 0 || column.distinct < -1 || column.table_rows < 0)
            return false;
    }
    return true;
}

/* Why the file is of no use; NULL: it is good. */
static const char *find_fault(const cache_header *header, const unsigned char *bytes, size_t length, uint64_t key)
{
    if (memcmp(header->magic, CACHE_MAGIC, sizeof header->magic) != 0)
        return "it is not a cache file";
    if (header->version != CACHE_VERSION || header->byte_order != CACHE_BYTE_ORDER)
        return "another version or machine wrote it";
    if (td_hash_bytes(header, offsetof(cache_header, header_checksum), 0) != header->header_checksum)
        return "it is damaged";
    if (header->key != key)
        return "the data has changed since";
    if (!sizes_agree(header, length))
        return "it is cut off or damaged";
    if (body_checksum(header, bytes) != header->body_checksum || !counts_agree(header, bytes + sizeof *header))
        return "it is damaged";
    return NULL;
}

static td_status *take_columns(const cache_header *header, const unsigned char *from, td_dataset *dataset)
{
    TD_TRY(TD_NEW(dataset->columns, header->n_columns));
    dataset->n_columns = (int32_t)header->n_columns;
    for (int32_t i = 0; i < dataset->n_columns; i++) {
        cache_column column;
        memcpy(&column, from + (size_t)i * sizeof column, sizeof column);
        dataset->columns[i] = (td_column_counts){.numeric = column.numeric != 0,
                                                 .present = column.present,
                                                 .missing = column.missing,
                                                 .distinct = column.distinct,
                                                 .table_rows = column.table_rows,
                                                 .sum = column.sum,
                                                 .least = column.least,
                                                 .most = column.most,
                                                 .mean = column.mean,
                                                 .deviation = column.deviation};
        column.name[sizeof column.name - 1] = '\0';
        td_column_name(&dataset->columns[i], column.name);
    }
    return NULL;
}

static td_status *take_notes(const char *from, int64_t bytes, td_dataset *dataset)
{
    for (int64_t at = 0; at < bytes;) {
        size_t length = strnlen(from + at, (size_t)(bytes - at));
        if (at + (int64_t)length == bytes)
            return NULL; /* without its zero: not a note */
        TD_TRY(td_dataset_add_note(dataset, from + at));
        at += (int64_t)length + 1;
    }
    return NULL;
}

/* The file is good: rows come to lie in its mapping, which is taken. */
static td_status *take(const cache_header *header, void *map, size_t length, td_dataset *dataset)
{
    unsigned char *bytes = map;
    int64_t columns_bytes = header->n_columns * (int64_t)sizeof(cache_column);
    const unsigned char *columns = bytes + sizeof *header;
    TD_TRY(td_rows_init_mapped(&dataset->rows, (int32_t)header->n_ids, (int32_t)header->n_numbers,
                               (int32_t)header->id_bytes, header->rows,
                               bytes + cache_records_offset(header->n_columns, header->notes_bytes), map, length));
    TD_TRY(take_columns(header, columns, dataset));
    TD_TRY(take_notes((const char *)columns + columns_bytes, header->notes_bytes, dataset));
    dataset->schema.train_rows = header->train_rows;
    dataset->schema.test_rows = header->rows - header->train_rows;
    dataset->counts = (td_dataset_counts){.positive_rows = header->positive_rows,
                                          .bad_rows = header->bad_rows,
                                          .bad_id_rows = header->bad_id_rows,
                                          .from_cache = true};
    return NULL;
}

static td_status *note_rebuild(td_cache *cache, const char *reason, td_dataset *dataset)
{
    char *note = td_format("%s: rebuilt, %s", cache->path, reason);
    if (!note)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a note about the cache");
    td_status *status = td_dataset_add_note(dataset, note);
    td_free(note);
    cache->first_note = dataset->n_notes;
    return status;
}

td_status *td_cache_load(td_cache *cache, td_dataset *dataset, bool *out_found)
{
    void *map = NULL;
    size_t length = 0;
    cache_header header;
    *out_found = false;
    if (!cache->path)
        return NULL;
    const char *reason = map_file(cache->path, &map, &length);
    if (!reason) {
        memcpy(&header, map, sizeof header);
        reason = find_fault(&header, map, length, cache->key);
    }
    if (!reason) {
        *out_found = true;
        return take(&header, map, length, dataset);
    }
    if (map)
        (void)munmap(map, length);
    return *reason ? note_rebuild(cache, reason, dataset) : NULL;
}
