/* A recording as JSON: every number that the tables show. docs/profiler.md explains every name. */
#ifndef TANDEM_PROFILER_REPORT_H
#define TANDEM_PROFILER_REPORT_H

#include "profiler/advice.h"

/* The whole document; json_decref it. */
td_status *td_report_json(const td_analysis *analysis, json_t **out_json) TD_MUST_USE;
/* Its part "ranks", of a job: report_ranks.c. */
td_status *td_ranks_json(const td_ranks *ranks, json_t **out_json) TD_MUST_USE;

#endif
