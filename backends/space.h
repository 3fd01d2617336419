/* A memory space of a device that lives in host memory: allocations with a hard capacity and byte counters.
 *
 * All memory is zeroed, 64-byte aligned and counted by base/memory.h as well. Thread-safe. */
#ifndef TANDEM_BACKENDS_SPACE_H
#define TANDEM_BACKENDS_SPACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_space_chunk td_space_chunk;

typedef struct td_space {
    const char *backend; /* for messages */
    uint64_t capacity;   /* 0: no limit of its own */
    atomic_uint_fast64_t now, peak;
    pthread_mutex_t mutex;
    td_space_chunk *chunk; /* under the mutex: where the next block of middle size goes; NULL: into a new one */
} td_space;

void td_space_init(td_space *space, const char *backend, uint64_t capacity);
void td_space_deinit(td_space *space); /* all blocks released */
/* 0 bytes give a pointer of their own too. Beyond capacity: TD_OUT_OF_MEMORY with the bytes asked for and free. */
td_status *td_space_allocate(td_space *space, size_t bytes, void **out_memory) TD_MUST_USE;
void td_space_release(td_space *space, void *memory); /* NULL is fine */

#endif
