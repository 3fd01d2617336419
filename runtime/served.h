/* Served tables as the session sees them: the ids of a window become keys, and places among them for each micro-batch
 * (partition/serve.c); and ops of other ranks are run through the job. */
#ifndef TANDEM_RUNTIME_SERVED_H
#define TANDEM_RUNTIME_SERVED_H

#include "partition/plan.h"
#include "runtime/remote.h"
#include "tandem/data.h"

/* What a window looks up, in buffers that last until it is filled again: of each td_plan_keys the distinct ids of all its batches,
 * and a place among them for every id, batch after batch. */
typedef struct td_served_window {
    int64_t **keys, *n_keys, **places, *capacities; /* of each td_plan_keys */
    int64_t *starts;                                /* [batches + 1, td_plan_keys]: where a batch's places begin */
    int64_t starts_capacity;
    int64_t *rows; /* scratch */
    void *scratch;
    int64_t scratch_ids;
} td_served_window;

/* The fields of a batch with keys and places. */
typedef struct td_served_fields {
    td_field *fields;
    int32_t most;
} td_served_fields;

/* n batches of a window that are this process's. */
td_status *td_served_window_fill(td_served_window *window, const td_plan *plan, const td_batch *batches,
                                 int32_t n) TD_MUST_USE;
void td_served_window_deinit(td_served_window *window, const td_plan *plan);
/* Replaces batch->fields, of the window's batch `at`, by ones that have the window's keys and its places too. The fields there
 * were must stay. */
td_status *td_served_extend(td_served_fields *fields, const td_served_window *window, const td_plan *plan,
                            td_batch *batch, int32_t at) TD_MUST_USE;

/* A call of a remote op, in any micro-batch. `tables`: of each input, the job's number of the table, or -1. */
td_status *td_served_run(const td_plan *plan, const td_kernel_call *call, const int32_t *tables,
                         const td_remote_place *place) TD_MUST_USE;

#endif
