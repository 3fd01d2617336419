/* Of a step trace: what each lane waited for, and who worked at the same time. */
#ifndef TANDEM_PROFILER_LANES_H
#define TANDEM_PROFILER_LANES_H

#include "profiler/steps.h"

/* Fills trace->lanes, and what of each copy was hidden. */
td_status *td_lane_times_fill(td_step_trace *trace) TD_MUST_USE;

#endif
