/* The events of a trace file, from records to a sorted whole: what of reading a long file takes its time, cut into pieces that
 * threads share. What comes out does not depend on how many they are. */
#ifndef TANDEM_PROFILER_TRACE_EVENTS_H
#define TANDEM_PROFILER_TRACE_EVENTS_H

#include "profiler/trace.h"

/* Records of one thread, in the order of the file. */
typedef struct td_trace_block {
    const unsigned char *records; /* whatever their alignment */
    uint32_t n, thread;           /* thread: of the trace's */
} td_trace_block;

/* Nanoseconds since the trace's first clock reading. */
typedef struct td_trace_scale {
    uint64_t start;
    double ns_per_tick;
} td_trace_scale;

/* Wild ones are held within a hundred years. */
static inline int64_t td_trace_ns(const td_trace_scale *scale, uint64_t ticks)
{
    const double most = 3e18;
    double ns = (double)(int64_t)(ticks - scale->start) * scale->ns_per_tick;
    return (int64_t)(ns > most ? most : ns < -most ? -most : ns);
}

/* Whether the checksums of long chunks of events are right, each in a bit of *out_good, in the order of the file; NULL: there are
 * none. They are looked at before anything in them is. */
enum { TD_TRACE_LONG_CHUNK = 1 << 14 };
td_status *td_trace_check_chunks(const unsigned char *data, size_t bytes, int helpers, uint8_t **out_good) TD_MUST_USE;

/* Reads the blocks' records, n_events in all, into `trace`, whose threads are known; each thread's are put in order. *out_first:
 * where each thread's begin (td_trace_merge), td_free'd by the caller. */
td_status *td_trace_read_blocks(td_trace *trace, const td_trace_block *blocks, int64_t n, const td_trace_scale *scale,
                                int helpers, int64_t **out_first) TD_MUST_USE;

#endif
