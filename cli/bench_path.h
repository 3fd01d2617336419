/* The critical path of a cut run, from times of ops that single-device runs took: what `tandem bench --against` holds the cut
 * step against. */
#ifndef TANDEM_CLI_BENCH_PATH_H
#define TANDEM_CLI_BENCH_PATH_H

#include "tandem/session.h"

/* Seconds per step of each op of one device, by name. */
typedef struct td_measured_ops {
    const char *device; /* borrowed */
    td_op_time *times;  /* in the order of their names, which belong to the session */
    int32_t n;
} td_measured_ops;

/* The times of a session that ran everything on `device`, with its ops timed. The session outlives them. */
td_status *td_measured_ops_read(const td_session *session, const char *device, td_measured_ops *out_ops) TD_MUST_USE;
void td_measured_ops_deinit(td_measured_ops *ops);

/* The path of `plan`. Ops take what they took on their device in `all`; the two parts of a lookup that was split share its time
 * as they shared its bags (`counters`: of the cut run); copies take their bytes over the link as stated. *out_missing: ops
 * without a time, left out. */
td_status *td_bench_critical_path(const td_plan *plan, const td_session_counters *counters, const td_measured_ops *all,
                                  int32_t n, double *out_seconds, int32_t *out_missing) TD_MUST_USE;

#endif
