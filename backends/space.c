/* Device memory in host memory: see space.h. A block carries 64 bytes in front of it, which hold its size.
 *
 * Large blocks have large pages to themselves. Those of middle size, such as the weights of layers and their moments, lie beside each
 * other in chunks of address space, so that they come to be in large pages as well: each page of a chunk becomes one when blocks have
 * taken all of it. A chunk is never used twice, which keeps its memory zero, and goes with the last of its blocks. */
#include "backends/space.h"

#include <stdbool.h>

#include "base/large_pages.h"
#include "base/memory.h"
#include "base/memory_count.h"

enum {
    HEADER_BYTES = 64,
    CHUNK_BYTES = 16 * TD_LARGE_PAGE_BYTES,
    LEAST_OF_CHUNK = 64 << 10,
    MOST_OF_CHUNK = 2 * TD_LARGE_PAGE_BYTES
};

/* With AddressSanitizer what is beyond a block's end must be nobody's. */
enum { HAS_CHUNKS = !TD_HAS_ASAN };

struct td_space_chunk {
    char *reserved, *first; /* as it was given, and where its first large page begins */
    size_t used;            /* bytes from the first on */
    int32_t blocks;
    bool has_holes; /* a block has gone from it: a large page would take memory for what nobody has */
};

typedef struct header {
    size_t bytes;
    td_space_chunk *chunk; /* NULL: the block is by itself */
} header;

void td_space_init(td_space *space, const char *backend, uint64_t capacity)
{
    pthread_mutex_init(&space->mutex, NULL);
    space->chunk = NULL;
    space->backend = backend;
    space->capacity = capacity;
    atomic_init(&space->now, 0);
    atomic_init(&space->peak, 0);
}

void td_space_deinit(td_space *space)
{
    pthread_mutex_destroy(&space->mutex);
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

static bool goes_into_chunk(size_t bytes)
{
    return HAS_CHUNKS && bytes >= LEAST_OF_CHUNK && bytes <= MOST_OF_CHUNK;
}

/* Of a chunk, for a block of so many bytes: whole pages, which can be given back, and blocks begin at equal places of pages, where
 * loads of one never look like the last stores to another. */
static size_t taken_by(size_t bytes)
{
    const size_t page = td_page_bytes();
    return (bytes + HEADER_BYTES + page - 1) / page * page;
}

static td_space_chunk *create_chunk(void)
{
    td_space_chunk *chunk = td_calloc(1, sizeof *chunk);
    if (!chunk)
        return NULL;
    chunk->reserved = td_reserve(CHUNK_BYTES + TD_LARGE_PAGE_BYTES);
    if (!chunk->reserved) {
        td_free(chunk);
        return NULL;
    }
    chunk->first = chunk->reserved + (-(uintptr_t)chunk->reserved & (TD_LARGE_PAGE_BYTES - 1));
    return chunk;
}

static void destroy_chunk(td_space_chunk *chunk)
{
    td_unreserve(chunk->reserved, CHUNK_BYTES + TD_LARGE_PAGE_BYTES);
    td_free(chunk);
}

/* The next bytes of the chunk that is being filled, or of a new one; NULL: there is no memory. With the mutex held. */
static header *take_from_chunk(td_space *space, size_t bytes)
{
    td_space_chunk *chunk = space->chunk;
    const size_t taken = taken_by(bytes);
    if (!chunk || CHUNK_BYTES - chunk->used < taken) {
        chunk = create_chunk();
        if (!chunk)
            return NULL;
        space->chunk = chunk; /* the one before goes with its blocks */
    }
    header *block = (header *)(chunk->first + chunk->used);
    size_t page = chunk->used / TD_LARGE_PAGE_BYTES;
    block->chunk = chunk;
    chunk->used += taken;
    chunk->blocks++;
    for (; !chunk->has_holes && page < chunk->used / TD_LARGE_PAGE_BYTES; page++)
        td_large_page_hold(chunk->first + page * TD_LARGE_PAGE_BYTES);
    return block;
}

/* With the mutex held. */
static void return_to_chunk(td_space *space, header *block)
{
    td_space_chunk *chunk = block->chunk;
    if (--chunk->blocks) {
        chunk->has_holes = true;
        td_reserve_drop(block, taken_by(block->bytes));
        return;
    }
    if (space->chunk == chunk)
        space->chunk = NULL;
    destroy_chunk(chunk);
}

/* NULL too where there is no address space for a chunk: the block may still find memory by itself. */
static header *allocate_in_chunk(td_space *space, size_t bytes)
{
    if (!td_memory_count(bytes + HEADER_BYTES))
        return NULL;
    pthread_mutex_lock(&space->mutex);
    header *block = take_from_chunk(space, bytes);
    pthread_mutex_unlock(&space->mutex);
    if (!block)
        td_memory_uncount(bytes + HEADER_BYTES);
    return block;
}

static void release_in_chunk(td_space *space, header *block)
{
    td_memory_uncount(block->bytes + HEADER_BYTES);
    pthread_mutex_lock(&space->mutex);
    return_to_chunk(space, block);
    pthread_mutex_unlock(&space->mutex);
}

static header *allocate_alone(size_t bytes)
{
    return bytes > SIZE_MAX / 4 ? NULL : td_calloc_aligned(bytes + HEADER_BYTES);
}

td_status *td_space_allocate(td_space *space, size_t bytes, void **out_memory)
{
    *out_memory = NULL;
    uint64_t available = 0;
    if (!reserve(space, bytes, &available))
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory: %zu bytes asked for, %llu of %llu free", space->backend,
                        bytes, (unsigned long long)available, (unsigned long long)space->capacity);
    header *block = goes_into_chunk(bytes) ? allocate_in_chunk(space, bytes) : NULL;
    block = block ? block : allocate_alone(bytes);
    if (!block) {
        atomic_fetch_sub(&space->now, bytes);
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: the host has no memory left for %zu bytes", space->backend, bytes);
    }
    block->bytes = bytes;
    *out_memory = (char *)block + HEADER_BYTES;
    return NULL;
}

void td_space_release(td_space *space, void *memory)
{
    if (!memory)
        return;
    header *block = (header *)((char *)memory - HEADER_BYTES);
    atomic_fetch_sub(&space->now, block->bytes);
    if (block->chunk)
        release_in_chunk(space, block);
    else
        td_free(block);
}
