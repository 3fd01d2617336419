/* The step trace: for each step, what each kind of work took, and where the time went.
 *
 * All times are nanoseconds. A step's interval is from the end of the step before to its own end, so that the intervals of steps
 * that overlap add up to the run's time; a micro-step's likewise from the end of the micro-step before. Work of a kind is summed over lanes; several lanes may work at the same time. */
#ifndef TANDEM_PROFILER_STEPS_H
#define TANDEM_PROFILER_STEPS_H

#include "profiler/path.h"

typedef struct td_step_times {
    int64_t step, micro; /* micro: -1 of a whole step */
    int64_t samples;
    int64_t interval_ns;
    int64_t span_ns; /* from admission to end */
    int64_t data_wait_ns;
    int64_t forward_ns, backward_ns, update_ns; /* ops by phase, over all lanes */
    int64_t to_device_ns, to_host_ns, to_device_bytes, to_host_bytes;
    int64_t pull_ns, push_ns, all_reduce_ns, checkpoint_ns, callback_ns, flush_ns;
    int64_t tail_ns;            /* from the end of the last backward op to the end */
    int64_t path_ns[TD_CAUSES]; /* the critical path by cause: together the interval */
} td_step_times;

/* Of one subgraph (copies are subgraphs too): averages over the steps. */
typedef struct td_subgraph_times {
    int32_t subgraph;
    int64_t runs, steps;  /* how often it ran, and in how many steps */
    bool told;            /* its device told when its ops ran; copies: they have none */
    td_trace_phase phase; /* of most of its ops: where they were not told, all of its time counts as that */
    int64_t total_ns;
    int64_t forward_ns, backward_ns, update_ns; /* its ops, by phase */
    int64_t path_ns;                            /* on the critical path */
    int64_t ranks_ns;  /* within it: pulls, pushes and sums, waiting for other ranks included */
    int64_t bytes;     /* a copy's */
    int64_t hidden_ns; /* of a copy: while a compute lane of the device at its far end worked */
} td_subgraph_times;

/* A lane: how long it worked and what it waited for. */
typedef struct td_lane_times {
    int64_t busy_ns, idle_ns;
    int64_t tasks;               /* subgraphs that it ran, or had begun to */
    int64_t waits_ns[TD_CAUSES]; /* idle time by cause; UNKNOWN: nothing came any more */
    int64_t *by_subgraph_ns;     /* idle time while that subgraph ran, which it waited for in the end */
    int64_t *overlap_ns;         /* with each lane */
} td_lane_times;

typedef struct td_step_trace {
    const td_view *view;
    td_step_times *steps; /* those that count */
    int64_t n_steps;
    td_step_times average; /* numbers of a step; step is 0 */
    /* Of a training that accumulates, else NULL: [n_steps][view->n_micro] those of each micro-step, whose interval_ns is 0 where a
     * step had fewer; and [view->n_micro] the averages of each place. */
    td_step_times *micros, *micro_average;
    td_subgraph_times *subgraphs;
    td_lane_times *lanes;
    int64_t wall_ns; /* of the steps that count */
    bool device_ops; /* every device that worked told its ops' times */
} td_step_trace;

/* What of a subgraph's time its ops had to do with other ranks: 0 to 1. */
double td_subgraph_ranks_share(const td_subgraph_times *times);
td_status *td_step_trace_create(const td_view *view, td_step_trace **out_trace) TD_MUST_USE;
void td_step_trace_destroy(td_step_trace *trace);
/* Of a step that counts; else NULL. */
const td_step_times *td_step_times_of(const td_step_trace *trace, int64_t step);

#endif
