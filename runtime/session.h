/* A session's own structures.
 *
 * Every cluster of the plan becomes a list of prepared instructions with bound arguments, in two versions: one per step
 * parity. A step slot holds what one step in flight needs: its batch, actual extents, host numbers, and how many
 * predecessors each cluster still waits for. Steps use slots in a ring of three: while step s runs and step s - 1 may still,
 * completions of s already count down the clusters of s + 1.
 *
 * What is called a step here and in the files below is one micro-batch: a step of the training, or window, is one or more of
 * them (td_plan_window). Only a window's last one runs what runs once a window.
 *
 * A lane group is a device's compute queues, or one copy direction. Its threads take the ready cluster of the oldest step
 * and the highest rank. Per op there is no lock and no allocation of ours; per cluster a few short locks (its group's heap,
 * the timeline). */
#ifndef TANDEM_RUNTIME_SESSION_H
#define TANDEM_RUNTIME_SESSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/served.h"
#include "runtime/store.h"

/* TD_BUFFERS: of a tensor: data, index, count. */
enum { TD_STEP_SLOTS = TD_SERVED_WINDOWS, TD_PARITIES = 2, TD_BUFFERS = 3 };

typedef enum td_instruction_kind {
    TD_RUN_KERNEL = 0,
    TD_RUN_COPY,
    TD_RUN_HOST_CALL,
    TD_RUN_REMOTE, /* the other ranks of a job take part */
    TD_RUN_NOTHING
} td_instruction_kind;

typedef struct td_instruction {
    td_instruction_kind kind;
    int32_t node;
    td_kernel *kernel;
    td_kernel_call call[TD_PARITIES]; /* inputs and outputs point into tensors */
    td_tensor *tensors[TD_PARITIES];
    int64_t copy_bytes[TD_PARITIES][TD_BUFFERS]; /* at actual extents */
    int32_t *values;                             /* value of each tensor, -1 where absent */
    bool once;                                   /* runs in a window's last micro-batch alone */
    bool before_last;                            /* runs in all others */
    bool first;                                  /* in its first one alone */
    bool updates;                                /* writes state */
    bool delayed;                                /* applies what the window before left, whatever becomes of this one */
    bool speculates;                             /* updates before it is known whether it may */
    struct td_instruction *early;  /* of what settles that: the instruction that speculated; NULL: it settles nothing */
    int64_t ran;                   /* of one that speculates: the last step in which it did */
    bool guarded;                  /* does, or adds to a sum over micro-batches, and the loss is known before */
    int64_t timed_ns[TD_PARITIES]; /* while ops are timed; two steps in flight have different parities */
    int64_t timed_runs[TD_PARITIES];
    td_paged_table *table;  /* its rows must be brought into memory before it runs; NULL: none */
    int32_t table_ids;      /* the argument that names them */
    int64_t table_offset;   /* added to each */
    bool table_write;       /* an update of the same step may change them */
    int32_t *remote_tables; /* of each input of a remote op: the job's number of the table, or -1 */
    bool asks_ahead;        /* gradients of served tables have left: the next window's rows may be asked for */
} td_instruction;

typedef struct td_bound_cluster {
    td_instruction *instructions; /* of all its nodes; a delegated cluster has one, for all */
    int32_t n_instructions;
    bool updates; /* one of them writes state */
    bool delayed; /* one of them applies what the window before left */
    bool guarded; /* one of them waits for the loss */
    bool settles; /* one of them settles an update that was made early */
} td_bound_cluster;

/* An input of the graph, and where its field was in the last batch. */
typedef struct td_bound_input {
    int32_t value, field;
} td_bound_input;

/* An argument of an instruction that is an input, or the input of the step before, in both parities. */
typedef struct td_bound_argument {
    int32_t input;
    bool previous;
    td_tensor *tensors[TD_PARITIES];
} td_bound_argument;

typedef struct td_step_slot {
    int64_t step; /* over the session's life, from 1; 0: empty */
    td_batch batch;
    td_source *source; /* whom to give the batch back to; NULL: the caller's own */
    td_served_fields served;
    const td_field *own_fields; /* the batch's, where the slot has made more of them */
    int32_t n_own_fields;
    bool has_batch;
    int64_t micro;      /* which micro-batch of its window, from 0 */
    int64_t accumulate; /* micro-batches of a replica in its window */
    bool ends_window;
    td_pending applies, leaves; /* gradients of the window before, and its own: of a micro-batch that ends its window */
    bool speculates, rests;     /* its updates are made early; or are not, for the rest after a miss */
    int64_t counted;            /* what the sample extent counts, of the window so far */
    atomic_int *waiting;        /* of each cluster: predecessors left */
    atomic_int clusters_left;
    atomic_bool updating; /* something that writes state has begun */
    int64_t to_device_bytes, to_host_bytes;
    double begin_s, wait_data_s;
    uint32_t record_micro; /* which micro-step of the step, from 0 */
    uint32_t record_step;  /* the step's number in records: of the training, or of the session when it evaluates */
    /* the session's when it was admitted: lanes may still work on older steps when that changes */
    uint32_t record_base;
    uint64_t record_from;       /* when its window was admitted, in ticks; 0: nothing was recorded then */
    uint64_t record_micro_from; /* when it was */
} td_step_slot;

/* A batch that was pulled to see whether its window goes on. */
typedef struct td_batch_ahead {
    td_batch batch;
    bool has_batch, at_end; /* at_end: there was none */
    double wait_data_s;
} td_batch_ahead;

/* Of the micro-batches of the oldest window that have ended. */
typedef struct td_window_so_far {
    int64_t micro_batches, samples;
    double loss; /* each micro-batch's times its samples */
    double begin_s, wait_data_s;
} td_window_so_far;

typedef struct td_ready {
    int32_t cluster;
    int64_t step;
} td_ready;

/* One device's compute lanes, or one of its copy directions. */
typedef struct td_lane_group {
    int32_t site;
    td_queue_kind kind;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    td_ready *ready; /* a heap; room for every cluster of two steps */
    int32_t n_ready;
} td_lane_group;

typedef struct td_lane {
    struct td_session *session;
    td_lane_group *group;
    int32_t index; /* among the group's lanes */
    td_queue *queue;
    td_event *event;
    void *scratch;
    td_copy_range *ranges; /* of copies that go as one list; NULL: the device takes none, or the lane computes */
    int32_t n_ranges;
    pthread_t thread;
    bool started;
    double busy_s; /* its thread's own during a run */
    int64_t kernels, copied_bytes;
    int64_t least_wait_ns; /* for an event when the queue has nothing to do, while ops are timed; 0: not known */
    double ended_busy_s;   /* the same when the last run ended: what counters report, whenever they are asked for */
    int64_t ended_kernels, ended_copied_bytes;
} td_lane;

/* Who is at work, for the share of copies and host work that an accelerator's work hides. */
typedef struct td_timeline {
    pthread_mutex_t mutex;
    int32_t accelerators, others; /* at work now */
    double last_s;
    double exposed_s, others_s;
} td_timeline;

struct td_session {
    td_plan *plan;
    td_store *store;
    const td_machine *machine;
    void **arenas; /* per site: where the store's arena was when arguments were last bound to it */
    bool bound;    /* they have been bound once */
    td_bound_cluster *clusters;
    td_bound_input *inputs;
    int32_t n_inputs;
    td_bound_argument *arguments;
    int64_t n_arguments;
    void **numbers[TD_PARITIES]; /* per value: host numbers of a scalar */
    double **scalars;            /* per value: what the caller set, or NULL */
    int32_t *scalar_values, n_scalar_values;
    int64_t *parity_extents[TD_PARITIES]; /* what the arguments of each parity are made for */
    int64_t to_device_bytes[TD_PARITIES][2], to_host_bytes[TD_PARITIES][2]; /* the plan's formula at these extents; of a
                                                                             * micro-batch that ends no window, and one that does */
    /* of those to devices, refreshes that are left out where no update of the window before waits */
    int64_t late_bytes;
    td_remote_place places[TD_PARITIES];   /* of a job's micro-batches */
    int64_t *extents;                      /* of the step being admitted */
    td_store_entry **store_entries;        /* per value: its entry or replica, or NULL */
    const float *losses[TD_PARITIES];      /* the loss of each parity on the host; NULL: no training */
    const int64_t *overflows[TD_PARITIES]; /* what is not finite (graph/ops/overflow.c); NULL: nobody looks */
    td_lane_group *groups;
    td_lane *lanes;
    int32_t n_groups, n_lanes;
    td_lane_group **group_of; /* per cluster */
    bool time_ops;            /* changed between runs only */
    bool inline_lane;         /* one lane and nothing else: the caller's thread runs it */

    td_step_slot slots[TD_STEP_SLOTS];
    td_served_window served[TD_STEP_SLOTS]; /* of the last windows that have begun */
    int64_t served_windows;
    td_served_calls served_calls;
    /* Of served tables for training; NULL: there is none, or rows cannot be asked for ahead. */
    const td_instruction *pull;
    atomic_llong bound_to;       /* the micro-batch admitted last: its arguments are bound */
    int64_t admitted, completed; /* micro-batches over the session's life */
    td_batch_ahead ahead;
    td_window_so_far window;
    bool mid_window;        /* the micro-batch admitted last does not end its window */
    int64_t windows_ending; /* windows whose last micro-batch is in flight */
    pthread_mutex_t mutex;  /* of step_done, error and failed_step */
    pthread_cond_t step_done;
    td_status *error;
    int64_t failed_step;    /* 0: none; steps from this one on do no work */
    bool held;              /* the failed step has no error: it is not finite, and its updates were held back */
    atomic_llong failed_at; /* the same, to be read without the lock; LLONG_MAX: none */
    atomic_bool stop_requested, closing;
    bool broken;            /* an error struck in the middle of an update */
    int64_t rest;           /* windows yet to begin whose updates wait for the norm */
    int64_t skipped_in_row; /* windows, up to the last that ended */

    uint32_t record_base;  /* ids of its nodes in records, and after them of its clusters */
    uint64_t record_known; /* the profiler that knows the plan by this base */

    td_timeline timeline;
    td_session_counters counters, ended_counters; /* now, and when the last run ended */
    td_tensor *outputs;                           /* headers for reports */
    double last_report_s;
};

/* ---- bind.c: instructions, addresses, extents ---- */
td_status *td_session_bind(td_session *session) TD_MUST_USE;
void td_session_unbind(td_session *session);
/* Binds all arguments anew if the store's arenas have moved since. */
void td_session_follow_arenas(td_session *session);
/* The address of a value's buffer (0 data, 1 index, 2 count) in a parity. */
void *td_session_address(const td_session *session, int32_t value, int32_t parity, int32_t buffer);

/* ---- batch.c: from a batch to actual arguments ---- */
td_status *td_session_bind_inputs(td_session *session) TD_MUST_USE;
/* Points the arguments of the slot's parity at its batch and actual extents. Errors name the input and what was expected. */
td_status *td_session_bind_batch(td_session *session, td_step_slot *slot, const td_step_slot *previous) TD_MUST_USE;

/* ---- ready.c: which clusters may run ---- */
/* Counters of the slot that a step will use after the next. */
void td_session_reset_slot(td_session *session, int64_t step);
/* Makes the clusters of an admitted step available to the lanes. */
void td_session_start_step(td_session *session, td_step_slot *slot);
/* The first of the ready clusters of a group that has some; its mutex is held. */
td_ready td_session_pop_ready(const td_session *session, td_lane_group *group);
/* Whoever waits for this cluster waits for one less. */
void td_session_finish_cluster(td_session *session, int32_t index, int64_t step);

/* ---- lanes.c: threads, running clusters ---- */
td_status *td_session_open_lanes(td_session *session) TD_MUST_USE;
void td_session_close_lanes(td_session *session);
/* Waits until all clusters of the step have ended (running them here where the lane is inline). */
void td_session_wait_step(td_session *session, td_step_slot *slot);
/* This step and later ones do no more work. Takes the status; NULL: the step is held. */
void td_session_fail_step(td_session *session, td_status *status, int64_t step);
td_status *td_session_run_instruction(td_lane *lane, td_instruction *in, int32_t parity) TD_MUST_USE;
/* Waits for what was submitted to the lane's queue; its first error. */
td_status *td_session_settle_lane(td_lane *lane) TD_MUST_USE;

/* ---- nonfinite.c: steps whose loss or gradients are no finite numbers ---- */
bool td_session_loss_is_finite(const td_session *session, int64_t step);
/* The loss, and the gradients where somebody looks at them. */
bool td_session_step_is_finite(const td_session *session, int64_t step);
/* The parameter whose gradient of `step` is not finite, or NULL. */
const char *td_session_overflowed(const td_session *session, int64_t step);
/* Of a held step whose loss is finite: moves the loss scale where there is one. *out_why: what happened, never NULL. *out_skip:
 * the step is left out, rather than the end of the run. */
td_status *td_session_settle_overflow(td_session *session, int64_t step, bool *out_skip) TD_MUST_USE;
/* Why the loss of `step`, which was held and is bound still, is not finite: runs the step again, op by op, without its updates.
 * Nothing else may be running. Never NULL. *out_lasting: a parameter or state is not finite itself, so the next step will be
 * no better. */
td_status *td_session_explain_nonfinite(td_session *session, int64_t step, bool *out_lasting) TD_MUST_USE;

/* ---- speculation.c: updates before the norm of all gradients is known ---- */
/* Binds what settles early updates to what made them. */
td_status *td_session_bind_speculation(td_session *session) TD_MUST_USE;
/* Whether the slot's window, about to be admitted, speculates. */
void td_session_choose_speculation(td_session *session, td_step_slot *slot);
/* The slot's window has ended: with its update, or (`held`) left out. */
void td_session_count_speculation(td_session *session, const td_step_slot *slot, bool held);
/* Of an instruction that settles, in a step that comes to nothing: parameters and state are what they were. */
td_status *td_session_undo(td_lane *lane, td_instruction *in, int32_t parity) TD_MUST_USE;

/* ---- numbers.c: what the host computes once a step ---- */
td_status *td_session_set_numbers(td_session *session, td_step_slot *slot) TD_MUST_USE;

/* The number that the next step will have: of the training, or of the session when it evaluates. */
static inline uint32_t td_session_next_step(const td_session *session)
{
    return (uint32_t)(session->plan->training ? session->store->steps + session->windows_ending + 1
                                              : session->admitted + 1);
}

/* ---- profiler.c: where the profiler looks in; each costs one look at a flag while there is none ---- */
/* A micro-batch is about to be started. */
void td_session_profile_admit(td_session *session, td_step_slot *slot, uint64_t from);
/* All of a micro-batch has ended. */
void td_session_profile_complete(td_session *session, const td_step_slot *slot);
/* A run has ended; nothing of the session is at work. */
void td_session_profile_rest(td_session *session);

/* ---- timeline.c: who is at work ---- */
double td_session_now(void);
void td_timeline_enter(td_timeline *timeline, bool accelerator);
void td_timeline_leave(td_timeline *timeline, bool accelerator);

#endif
