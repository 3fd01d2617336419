/* Served tables as the session sees them: the ids of each batch become keys and places (partition/serve.c), and ops of other
 * ranks are run through the job. */
#ifndef TANDEM_RUNTIME_SERVED_H
#define TANDEM_RUNTIME_SERVED_H

#include "partition/plan.h"
#include "runtime/remote.h"
#include "tandem/data.h"

/* The fields of one batch with those made of it, in buffers that last until the next one. */
typedef struct td_served_batch {
    td_field *fields;
    int32_t most_fields;
    int64_t **keys, **places, *rows, *capacities; /* of each td_plan_keys: distinct rows; a place per id; scratch */
    void *scratch;
    int64_t scratch_ids;
} td_served_batch;

/* Replaces batch->fields by ones that have the plan's keys and places too. The fields there were must stay. */
td_status *td_served_batch_fill(td_served_batch *served, const td_plan *plan, td_batch *batch) TD_MUST_USE;
void td_served_batch_deinit(td_served_batch *served, const td_plan *plan);

/* A call of a remote op. `tables`: of each input, the job's number of the table, or -1. */
td_status *td_served_run(const td_plan *plan, const td_kernel_call *call, const int32_t *tables,
                         int64_t samples) TD_MUST_USE;

#endif
