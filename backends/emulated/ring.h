/* A ring of variable-length records between one thread that writes and one that reads; neither allocates nor locks.
 *
 *     void *record = td_ring_begin(&ring, bytes);      writer: room for a record, waiting for it if need be
 *     ... fill ...
 *     td_ring_publish(&ring);
 *     const void *next = td_ring_next(&ring);          reader: the oldest record, waiting for it; NULL: closed and empty
 *     ... use ...
 *     td_ring_pop(&ring);
 */
#ifndef TANDEM_BACKENDS_EMULATED_RING_H
#define TANDEM_BACKENDS_EMULATED_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "tandem/status.h"

enum { TD_RING_UNIT = 64 }; /* records begin at multiples of this, header included */

typedef struct td_ring {
    char *bytes;
    unsigned units;   /* a power of two */
    unsigned pending; /* units of the record begun and not yet published */
    /* Counts of units, running on for ever; both are futexes. */
    _Alignas(64) atomic_uint written;
    _Alignas(64) atomic_uint read;
    atomic_uint reader_waits, writer_waits;
    atomic_bool closed;
} td_ring;

td_status *td_ring_init(td_ring *ring, unsigned units) TD_MUST_USE;
void td_ring_deinit(td_ring *ring);
/* The largest record that fits. */
size_t td_ring_most(const td_ring *ring);
/* `bytes` is at most td_ring_most. 64-byte aligned but for a header: aligned to 16. */
void *td_ring_begin(td_ring *ring, size_t bytes);
void td_ring_publish(td_ring *ring);
/* No more records: the reader ends when it has read the rest. Called by the writer. */
void td_ring_close(td_ring *ring);
void *td_ring_next(td_ring *ring);
void td_ring_pop(td_ring *ring);

#endif
