/* A server's own structure, and what its parts ask of each other. */
#ifndef TANDEM_PS_SERVER_STATE_H
#define TANDEM_PS_SERVER_STATE_H

#include "base/exact.h"
#include "ps/fold.h"
#include "ps/near.h"
#include "ps/server.h"
#include "ps/shard.h"
#include "runtime/profiler.h"

enum {
    TD_SERVER_WINDOWS =
        2 /* that workers may be ahead of each other: who has pushed one waits for all before its next pull */
};

struct td_server {
    td_comm *comm;
    int32_t index, servers, workers, replicas, left;
    td_shard **shards; /* by the workers' numbers of tables */
    int64_t n_shards, shards_capacity;
    int64_t applied;                     /* windows, of all replicas */
    bool at_once;                        /* what a replica pushes is applied as it comes, by itself */
    int64_t *clocks;                     /* of each replica then, its windows */
    int64_t staleness[TD_JOB_STALENESS]; /* of pulls for training */
    uint32_t step;                       /* of the training, of the window applied last, while workers record; else 0 */
    td_request **pushes[TD_SERVER_WINDOWS]; /* of the windows applied + 1, + 2: each replica's, or NULL */
    td_request *parked;                     /* pulls that wait */
    td_fold *folds;                         /* of each part of a window */
    int64_t n_folds, folds_capacity;
    bool weighed;      /* the next window's sums are in `folds`, and it is yet to be decided what becomes of them */
    float *scaled;     /* a part's rows times the factor */
    td_exact *squares; /* of each part, as it was weighed */
    int64_t scaled_capacity, squares_capacity;
    td_buffer answer; /* of pulls and reads */
    td_job_served served;
    td_profiler *profiler; /* of a rank that only serves; NULL: nobody asked for one */
};

/* ---- server.c ---- */
/* Where an answer of so many bytes is to be written: the asker's memory where it is near, or ours. */
td_status *td_server_room_for_answer(td_server *server, const td_request *request, int64_t bytes,
                                     void *out_pointer) TD_MUST_USE;
/* Sends two words, and the bytes that were written there. */
td_status *td_server_answer(td_server *server, const td_request *request, uint64_t word0, uint64_t word1,
                            int64_t bytes) TD_MUST_USE;
td_status *td_server_shard(const td_server *server, int64_t table, td_shard **out_shard) TD_MUST_USE;

/* ---- server_rows.c ---- */
/* A question about rows as they are now (td_asks_of_rows). */
td_status *td_server_answer_of_rows(td_server *server, const td_request *request) TD_MUST_USE;
/* Answers what waits and may be answered now. */
td_status *td_server_answer_parked(td_server *server) TD_MUST_USE;

/* ---- server_windows.c ---- */
/* TD_ASK_PUSH or TD_ASK_OFFER. Takes the request. */
td_status *td_server_push(td_server *server, td_request *request) TD_MUST_USE;
/* TD_ASK_DECIDE: what becomes of the window that was offered. */
td_status *td_server_decide(td_server *server, const td_request *request) TD_MUST_USE;

#endif
