/* The critical path of a cut run, from times of ops that single-device runs took: what `tandem bench --against` holds the cut
 * step against. */
#ifndef TANDEM_CLI_BENCH_PATH_H
#define TANDEM_CLI_BENCH_PATH_H

#include "tandem/session.h"

/* What each op of one device takes: the median over blocks of steps, so that one step which the system disturbed says nothing. */
typedef struct td_measured_ops {
    const char *device;        /* borrowed */
    const td_session *session; /* borrowed: it has its ops timed */
    const td_plan *plan;       /* borrowed: which ops were run as one */
    td_op_time *times; /* n, of all blocks together; after td_measured_ops_settle one run of the median, by name */
    double *blocks;    /* [n][capacity] seconds of a run in each block that the op ran in */
    int32_t *n_blocks; /* [n] */
    int32_t n, capacity;
} td_measured_ops;

/* Of a session of `plan` that runs everything on `device`, for `blocks` blocks of steps; all three outlive it. Released by
 * td_measured_ops_deinit, after an error too. */
td_status *td_measured_ops_init(td_measured_ops *out_ops, const td_session *session, const td_plan *plan,
                                const char *device, int32_t blocks) TD_MUST_USE;
/* What was timed since the last call, or since the beginning, is a block; those beyond `blocks` say nothing. */
td_status *td_measured_ops_add_block(td_measured_ops *ops) TD_MUST_USE;
/* The medians of all blocks; no block follows. Returns whether any op ran. */
bool td_measured_ops_settle(td_measured_ops *ops);
void td_measured_ops_deinit(td_measured_ops *ops);

typedef struct td_bench_path {
    double seconds;                 /* of the critical path; 0: not known */
    double accelerator_s, others_s; /* of all work of a step: accelerators, and host and copies */
    int32_t estimated; /* ops that did not run there in this shape (fused with others across what is a cut here): they
                                     * take what the plan estimates */
} td_bench_path;

/* The path of `plan`. Ops take what they took on their device in `all`, which are settled; those that one op stood for there, an equal share of it;
 * the two parts of a lookup that was split share its time as they shared its bags (`counters`: of the cut run); an update that is made
 * before the norm is known takes what the update took, and its log's bytes more; copies take their bytes over the link as stated. */
td_status *td_bench_critical_path(const td_plan *plan, const td_session_counters *counters, const td_measured_ops *all,
                                  int32_t n, td_bench_path *out) TD_MUST_USE;
/* The share of host and copy work that accelerators can hide: what the critical path takes beyond all of the accelerators' work
 * they must idle for. */
double td_bench_overlap_allowed(const td_bench_path *path);

#endif
