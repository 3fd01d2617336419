/* The order of a trace's events: by begin, ties by end (longer first), then by thread. */
#ifndef TANDEM_PROFILER_TRACE_SORT_H
#define TANDEM_PROFILER_TRACE_SORT_H

#include "profiler/trace.h"

/* Each thread's events must be in one piece's order of writing. Counts them in the trace's threads. */
td_status *td_trace_sort(td_trace *trace) TD_MUST_USE;

/* The two halves of it. One thread's events, in the order of writing, are put in order in place. */
void td_trace_sort_thread(td_trace_event *events, int64_t n);
/* Threads one after the other, each in order, thread t from first[t] to first[t + 1], become one: the same one whatever `helpers`,
 * the number of further threads that do it. `spare`: memory for one event more than there are, which is the trace's when all went
 * well; NULL: new one. */
td_status *td_trace_merge(td_trace *trace, const int64_t *first, td_trace_event *spare, int helpers) TD_MUST_USE;

/* As many as so many events are worth. */
int td_trace_helpers(int64_t events);
/* Zeros. */
td_status *td_trace_room(int64_t events, td_trace_event **out_events) TD_MUST_USE;

#endif
