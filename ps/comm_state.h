/* What comm.c (callers' side) and comm_mpi.c, comm_peers.c and comm_thread.c (the communication thread) share. Everything that both touch is under `mutex`. */
#ifndef TANDEM_PS_COMM_STATE_H
#define TANDEM_PS_COMM_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "ps/comm.h"

/* What a message begins with; its first bytes follow where they are few. */
typedef struct td_letter {
    uint32_t kind;
    int32_t tag; /* of its chunks */
    uint64_t number;
    int64_t bytes, step;
    uint64_t words[TD_COMM_WORDS];
    char inlined[TD_COMM_INLINE];
} td_letter;

/* What ranks tell each other at the start. */
typedef struct td_hello {
    char host[TD_COMM_NAME], version[16];
    int64_t pid, pid_space; /* pid_space: pids of two ranks can be compared where it and the host are equal */
    uint64_t fingerprint;
    int32_t cores, online; /* it may use, and the host has */
} td_hello;

typedef struct td_peer {
    td_hello hello;
    char name[TD_COMM_NAME];
    int64_t heard_ns, ended_ns, step; /* ended_ns: when its process was first seen to have ended; 0: it lives */
    int process;                      /* a pidfd; -1: another host's, or this process */
    bool silent, left;
} td_peer;

/* A message that nobody has asked for yet, or a request. */
typedef struct td_arrival {
    td_parcel parcel; /* its buffer is owned */
    td_parcel *claimed;
    struct td_arrival *next;
} td_arrival;

struct td_comm {
    td_comm_options options;
    int32_t rank, size;
    td_peer *peers;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a parcel is through, a request is there, the job failed, the thread stopped */
    pthread_cond_t work;    /* there is something to start */
    td_parcel *submitted, **submitted_end;
    td_parcel *expected;
    td_arrival *arrived;
    td_request *requests, **requests_end;
    td_status *failure;
    bool opened, stopped, closing, abandon, requests_ended, finalized;
    char last_words[1024]; /* why this rank abandons the job; "" : it does not */
    atomic_llong step;
};

/* Under the mutex: the parcel of a wait that a letter answers, taken out of `expected`; NULL: none. */
td_parcel *td_comm_take_expected(td_comm *comm, int32_t peer, uint32_t kind, uint64_t number);
/* Under the mutex: a message that nobody waits for yet begins, and is complete. */
void td_comm_keep(td_comm *comm, td_arrival *arrival);
void td_comm_complete(td_comm *comm, td_arrival *arrival);
/* The thread's whole life. */
void *td_comm_main(void *comm);
/* Under the mutex: the first failure counts. Takes the status. */
void td_comm_note_failure(td_comm *comm, td_status *status);
void td_comm_free_arrival(td_arrival *arrival);

#endif
