/* What the parts of a report share: see report.h. Numbers a step, unless said otherwise. */
#ifndef TANDEM_PROFILER_REPORT_PARTS_H
#define TANDEM_PROFILER_REPORT_PARTS_H

#include "profiler/report.h"

#define MS(ns) (1e-6 * (double)(ns))

/* ---- report_steps.c ---- */
json_t *td_report_causes(const int64_t *ns, double divisor); /* "subgraph_ms", "copy_ms", ... */
json_t *td_report_step(const td_step_times *times);
const char *td_report_cause_key(td_cause cause);
json_t *td_report_steps(const td_step_trace *trace); /* all that count, with their micro-steps */
json_t *td_report_step_with_micros(const td_step_trace *trace, int64_t i);
json_t *td_report_average(const td_step_trace *trace);
json_t *td_report_subgraphs(const td_step_trace *trace);
json_t *td_report_lanes(const td_step_trace *trace);
/* Of one lane over `steps` of them. */
json_t *td_report_lane(const td_step_trace *trace, int64_t lane, const td_lane_times *times, double steps);

/* ---- report_data.c ---- */
json_t *td_report_data(const td_analysis *analysis);
json_t *td_report_machine(const td_analysis *analysis);
json_t *td_report_totals(const td_analysis *analysis);

/* ---- report_curves.c ---- */
json_t *td_report_activities(const td_overlaps *overlaps);
json_t *td_report_overlaps(const td_overlaps *overlaps);
#endif
