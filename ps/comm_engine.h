/* The communication thread's own structure: the MPI requests it has under way and what it knows of the other ranks. Nobody else
 * touches it. comm_mpi.c sends messages, comm_receive.c takes them, comm_collective.c has MPI's own sums, comm_peers.c looks after
 * the other ranks, comm_recover.c after what is left of them, comm_thread.c is the thread's life. */
#ifndef TANDEM_PS_COMM_ENGINE_H
#define TANDEM_PS_COMM_ENGINE_H

#include "ps/comm_state.h"

#if TANDEM_HAVE_MPI
#include <mpi.h>

enum {
    TD_LETTER_HEARTBEAT = 0,
    TD_LETTER_GOODBYE, /* words[0]: td_goodbye; its bytes: the error */
    /* of recovery; words[0]: ranks that are lost, a bit each */
    TD_LETTER_LOST,         /* words[1]: those of them that cannot live; its bytes: why */
    TD_LETTER_READY,        /* words[1]: the sender's epoch */
    TD_LETTER_MEMBERS,      /* words[1]: the next epoch */
    TD_LETTER_DONE,         /* no words: the sender has done all its work, so all have */
    TD_POSTED_LETTERS = 16, /* that may arrive before one is looked at */
    TD_OWN_LETTERS = 64     /* under way */
};

typedef enum td_goodbye {
    TD_GOODBYE_WELL,
    TD_GOODBYE_ERROR, /* the rank's own */
    TD_GOODBYE_FAILED /* the job's: what others say too */
} td_goodbye;

typedef enum td_slot_kind { TD_LETTER_IN, TD_LETTER_OUT, TD_CHUNK_IN, TD_CHUNK_OUT, TD_PART_OF_SUM } td_slot_kind;

/* What an MPI request is part of. */
typedef struct td_comm_slot {
    td_slot_kind kind;
    td_letter *letter;
    td_parcel *parcel; /* NULL: a letter of this thread's own, or nobody waits any more */
    /* Of a TD_CHUNK_IN that nobody waited for when it began; alone: it goes when MPI is through with it. */
    td_arrival *arrival;
    const void *at; /* of a chunk: its bytes, which are callers' */
    int64_t bytes;
    void *copy; /* of a chunk that is sent: a copy of them instead, owned */
} td_comm_slot;

/* That a rank may go on, once these are lost. */
typedef struct td_readiness {
    uint64_t lost;
    uint32_t epoch;
    bool is;
} td_readiness;

typedef struct td_comm_engine {
    td_comm *comm;
    MPI_Comm world;
    MPI_Comm adders; /* MPI_COMM_NULL: this rank takes no part in MPI's own sums */
    MPI_Request *requests;
    td_comm_slot *slots;
    int *indices;
    MPI_Status *statuses;
    int64_t n, capacity;
    td_letter in[TD_POSTED_LETTERS], out[TD_OWN_LETTERS];
    td_letter *free_letters[TD_OWN_LETTERS];
    int32_t n_free;
    int32_t next_tag;
    td_parcel *waiting, **waiting_end;                         /* sends that have no letter yet */
    int64_t last_beat_ns, last_look_ns, last_turn_ns, woke_ns; /* woke_ns: this process had stood still */
    int32_t idle;
    bool said_goodbye, all_near; /* all_near: every other rank is */
    td_status *status;           /* ends the job */
    bool of_all;                 /* it is not this rank's own: others know it too, or should */
    /* recovery */
    uint64_t suspects, ready_told; /* ranks to be counted as lost; those lost when this one said that it is ready */
    td_status *why;
    td_readiness ready[TD_COMM_RANKS];
    uint64_t announced_lost; /* with this epoch: */
    uint32_t announced;
    int64_t ready_ns; /* since when this rank waits for the others, of these losses; 0: it does not */
    bool repeats;     /* what was said is said again, as with every heartbeat: there may have been no letter for it */
} td_comm_engine;

/* ---- comm_mpi.c ---- */
/* The first error counts. Takes the status. */
void td_engine_note(td_comm_engine *e, td_status *status);
/* An error of the job rather than of this rank. */
void td_engine_note_of_all(td_comm_engine *e, td_status *status);
bool td_engine_is_cut_off(const td_comm_engine *e, int32_t peer);
/* Ready for letters. */
void td_engine_open_letters(td_comm_engine *e);
/* A letter of this thread's own, without bytes or with a few. */
void td_engine_say(td_comm_engine *e, int32_t peer, uint32_t kind, uint64_t word0, uint64_t word1, const char *text);
/* Chunks of a message that may travel now; `arrival`: of one that nobody waits for. */
void td_engine_pump(td_comm_engine *e, td_parcel *parcel, td_arrival *arrival);
/* Ready for one letter more. */
void td_engine_post_letter(td_comm_engine *e, td_letter *letter);
/* An error of MPI's, if it is one. `peer` below 0: nobody knows whose. */
void td_engine_note_mpi(td_comm_engine *e, int code, const char *what, int32_t peer);
/* Takes what was submitted and starts as much as there are letters for. True: something happened. */
bool td_engine_start_submitted(td_comm_engine *e);
/* What was posted and never came. */
void td_engine_cancel(td_comm_engine *e);
void td_engine_close_messages(td_comm_engine *e);

/* ---- comm_receive.c ---- */
/* Goes on with what MPI has ended. True: something happened. */
bool td_engine_look(td_comm_engine *e);

/* ---- comm_collective.c ---- */
/* Every rank, once it knows the others. */
td_status *td_engine_open_collective(td_comm_engine *e) TD_MUST_USE;
void td_engine_close_collective(td_comm_engine *e);
/* The next part of a sum that is not under way yet; returns MPI's code. */
int td_engine_begin_adding(const td_comm_engine *e, td_parcel *parcel, MPI_Request *out_request);

/* ---- comm_recover.c ---- */
/* These ranks are to be counted as lost, by td_engine_recover. Takes the status. */
void td_engine_suspect(td_comm_engine *e, uint64_t ranks, td_status *why);
/* Under the mutex: a letter of a job that goes on after losses. False: it was about that, or comes from a rank that is lost. */
bool td_engine_hear_recovery(td_comm_engine *e, int32_t from, const td_letter *letter);
/* Once a turn: what a loss asks for. */
void td_engine_recover(td_comm_engine *e);

/* ---- comm_peers.c ---- */
/* Everyone tells everyone who and where it is. */
td_status *td_engine_meet(td_comm_engine *e) TD_MUST_USE;
/* Under the mutex: a letter shows that its sender lives. False: it was about the sender alone, and is no message. */
bool td_engine_hear(td_comm_engine *e, int32_t from, const td_letter *letter);
/* A rank is lost: the job's failure, or what it recovers from. */
void td_engine_lose(td_comm_engine *e, int32_t rank, const char *why);
/* Heartbeats, and looking for ranks that are lost. */
void td_engine_beat(td_comm_engine *e);
/* Tells the others why this rank ends, and waits until they say that they know, but not longer than a second. */
void td_engine_last_words(td_comm_engine *e);
/* Everybody has said goodbye, and what was on its way has come. */
bool td_engine_all_left(td_comm_engine *e);
void td_engine_forget_peers(td_comm_engine *e);

#endif
#endif
