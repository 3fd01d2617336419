/* The binary cache of parsed rows: what a text format's `read` left in a data set, in one file that opens by mapping
 * it.
 *
 * Nothing in a cache file is believed before it is checked: magic, version, byte order, key, sizes, and a checksum over
 * every byte. A file that fails is rebuilt, with a note that says why. The key covers all settings that reading depends
 * on, and of each data file its size, time of change, first and last bytes; a file changed in its middle alone, within
 * the same nanosecond and at the same size, would be taken for the old one. Files are replaced by renaming, so a
 * process that has one mapped keeps it; cutting a cache file off while it is mapped is an error that only the operating
 * system can report. */
#ifndef TANDEM_DATA_CACHE_H
#define TANDEM_DATA_CACHE_H

#include "data/dataset.h"

typedef struct td_cache {
    char *path;         /* of the cache file; NULL: the data files cannot be looked at, so there is none */
    uint64_t key;       /* of settings and data files */
    int64_t first_note; /* notes of the data set from here on are about the data */
} td_cache;

/* Where the cache of these options is, and its key. td_cache_deinit whatever comes back. */
td_status *td_cache_init(td_cache *cache, const td_dataset_options *options) TD_MUST_USE;
void td_cache_deinit(td_cache *cache);

/* Fills rows, columns, counts, notes and split from the file; *out_found false: there is none or it is of no use (then
 * a note says why). */
td_status *td_cache_load(td_cache *cache, td_dataset *dataset, bool *out_found) TD_MUST_USE;
/* Writes what `read` left. A file that cannot be written is a note, not an error: only time is lost. */
td_status *td_cache_store(const td_cache *cache, td_dataset *dataset) TD_MUST_USE;

#endif
