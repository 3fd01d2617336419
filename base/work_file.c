/* See base/work_file.h. O_TMPFILE where the file system has it; elsewhere a file that loses its name at once. */
#include "base/work_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_error.h"
#include "base/memory.h"
#include "base/units.h"

struct td_work_file {
    char *directory;
    int file;
    int64_t most_bytes;
};

static td_status *cannot(const char *directory, const char *verb, int error)
{
    return td_status_prefix(td_file_error(directory, verb, error), "working file");
}

static td_status *check_place(const char *directory, int64_t most_bytes)
{
    enum { TMPFS = 0x01021994 };
    static const unsigned long ramfs = 0x858458f6;
    struct statfs info;
    struct rlimit limit;
    char bytes[TD_UNIT_TEXT], most[TD_UNIT_TEXT];
    if (statfs(directory, &info) != 0)
        return cannot(directory, "create", errno);
    if ((unsigned long)info.f_type == TMPFS || (unsigned long)info.f_type == ramfs)
        return td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT, "working file in %s: that file system is in memory itself", directory),
            "choose a folder on a disk");
    /* writing beyond the limit would end the process by a signal */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < (unsigned long long)most_bytes)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT,
                                       "working file in %s: it may take %s, this process may write files of %s",
                                       directory, td_format_bytes(bytes, (double)most_bytes),
                                       td_format_bytes(most, (double)limit.rlim_cur)),
                              "raise the limit: ulimit -f unlimited");
    return NULL;
}

static int open_unnamed(const char *directory)
{
#ifdef O_TMPFILE
    int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return file;
#endif
    char *path = td_format("%s/.tandem-XXXXXX", directory);
    if (!path) {
        errno = ENOMEM;
        return -1;
    }
    int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0)
        (void)unlink(path);
    td_free(path);
    return named;
}

td_status *td_work_file_create(const char *directory, int64_t most_bytes, td_work_file **out_file)
{
    td_work_file *file = NULL;
    *out_file = NULL;
    TD_TRY(check_place(directory, most_bytes));
    TD_TRY(TD_NEW(file, 1));
    file->most_bytes = most_bytes;
    file->directory = td_strdup(directory);
    file->file = file->directory && !td_file_inject() ? open_unnamed(directory) : -1;
    if (file->file < 0) {
        int error = errno;
        td_status *status = file->directory ? cannot(directory, "create", error)
                                            : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a working file");
        td_work_file_destroy(file);
        return status;
    }
    (void)posix_fadvise(file->file, 0, 0, POSIX_FADV_RANDOM);
    *out_file = file;
    return NULL;
}

void td_work_file_destroy(td_work_file *file)
{
    if (!file)
        return;
    if (file->file >= 0)
        (void)close(file->file);
    td_free(file->directory);
    td_free(file);
}

td_status *td_work_file_write(td_work_file *file, int64_t offset, const void *data, size_t bytes)
{
    char most[TD_UNIT_TEXT];
    for (size_t done = 0; done < bytes;) {
        ssize_t n =
            td_file_inject() ? -1 : pwrite(file->file, (const char *)data + done, bytes - done, offset + (int64_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            bool full = errno == ENOSPC || errno == EDQUOT;
            td_status *status = cannot(file->directory, "write", errno);
            return full ? td_status_help(status, "it may take up to %s there: make room, or choose another folder",
                                         td_format_bytes(most, (double)file->most_bytes))
                        : status;
        }
        done += (size_t)n;
    }
    return NULL;
}

td_status *td_work_file_read(const td_work_file *file, int64_t offset, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(file->file, (char *)data + done, bytes - done, offset + (int64_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot(file->directory, "read", errno);
        if (n == 0) { /* beyond its end */
            memset((char *)data + done, 0, bytes - done);
            return NULL;
        }
        done += (size_t)n;
    }
    return NULL;
}

/* Writing or growing a file beyond the process's limit would end it by a signal. */
static bool within_limit(int64_t end)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           (unsigned long long)end <= limit.rlim_cur;
}

td_status *td_work_file_map(td_work_file *file, int64_t offset, size_t bytes, void **out_memory)
{
    *out_memory = NULL;
    int error = !within_limit(offset + (int64_t)bytes) ? EFBIG
                : td_file_inject()                     ? ENOSPC
                                                       : posix_fallocate(file->file, offset, (off_t)bytes);
    if (error)
        return cannot(file->directory, "grow", error);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->file, offset);
    if (memory == MAP_FAILED)
        return TD_ERROR(TD_OUT_OF_MEMORY, "working file in %s: cannot map %zu bytes: %s", file->directory, bytes,
                        strerror(errno));
    *out_memory = memory;
    return NULL;
}

void td_work_file_will_read(const td_work_file *file, int64_t offset, size_t bytes)
{
    (void)posix_fadvise(file->file, offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}

void td_work_file_flush_soon(const td_work_file *file, int64_t offset, size_t bytes)
{
#ifdef SYNC_FILE_RANGE_WRITE
    (void)sync_file_range(file->file, offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
#else
    (void)file;
    (void)offset;
    (void)bytes;
#endif
}
