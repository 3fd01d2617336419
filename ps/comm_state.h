/* What comm.c, comm_parcels.c (callers' side) and comm_mpi.c, comm_receive.c, comm_peers.c, comm_recover.c and comm_thread.c (the communication thread) share.
 * Everything that both touch is under `mutex`. */
#ifndef TANDEM_PS_COMM_STATE_H
#define TANDEM_PS_COMM_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "ps/comm.h"
#include "ps/near.h"

/* What a message begins with; its first bytes follow where they are few. */
typedef struct td_letter {
    uint32_t kind;
    int32_t tag; /* of its chunks */
    uint64_t number;
    int64_t bytes, step;
    uint32_t epoch; /* how often the job had recovered */
    uint64_t words[TD_COMM_WORDS];
    td_near_place lent;   /* where its bytes lie; they do not travel then */
    td_near_place answer; /* where its answer may be written */
    int64_t answer_bytes; /* most */
    int32_t lending;      /* to be given back; -1: none */
    int32_t in_place;     /* its bytes were written where the receiver wants them */
    int32_t has_answer, reserved;
    char inlined[TD_COMM_INLINE];
} td_letter;

/* What ranks tell each other at the start. */
typedef struct td_hello {
    char host[TD_COMM_NAME], version[16];
    uint64_t token;              /* of its bell, in its file `bell_file`; -1: none */
    int32_t bell_file, recovers; /* recovers: options.recover */
    int64_t pid, pid_space;      /* pid_space: pids of two ranks can be compared where it and the host are equal */
    uint64_t fingerprint;
    int32_t cores, online; /* it may use, and the host has */
} td_hello;

typedef struct td_peer {
    td_hello hello;
    char name[TD_COMM_NAME];
    int64_t heard_ns, ended_ns, step; /* ended_ns: when its process was first seen to have ended; 0: it lives */
    int process;                      /* a pidfd; -1: another host's, or this process */
    bool near;                        /* of this host, and its process numbers are ours */
    bool silent, left, lost;
    bool unheard; /* since this process stood still for longer than the deadline */
    bool knows;   /* it has told that the job has failed */
} td_peer;

/* A message that nobody has asked for yet, or a request. Kept for the next one when it is done with. */
typedef struct td_arrival {
    td_request request; /* first: what callers have of it */
    td_parcel parcel;
    td_parcel *claimed;
    void *room; /* owned: bytes that were not lent lie here */
    int64_t room_bytes;
    uint32_t epoch;
    int32_t chunks; /* of a rank that was lost: so many of them MPI may still write */
    struct td_arrival *next;
} td_arrival;

typedef struct td_held {
    const char *at;
    int64_t bytes;
} td_held;

struct td_comm {
    td_comm_options options;
    td_near *near;
    td_parcel *lent[TD_LENDINGS]; /* under way, until they are given back */
    int32_t n_lent;
    int32_t rank, size;
    td_peer *peers;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a parcel is through, a request is there, the job failed, the thread stopped */
    td_parcel *submitted, **submitted_end;
    td_parcel *expected;
    td_arrival *arrived, *idle;
    td_request *requests, **requests_end;
    td_status *failure;
    bool opened, stopped, closing, abandon, requests_ended, finalized;
    char last_words[1024]; /* what this rank tells the others when the job fails */
    td_code last_code;
    bool of_all;     /* they are about the job, to be repeated as they are; else about this rank */
    bool told;       /* when it has stopped: a rank that speaks before this one knows of the failure */
    int32_t speaker; /* who speaks first; then the lowest rank */
    /* recovery */
    bool may_recover; /* the failure is a loss, and nothing else */
    bool ready;       /* the callers wait in td_comm_recover */
    bool drained;     /* nothing under way touches callers' memory */
    bool work_done;   /* a rank has closed */
    uint32_t epoch;
    uint64_t lost, agreed; /* ranks, a bit each: that this one knows to be lost; without whom the epoch began */
    uint64_t ended;        /* of those that are lost: that cannot live */
    td_held *held;         /* memory that MPI may touch still, though nobody waits any more */
    int64_t n_held, held_capacity;
    td_buffer *retired; /* freed by callers, but held */
    int64_t n_retired, retired_capacity;
    void **retired_memory;
    int64_t n_retired_memory, retired_memory_capacity;
    atomic_llong step;
};

/* ---- comm.c ---- */
/* Under the mutex: the first failure counts, and is told to the others. `of_all`: it is not this rank's own. Takes the status. */
void td_comm_note_failure(td_comm *comm, td_status *status, bool of_all);
/* Under the mutex: one slice of a wait; the condition is signalled, or a fifth of a second is over. */
void td_comm_rest(td_comm *comm);
/* Under the mutex: the failure of the job, once the communication thread has let go of every buffer. The caller's. */
td_status *td_comm_failed(td_comm *comm) TD_MUST_USE;

/* ---- comm_held.c ---- */
/* Under the mutex: callers' memory that a request which was given up still has. Out of memory: *false*, and it is to be waited for. */
bool td_comm_hold(td_comm *comm, const void *at, int64_t bytes);
/* When MPI is called no more. */
void td_comm_free_held(td_comm *comm);

/* ---- comm_match.c ---- */
/* Under the mutex: an arrival for `bytes` that are not lent; NULL: out of memory. And its end. */
td_arrival *td_comm_take_arrival(td_comm *comm, int64_t bytes);
void td_comm_free_arrival(td_comm *comm, td_arrival *arrival);
/* Under the mutex: it is in no list any more, and nobody waits for it. */
void td_comm_disown(td_comm *comm, td_arrival *arrival);
/* Under the mutex: MPI is through with a chunk of one that was disowned. */
void td_comm_end_chunk(td_comm *comm, td_arrival *arrival);
/* Under the mutex: the parcel of a wait that a letter answers, taken out of `expected`; NULL: none. */
td_parcel *td_comm_take_expected(td_comm *comm, int32_t peer, uint32_t kind, uint64_t number);
/* Under the mutex: a message that nobody waits for yet begins, and is complete. */
void td_comm_keep(td_comm *comm, td_arrival *arrival);
void td_comm_complete(td_comm *comm, td_arrival *arrival);
/* Under the mutex: bytes that came go where they were asked for; the place in the list of an arrival that answers, *place NULL where there is
 * none; and both, the arrival leaving the list. */
/* Under the mutex: whether so many bytes are what the parcel waits for; NULL, or why not. */
td_status *td_comm_check_length(const td_comm *comm, const td_parcel *parcel, int64_t bytes) TD_MUST_USE;
void td_comm_hand_over(td_comm *comm, const td_arrival *arrival, td_parcel *parcel);
td_arrival **td_comm_find_arrival(td_comm *comm, int32_t peer, uint32_t kind, uint64_t number);
void td_comm_give(td_comm *comm, td_arrival **at, td_parcel *parcel);
/* Under the mutex: drops what came before this epoch, or from ranks that are lost. */
void td_comm_forget_before(td_comm *comm);

/* ---- comm_thread.c ---- */
/* The thread's whole life. */
void *td_comm_main(void *comm);

/* ---- comm_lend.c ---- */
/* Under the mutex: the bytes of a parcel that is to be sent stay where they are if its receiver can read them there. */
void td_comm_lend(td_comm *comm, td_parcel *parcel);
/* After the wait, by who waited: the bytes to where they are wanted, if they are. */
void td_comm_take_lent(td_comm *comm, td_parcel *parcel);
/* Under the mutex, after a loss: what was lent is nobody's any more. */
void td_comm_forget_lent(td_comm *comm);
/* Under the mutex: parcels that were given back are through. */
void td_comm_collect(td_comm *comm);
/* Under the mutex: a parcel whose letter has been sent, or whose bytes have come, may be through. */
void td_comm_check(td_comm *comm, td_parcel *parcel);
/* Under the mutex: its question was read. */
void td_comm_note_answer(td_comm *comm, td_parcel *answer);

#endif
