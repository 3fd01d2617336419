/* See base/file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_error.h"
#include "base/memory.h"

/* ---- injected failures -------------------------------------------------------------------------------------------------- */

static atomic_uint_fast64_t fail_countdown;
static atomic_bool has_failed, deadly;

void td_file_fail_after(uint64_t n)
{
    atomic_store(&has_failed, false);
    atomic_store(&deadly, false);
    atomic_store(&fail_countdown, n);
}

void td_file_die_at(uint64_t n)
{
    td_file_fail_after(n);
    atomic_store(&deadly, true);
}

bool td_file_failed(void)
{
    return atomic_load(&has_failed);
}

/* True, with errno set, where the operation must not be done. */
static bool injected(void)
{
    uint_fast64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0) {
        if (!atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
            continue;
        if (left > 1)
            return false;
        if (atomic_load(&deadly))
            (void)raise(SIGKILL);
        atomic_store(&has_failed, true);
        errno = ENOSPC;
        return true;
    }
    return false;
}

bool td_file_inject(void)
{
    return injected();
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

td_status *td_file_not_regular(const char *path)
{
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: is not a regular file", path),
                          "it is a folder, a pipe or a device: name a file");
}

static td_status *cannot(const char *path, const char *verb)
{
    return td_file_error(path, verb, errno);
}

/* Up to `bytes`; less only at the end. -1: errno says why. */
static ssize_t read_fully(int file, void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(file, (char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* From where the file stands to its end, whatever size it claims (files of /proc claim none). */
static td_status *read_rest(int file, const char *path, size_t expected, char **out_data, size_t *out_bytes)
{
    size_t capacity = expected + 1, length = 0;
    char *data = NULL;
    for (;;) {
        char *grown = td_realloc(data, capacity + 1, 1);
        ssize_t n = grown ? read_fully(file, grown + length, capacity - length) : 0;
        data = grown ? grown : data;
        if (!grown || n < 0) {
            td_status *status = grown ? cannot(path, "read")
                                      : TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory: %zu bytes", path, capacity);
            td_free(data);
            return status;
        }
        length += (size_t)n;
        if (length < capacity)
            break;
        capacity = capacity < 4096 ? 8192 : capacity * 2;
    }
    data[length] = '\0';
    *out_data = data;
    *out_bytes = length;
    return NULL;
}

td_status *td_file_read(const char *path, char **out_data, size_t *out_bytes)
{
    *out_data = NULL;
    *out_bytes = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cannot(path, "open");
    struct stat info;
    td_status *status = NULL;
    if (fstat(file, &info) != 0)
        status = cannot(path, "read");
    else
        status = read_rest(file, path, info.st_size > 0 ? (size_t)info.st_size : 0, out_data, out_bytes);
    (void)close(file);
    return status;
}

bool td_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

td_status *td_file_require_regular(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return cannot(path, "open");
    return S_ISREG(info.st_mode) ? NULL : td_file_not_regular(path);
}

td_status *td_file_size(const char *path, int64_t *out_bytes)
{
    struct stat info;
    *out_bytes = 0;
    if (stat(path, &info) != 0)
        return cannot(path, "open");
    *out_bytes = info.st_size;
    return NULL;
}

static td_status *hash_open_file(int file, const char *path, XXH64_state_t *state, uint64_t *out_hash)
{
    enum { CHUNK = 1 << 20 };
    char *chunk = NULL;
    TD_TRY(TD_NEW(chunk, CHUNK));
    (void)XXH64_reset(state, 0);
    ssize_t n;
    while ((n = read_fully(file, chunk, CHUNK)) > 0)
        (void)XXH64_update(state, chunk, (size_t)n);
    td_status *status = n < 0 ? cannot(path, "read") : NULL;
    *out_hash = XXH64_digest(state);
    td_free(chunk);
    return status;
}

td_status *td_file_hash(const char *path, uint64_t *out_hash)
{
    *out_hash = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cannot(path, "open");
    XXH64_state_t *state = XXH64_createState();
    td_status *status =
        state ? hash_open_file(file, path, state, out_hash) : TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", path);
    (void)XXH64_freeState(state);
    (void)close(file);
    return status;
}

/* ---- directories -------------------------------------------------------------------------------------------------------- */

static td_status *make_one(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return NULL;
    if (injected() || (mkdir(path, 0777) != 0 && errno != EEXIST))
        return cannot(path, "make directory");
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return cannot(path, "make directory");
    }
    return NULL;
}

td_status *td_directory_create(const char *path)
{
    char *prefix = td_strdup(path);
    if (!prefix)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", path);
    td_status *status = NULL;
    for (char *slash = prefix; !status && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        status = make_one(prefix);
        *slash = '/';
    }
    td_free(prefix);
    return status ? status : make_one(path);
}

/* The directory of a path, "." or "/" where it has none. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return td_strdup(".");
    return slash == path ? td_strdup("/") : td_format("%.*s", (int)(slash - path), path);
}

/* Some file systems cannot sync a directory and say so; there is nothing more to do then. */
static td_status *sync_directory(const char *path)
{
    int directory = injected() ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return cannot(path, "open");
    bool good = !injected() && (fsync(directory) == 0 || errno == EINVAL || errno == ENOTSUP);
    td_status *status = good ? NULL : cannot(path, "sync");
    (void)close(directory);
    return status;
}

/* Through a third name, where names cannot be exchanged. */
static bool exchange_slowly(const char *from, const char *to)
{
    char *aside = td_format("%s.before", from);
    bool good = aside && rename(to, aside) == 0 && rename(from, to) == 0 && rename(aside, from) == 0;
    td_free(aside);
    return good;
}

td_status *td_directory_replace(const char *from, const char *to)
{
    bool there = access(to, F_OK) == 0, good = !injected();
    if (good && !there)
        good = rename(from, to) == 0;
    else if (good)
        good = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0 ||
               ((errno == EINVAL || errno == ENOSYS) && exchange_slowly(from, to));
    if (!good)
        return cannot(to, "rename to");
    char *directory = directory_of(to);
    td_status *status = directory ? sync_directory(directory) : TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", to);
    td_free(directory);
    return status;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

struct td_file_writer {
    char *path, *temporary, *directory;
    int file; /* -1: closed */
    int64_t length;
};

static void free_writer(td_file_writer *writer)
{
    td_free(writer->path);
    td_free(writer->temporary);
    td_free(writer->directory);
    td_free(writer);
}

/* Opens a new file with a name of its own beside the final one: the mode follows the umask as that of any new file. */
static td_status *open_temporary(td_file_writer *writer)
{
    enum { ATTEMPTS = 1000 };
    static atomic_uint counter;
    const char *slash = strrchr(writer->path, '/');
    for (int i = 0; i < ATTEMPTS; i++) {
        td_free(writer->temporary);
        writer->temporary = td_format("%s/.%s.%ld-%u.tmp", writer->directory, slash ? slash + 1 : writer->path,
                                      (long)getpid(), atomic_fetch_add(&counter, 1));
        if (!writer->temporary)
            return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", writer->path);
        writer->file = injected() ? -1 : open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->file >= 0)
            return NULL;
        if (errno != EEXIST)
            break;
    }
    return cannot(writer->path, "create");
}

td_status *td_file_writer_open(const char *path, td_file_writer **out_writer)
{
    *out_writer = NULL;
    td_file_writer *writer = NULL;
    struct stat there;
    const bool is_there = stat(path, &there) == 0;
    if (is_there && S_ISDIR(there.st_mode))
        return td_file_error(path, "create", EISDIR);
    if (is_there && !S_ISREG(there.st_mode))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT,
                                       "%s: a device or pipe, which a file that is written whole would replace", path),
                              "name a file");
    TD_TRY(TD_NEW(writer, 1));
    writer->file = -1;
    writer->path = td_strdup(path);
    writer->directory = directory_of(path);
    td_status *status = writer->path && writer->directory ? open_temporary(writer)
                                                          : TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", path);
    if (status) {
        free_writer(writer);
        return status;
    }
    *out_writer = writer;
    return NULL;
}

td_status *td_file_writer_write_at(td_file_writer *writer, int64_t offset, const void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n =
            injected() ? -1 : pwrite(writer->file, (const char *)data + done, bytes - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot(writer->path, "write");
        done += (size_t)n;
    }
    int64_t end = offset + (int64_t)bytes;
    writer->length = end > writer->length ? end : writer->length;
    return NULL;
}

td_status *td_file_writer_append(td_file_writer *writer, const void *data, size_t bytes)
{
    return td_file_writer_write_at(writer, writer->length, data, bytes);
}

td_status *td_file_writer_commit(td_file_writer *writer)
{
    td_status *status = NULL;
    if (injected() || fsync(writer->file) != 0)
        status = cannot(writer->path, "write");
    bool close_injected = injected();
    int closed = close(writer->file);
    writer->file = -1;
    if (!status && (close_injected || closed != 0)) {
        errno = close_injected ? ENOSPC : errno;
        status = cannot(writer->path, "write");
    }
    if (!status && (injected() || rename(writer->temporary, writer->path) != 0))
        status = cannot(writer->path, "rename to");
    if (status) {
        td_file_writer_discard(writer);
        return status;
    }
    status = sync_directory(writer->directory);
    free_writer(writer);
    return status;
}

void td_file_writer_discard(td_file_writer *writer)
{
    if (!writer)
        return;
    if (writer->file >= 0)
        (void)close(writer->file);
    (void)unlink(writer->temporary);
    free_writer(writer);
}

td_status *td_file_write(const char *path, const void *data, size_t bytes)
{
    td_file_writer *writer = NULL;
    TD_TRY(td_file_writer_open(path, &writer));
    td_status *status = td_file_writer_append(writer, data, bytes);
    if (!status)
        return td_file_writer_commit(writer);
    td_file_writer_discard(writer);
    return status;
}
