/* The data pipeline and the machine's use over the steps that count: how full the queue of batches was, who waited for whom, in
 * which steps the data may have been the bottleneck; processor time; what recording itself cost. */
#ifndef TANDEM_PROFILER_DATA_H
#define TANDEM_PROFILER_DATA_H

#include "profiler/steps.h"

/* A step's data. */
typedef struct td_data_step {
    int64_t ready; /* batches that stood ready when its last one was asked for; -1: not recorded */
    int64_t waited_ns;
    bool starved; /* its critical path waits for data for at least a twentieth of the interval */
} td_data_step;

typedef struct td_data_view {
    td_data_step *steps;   /* of each of trace->steps */
    int64_t workers;       /* threads that made batches */
    int64_t fetches;       /* batches that they made */
    int64_t fetch_ns;      /* of all */
    int64_t full_ns;       /* workers waiting for a free place: the run is slower than the data */
    int64_t waited_ns;     /* the run asking for batches */
    int64_t starved_steps; /* how many of them starve: where the data may have been the bottleneck */
    int64_t starved_ns;    /* on critical paths */
    int64_t queue_samples, queue_sum, queue_empty;
    int64_t queue_places;                /* batches that can stand ready */
    int64_t queue_least, queue_greatest; /* that did */
    double cores_used;                   /* on average, of what its process uses this worker's share; 0: not sampled */
    int32_t cores;
    int64_t admit_ns, checkpoint_ns, callback_ns, flush_ns; /* of the run's own thread; admit: binding batches */
    int64_t events;                                         /* recorded within these steps */
    double events_share; /* what writing them took of all lanes' time: events * event_ns / (steps' time) */
} td_data_view;

td_status *td_data_view_fill(const td_step_trace *trace, td_data_view *out_data) TD_MUST_USE;
void td_data_view_deinit(td_data_view *data);
/* The starved steps as people say them, "7, 9 to 12 and 3 more": cut to what the buffer holds. */
const char *td_data_starved_text(const td_step_trace *trace, const td_data_view *data, char *buffer, size_t bytes);

#endif
