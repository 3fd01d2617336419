/* The order of a trace's events. */
#ifndef TANDEM_PROFILER_TRACE_SORT_H
#define TANDEM_PROFILER_TRACE_SORT_H

#include "profiler/trace.h"

/* By begin, ties by end (longer first), then by thread. Each thread's events must be in one piece's order of writing. */
td_status *td_trace_sort(td_trace *trace) TD_MUST_USE;

#endif
