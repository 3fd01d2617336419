/* The workers of a rank: one, or several where those of lost ranks were given to it. They share the rank's trace; a plan says whose it
 * is, so do batches, and threads are one worker's or the process's. */
#ifndef TANDEM_PROFILER_WORKERS_H
#define TANDEM_PROFILER_WORKERS_H

#include "profiler/trace.h"

enum { TD_MOST_WORKERS = 256 }; /* each looks at all of the rank's records: a file that has more is made to be slow */

/* The workers whose plans trained in a trace, in ascending order; none where nobody said. */
td_status *td_trace_workers(const td_trace *trace, int32_t out_workers[TD_MOST_WORKERS], int32_t *out_n) TD_MUST_USE;
/* Whose a record is, by its plan or by the batch that was made; -1: nobody said, or it is the process's. */
int32_t td_event_worker(const td_trace *trace, const td_trace_event *event);
/* Whether the id of a record is one of a plan's nodes or subgraphs. */
bool td_event_has_plan_id(const td_trace_event *event);
/* Processor time is counted for the process: the share of it that is a worker's, by how long its subgraphs computed and its batches
 * were made between two moments, waiting for other ranks left out. 1: it is alone (or -1). */
double td_worker_share(const td_trace *trace, int32_t worker, int64_t from_ns, int64_t to_ns);

#endif
