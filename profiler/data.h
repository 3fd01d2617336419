/* The data pipeline and the machine's use over the steps that count: how full the queue of batches was, who waited for whom, in
 * which steps the data may have been the bottleneck; processor time; what recording itself cost. */
#ifndef TANDEM_PROFILER_DATA_H
#define TANDEM_PROFILER_DATA_H

#include "profiler/steps.h"

typedef struct td_data_view {
    int64_t workers;       /* threads that made batches */
    int64_t fetches;       /* batches that they made */
    int64_t fetch_ns;      /* of all */
    int64_t full_ns;       /* workers waiting for a free place: the run is slower than the data */
    int64_t waited_ns;     /* the run asking for batches */
    int64_t starved_steps; /* steps whose critical path waits for data for at least a twentieth of the interval */
    int64_t starved_ns;    /* on critical paths */
    int64_t queue_samples, queue_sum, queue_empty, queue_most;
    double cores_used; /* on average; 0: not sampled */
    int32_t cores;
    int64_t checkpoint_ns, callback_ns, flush_ns;
    int64_t events;      /* recorded within these steps */
    double events_share; /* what writing them took of all lanes' time: events * event_ns / (steps' time) */
} td_data_view;

void td_data_view_fill(const td_step_trace *trace, td_data_view *out_data);

#endif
