/* Running a plan: a store owns parameters, optimizer state and counters by name; a session runs a plan's steps on it.
 *
 *     td_store *store = NULL;
 *     TD_TRY(td_store_create(plan, &store));
 *     td_session *session = NULL;
 *     TD_TRY(td_session_create(plan, store, &session));
 *     TD_TRY(td_session_run(session, &source, 1000, on_step, context));
 *     td_session_destroy(session);
 *     td_store_release(store);
 *
 * Several plans (train, evaluate) may bind to one store. Their sessions take turns: the store lends the one that runs an arena
 * per device, which is as large as the largest of their plans, so a device's peak is the store plus the largest plan, not the
 * sum. A session that is asked to run while another one runs is refused (TD_INVALID_ARGUMENT, "another session runs on this
 * store"), from another thread as from inside on_step, and may be asked again. The arenas go back to their devices when the
 * store's last session is destroyed. A session is used from one thread, two sessions of a store from one or two;
 * td_session_stop may be called from any thread or signal handler. */
#ifndef TANDEM_SESSION_H
#define TANDEM_SESSION_H

#include "tandem/data.h"
#include "tandem/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_session td_session;

/* ---- stores --------------------------------------------------------------------------------------------------------- */

/* Allocates every parameter and state of the plan at its home and fills it with initial values. Tables that the options keep
 * sparse or in a file (td_tables) get address space only; a row begins when a lookup first names it. For TD_TABLE_FILE the file
 * is made here, without a name: TD_INVALID_ARGUMENT where the folder's file system is in memory itself. A disk that is full, or
 * fails, is an error of the step that needed it (TD_IO), which has changed nothing; steps may go on once there is room. */
td_status *td_store_create(td_plan *plan, td_store **out_store) TD_MUST_USE;
td_store *td_store_retain(td_store *store);
void td_store_release(td_store *store);
/* Parameters are named as in the graph; states "<parameter>/<slot>" ("top.0.weight/m"). */
int32_t td_store_count(const td_store *store);
const char *td_store_name(const td_store *store, int32_t index);
/* Shape, dtype, and device name of an entry; -1 when there is none of that name. */
int32_t td_store_find(const td_store *store, const char *name);
td_status *td_store_describe(const td_store *store, int32_t index, td_tensor *out_tensor, bool *out_is_parameter,
                             const char **out_device) TD_MUST_USE;
/* Copies `count` elements from `first` on to or from host memory. No session may be running. */
td_status *td_store_read(const td_store *store, int32_t index, int64_t first, int64_t count,
                         void *out_data) TD_MUST_USE;
td_status *td_store_write(td_store *store, int32_t index, int64_t first, int64_t count, const void *data) TD_MUST_USE;
/* Steps and updates of the training so far; evaluating adds none. */
int64_t td_store_steps(const td_store *store);
int64_t td_store_updates(const td_store *store);
/* The loss scale of the next step, 0 where no plan with one has run yet, and how many steps were left out because gradients
 * overflowed at theirs (td_loss_scale_options). Checkpoints hold both. */
double td_store_loss_scale(const td_store *store);
int64_t td_store_overflows(const td_store *store);
/* The loss of the last update; checkpoints hold it. NaN: there was none yet. */
double td_store_last_loss(const td_store *store);
/* Sum modulo 2^64 of xxh64(bytes, seed = xxh64 of the name, then plus the index): over the rows of tables (parameters that are
 * read by lookups alone) that do not hold their initial values, and over blocks of 1,024 elements of other parameters. It does
 * not depend on where parameters live or how tables are kept. */
td_status *td_store_checksum(const td_store *store, uint64_t *out_checksum) TD_MUST_USE;

/* A checkpoint is a directory: safetensors shards and a manifest that is renamed into place last. Of a table
 * that is sparse or in a file it has the rows that are there; a store with any way of keeping tables loads it. `position`: where
 * the data is (epoch and batch index), handed back by load. Load takes any device split; names and shapes must agree. Every tensor
 * is written in the dtype that the store keeps it in; load converts between f32, f16 and bf16, downwards each number once to
 * nearest even, and logs that it did. TD_DATA_ERROR for what is cut off, damaged, of another model, or too large for the new dtype,
 * TD_NOT_FOUND where there is no checkpoint or a tensor is missing: then nothing has changed. */
typedef struct td_data_position {
    int64_t epoch, batch;
} td_data_position;
td_status *td_store_save(const td_store *store, const char *directory, td_data_position position) TD_MUST_USE;
/* What the other workers of a job do while the first one saves: they give it what they have of optimizer state that is shared out
 * (td_train_options.shard_optimizer), and return; at once where nothing is, and for the first worker. */
td_status *td_store_lend(const td_store *store) TD_MUST_USE;
/* One of a series: of tables that servers have, and of hash tables, only the rows that changed or went since the last one of the
 * series that was whole, which must lie at `base`, beside `directory` and as long as that is needed. Whole (*out_whole) without a base,
 * or where not all changes since are known: the first after a load, say. */
td_status *td_store_save_changes(td_store *store, const char *directory, const char *base, td_data_position position,
                                 bool *out_whole) TD_MUST_USE;
td_status *td_store_load(td_store *store, const char *directory, td_data_position *out_position) TD_MUST_USE;

/* Parameters from a safetensors file of another program, as PyTorch's state dictionaries are saved.
 *
 * A parameter gets the tensor of its own name, or that which the first entry of `map` says whose `match` fits the parameter: `*` in
 * `from` stands for what the `*` at its place in `match` stood for ({"h.*.up.weight", "transformer.h.*.mlp.c_fc.weight"}). Numbers
 * are f32, f16 or bf16, and are converted as in loading a checkpoint. Shapes must agree: those of linear layers are [out, in] and of
 * convolutions [out, in / groups, height, width], as PyTorch's Linear and Conv2d have them; `transpose` is for matrices that lie
 * [in, out], as GPT-2's Conv1D. */
typedef struct td_weight_name {
    const char *match, *from;
    bool transpose;
} td_weight_name;
typedef struct td_weights {
    const char *file;
    const td_weight_name *map;
    const char *const *keep;   /* patterns of parameters that keep their initial values */
    const char *const *ignore; /* patterns of tensors of the file that nobody needs */
    int32_t n_map, n_keep, n_ignore;
} td_weights;
/* Optimizer state and counters stay as they are. TD_DATA_ERROR where the file is damaged, or a tensor is missing, of another shape
 * or dtype, or without a parameter; all of those are named, and nothing has changed then. */
td_status *td_store_import(td_store *store, const td_weights *weights) TD_MUST_USE;

/* ---- sessions ---------------------------------------------------------------------------------------------------------- */

typedef struct td_step_report {
    int64_t step;          /* from 1: of the training, over the store's life; of an evaluation, over the session's */
    int64_t micro_batches; /* of the step's window: see td_train_options.accumulate */
    int64_t samples;       /* of all of them */
    float loss;            /* their mean over the samples */
    bool skipped; /* the loss or a gradient is not finite and the update was left out; there are no outputs then */
    /* of a skipped step whose loss is finite: the parameter whose gradient was the first that is not; lives as long
     * as the plan */
    const char *overflowed;
    double loss_scale; /* that this step had; 0: there is none */
    double seconds;    /* since the previous report, or since the step began if it is the first of a run */
    double wait_data_s;
    float gradient_norm; /* of all gradients before clipping; NaN where none is asked for (clip_norm) */
    /* the window's last (of a skipped one, the one that was in the way); valid during the call */
    const td_batch *batch;
    /* Of the window's last micro-batch. Host tensors of the plan's outputs, in the order of td_plan_evaluate's list (train: the td_output values). Their data is
     * valid during on_step; after td_session_step, until a session of the same store runs, is created or is destroyed. */
    const td_tensor *outputs;
    int32_t n_outputs;
} td_step_report;

/* Returns true to go on. */
typedef bool (*td_on_step)(void *context, const td_step_report *report);

/* The store's arenas grow to what the plan needs; while another session of the store runs, they grow when this one first runs.
 * Errors: TD_DOES_NOT_FIT where the store and the plan's arena exceed a device (a plan made without the store cannot know what
 * the store holds there), TD_NOT_FOUND and TD_INVALID_ARGUMENT where the store is not one for this plan. */
td_status *td_session_create(td_plan *plan, td_store *store, td_session **out_session) TD_MUST_USE;
void td_session_destroy(td_session *session);
/* Runs until `steps` steps are done (0: no limit), the source ends (a window that it cuts short is a step all the same, exact,
 * as is one cut short by the end of an epoch, where the batches' number of it changes), on_step (may be NULL) returns false, or td_session_stop;
 * a step in flight by then still ends, and is reported to on_step.
 * Batches are pulled ahead while steps run; all that was pulled and not trained on is released. After an error the first one
 * comes back with its op's name; the session stays usable unless an update was under way, which a later call reports. A loss
 * that is not finite is an error of code TD_NOT_FINITE or a skipped step, as options.on_nan says; so is a gradient, unless the
 * loss scale of TD_MIXED_FP16 decides. */
td_status *td_session_run(td_session *session, td_source *source, int64_t steps, td_on_step on_step,
                          void *context) TD_MUST_USE;
/* One step on a batch in hand: a window of one micro-batch, applied at once, whatever the plan accumulates. */
td_status *td_session_step(td_session *session, const td_batch *batch, td_step_report *out_report) TD_MUST_USE;
/* One step on a window of micro-batches in hand, in their order: as many as the plan's windows have at that step, or fewer, as
 * where the data ends. TD_INVALID_ARGUMENT for more. */
td_status *td_session_step_window(td_session *session, const td_batch *batches, int64_t n,
                                  td_step_report *out_report) TD_MUST_USE;
/* False once an error struck in the middle of an update, or a parameter or state holds NaN or infinity: the store is no good then,
 * and a checkpoint must be loaded into a new one. */
bool td_session_is_usable(const td_session *session);
/* Asks a run to end after the steps in flight. Safe in a signal handler. */
void td_session_stop(td_session *session);
/* Sets a run-time scalar (td_scalar) for steps admitted from now on. */
td_status *td_session_set_scalar(td_session *session, const char *name, const double *numbers, int32_t n) TD_MUST_USE;

typedef struct td_session_counters {
    int64_t steps;         /* that ended, skipped ones left out */
    int64_t skipped_steps; /* see td_on_nan; what they copied counts among the bytes copied, not among the planned */
    /* Windows whose updates were made before the norm of all gradients was known; those of them where that was wrong and undone; and
     * windows that waited for the norm because one shortly before was wrong. */
    int64_t speculated, missed, resting;
    int64_t to_device_bytes, to_host_bytes;                 /* actually copied */
    int64_t planned_to_device_bytes, planned_to_host_bytes; /* the plan's formula at the same extents */
    int64_t bags_looked_up, bags_looked_up_early;           /* early lookup, where it is on */
    double seconds, copy_s, exposed_s; /* exposed: a copy or the host worked while every accelerator idled */
    double copy_or_host_s;             /* a copy or the host worked */
} td_session_counters;
/* Sums over the session's life up to the end of its last run: inside on_step too, where lanes may be at work on the next step. The
 * same holds for busy_s and kernels of td_session_device. */
td_session_counters td_session_read_counters(const td_session *session);

typedef struct td_device_counters {
    const char *name;
    uint64_t capacity_bytes, now_bytes, peak_bytes;
    uint64_t planned_peak_bytes; /* what the store holds there, and the largest plan of its sessions */
    double busy_s;               /* of all compute lanes together */
    int64_t kernels;
} td_device_counters;
int32_t td_session_devices(const td_session *session);
td_device_counters td_session_device(const td_session *session, int32_t index);

/* How long single ops took. Timing is off at first; while it is on, each op costs three more looks at the clock, and a device
 * with queues of its own is waited for after each op, so that its times are complete but a step is longer, and once more: the least
 * that this took is no part of times. Between runs only. */
typedef struct td_op_time {
    const char *name, *op, *device; /* the node's name, its op, where it ran; they live as long as the session */
    int64_t runs;
    double seconds;      /* of all runs together */
    double flops, bytes; /* of one run, as the plan counts them: at capacity, read and written */
} td_op_time;
void td_session_time_ops(td_session *session, bool on);
/* The times of at most `most` ops, in the order of the plan's subgraphs, into `out_times` (may be NULL when most is 0). Returns
 * how many ops there are; views and others that do nothing are left out, and copies are ops. */
int32_t td_session_op_times(const td_session *session, int32_t most, td_op_time *out_times);

#ifdef __cplusplus
}
#endif
#endif
