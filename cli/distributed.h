/* A command as one rank of a job under mpirun: its role, its share of the data, and what it says.
 *
 *     TD_TRY(td_distributed_open(config, &d));       // d.job NULL: this process is alone, and all calls below do nothing
 *     if (td_distributed_serves_only(&d))
 *         status = td_job_serve(d.job);
 *     ...
 *     td_distributed_close(&d, status); */
#ifndef TANDEM_CLI_DISTRIBUTED_H
#define TANDEM_CLI_DISTRIBUTED_H

#include <stdio.h>

#include "cli/config.h"
#include "tandem/data.h"
#include "tandem/job.h"
#include "tandem/plan.h"

typedef struct td_distributed {
    td_job *job;
    bool leads; /* prints, and writes files: the first worker, or a process that is alone */
} td_distributed;

/* Also gives the ranks of a host their share of its cores, where the configuration does not say how many threads to use. */
td_status *td_distributed_open(td_config *config, td_distributed *out);
/* Leaves the job; with an error ends it for all. Who does not lead keeps an error to itself that the first worker will tell. */
void td_distributed_close(td_distributed *d, const td_status *error);
/* After work that ended with *status: whether it was a rank that is lost, and the ranks that are left begin again. Then *status is
 * none, this rank may have another role, and *out_loss says who was lost: td_free it. */
bool td_distributed_go_on(td_distributed *d, td_section root, td_status **status, char **out_loss);
/* After td_distributed_close: MPI could not be finalized, and the process must leave by _exit. */
bool td_distributed_must_leave(void);

/* Options of a worker. */
void td_distributed_options(const td_distributed *d, td_section root, td_train_options *options);
/* Options for a plan to look at, in a process that is alone: where tables are served or optimizer state is shared, that of the first of
 * train.replicas workers. `job` is filled in as theirs, and lives as long as the plan. */
td_status *td_distributed_plan_options(td_section root, td_train_options *options, td_remote *job) TD_MUST_USE;
/* Roles and hosts, and what about them will hurt. */
void td_distributed_print(const td_distributed *d, FILE *stream);
/* Nobody goes on before all workers are here. */
td_status *td_distributed_meet(const td_distributed *d) TD_MUST_USE;

/* Batches of a window, of all workers, at most, where who trains must know a whole window before it begins: in a job, and with
 * hash tables; else 1. */
int64_t td_distributed_window(const td_distributed *d, const td_train_options *options);

/* ---- a worker's share of the data ---- */

/* Whose batches of the data's order are: looks at one after another. */
typedef struct td_deal {
    const td_plan *plan;
    const td_job *job;
    int64_t step;      /* of the window of the last batch; at first, of the one before its first */
    int64_t at, epoch; /* how many batches of it there were; their epoch */
} td_deal;

/* td_loader_options.wants: whether the next batch is this worker's. */
bool td_deal_wants(void *deal, int64_t epoch, int64_t index);

/* Of each window's batches, those of the replicas that this worker runs, each saying where in the window it is; all of them where there
 * is no job. Windows end with the epoch; a replica for which one has no batch gets an empty one. */
typedef struct td_dealt_source {
    td_source inner; /* may have so many batches out as two windows have of this worker, and four */
    const td_plan *plan;
    const td_job *job; /* NULL: none */
    int64_t step;      /* of the window dealt last */
    td_deal wanted;    /* the loader's, of a job: others' batches come without data */
    td_batch ahead;    /* pulled, of the next window */
    bool has_ahead, at_end;
    td_batch *mine; /* of the window dealt last */
    int64_t capacity;
    int32_t n_mine, given;
    td_field *fields;             /* of a batch, without data */
    struct td_dealt_batch *empty; /* those that are made here */
} td_dealt_source;

td_source td_dealt_source_of(td_dealt_source *dealt);
void td_dealt_source_deinit(td_dealt_source *dealt);

#endif
