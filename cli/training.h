/* A training run: steps until the end or a signal, with checkpoints on the way. What is said about it is elsewhere. */
#ifndef TANDEM_CLI_TRAINING_H
#define TANDEM_CLI_TRAINING_H

#include "cli/collector.h"
#include "cli/progress.h"
#include "cli/run_directory.h"
#include "cli/setup.h"
#include "cli/snapshots.h"
#include "cli/statistics.h"
#include "tandem/session.h"

/* Checkpoints that all workers know of, by their steps: the last that was whole, and the last that was begun. */
typedef struct td_saved_marks {
    int64_t whole, begun; /* TD_SAVED_NONE: none; TD_SAVED_UNKNOWN: this rank was no worker */
} td_saved_marks;
enum { TD_SAVED_NONE = -1, TD_SAVED_UNKNOWN = -2 };

typedef struct td_training {
    td_setup *setup;
    td_plan *plan;
    td_store *store;
    td_session *session;
    const char *checkpoints; /* folder; NULL: none are written */
    const char *watch;       /* the name of an output of the plan, printed every train.log_every steps; NULL: none */
    td_progress progress;
    FILE *errors;           /* where it says that a signal has it write a checkpoint; NULL: it does not */
    td_collector collector; /* opened by the caller, or zeros */
    td_snapshots snapshots; /* likewise */
    /* results */
    td_step_statistics statistics;
    td_data_position position; /* of the next batch; set before a resumed run */
    int64_t step_of_epoch;     /* of the next step, from 0 */
    int64_t samples;           /* of this run */
    const char *overflowed;    /* the parameter of the last step that the loss scale left out; NULL: none in this run */
    int64_t overflowed_step;
    double seconds, wait_data_s;
    int64_t saved_steps;          /* of the store's life, in the newest checkpoint */
    float loss;                   /* of the last update, resumed parts too; NaN: none */
    float first_loss;             /* of step 1; 0: not of this run */
    bool stopped;                 /* by a signal */
    int64_t steps;                /* of the store's life, when the run ended */
    td_session_counters counters; /* of the session, when the run ended */
    td_device_counters *devices;  /* likewise, one per device of the plan; names live as long as the plan */
    int32_t n_devices;
    char *last_checkpoint; /* NULL: none written */
    td_checkpoint_series series;
    td_status *step_error;
    td_dealt_source dealt; /* of a worker's run */
    int64_t windows;       /* of this run */
    td_saved_marks marks;  /* a job's: set before the run */
    bool is_further;       /* not the first worker of its rank: signals are not its business */
} td_training;

/* Trains until setup->steps are done in the store's life, the data ends, or a signal. A checkpoint is written every
 * checkpoint.every steps and at the end, after a signal or an error too (unless that spoilt the parameters). The session is gone afterwards, so that another plan may run on
 * the store without adding to the memory of this one. */
td_status *td_training_run(td_training *training) TD_MUST_USE;
void td_training_deinit(td_training *training);

#endif
