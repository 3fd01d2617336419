/* See near.h. */
#include "ps/near.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/hash.h"
#include "base/memory.h"

typedef struct mapping {
    uint64_t id;
    td_shared_memory memory;
} mapping;

typedef struct neighbour {
    bool near;
    int64_t pid;
    td_shared_memory memory;
    td_bell *bell;
    mapping mappings[TD_NEAR_BUFFERS];
} neighbour;

struct td_near {
    bool share;
    td_shared_memory memory; /* of the own bell */
    td_bell *bell, private_bell;
    pthread_mutex_t mutex; /* of the next two: several threads have buffers */
    bool taken[TD_NEAR_BUFFERS];
    uint64_t last_id;
    neighbour ranks[TD_NEAR_RANKS];
};

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

td_status *td_near_create(bool share, td_near **out_near)
{
    td_near *near = NULL;
    *out_near = NULL;
    TD_TRY(TD_NEW(near, 1));
    near->share = share;
    pthread_mutex_init(&near->mutex, NULL);
    near->bell = &near->private_bell;
    for (int32_t r = 0; r < TD_NEAR_RANKS; r++)
        near->ranks[r].memory.file = -1;
    near->memory.file = -1;
    if (share) {
        td_status *status = td_shared_memory_create(sizeof *near->bell, &near->memory);
        near->share = !status;
        if (!status)
            near->bell = near->memory.base;
        td_status_destroy(status);
    }
    near->bell->token = td_hash_number((uint64_t)td_clock_ns(), (uint64_t)getpid());
    *out_near = near;
    return NULL;
}

void td_near_destroy(td_near *near)
{
    if (!near)
        return;
    for (int32_t r = 0; r < TD_NEAR_RANKS; r++) {
        td_shared_memory_close(&near->ranks[r].memory);
        for (int32_t b = 0; b < TD_NEAR_BUFFERS; b++)
            td_shared_memory_close(&near->ranks[r].mappings[b].memory);
    }
    td_shared_memory_close(&near->memory);
    pthread_mutex_destroy(&near->mutex);
    td_free(near);
}

int td_near_file(const td_near *near)
{
    return near->memory.file;
}

uint64_t td_near_token(const td_near *near)
{
    return near->bell->token;
}

bool td_near_try(td_near *near, int32_t rank, int64_t pid, int file, uint64_t token)
{
    if (!near->share || file < 0 || rank >= TD_NEAR_RANKS)
        return false;
    neighbour *other = &near->ranks[rank];
    td_status *status = td_shared_memory_map(pid, file, sizeof *other->bell, &other->memory);
    bool mapped = !status;
    td_status_destroy(status);
    if (!mapped)
        return false;
    other->bell = other->memory.base;
    other->pid = pid;
    return other->bell->token == token;
}

void td_near_confirm(td_near *near, int32_t rank)
{
    near->ranks[rank].near = true;
}

bool td_near_is(const td_near *near, int32_t rank)
{
    return rank < TD_NEAR_RANKS && near->ranks[rank].near;
}

/* ---- bells ----------------------------------------------------------------------------------------------------------------- */

static void ring(td_bell *bell)
{
    atomic_fetch_add(&bell->rung, 1);
    if (atomic_load(&bell->asleep))
        td_futex_wake_shared(&bell->rung);
}

void td_near_ring_own(td_near *near)
{
    ring(near->bell);
}

void td_near_ring(td_near *near, int32_t rank)
{
    ring(near->ranks[rank].bell);
}

unsigned td_near_heard(const td_near *near)
{
    return atomic_load(&near->bell->rung);
}

void td_near_sleep(td_near *near, unsigned heard, int64_t nanoseconds)
{
    atomic_store(&near->bell->asleep, 1);
    if (atomic_load(&near->bell->rung) == heard)
        td_futex_wait_shared(&near->bell->rung, heard, nanoseconds);
    atomic_store(&near->bell->asleep, 0);
}

/* ---- buffers --------------------------------------------------------------------------------------------------------------- */

/* A free slot, taken; -1: there is none. */
static int32_t take_slot(td_near *near, uint64_t *out_id)
{
    int32_t slot = 0;
    pthread_mutex_lock(&near->mutex);
    while (slot < TD_NEAR_BUFFERS && near->taken[slot])
        slot++;
    if (slot < TD_NEAR_BUFFERS) {
        near->taken[slot] = true;
        *out_id = ++near->last_id;
    }
    pthread_mutex_unlock(&near->mutex);
    return slot < TD_NEAR_BUFFERS ? slot : -1;
}

static void leave_slot(td_near *near, int32_t slot)
{
    pthread_mutex_lock(&near->mutex);
    near->taken[slot] = false;
    pthread_mutex_unlock(&near->mutex);
}

/* Where it can be; false: nothing is made. */
static bool make_shared(td_near *near, td_buffer *buffer, int64_t bytes)
{
    uint64_t id = 0;
    const int32_t slot = near->share ? take_slot(near, &id) : -1;
    if (slot < 0)
        return false;
    td_status *status = td_shared_memory_create((size_t)bytes, &buffer->memory);
    if (status) {
        td_status_destroy(status);
        leave_slot(near, slot);
        return false;
    }
    buffer->slot = slot;
    buffer->id = id;
    buffer->data = buffer->memory.base;
    return true;
}

int64_t td_buffer_bytes(int64_t bytes)
{
    return (int64_t)td_shared_memory_bytes((size_t)td_room_of(bytes));
}

td_status *td_buffer_room(td_near *near, td_buffer *buffer, int64_t bytes)
{
    if (bytes <= buffer->bytes)
        return NULL;
    td_buffer_free(near, buffer);
    bytes = td_room_of(bytes);
    if (!make_shared(near, buffer, bytes))
        buffer->data = td_calloc_aligned((size_t)bytes);
    if (!buffer->data)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages of %lld bytes", (long long)bytes);
    buffer->bytes = bytes;
    return NULL;
}

void td_buffer_free(td_near *near, td_buffer *buffer)
{
    if (buffer->id) {
        td_shared_memory_close(&buffer->memory);
        if (near)
            leave_slot(near, buffer->slot);
    } else {
        td_free(buffer->data);
    }
    *buffer = (td_buffer){.memory.file = -1};
}

td_near_place td_buffer_place(const td_buffer *buffer, const void *data)
{
    if (!buffer->id)
        return (td_near_place){0};
    return (td_near_place){.id = buffer->id,
                           .first = (const char *)data - buffer->data,
                           .buffer_bytes = buffer->bytes,
                           .slot = buffer->slot,
                           .file = buffer->memory.file};
}

td_status *td_near_reach(td_near *near, int32_t rank, const td_near_place *place, int64_t bytes, void **out_data)
{
    *out_data = NULL;
    if (!td_near_is(near, rank) || place->slot < 0 || place->slot >= TD_NEAR_BUFFERS || place->first < 0 || bytes < 0 ||
        bytes > place->buffer_bytes - place->first)
        return TD_ERROR(TD_INTERNAL, "rank %d lends %lld bytes from %lld of %lld", rank, (long long)bytes,
                        (long long)place->first, (long long)place->buffer_bytes);
    neighbour *other = &near->ranks[rank];
    mapping *known = &other->mappings[place->slot];
    if (known->id != place->id) {
        td_shared_memory_close(&known->memory);
        known->id = 0;
        TD_TRY(td_shared_memory_map(other->pid, place->file, (size_t)place->buffer_bytes, &known->memory));
        known->id = place->id;
    }
    if ((size_t)place->buffer_bytes > known->memory.bytes)
        return TD_ERROR(TD_INTERNAL, "rank %d lends from %lld bytes, of which %zu are known here", rank,
                        (long long)place->buffer_bytes, known->memory.bytes);
    *out_data = (char *)known->memory.base + place->first;
    return NULL;
}

void td_near_forget(td_near *near, int32_t rank)
{
    for (int32_t b = 0; rank < TD_NEAR_RANKS && b < TD_NEAR_BUFFERS; b++) {
        mapping *known = &near->ranks[rank].mappings[b];
        td_shared_memory_close(&known->memory);
        known->id = 0;
    }
}

/* ---- lending --------------------------------------------------------------------------------------------------------------- */

void td_near_lend(td_near *near, int32_t lending)
{
    atomic_store(&near->bell->lent[lending], 1);
}

void td_near_end_lending(td_near *near, int32_t lending)
{
    atomic_store(&near->bell->lent[lending], 0);
}

bool td_near_is_lent(const td_near *near, int32_t lending)
{
    return atomic_load(&near->bell->lent[lending]) != 0;
}

void td_near_give_back(td_near *near, int32_t rank, int32_t lending)
{
    td_bell *bell = td_near_is(near, rank) ? near->ranks[rank].bell : near->bell;
    atomic_store(&bell->lent[lending], 0);
    ring(bell);
}
