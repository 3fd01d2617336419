/* Opening what is below the board's folder, and nothing else: see board/board.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "board/board.h"

static td_status *refuse(const char *path, int error)
{
    return TD_ERROR(TD_NOT_FOUND, "%s: %s", path, strerror(error));
}

/* One component; -1 with errno where it is not to be opened. */
static int step_into(int folder, const char *name)
{
    if (!strcmp(name, "..") || !strcmp(name, ".")) {
        errno = EACCES;
        return -1;
    }
    return openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

td_status *td_board_open_folder(int folder, const char *path, int *out_folder)
{
    char *rest = NULL, *parts = td_strdup(path);
    *out_folder = -1;
    if (!parts)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    for (char *part = strtok_r(parts, "/", &rest); at >= 0 && part; part = strtok_r(NULL, "/", &rest)) {
        int next = step_into(at, part), error = errno;
        close(at);
        at = next;
        errno = error;
    }
    td_status *status = at < 0 ? refuse(path, errno) : NULL;
    td_free(parts);
    *out_folder = at;
    return status;
}

td_status *td_board_open_file(int folder, const char *path, int *out_file)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *above = td_strdup(path);
    int parent = -1;
    struct stat info;
    *out_file = -1;
    if (!above)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    above[slash ? slash - path : 0] = '\0';
    td_status *status = td_board_open_folder(folder, above, &parent);
    td_free(above);
    TD_TRY(status);
    int file = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), error = errno;
    close(parent);
    if (file < 0)
        return refuse(path, error);
    if (fstat(file, &info) || !S_ISREG(info.st_mode)) {
        close(file);
        return TD_ERROR(TD_NOT_FOUND, "%s: not a regular file", path);
    }
    *out_file = file;
    return NULL;
}

/* A file in pieces that threads share: memory that is used for the first time costs more than the bytes that come into it. */
enum { PIECE = 8 << 20 };

typedef struct reading {
    int file;
    char *data;
    size_t bytes;
    atomic_size_t next;
    atomic_int error; /* of the first piece that failed; -1: the file became shorter */
} reading;

static int read_piece(const reading *r, size_t at)
{
    const size_t end = r->bytes - at < PIECE ? r->bytes : at + PIECE;
    while (at < end) {
        ssize_t n = pread(r->file, r->data + at, end - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? errno : -1;
        at += (size_t)n;
    }
    return 0;
}

static void *read_pieces(void *argument)
{
    reading *r = argument;
    for (size_t at; !atomic_load(&r->error) && (at = atomic_fetch_add(&r->next, PIECE)) < r->bytes;) {
        int none = 0, error = read_piece(r, at);
        if (error)
            (void)atomic_compare_exchange_strong(&r->error, &none, error);
    }
    return NULL;
}

static td_status *read_all(int file, const char *path, char *data, size_t bytes)
{
    reading r = {.file = file, .data = data, .bytes = bytes};
    td_thread_share(read_pieces, &r, bytes > 2 * (size_t)PIECE ? td_thread_helpers() : 0);
    if (!r.error)
        return NULL;
    return r.error > 0 ? td_file_error(path, "read", r.error)
                       : TD_ERROR(TD_IO, "%s: it became shorter while it was read", path);
}

td_status *td_board_read_file(int folder, const char *path, int64_t most, size_t more, char **out_data,
                              size_t *out_bytes)
{
    int file = -1;
    struct stat info;
    *out_data = NULL;
    *out_bytes = 0;
    TD_TRY(td_board_open_file(folder, path, &file));
    td_status *status = fstat(file, &info) ? td_file_error(path, "read", errno) : NULL;
    if (!status && info.st_size > most)
        status = TD_ERROR(TD_DATA_ERROR, "%s: %lld bytes; such a file has at most %lld", path, (long long)info.st_size,
                          (long long)most);
    if (!status)
        status =
            (*out_data = td_calloc_aligned((size_t)info.st_size + 1 + more))
                ? NULL
                : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the %lld bytes of %s", (long long)info.st_size, path);
    if (!status)
        status = read_all(file, path, *out_data, (size_t)info.st_size);
    close(file);
    if (!status)
        *out_bytes = (size_t)info.st_size;
    if (status) {
        td_free(*out_data);
        *out_data = NULL;
    }
    return status;
}
