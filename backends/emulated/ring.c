/* The ring of records: see ring.h. A record that would wrap is preceded by a filler up to the end, so that each lies in one
 * piece. The waiting flags are set before the last look at the other side's counter, and read after that counter moved
 * (both sequentially consistent): one of the two sees the other. */
#include "backends/emulated/ring.h"

#include <stdint.h>

#include "base/futex.h"
#include "base/memory.h"

/* In front of each record. */
typedef struct header {
    uint32_t units; /* of the record, this header included */
    uint32_t is_filler;
    uint64_t reserved;
} header;

td_status *td_ring_init(td_ring *ring, unsigned units)
{
    *ring = (td_ring){.units = units};
    ring->bytes = td_calloc_aligned((size_t)units * TD_RING_UNIT);
    if (!ring->bytes)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a queue of %zu bytes", (size_t)units * TD_RING_UNIT);
    return NULL;
}

void td_ring_deinit(td_ring *ring)
{
    td_free(ring->bytes);
    ring->bytes = NULL;
}

size_t td_ring_most(const td_ring *ring)
{
    return (size_t)ring->units / 2 * TD_RING_UNIT - sizeof(header);
}

static header *at(const td_ring *ring, unsigned position)
{
    return (header *)(ring->bytes + (size_t)(position & (ring->units - 1)) * TD_RING_UNIT);
}

/* Sleeps until *word is no longer `seen`, or the ring is closed. */
static void sleep_while(td_ring *ring, atomic_uint *word, unsigned seen, atomic_uint *waits)
{
    atomic_store(waits, 1);
    while (atomic_load(word) == seen && !atomic_load(&ring->closed))
        td_futex_wait(word, seen, -1);
    atomic_store(waits, 0);
}

static void wait_for_room(td_ring *ring, unsigned units)
{
    unsigned written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    for (;;) {
        unsigned read = atomic_load_explicit(&ring->read, memory_order_acquire);
        if (ring->units - (written - read) >= units)
            return;
        sleep_while(ring, &ring->read, read, &ring->writer_waits);
    }
}

static void advance(td_ring *ring, unsigned units)
{
    atomic_fetch_add(&ring->written, units);
    if (atomic_load(&ring->reader_waits))
        td_futex_wake_all(&ring->written);
}

void *td_ring_begin(td_ring *ring, size_t bytes)
{
    unsigned units = (unsigned)((bytes + sizeof(header) + TD_RING_UNIT - 1) / TD_RING_UNIT);
    unsigned written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    unsigned to_end = ring->units - (written & (ring->units - 1));
    if (units > to_end) {
        wait_for_room(ring, to_end);
        *at(ring, written) = (header){.units = to_end, .is_filler = 1};
        advance(ring, to_end);
        written += to_end;
    }
    wait_for_room(ring, units);
    header *head = at(ring, written);
    *head = (header){.units = units};
    ring->pending = units;
    return head + 1;
}

void td_ring_publish(td_ring *ring)
{
    advance(ring, ring->pending);
    ring->pending = 0;
}

/* A filler goes with it: a reader that has just seen an open ring sleeps on the counter, and only a counter that moves is
 * sure to keep it awake. */
void td_ring_close(td_ring *ring)
{
    wait_for_room(ring, 1);
    *at(ring, atomic_load_explicit(&ring->written, memory_order_relaxed)) = (header){.units = 1, .is_filler = 1};
    atomic_store(&ring->closed, true);
    advance(ring, 1);
}

void *td_ring_next(td_ring *ring)
{
    for (;;) {
        unsigned read = atomic_load_explicit(&ring->read, memory_order_relaxed);
        unsigned written = atomic_load_explicit(&ring->written, memory_order_acquire);
        if (written != read) {
            header *head = at(ring, read);
            if (!head->is_filler)
                return head + 1;
            td_ring_pop(ring);
            continue;
        }
        /* `closed` is set after the last record was written: one more look at the counter is enough. */
        if (atomic_load(&ring->closed)) {
            if (atomic_load(&ring->written) == read)
                return NULL;
            continue;
        }
        sleep_while(ring, &ring->written, written, &ring->reader_waits);
    }
}

void td_ring_pop(td_ring *ring)
{
    unsigned read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    atomic_fetch_add(&ring->read, at(ring, read)->units);
    if (atomic_load(&ring->writer_waits))
        td_futex_wake_all(&ring->read);
}
