/* Whole files: read at once, written so that nothing half-written ever stands under its final name.
 *
 *     td_file_writer *writer = NULL;
 *     TD_TRY(td_file_writer_open("runs/x/summary.json", &writer));    // a temporary file beside it
 *     TD_TRY_OR(status, fail, td_file_writer_append(writer, text, length));
 *     return td_file_writer_commit(writer);                           // flushed to disk, then renamed
 * fail:
 *     td_file_writer_discard(writer);                                 // the temporary file is gone
 *
 * Errors start with the file's name and end with what the operating system said. One thread at a time per writer. */
#ifndef TANDEM_BASE_FILE_H
#define TANDEM_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* The whole file and a zero after it; td_free it. TD_NOT_FOUND where there is none. */
td_status *td_file_read(const char *path, char **out_data, size_t *out_bytes) TD_MUST_USE;
/* Replaces the file by these bytes, or leaves it as it was. */
td_status *td_file_write(const char *path, const void *data, size_t bytes) TD_MUST_USE;
bool td_file_exists(const char *path);
/* An error where it is a folder, a pipe or a device: reading one may wait for ever. */
td_status *td_file_require_regular(const char *path) TD_MUST_USE;
/* That error. */
td_status *td_file_not_regular(const char *path) TD_MUST_USE;
td_status *td_file_size(const char *path, int64_t *out_bytes) TD_MUST_USE;
/* XXH64 of its bytes, seed 0. */
td_status *td_file_hash(const char *path, uint64_t *out_hash) TD_MUST_USE;
/* Makes a directory and those above it that are missing. No error where it exists. */
td_status *td_directory_create(const char *path) TD_MUST_USE;
/* Gives a directory the name of another in one step, and makes that durable. One that is there under the new name is found under
 * the old one afterwards. (On a file system that cannot exchange names it is first moved out of the way.) */
td_status *td_directory_replace(const char *from, const char *to) TD_MUST_USE;

typedef struct td_file_writer td_file_writer;

/* A temporary file in the directory of `path`, which must exist. */
td_status *td_file_writer_open(const char *path, td_file_writer **out_writer) TD_MUST_USE;
td_status *td_file_writer_append(td_file_writer *writer, const void *data, size_t bytes) TD_MUST_USE;
/* Anywhere; what is skipped reads as zeros. */
td_status *td_file_writer_write_at(td_file_writer *writer, int64_t offset, const void *data, size_t bytes) TD_MUST_USE;
/* Makes the file durable and gives it its name. Takes the writer, also when it fails; then `path` is as it was (unless only
 * the last step failed, making the rename durable: then the new file is there, whole). */
td_status *td_file_writer_commit(td_file_writer *writer) TD_MUST_USE;
/* Drops the writer and what it wrote. NULL is fine. */
void td_file_writer_discard(td_file_writer *writer);

/* Like td_memory_fail_after: the n-th operation on a file that is written (open, write, sync, close, rename, make directory)
 * from now on fails as on a full disk; 0: none does. For tests. */
void td_file_fail_after(uint64_t n);
/* True once an injected failure has happened since td_file_fail_after. */
bool td_file_failed(void);
/* The n-th such operation is the last thing that this process does: it ends as by kill -9, and the operation is not done. */
void td_file_die_at(uint64_t n);
/* For those who write files by themselves: counts one operation; true, with errno set, where it must not be done. */
bool td_file_inject(void);

#endif
