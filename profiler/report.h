/* A recording as JSON: every number that the tables show. docs/profiler.md explains every name. */
#ifndef TANDEM_PROFILER_REPORT_H
#define TANDEM_PROFILER_REPORT_H

#include "profiler/advice.h"

/* The whole document; json_decref it. */
td_status *td_report_json(const td_analysis *analysis, json_t **out_json) TD_MUST_USE;
/* Curves of all that a step trace has over steps from `from` to `to`; "curves" of the documentation. */
td_status *td_report_curves_json(const td_analysis *analysis, int64_t from, int64_t to, json_t **out_json) TD_MUST_USE;
/* One step in detail; TD_NOT_FOUND: it was not recorded. */
td_status *td_report_step_json(const td_analysis *analysis, int64_t step, json_t **out_json) TD_MUST_USE;
/* Its part "ranks", of a job: report_ranks.c. */
td_status *td_ranks_json(const td_ranks *ranks, json_t **out_json) TD_MUST_USE;

#endif
