/* A workload on the engine: plan, store and session on the one device "cpu". */
#ifndef TANDEM_BENCH_ENGINE_H
#define TANDEM_BENCH_ENGINE_H

#include "bench/workload.h"

typedef struct td_bench_engine {
    td_workload work;
    td_plan *plan;
    td_store *store;
    td_session *session;
    int32_t threads;
    int64_t steps; /* done so far */
} td_bench_engine;

/* Builds the case and everything to run it. On failure nothing is left. */
td_status *td_bench_open(const td_bench_case *which, const td_bench_request *request,
                         td_bench_engine *out_engine) TD_MUST_USE;
void td_bench_close(td_bench_engine *engine);
/* One step on the batch whose turn it is, after setting the scalar where there is one. */
td_status *td_bench_step(td_bench_engine *engine, td_step_report *out_report) TD_MUST_USE;

#endif
