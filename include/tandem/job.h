/* Distributed jobs: several processes under mpirun train one model. Some are workers, which run replicas of it on their share of
 * each window; some are servers, which own the rows of tables; colocated ranks are both.
 *
 *     if (td_job_is_wanted()) {
 *         TD_TRY(td_job_open(&(td_job_options){.servers = 2}, &job));    // every rank; starts MPI
 *         if (td_job_worker(job) < 0) {
 *             status = td_job_serve(job);                                 // a server: until the workers leave
 *         } else {
 *             options.remote = td_job_remote(job);                        // a worker: plan, store and session as ever
 *             options.serve_embedding = true;
 *             ...
 *         }
 *         if (!td_job_close(job, status, NULL))
 *             _exit(1);                                                   // MPI could not be finalized
 *     }
 *
 * Workers must make the same plan of the same options, and run the same steps. What one process with as many replicas would
 * compute, they compute bit for bit, whatever the number of servers. A rank that is lost ends the job for all: every call that
 * waits returns an error that names it, its host and its last step. */
#ifndef TANDEM_JOB_H
#define TANDEM_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_job td_job;

/* Of td_job_options.ahead. */
#define TD_JOB_ASYNC INT64_MAX

/* Who adds up dense gradients. */
typedef enum td_dense_sync {
    TD_DENSE_ORDERED, /* the workers, each a part of them, in the order of the replicas: bit for bit as one process */
    TD_DENSE_MPI /* MPI, in an order of its own: the same on all workers, but not as one process. Not with `recover` */
} td_dense_sync;

typedef struct td_job_options {
    int32_t servers;  /* ranks that only serve, after the workers; 0: every rank is a worker and a server */
    int32_t spares;   /* the last ranks: they do nothing until one takes the place of a rank that is lost */
    int32_t replicas; /* of a window, a multiple of the workers, who run as many of them each; 0: one each */
    /* windows that a worker may be ahead of the slowest; 0: results are exact; TD_JOB_ASYNC: any number */
    int64_t ahead;
    bool recover; /* a rank that is lost does not end the job: see td_job_go_on. One rank that says so is enough */
    td_dense_sync dense_sync;
    double deadline_s;    /* a rank that was not heard of for so long is lost; 0: 60 */
    double notice_s;      /* so long a silence is worth a warning; 0: 2 */
    double patience_s;    /* so long may a rank that lives not answer; 0: 600 */
    int64_t cache_bytes;  /* of rows that a worker keeps between pulls; 0: none. The bits are the same */
    uint64_t fingerprint; /* of what all ranks must agree on; another one is refused at the start */
} td_job_options;

/* Whether mpirun, or another launcher of MPI, started this process. */
bool td_job_is_wanted(void);
/* Every rank of the job calls it. Errors: TD_UNSUPPORTED without MPI; TD_INVALID_ARGUMENT: ranks that disagree, no rank left to
 * work, replicas that cannot be shared out evenly, or sums by MPI in a job that recovers. */
td_status *td_job_open(const td_job_options *options, td_job **out_job) TD_MUST_USE;
/* Waits for the others and finalizes MPI; with an error it tells them that and why this rank ends. False: MPI was not finalized,
 * and the process must leave by _exit. *out_told: a rank that speaks before this one (the first worker's, then the lowest) knows
 * why the job failed, so this one need not say it. Both pointers may be NULL. */
bool td_job_close(td_job *job, const td_status *error, bool *out_told);

/* ---- going on after a loss (options.recover) ----
 *
 * A rank that is lost makes all calls that wait return an error, and td_job_may_go_on is true. Whoever sees that destroys its
 * sessions and stores and calls td_job_go_on, which returns once all ranks that are left have done so. The number of workers is
 * that of before: each rank may have another role, run several workers or one for the first time, and tables are cut among other
 * servers and empty. Then every worker makes its store and session anew, loads the same checkpoint (or begins anew) and goes on: what it
 * computes does not depend on who runs which worker. */
bool td_job_may_go_on(td_job *job);
bool td_job_recovers(const td_job *job); /* options.recover */
bool td_job_is_lost(const td_job *job, int32_t rank);
/* *out_done: another rank had done all its work and left, so there is none. Errors: the job's failure. */
td_status *td_job_go_on(td_job *job, bool *out_done) TD_MUST_USE;
/* NULL, or why the job has failed: a copy. */
td_status *td_job_failure(td_job *job) TD_MUST_USE;
/* One of several workers of a rank has failed: so has the job. Nothing changes where it has failed already. */
void td_job_fail(td_job *job, const td_status *error);
/* How many workers this rank runs, each in a thread of its own with its own store and session; 0: it only serves, or is spare. */
int32_t td_job_workers_here(const td_job *job);
/* Each one's own job, which lives until the next td_job_go_on; that of the first is `job` itself. */
td_job *td_job_of_worker(td_job *job, int32_t index);

int32_t td_job_rank(const td_job *job);
int32_t td_job_ranks(const td_job *job);
int32_t td_job_workers(const td_job *job);
int32_t td_job_servers(const td_job *job);
int32_t td_job_worker(const td_job *job); /* which one this rank is; -1: it only serves */
int32_t td_job_server(const td_job *job); /* -1: it only works */
/* Replicas of a window, and which worker runs one of them. */
int32_t td_job_replicas(const td_job *job);
int32_t td_job_replica_worker(const td_job *job, int32_t replica);
/* "worker 0", "server 1", "worker and server 2", "workers 0, 2", "spare": of any rank. */
const char *td_job_role(const td_job *job, int32_t rank);
const char *td_job_host(const td_job *job, int32_t rank);
int32_t td_job_cores(const td_job *job, int32_t rank); /* that the launcher lets it use */

bool td_job_is_bound(const td_job *job, int32_t rank);
/* Its share of its host's cores: what it should compute with. At least 1. */
int32_t td_job_threads(const td_job *job, int32_t rank);

/* Bytes that a worker, and a server, of a job of so many takes at most for messages, beyond the plan's own memory and the rows of served
 * tables: ids and rows of those, gradients on their way to be summed up, parameters that workers share out. A rank that is both takes
 * both. Pieces of tables that checkpoints read and write come on top while they do. False, and zeros: the plan is of no job,
 * or of one with another number of workers. */
bool td_job_staging(const td_plan *plan, int32_t workers, int32_t servers, int64_t *out_worker_bytes,
                    int64_t *out_server_bytes);

/* For td_train_options.remote of a worker; NULL on a server. Lives as long as the job. */
const td_remote *td_job_remote(td_job *job);
/* A server's whole work: returns when all workers have left. */
td_status *td_job_serve(td_job *job) TD_MUST_USE;
/* A worker's last call before closing: it asks its servers for nothing more. */
td_status *td_job_leave(td_job *job) TD_MUST_USE;
/* The largest `mine` of all workers; no worker returns before all have called it. */
td_status *td_job_agree(td_job *job, int64_t mine, int64_t *out_largest) TD_MUST_USE;
/* Asks all workers to stop after the same step: any thread, any worker, a signal handler too. */
void td_job_ask_to_stop(td_job *job);
/* Whether a rank asked; soon after it did, on every rank. */
bool td_job_is_asked_to_stop(const td_job *job);
/* The window, counted from this job's first, of which all workers know that one of them asked to stop; 0: none has. The same on
 * every worker once that window is over. */
int64_t td_job_stops_at(const td_job *job);
/* Where the recordings of all ranks go: what td_profiler_options take. */
typedef struct td_job_recording {
    char folder[1024];
    int32_t number;
} td_job_recording;
/* The first worker's `recording` comes to all workers: each calls it. Ranks that only serve record there too, from then on, whenever
 * the first worker does. */
td_status *td_job_share_recording(td_job *job, td_job_recording *recording) TD_MUST_USE;

/* The same moment on two monotonic clocks, the first worker's and that of a rank; wrong by error_ns at most. */
typedef struct td_job_clock {
    int64_t mine_ns, theirs_ns, error_ns;
} td_job_clock;
/* Every worker calls it, while servers serve. On the first worker it fills out_clocks, one for each rank (zeros for one that is lost);
 * elsewhere that is NULL. */
td_status *td_job_read_clocks(td_job *job, td_job_clock *out_clocks) TD_MUST_USE;

/* The steps of the training before this job's first: messages about this rank tell where it is. */
void td_job_set_step(td_job *job, int64_t step);

/* What a rank holds of the tables it serves, and how many pulls and pushes it has answered. */
typedef struct td_job_served {
    int64_t tables, rows, row_bytes, overhead_bytes;
    int64_t pulls, pushes, windows;
} td_job_served;
/* On a server, after its work. */
td_job_served td_job_count_served(const td_job *job);

enum { TD_JOB_STALENESS = 66 };
/* Of all pulls for training that this job's servers have answered, how many were behind the pulling worker's own pushes by 0, 1,
 * ... windows of the slowest replica; the last counts all beyond. Any worker, before it leaves. */
td_status *td_job_staleness(td_job *job, int64_t out_pulls[TD_JOB_STALENESS]) TD_MUST_USE;

/* Rows that a worker with a cache wanted of tables where it may keep some, and how many of them it had. Of trained tables those are
 * rows to evaluate with: training changes each row that it pulls. */
typedef struct td_job_cached {
    int64_t rows, hits;
} td_job_cached;
td_job_cached td_job_count_cached(const td_job *job);

/* ---- hash tables without a job ---- */

/* Owns the hash tables (td_hash of tandem/plan.h) of a process that trains alone:
 *
 *     TD_TRY(td_own_tables_create(&own));
 *     td_hash(&options, (td_hash_options){.match = "table.*"});
 *     options.remote = td_own_tables_remote(own);
 *     ...                                                      // plan, store, session; one store at a time
 *     td_own_tables_destroy(own);                              // after the store */
typedef struct td_own_tables td_own_tables;
td_status *td_own_tables_create(td_own_tables **out_tables) TD_MUST_USE;
void td_own_tables_destroy(td_own_tables *tables); /* NULL is fine */
const td_remote *td_own_tables_remote(const td_own_tables *tables);
/* What they take now; not while a session runs. */
td_job_served td_own_tables_count(const td_own_tables *tables);

#ifdef __cplusplus
}
#endif
#endif
