/* A profiler's own structure: see tandem/profiler.h and runtime/profiler.c. */
#ifndef TANDEM_RUNTIME_PROFILER_H
#define TANDEM_RUNTIME_PROFILER_H

#include <pthread.h>

#include "base/trace_writer.h"
#include "tandem/profiler.h"

struct td_profiler {
    pthread_mutex_t mutex; /* of all below; sessions take it when a step is admitted and when it has ended */
    td_profiler_options options;
    char *directory, *path, *error;
    uint64_t generation; /* unlike any other profiler's of the process */
    uint32_t first_id;   /* of the next plan */
    td_trace_writer *writer;
    bool recording, off, scheduled, asked_to_start;
    atomic_bool requested;
    int64_t first_step, last_step, completed_step; /* of the window that is recorded */
    uint64_t window_begin;
    int64_t drained_ns;
    uint64_t records, dropped, homeless;
    double event_ns, off_ns;
};

#endif
