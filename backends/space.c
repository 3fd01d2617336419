/* Device memory in host memory: see space.h. A block carries 64 bytes in front of it, which hold its size. */
#include "backends/space.h"

#include <stdbool.h>

#include "base/memory.h"

enum { HEADER_BYTES = 64 };

void td_space_init(td_space *space, const char *backend, uint64_t capacity)
{
    space->backend = backend;
    space->capacity = capacity;
    atomic_init(&space->now, 0);
    atomic_init(&space->peak, 0);
}

/* Takes the bytes from the capacity, if they are there. */
static bool reserve(td_space *space, uint64_t bytes, uint64_t *out_free)
{
    uint_fast64_t now = atomic_load(&space->now);
    do {
        *out_free = space->capacity ? space->capacity - now : UINT64_MAX - now;
        if (bytes > *out_free)
            return false;
    } while (!atomic_compare_exchange_weak(&space->now, &now, now + bytes));
    uint_fast64_t peak = atomic_load(&space->peak);
    while (now + bytes > peak && !atomic_compare_exchange_weak(&space->peak, &peak, now + bytes))
        ;
    return true;
}

td_status *td_space_allocate(td_space *space, size_t bytes, void **out_memory)
{
    *out_memory = NULL;
    uint64_t available = 0;
    if (!reserve(space, bytes, &available))
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory: %zu bytes asked for, %llu of %llu free", space->backend,
                        bytes, (unsigned long long)available, (unsigned long long)space->capacity);
    char *block = bytes > SIZE_MAX / 4 ? NULL : td_calloc_aligned(bytes + HEADER_BYTES);
    if (!block) {
        atomic_fetch_sub(&space->now, bytes);
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: the host has no memory left for %zu bytes", space->backend, bytes);
    }
    *(size_t *)block = bytes;
    *out_memory = block + HEADER_BYTES;
    return NULL;
}

void td_space_release(td_space *space, void *memory)
{
    if (!memory)
        return;
    char *block = (char *)memory - HEADER_BYTES;
    atomic_fetch_sub(&space->now, *(size_t *)block);
    td_free(block);
}
