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
typedef struct td_profiling_recovery {
    const char *loss; /* which rank, as the job says it */
    int64_t lost_ns;  /* when that was known here, on the monotonic clock */
    int64_t after_step;
    bool is_further; /* this worker's rank runs another one, whose recording has what this one does */
} td_profiling_recovery;

/* `recovery`: the job has lost ranks and goes on, with a recording of its own, which says so; else NULL. *out_profiler is NULL for a
 * further worker. */
td_status *td_profiling_open(const td_setup *setup, const char *run, bool wanted, const td_profiling_recovery *recovery,
                             td_profiler **out_profiler) TD_MUST_USE;
/* Adds to the trace what the program knows, and stops. Failures are warnings. Without an error, or where it is TD_CANCELLED, all
 * workers of the job come here and read clocks once more; another error stands in the trace. */
void td_profiling_finish(td_profiler *profiler, const td_setup *setup, const td_status *error);
/* Stops it, where it was not finished. */
void td_profiling_abandon(td_profiler *profiler);
/* One line on what was recorded; nothing where nothing was. */
void td_profiling_print(const td_profiler *profiler, const char *run, FILE *stream);

/* "10-20", "10" or "10-" (last: INT64_MAX). False where it is something else, or not 1 <= first <= last. */
bool td_profiling_range(const char *text, int64_t *out_first, int64_t *out_last);

#endif
