/* A file without a name, for what does not fit in memory: working storage of this process, gone when it ends, however it ends.
 *
 *     td_work_file *file = NULL;
 *     TD_TRY(td_work_file_create("runs/x", &file));
 *     TD_TRY(td_work_file_write(file, offset, page, bytes));
 *     TD_TRY(td_work_file_read(file, offset, page, bytes));       // what was never written reads as zeros
 *     td_work_file_destroy(file);
 *
 * It takes disk space where it was written, nowhere else. Nothing stale can be found by a later run, and nothing needs to be
 * cleaned up. Reads and writes are explicit: a full disk or a failing one is an error of the call, never a signal. (What is mapped
 * gives that up for a disk that fails, not for one that is full.) Any thread. */
#ifndef TANDEM_BASE_WORK_FILE_H
#define TANDEM_BASE_WORK_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_work_file td_work_file;

/* In a directory, which must exist, on a disk: file systems in memory are refused (TD_INVALID_ARGUMENT), as is a length that
 * the process's limit of file sizes does not allow. */
td_status *td_work_file_create(const char *directory, int64_t most_bytes, td_work_file **out_file) TD_MUST_USE;
void td_work_file_destroy(td_work_file *file); /* NULL is fine */
/* Errors name the directory, and for a full disk how many bytes the whole file may take. */
td_status *td_work_file_write(td_work_file *file, int64_t offset, const void *data, size_t bytes) TD_MUST_USE;
td_status *td_work_file_read(const td_work_file *file, int64_t offset, void *data, size_t bytes) TD_MUST_USE;
/* Maps a part of the file, zeroed, for reading and writing; its disk space is taken now, so that no write to it can fail for want
 * of it. `offset` and `bytes` are multiples of the page size. munmap ends it, before the file is destroyed or after. */
td_status *td_work_file_map(td_work_file *file, int64_t offset, size_t bytes, void **out_memory) TD_MUST_USE;
/* Advice: this will be read soon; this should go to the disk now, in the background. */
void td_work_file_will_read(const td_work_file *file, int64_t offset, size_t bytes);
void td_work_file_flush_soon(const td_work_file *file, int64_t offset, size_t bytes);

#endif
