/* Curves over steps, all of them or some: what each subgraph took in each step, by phase, and how long each lane worked. What a step as a whole has is in
 * td_step_trace.steps, what went on at the same time in overlap.h. */
#ifndef TANDEM_PROFILER_CURVES_H
#define TANDEM_PROFILER_CURVES_H

#include "profiler/steps.h"

typedef struct td_subgraph_point {
    int64_t total_ns, forward_ns, backward_ns, update_ns;
    int64_t begin_ns, end_ns; /* of the step's first run and its last; equal: it did not run */
    int32_t runs;
} td_subgraph_point;

typedef struct td_curves {
    const td_step_trace *trace;
    int64_t first, n;             /* of trace->steps: n from this one on */
    td_subgraph_point *subgraphs; /* [n_subgraphs][n] */
    int64_t *lane_busy_ns;        /* [lanes][n]: within the step's interval */
} td_curves;

/* As many steps as can be had at once: n times subgraphs, or lanes, is no more than 2^22 then. At least 1. */
int64_t td_curves_most(const td_step_trace *trace);
/* Of `n` of trace->steps, from `first` on. An error where that is more than can be had at once. Borrows the trace. */
td_status *td_curves_create(const td_step_trace *trace, int64_t first, int64_t n, td_curves **out_curves) TD_MUST_USE;
void td_curves_destroy(td_curves *curves);
/* In the i-th of these steps. */
const td_subgraph_point *td_curves_subgraph(const td_curves *curves, int32_t subgraph, int64_t i);
int64_t td_curves_lane_ns(const td_curves *curves, int64_t lane, int64_t i);

#endif
