/* A job's own structure: roles, the worker's side of tables, and the server's. */
#ifndef TANDEM_PS_JOB_STATE_H
#define TANDEM_PS_JOB_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ps/members.h"
#include "ps/near.h"
#include "ps/pieces.h"
#include "ps/protocol.h"
#include "ps/server.h"
#include "runtime/remote.h"
#include "tandem/job.h"

/* The stretch of a part that a server owns. */
typedef struct td_stretch {
    int64_t first, n;
} td_stretch;

/* A message to each server; kept from one time to the next. */
typedef struct td_round {
    td_parcel *questions, *answers; /* [servers] */
    td_stretch *stretches;          /* [servers, parts] */
    int64_t most_parts;
    bool under_way; /* servers may still read the questions */
    bool spreads;   /* a pull: its answers come into memory of messages */
    int32_t ahead;  /* a pull: of so many parts that nobody has taken yet; 0: somebody has */
} td_round;

/* Memory for messages. */
typedef enum td_room {
    TD_ROOM_PULL_KEYS,
    TD_ROOM_PULL_ROWS,
    TD_ROOM_PUSH,
    TD_ROOM_ROWS_OUT, /* of reading and writing rows */
    TD_ROOM_ROWS_IN,
    TD_ROOM_COMBINE, /* what is told about gradients */
    TD_ROOM_STATE,   /* a piece of optimizer state, for a checkpoint */
    TD_ROOMS
} td_room;

typedef struct td_rank_sum td_rank_sum;
typedef struct td_row_cache td_row_cache;

struct td_job {
    td_comm *comm;
    td_job_options options;
    td_members *members; /* of the rank's first worker; the others borrow it */
    int32_t workers, servers;
    const int32_t *worker_ranks, *server_ranks; /* where they are */
    int32_t worker, server;                     /* which this rank is; -1: it is none */
    struct td_job **others;                     /* of the rank's further workers */
    int32_t n_others;
    int32_t replicas, *replica_worker; /* of a window; who runs which: replicas.c */
    td_remote remote;
    /* worker */
    td_shard_definition *tables; /* `rows` are those of all owners */
    int64_t n_tables, tables_capacity;
    int64_t pushed, asked, agreed, summed; /* windows; requests, agreements and sums so far: numbers of messages */
    int64_t first_step;                    /* of the training, before this job's first window */
    atomic_bool asked_to_stop;
    atomic_llong stops_at;
    td_row_cache *cache; /* NULL: none is wanted, or nothing was pulled yet */
    int64_t forgotten;   /* how often kept rows became worth nothing */
    td_round pulling, pushing;
    td_exact *told;      /* [servers, parts]: squares of an offer */
    float *coefficients; /* of all parts: what is decided */
    int64_t told_capacity, coefficients_capacity;
    td_parcel *agreeing;                              /* [2 workers]: of td_job_agree */
    td_parcel *combining;                             /* [workers, in and out]: of combine.c */
    int64_t *combined, combined_capacity, n_combined; /* what others told; how often so far */
    bool combines;                                    /* they may still read what this worker told */
    td_buffer rooms[TD_ROOMS];
    td_rank_sum *sums, *sum; /* windows under way; the one whose micro-batches run; NULL: none was made yet */
    int64_t n_sums;
    /* server */
    td_server *serving;
    pthread_t service; /* of a colocated server */
    bool has_service;
};

/* Numbers of messages, by which they find who waits for them: a rank may run several workers. */
static inline uint64_t td_job_number(const td_job *job, int64_t n, int32_t from, int32_t to)
{
    return ((uint64_t)n * (uint64_t)job->workers + (uint64_t)from) * (uint64_t)job->workers + (uint64_t)to;
}

static inline uint64_t td_job_next_question(td_job *job)
{
    return td_job_number(job, ++job->asked, job->worker, 0);
}

/* ---- client.c ---- */
/* A table as its owners know it, without its range. */
td_status *td_client_define(const td_remote_table *table, td_shard_definition *out) TD_MUST_USE;
void td_client_fill(td_job *job);
/* Memory of this worker that lasts until the next call for the same. */
td_status *td_client_room(td_job *job, td_room which, int64_t bytes, void *out_pointer) TD_MUST_USE;
/* Waits until no server reads this worker's memory. */
td_status *td_client_settle(td_job *job) TD_MUST_USE;
/* Frees its memory; comm: NULL once that is closed. */
void td_client_release(td_job *job, td_comm *comm);

/* A question to a server, words and bytes, and its answer; answer->bytes is the room. */
td_status *td_client_ask(td_job *job, int32_t server, td_parcel *question, td_parcel *answer) TD_MUST_USE;
int64_t td_client_row_bytes(const td_job *job, int32_t table, int32_t array);
/* Room for a message of so many parts to each server, once they have read the last ones. */
td_status *td_client_begin_round(const td_job *job, int32_t parts, td_round *round) TD_MUST_USE;
/* Cuts each part into what the servers own: stretches, as keys ascend, and a gradient's places among them (`by_place`) do too. */
void td_client_cut(const td_job *job, const td_remote_part *parts, int32_t n, bool by_place, const td_round *round);

/* Bytes of a worker's messages to all servers, each of n parts that have so many keys together, and rows of so many bytes. */
static inline int64_t td_client_pull_bytes(int32_t servers, int32_t n, int64_t keys)
{
    return servers * n * (int64_t)sizeof(td_wire_part) + keys * (int64_t)sizeof(int64_t);
}

/* Of their answers, rows of so many bytes. */
static inline int64_t td_client_rows_bytes(int32_t servers, int64_t rows)
{
    return rows + (int64_t)servers * 2 * TD_PIECES_HEAD;
}

static inline int64_t td_client_push_bytes(int32_t servers, int32_t n, int64_t keys_and_rows)
{
    enum { ALIGNED = 8 }; /* the next server's message begins at a multiple */
    return servers * (n * (int64_t)(sizeof(td_wire_part) + TD_COEFFICIENTS * sizeof(float)) + ALIGNED) + keys_and_rows;
}

static inline int64_t td_client_round_bytes(int32_t servers, int32_t n)
{
    return servers * 2 * (int64_t)sizeof(td_parcel) + ((int64_t)servers * n + 1) * (int64_t)sizeof(td_stretch);
}

/* ---- client_pull.c, client_push.c, client_rows.c: functions of td_remote ---- */
/* Rows from their owners, all of them. */
td_status *td_client_pull(void *self, const td_remote_part *parts, int32_t n, bool begin) TD_MUST_USE;
/* Begins the next pull of these keys, for training, where workers are in step. */
td_status *td_client_ask_ahead(void *self, const td_remote_part *parts, int32_t n) TD_MUST_USE;
td_status *td_client_push(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place) TD_MUST_USE;
td_status *td_client_offer(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place,
                           td_exact *const *out_squares) TD_MUST_USE;
td_status *td_client_apply(void *self, const td_remote_part *parts, int32_t n, float factor) TD_MUST_USE;
td_status *td_client_forget(void *self) TD_MUST_USE;
td_status *td_client_read(void *self, int32_t table, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                          void *out_rows, int64_t *out_n) TD_MUST_USE;
td_status *td_client_write(void *self, int32_t table, int32_t array, const int64_t *ids, int64_t n,
                           const void *rows) TD_MUST_USE;
void td_client_forget_rows(void *self);
td_status *td_client_save(void *self, const char *directory, int64_t steps, bool changes, bool track,
                          td_remote_file *out_files) TD_MUST_USE;
td_status *td_client_tracks(void *self, bool *out_all) TD_MUST_USE;
td_status *td_client_clear(void *self, int32_t table) TD_MUST_USE;
td_status *td_client_count(void *self, int32_t table, int64_t *out_rows) TD_MUST_USE;
td_status *td_client_checksum(void *self, int32_t table, uint64_t *out_sum) TD_MUST_USE;

/* ---- combine.c: functions of td_remote ---- */
td_status *td_client_combine(void *self, const td_tensor *values, td_tensor *combined, int32_t n) TD_MUST_USE;
td_status *td_client_borrow(void *self, int32_t worker, int32_t state, int64_t first, int64_t n,
                            float *out) TD_MUST_USE;
td_status *td_client_asked(void *self, int32_t *out_state, int64_t *out_first, int64_t *out_n) TD_MUST_USE;
td_status *td_client_lend(void *self, int64_t n, const float *data) TD_MUST_USE;
/* Until nobody reads what this worker told last. */
td_status *td_client_settle_combining(td_job *job) TD_MUST_USE;

/* ---- replicas.c ---- */
/* Shares the window's replicas out: as many to each worker, one worker's next to each other. */
td_status *td_job_share_replicas(td_job *job) TD_MUST_USE;
int32_t td_job_own_replicas(const td_job *job);
int32_t td_job_first_replica(const td_job *job); /* of its own */
bool td_job_runs(const td_job *job, int32_t replica);

/* ---- row_cache.c ---- */
/* The same, but for rows that are kept here. */
td_status *td_row_cache_pull(void *self, const td_remote_part *parts, int32_t n, bool begin) TD_MUST_USE;
void td_row_cache_destroy(td_row_cache *cache);
td_job_cached td_row_cache_count(const td_row_cache *cache);

/* ---- sum.c ---- */
td_status *td_client_send(void *self, const td_remote_bucket *bucket, const td_tensor *values,
                          const td_remote_place *place) TD_MUST_USE;
td_status *td_client_sum(void *self, const td_remote_bucket *bucket, const td_tensor *values, td_tensor *sums,
                         const td_remote_place *place) TD_MUST_USE;
td_status *td_client_gather(void *self, const td_remote_bucket *bucket, const td_tensor *parameters) TD_MUST_USE;
/* So many windows later than its own each worker takes a window's sums: no worker is further ahead of another. */
int64_t td_job_late_by(const td_job *job);
/* comm: NULL once that is closed. */
void td_job_release_sums(td_job *job, td_comm *comm);

#endif
