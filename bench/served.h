/* The cases that are run by two ranks instead of a session. */
#ifndef TANDEM_BENCH_SERVED_H
#define TANDEM_BENCH_SERVED_H

#include "bench/workload.h"
#include "tandem/job.h"

/* Every rank calls it. Fills in what is known of the work, and the times of out_work->runs rounds, which the caller frees; none
 * (NULL) where this rank only served. Errors: TD_INVALID_ARGUMENT where there are not two ranks. */
td_status *td_bench_run_served(const td_bench_case *which, const td_bench_request *request, td_workload *out_work,
                               double **out_times) TD_MUST_USE;

#endif
