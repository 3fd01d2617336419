/* Why something began when it did: walking back from a subgraph along what it waited for.
 *
 * A subgraph begins once the last of these has happened: the subgraphs before it in its step, those of the step before that it
 * follows, the one before it on its lane, and its step's admission. The walk takes the last to happen, and goes on from there:
 *
 *     bottom (accel) <- [wake-up] <- admitted <- binding the batch <- waiting for data <- the step before had ended <- ...
 *
 * so that every nanosecond between two moments has exactly one cause. The critical path of a step is the walk from what ended
 * last in it back to where the step before ended; a lane's idle time is explained by the walk from what it ran next. */
#ifndef TANDEM_PROFILER_PATH_H
#define TANDEM_PROFILER_PATH_H

#include "profiler/view.h"

typedef enum td_cause {
    TD_CAUSE_SUBGRAPH = 0, /* it ran: segment.subgraph */
    TD_CAUSE_COPY,         /* it ran, and is a copy */
    TD_CAUSE_WAKE_UP,      /* everything was there, and the lane had not begun yet */
    TD_CAUSE_DATA,         /* the run waited for its next batch */
    TD_CAUSE_HOST,         /* the run's own thread: binding the batch, the caller's code, writing what was recorded */
    TD_CAUSE_UNKNOWN,      /* before what was recorded */
    TD_CAUSES
} td_cause;
const char *td_cause_name(td_cause cause);

/* What the segment was waited for by: how the walk came to it. */
typedef enum td_edge {
    TD_EDGE_END = 0, /* it was the last to end */
    TD_EDGE_DATA,    /* the next one reads what it made */
    TD_EDGE_ORDER,   /* the next one must come after it: the same state, or the same memory */
    TD_EDGE_LANE,    /* the next one needed its lane */
    TD_EDGE_STEP,    /* the next step could not be admitted before */
    TD_EDGES
} td_edge;
const char *td_edge_name(td_edge edge);

typedef struct td_segment {
    td_cause cause;
    td_edge edge;
    int32_t subgraph; /* -1 where the cause is none */
    int64_t step, micro;
    int64_t begin_ns, end_ns;
} td_segment;

/* Called from the latest segment to the earliest; together they cover [from_ns, to_ns] without a gap. */
typedef td_status *(*td_on_segment)(void *context, const td_segment *segment);
/* Why `run` did not begin before `to_ns` (its beginning), back to `from_ns`. */
td_status *td_path_before(const td_view *view, const td_view_run *run, int64_t from_ns, td_on_segment on_segment,
                          void *context) TD_MUST_USE;
/* The critical path of a step: back from its end to step->from_ns. */
td_status *td_path_of_step(const td_view *view, const td_view_step *step, td_on_segment on_segment,
                           void *context) TD_MUST_USE;
/* The same of a micro-step: back from end_ns, by which it had ended, to from_ns. */
td_status *td_path_of_micro(const td_view *view, int64_t index, int64_t from_ns, int64_t end_ns,
                            td_on_segment on_segment, void *context) TD_MUST_USE;
#endif
