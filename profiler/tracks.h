/* What exporters of timelines share: which row an event is shown in, under which name.
 *
 * A thread is a row. Steps overlap each other, so they are two rows of their own, by turns. Samples are no row: counters. Of a trace
 * of several ranks each is a process with its own rows and counters. */
#ifndef TANDEM_PROFILER_TRACKS_H
#define TANDEM_PROFILER_TRACKS_H

#include "profiler/trace.h"

typedef struct td_tracks {
    const td_trace *trace;
    int32_t n; /* rows: threads, then two of steps for each process */
    int32_t processes;
} td_tracks;

td_tracks td_tracks_of(const td_trace *trace);
const char *td_tracks_name(const td_tracks *tracks, int32_t row);
/* From 0. */
int32_t td_tracks_process(const td_tracks *tracks, int32_t row);
int32_t td_tracks_process_of(const td_tracks *tracks, const td_trace_event *event);
const char *td_tracks_process_name(const td_tracks *tracks, int32_t process);
/* -1: a sample, or a kind that this program does not know. */
int32_t td_tracks_row(const td_tracks *tracks, const td_trace_event *event);
bool td_tracks_is_sample(const td_trace_event *event);
/* "top.0/linear" for ops, copies and subgraphs, "step 7", else the kind. `buffer` holds what is made. */
const char *td_tracks_event_name(const td_tracks *tracks, const td_trace_event *event, char *buffer, size_t bytes);
/* "memory accel", "batches ready", "processor cores". */
const char *td_tracks_sample_name(const td_tracks *tracks, const td_trace_event *event, char *buffer, size_t bytes);

#endif
