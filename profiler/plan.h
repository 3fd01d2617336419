/* A plan's description in a trace, from JSON to structures whose every number is in range. */
#ifndef TANDEM_PROFILER_PLAN_H
#define TANDEM_PROFILER_PLAN_H

#include "profiler/trace.h"

/* Takes `json`. */
td_status *td_trace_plan_parse(json_t *json, td_trace_plan *out_plan) TD_MUST_USE;
void td_trace_plan_deinit(td_trace_plan *plan);

#endif
