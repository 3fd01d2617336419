/* Served tables as the session sees them: the ids of a window become keys, and places among them for each micro-batch
 * (partition/serve.c); and ops of other ranks are run through the job. */
#ifndef TANDEM_RUNTIME_SERVED_H
#define TANDEM_RUNTIME_SERVED_H

#include "partition/plan.h"
#include "runtime/remote.h"
#include "runtime/row_order.h"
#include "tandem/data.h"

enum { TD_SERVED_WINDOWS = 3 }; /* that a session has at the same time: as many as steps (TD_STEP_SLOTS) */

/* What a window looks up, in buffers that last until it is filled again: of each td_plan_keys the distinct ids of all its batches,
 * and a place among them for every id, batch after batch. */
typedef struct td_served_window {
    int64_t **keys, *n_keys, **places; /* of each td_plan_keys */
    int64_t *keys_capacities, *places_capacities;
    int64_t *starts; /* [batches + 1, td_plan_keys]: where a batch's places begin */
    int64_t *rows;   /* scratch, as is the next */
    void *scratch;
    int64_t starts_capacity, rows_capacity, scratch_bytes;
} td_served_window;

/* The fields of a batch with keys and places. */
typedef struct td_served_fields {
    td_field *fields;
    int64_t most;
} td_served_fields;

/* n batches of a window that are this process's. */
td_status *td_served_window_fill(td_served_window *window, const td_plan *plan, const td_batch *batches,
                                 int32_t n) TD_MUST_USE;
/* Bytes that all of a session's windows take at most, and what its remote ops keep, of tables whose plan is that. */
int64_t td_served_bytes(const td_plan *plan);
void td_served_window_deinit(td_served_window *window, const td_plan *plan);
/* Replaces batch->fields, of the window's batch `at`, by ones that have the window's keys and its places too. The fields there
 * were must stay. */
td_status *td_served_extend(td_served_fields *fields, const td_served_window *window, const td_plan *plan,
                            td_batch *batch, int32_t at) TD_MUST_USE;

/* ---- served_ops.c ---- */
/* A part's rows by ascending place, where the gradient has them otherwise. */
typedef struct td_served_order {
    td_row_order order;
    int64_t *places;
    float *gradients;
    int64_t places_capacity, gradients_capacity;
} td_served_order;

/* What a call of one of td_remote's functions needs. They come one at a time, so it is kept from one to the next. */
typedef struct td_served_call {
    td_remote_part *parts;
    td_served_order *orders; /* of each part */
    td_exact **squares;
    int32_t most; /* parts */
} td_served_call;

typedef struct td_served_calls {
    td_served_call pull, ahead, push, apply;
} td_served_calls;

/* A call of a remote op, in any micro-batch. `tables`: of each input, the job's number of the table, or -1. */
td_status *td_served_run(const td_plan *plan, const td_kernel_call *call, const int32_t *tables,
                         const td_remote_place *place, td_served_calls *calls) TD_MUST_USE;
/* What the call of a ps_pull in another micro-batch will want is asked for. */
td_status *td_served_ask_ahead(const td_plan *plan, const td_kernel_call *pull, const int32_t *tables,
                               td_served_calls *calls) TD_MUST_USE;
void td_served_calls_deinit(td_served_calls *calls);
int64_t td_served_calls_bytes(const td_plan *plan); /* at most */

#endif
