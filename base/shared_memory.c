/* See base/shared_memory.h. */
#include "base/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/large_pages.h"
#include "base/memory_count.h"

/* Address space for it, at a multiple of a large page where one fits; NULL: there is none. */
static char *find_room(size_t bytes)
{
    const size_t slack = bytes < TD_LARGE_PAGE_BYTES ? 0 : TD_LARGE_PAGE_BYTES;
    char *room = mmap(NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED || !slack)
        return room == MAP_FAILED ? NULL : room;
    char *begin = room + (-(uintptr_t)room & (TD_LARGE_PAGE_BYTES - 1));
    if (begin > room)
        (void)munmap(room, (size_t)(begin - room));
    if (begin < room + slack)
        (void)munmap(begin + bytes, (size_t)(room + slack - begin));
    return begin;
}

/* Copies between cores are half as fast from small pages. */
static td_status *map(td_shared_memory *memory)
{
    char *room = find_room(memory->bytes);
    void *base =
        room ? mmap(room, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        td_status *status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %zu bytes that processes share: %s",
                                     memory->bytes, strerror(errno));
        if (room)
            (void)munmap(room, memory->bytes);
        return status;
    }
    memory->base = base;
    for (size_t at = 0; at + TD_LARGE_PAGE_BYTES <= memory->bytes; at += TD_LARGE_PAGE_BYTES)
        td_large_page_hold((char *)base + at);
    return NULL;
}

/* Whole large pages, so that no part of it is left in small ones. */
size_t td_shared_memory_bytes(size_t bytes)
{
    const size_t page = TD_LARGE_PAGE_BYTES;
    return bytes < page ? (bytes ? bytes : 1) : (bytes + page - 1) / page * page;
}

td_status *td_shared_memory_create(size_t bytes, td_shared_memory *out_memory)
{
    td_shared_memory memory = {.bytes = td_shared_memory_bytes(bytes), .file = -1};
    *out_memory = memory;
    if (!td_memory_count(memory.bytes))
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %zu bytes that processes share", memory.bytes);
    td_status *status = NULL;
    memory.file = memfd_create("tandem", MFD_CLOEXEC);
    if (memory.file < 0)
        status = TD_ERROR(TD_UNSUPPORTED, "no memory that processes share: %s", strerror(errno));
    else if (ftruncate(memory.file, (off_t)memory.bytes) != 0)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %zu bytes that processes share: %s", memory.bytes,
                          strerror(errno));
    if (!status)
        status = map(&memory);
    if (status) {
        if (memory.file >= 0)
            close(memory.file);
        td_memory_uncount(memory.bytes);
        return status;
    }
    *out_memory = memory;
    return NULL;
}

td_status *td_shared_memory_map(int64_t pid, int file, size_t bytes, td_shared_memory *out_memory)
{
    char path[64];
    struct stat info;
    td_shared_memory memory = {.bytes = td_shared_memory_bytes(bytes)};
    *out_memory = (td_shared_memory){.file = -1};
    (void)snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%d", pid, file);
    memory.file = open(path, O_RDWR | O_CLOEXEC);
    if (memory.file < 0)
        return TD_ERROR(TD_IO, "cannot map memory of process %" PRId64 ": %s", pid, strerror(errno));
    td_status *status = NULL;
    if (fstat(memory.file, &info) != 0 || info.st_size < (off_t)memory.bytes)
        status = TD_ERROR(TD_IO, "process %" PRId64 " shares less than %zu bytes", pid, memory.bytes);
    if (!status)
        status = map(&memory);
    close(memory.file);
    memory.file = -1;
    if (!status)
        *out_memory = memory;
    return status;
}

void td_shared_memory_close(td_shared_memory *memory)
{
    if (memory->base) {
        (void)munmap(memory->base, memory->bytes);
        if (memory->file >= 0) {
            close(memory->file);
            td_memory_uncount(memory->bytes);
        }
    }
    *memory = (td_shared_memory){.file = -1};
}
