/* The form of a cache file, all numbers in the machine's own byte order (another one is refused):
 *
 *     cache_header | cache_column [n_columns] | notes, each with its zero | zeros up to a multiple of 64 | records
 *
 * A change to this form, or to what any reader makes of a row, gets a new CACHE_VERSION. */
#ifndef TANDEM_DATA_CACHE_FORMAT_H
#define TANDEM_DATA_CACHE_FORMAT_H

#include <stdint.h>

#define CACHE_MAGIC "TDROWS\r\n"
enum { CACHE_VERSION = 2, CACHE_BYTE_ORDER = 0x01020304, CACHE_ALIGNMENT = 64 };

typedef struct cache_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t key;
    int64_t n_ids, n_numbers, id_bytes, n_columns, notes_bytes;
    int64_t rows, train_rows, positive_rows, bad_rows, bad_id_rows;
    uint64_t body_checksum;   /* of all that follows the header, see body_checksum() */
    uint64_t header_checksum; /* of the header up to here */
} cache_header;

typedef struct cache_column {
    char name[64];
    int64_t numeric, present, missing, distinct, table_rows;
    double sum, least, most, mean, deviation;
} cache_column;

/* Where records begin in the file. */
static inline int64_t cache_records_offset(int64_t n_columns, int64_t notes_bytes)
{
    int64_t end = (int64_t)sizeof(cache_header) + n_columns * (int64_t)sizeof(cache_column) + notes_bytes;
    return (end + CACHE_ALIGNMENT - 1) / CACHE_ALIGNMENT * CACHE_ALIGNMENT;
}

#endif
