/* Of a step trace: what each lane waited for, and who worked at the same time. */
#ifndef TANDEM_PROFILER_LANES_H
#define TANDEM_PROFILER_LANES_H

#include "profiler/steps.h"

/* Fills trace->lanes, and what of each copy was hidden. */
td_status *td_lane_times_fill(td_step_trace *trace) TD_MUST_USE;

/* Of one lane from one moment to another; td_lane_times_deinit it, also after an error. */
td_status *td_lane_times_within(const td_step_trace *trace, int64_t index, int64_t begin_ns, int64_t end_ns,
                                td_lane_times *out_times) TD_MUST_USE;
void td_lane_times_deinit(td_lane_times *times);
/* The share of the steps' time in which a device's compute lanes work, in the mean over its lanes. */
double td_device_utilisation(const td_step_trace *trace, int32_t device);

#endif
