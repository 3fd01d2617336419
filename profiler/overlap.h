/* Which kinds of work went on at the same time.
 *
 * An activity is a kind of work at one place: what a device computes (forward and backward), its updates, the copies to it and from
 * it; and of the process pulls, pushes, sums over ranks, batches being made, the run waiting for one, checkpoints and the caller's
 * code. Each is the union of its records, so that two lanes of one device count once. For each pair there is how long both went on,
 * over the window and in each step's interval. Lanes one by one: td_lane_times.overlap_ns.
 *
 * A node that pulls, pushes or sums counts as that, by what it recorded of it, and as no computing. */
#ifndef TANDEM_PROFILER_OVERLAP_H
#define TANDEM_PROFILER_OVERLAP_H

#include "profiler/steps.h"

typedef enum td_activity_kind {
    TD_ACTIVITY_COMPUTE = 0,
    TD_ACTIVITY_UPDATE,
    TD_ACTIVITY_TO_DEVICE,
    TD_ACTIVITY_FROM_DEVICE,
    TD_ACTIVITY_PULL,
    TD_ACTIVITY_PUSH,
    TD_ACTIVITY_SUM,
    TD_ACTIVITY_DATA_FETCH,
    TD_ACTIVITY_DATA_WAIT,
    TD_ACTIVITY_CHECKPOINT,
    TD_ACTIVITY_CALLBACK,
    TD_ACTIVITIES
} td_activity_kind;
const char *td_activity_kind_name(td_activity_kind kind); /* "compute", "to_device" */

typedef struct td_span {
    int64_t begin_ns, end_ns;
} td_span;

typedef struct td_activity {
    td_activity_kind kind;
    int32_t device; /* -1: the process */
    char name[64];  /* "accel compute", "to accel", "pull" */
    int64_t busy_ns;
    td_span *spans; /* apart, in order */
    int64_t n_spans, capacity;
} td_activity;

typedef struct td_overlaps {
    const td_step_trace *trace;
    td_activity *activities; /* those that went on at all */
    int32_t n;
    int64_t *shared_ns; /* [n][n], of an activity with itself what it took */
} td_overlaps;

td_status *td_overlaps_create(const td_step_trace *trace, td_overlaps **out_overlaps) TD_MUST_USE;
void td_overlaps_destroy(td_overlaps *overlaps);
int64_t td_overlap_ns(const td_overlaps *overlaps, int32_t a, int32_t b);
/* In the i-th of trace->steps. */
int64_t td_overlap_in_step_ns(const td_overlaps *overlaps, int32_t a, int32_t b, int64_t i);

#endif
