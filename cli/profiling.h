/* Recording a training run: from the configuration, --profile and TANDEM_PROFILE to a profiler, and what is said about it. */
#ifndef TANDEM_CLI_PROFILING_H
#define TANDEM_CLI_PROFILING_H

#include <stdio.h>

#include "cli/setup.h"
#include "tandem/profiler.h"

/* A profiler whose traces go to <run>/profile. It records by the schedule of section profile where that is given, `wanted` is
 * true (--profile), or the environment has TANDEM_PROFILE (its value is as profile.steps, or "on" or "off"); in any case when
 * the process gets SIGUSR1. Steps that end after the training are an error. In a job every worker calls it, and the first one's
 * `run` counts for all ranks. */
td_status *td_profiling_open(const td_setup *setup, const char *run, bool wanted,
                             td_profiler **out_profiler) TD_MUST_USE;
/* Adds to the trace what the program knows, and stops. Failures are warnings. `together`: all workers of the job come here, so that
 * clocks can be read once more. */
void td_profiling_finish(td_profiler *profiler, const td_setup *setup, bool together);
/* One line on what was recorded; nothing where nothing was. */
void td_profiling_print(const td_profiler *profiler, const char *run, FILE *stream);

/* "10-20", "10" or "10-" (last: INT64_MAX). False where it is something else, or not 1 <= first <= last. */
bool td_profiling_range(const char *text, int64_t *out_first, int64_t *out_last);

#endif
