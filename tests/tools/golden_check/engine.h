/* A graph brought to life for a check: plan, store and session in one hand, and copies of all that a store holds. */
#ifndef TANDEM_TESTS_GOLDEN_CHECK_ENGINE_H
#define TANDEM_TESTS_GOLDEN_CHECK_ENGINE_H

#include "tandem/tandem.h"

/* Where a case is trained: on the host; what the model keeps on the host there and the rest on an emulated accelerator; all but
 * tables on the accelerator, with the whole optimizer offloaded, half of it, or what an accelerator has no room for that has half of the
 * room that an offload of all spares. */
typedef enum golden_devices {
    GOLDEN_CPU = 0,
    GOLDEN_CUT,
    GOLDEN_OFFLOAD,
    GOLDEN_HALF,
    GOLDEN_AUTO,
    GOLDEN_DEVICES
} golden_devices;

/* Zero it, make `options` with td_train_defaults, build into `graph`; golden_engine_stop frees everything. */
typedef struct golden_engine {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} golden_engine;

td_status *golden_engine_start(golden_engine *engine, td_value loss) TD_MUST_USE;
void golden_engine_stop(golden_engine *engine);

/* A parameter or state as a store had it. */
typedef struct golden_tensor {
    char *name;
    bool is_parameter;
    int32_t rank;
    int64_t dims[TD_MAX_RANK];
    int64_t elements;
    float *data;
} golden_tensor;

typedef struct golden_snapshot {
    golden_tensor *tensors;
    int32_t n;
} golden_snapshot;

/* *out must be zero or hold an earlier snapshot of the same store, which is overwritten. */
td_status *golden_snapshot_take(const td_store *store, golden_snapshot *out_snapshot) TD_MUST_USE;
void golden_snapshot_deinit(golden_snapshot *snapshot);
/* "<parameter>/<slot>", or the parameter where slot is NULL; NULL where there is none. */
const golden_tensor *golden_snapshot_find(const golden_snapshot *snapshot, const char *parameter, const char *slot);
/* Whether both hold the same tensors bit for bit; *out_first is the first that differs. */
bool golden_snapshot_equal(const golden_snapshot *a, const golden_snapshot *b, const char **out_first);

/* What a check found wrong: how many things, and the first of them. */
typedef struct golden_deviations {
    int64_t n;
    char first[320];
} golden_deviations;

void golden_deviate(golden_deviations *deviations, const char *format, ...) TD_PRINTF(2, 3);
/* An error is a deviation: takes it. NULL: none. Returns whether there was one. */
bool golden_deviate_error(golden_deviations *deviations, const char *where, td_status *status);

#endif
