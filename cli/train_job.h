/* One training run of tandem train, from its folder to its report; of a job under mpirun, one worker's part. Its steps are
 * cli/training.h's, who its ranks are cli/distributed.h's. */
#ifndef TANDEM_CLI_TRAIN_JOB_H
#define TANDEM_CLI_TRAIN_JOB_H

#include <stdio.h>

#include "cli/command.h"
#include "cli/distributed.h"
#include "cli/evaluation.h"
#include "cli/training.h"
#include "tandem/profiler.h"

typedef struct td_train_job {
    const td_arguments *arguments;
    const td_config *config;
    FILE *talk; /* progress and lines for people; NULL: nothing */
    td_setup setup;
    td_training training;
    td_evaluation evaluation;
    td_profiler *profiler;
    char *run, *checkpoints;
    char *single_name; /* the device that would hold all of it alone; NULL: not asked */
    int64_t single_bytes;
    td_distributed distributed;
    int lock; /* of the run's folder; -1: none */
    bool resumed;
    bool again; /* after a rank was lost */
    char *loss; /* then: which, as the job says it; of the last time */
    int64_t lost_ns;
} td_train_job;

/* ---- train_begin.c: before the first step ---- */

/* The plan, the session and the folder, and the state that the run begins from. */
td_status *td_train_prepare(td_train_job *j) TD_MUST_USE;
/* A resumed run that had ended already, and is to be no longer now. */
bool td_train_ended_before(const td_train_job *j);
/* Where it runs, and in which folder. */
void td_train_print_start(const td_train_job *j);

/* ---- train_end.c: after the last ---- */

/* An error when there were steps since then, and all were skipped. */
td_status *td_train_check_progress(const td_train_job *j, int64_t steps_before, int64_t updates_before) TD_MUST_USE;
/* The status of a run that a signal stopped. */
td_status *td_train_interrupted(const td_train_job *j) TD_MUST_USE;
/* Takes `status`; gives it back in the job's words, with what to try and how to go on. */
td_status *td_train_explain(const td_train_job *j, td_status *status) TD_MUST_USE;
/* Evaluates, writes summary.json, and prints it. TD_CANCELLED where a signal left the evaluation out: then there is no summary. */
td_status *td_train_report(td_train_job *j) TD_MUST_USE;
/* Of a run that had ended before: its summary stays as it is. */
td_status *td_train_repeat_report(const td_train_job *j) TD_MUST_USE;

#endif
