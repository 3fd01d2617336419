/* The trace file, byte by byte. docs/profiler.md has the same for people; a change here is a new version there.
 *
 * A file is a header and then chunks, little-endian, each at a multiple of 8 bytes:
 *
 *     trace_header  trace_chunk payload(padded to 8 with zeros)  trace_chunk payload  ...
 *
 * INFO and the first CLOCK chunks stand before the first EVENTS; a PLAN before the events that have its ids; a THREAD before its
 * events; a WINDOW after the events of its steps; END at last. A file that was cut off is good up to its last whole chunk. Readers
 * skip types that they do not know. Texts are JSON in UTF-8. */
#ifndef TANDEM_BASE_TRACE_FORMAT_H
#define TANDEM_BASE_TRACE_FORMAT_H

#include <stdint.h>

#include "base/record.h"

#define TRACE_MAGIC "TDTRACE\n"
enum { TRACE_VERSION = 1, TRACE_MOST_RECORDS = 4096 };

typedef struct trace_header {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes; /* sizeof(td_record): 32 */
} trace_header;

typedef enum trace_chunk_type {
    TRACE_INFO = 1, /* JSON: the machine, the program, the run; a later one adds keys to an earlier one */
    TRACE_PLAN,     /* JSON: what ids mean */
    TRACE_CLOCK,    /* trace_clock */
    TRACE_THREAD,   /* trace_thread */
    TRACE_EVENTS,   /* trace_events, then its records in the order in which they ended */
    TRACE_WINDOW,   /* trace_window */
    TRACE_END       /* trace_end */
} trace_chunk_type;

typedef struct trace_chunk {
    uint32_t type, zero;
    uint64_t bytes;    /* of the payload, without padding */
    uint64_t checksum; /* XXH64 of the payload, seeded with the type */
} trace_chunk;

/* One moment on three clocks. Times between two of these lie on the line through them. */
typedef struct trace_clock {
    uint64_t ticks;
    int64_t monotonic_ns, unix_ns, error_ns;
} trace_clock;

typedef struct trace_thread {
    uint32_t thread, zero;
    char name[32]; /* ends with a zero */
} trace_thread;

typedef struct trace_events {
    uint32_t thread, n;
    uint64_t dropped; /* of this thread, before these and after the chunk before */
} trace_events;

/* Steps first to last were recorded whole, warm-up left out; ticks: from the last look at the schedule before to the one after. */
typedef struct trace_window {
    uint64_t begin, end;
    int64_t first_step, last_step;
} trace_window;

typedef struct trace_end {
    uint64_t records, dropped; /* dropped: those of no ring too */
} trace_end;

#endif
