/* Traces in other programs' formats. All of a trace, but for CSV and HTML, which are of one window.
 *
 * Files are written beside their names and renamed when they are whole. */
#ifndef TANDEM_PROFILER_EXPORT_H
#define TANDEM_PROFILER_EXPORT_H

#include "profiler/advice.h"

/* Chrome's JSON: chrome://tracing and Perfetto's page open it. Times in microseconds. */
td_status *td_export_chrome(const td_trace *trace, const char *path) TD_MUST_USE;
/* Perfetto's own format (.pftrace): a track for each thread and one for steps, counters for memory, batches and processors. */
td_status *td_export_perfetto(const td_trace *trace, const char *path) TD_MUST_USE;
/* step_trace_time.csv, op_detail_info.csv and op_type_info.csv in `folder`, which is made; their first columns are those of
 * MindSpore's profiler. Of a job also rank_info.csv. */
td_status *td_export_csv(const td_analysis *analysis, const char *folder) TD_MUST_USE;
/* One page without any other file: the report, a timeline of a step, tables. */
td_status *td_export_html(const td_analysis *analysis, const char *path) TD_MUST_USE;
/* Part of td_export_csv: export_csv_curves.c. Curves are made for `at_once` steps at a time; the files are the same whatever it is. 0: as
 * many as curves may have. */
td_status *td_export_csv_curves(const td_analysis *analysis, const char *folder, int64_t at_once) TD_MUST_USE;

#endif
