/* Curves over steps: what each subgraph took in each step, by phase, and how long each lane worked. What a step as a whole has is in
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
    td_subgraph_point *subgraphs; /* [n_subgraphs][n_steps] */
    int64_t *lane_busy_ns;        /* [lanes][n_steps]: within the step's interval */
} td_curves;

/* An error where steps times subgraphs are more than 2^22. Borrows the trace. */
td_status *td_curves_create(const td_step_trace *trace, td_curves **out_curves) TD_MUST_USE;
void td_curves_destroy(td_curves *curves);
/* In the i-th of trace->steps. */
const td_subgraph_point *td_curves_subgraph(const td_curves *curves, int32_t subgraph, int64_t i);

#endif
