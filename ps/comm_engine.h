/* The communication thread's own structure: the MPI requests it has under way and what it knows of the other ranks. Nobody else
 * touches it. Three files: comm_mpi.c moves messages, comm_peers.c looks after the other ranks, comm_thread.c is the thread's life. */
#ifndef TANDEM_PS_COMM_ENGINE_H
#define TANDEM_PS_COMM_ENGINE_H

#include "ps/comm_state.h"

#if TANDEM_HAVE_MPI
#include <mpi.h>

enum {
    TD_LETTER_HEARTBEAT = 0,
    TD_LETTER_GOODBYE,      /* words[0]: 0 all is well, 1 the rank ends with the error in its bytes */
    TD_POSTED_LETTERS = 16, /* that may arrive before one is looked at */
    TD_OWN_LETTERS = 64     /* under way */
};

typedef enum td_slot_kind { TD_LETTER_IN, TD_LETTER_OUT, TD_CHUNK_IN, TD_CHUNK_OUT } td_slot_kind;

/* What an MPI request is part of. */
typedef struct td_comm_slot {
    td_slot_kind kind;
    td_letter *letter;
    td_parcel *parcel;   /* NULL: a letter of this thread's own */
    td_arrival *arrival; /* of a TD_CHUNK_IN that nobody waited for when it began */
} td_comm_slot;

typedef struct td_comm_engine {
    td_comm *comm;
    MPI_Comm world;
    MPI_Request *requests;
    td_comm_slot *slots;
    int *indices;
    MPI_Status *statuses;
    int64_t n, capacity;
    td_letter in[TD_POSTED_LETTERS], out[TD_OWN_LETTERS];
    td_letter *free_letters[TD_OWN_LETTERS];
    int32_t n_free;
    int32_t next_tag;
    td_parcel *waiting, **waiting_end; /* sends that have no letter yet */
    int64_t last_beat_ns, last_look_ns, last_turn_ns;
    int32_t idle;
    int32_t goodbyes;            /* of others, all well */
    bool said_goodbye, all_near; /* all_near: every other rank is */
    td_status *status;
} td_comm_engine;

/* ---- comm_mpi.c ---- */
/* The first error counts. Takes the status. */
void td_engine_note(td_comm_engine *e, td_status *status);
/* Ready for letters. */
void td_engine_open_letters(td_comm_engine *e);
/* A letter of this thread's own, without bytes or with a few. */
void td_engine_say(td_comm_engine *e, int32_t peer, uint32_t kind, uint64_t word, const char *text);
/* Takes what was submitted and starts as much as there are letters for; goes on with what MPI has ended. True: something happened. */
bool td_engine_start_submitted(td_comm_engine *e);
bool td_engine_look(td_comm_engine *e);
/* Frees own letters that are through, and reads nothing. */
void td_engine_flush(td_comm_engine *e);
/* What was posted and never came. */
void td_engine_cancel(td_comm_engine *e);
void td_engine_close_messages(td_comm_engine *e);

/* ---- comm_peers.c ---- */
/* Everyone tells everyone who and where it is. */
td_status *td_engine_meet(td_comm_engine *e) TD_MUST_USE;
/* Under the mutex: a letter shows that its sender lives. False: it was about the sender alone, and is no message. */
bool td_engine_hear(td_comm_engine *e, int32_t from, const td_letter *letter);
/* Heartbeats, and looking for ranks that are lost. */
void td_engine_beat(td_comm_engine *e);
/* Tells the others why this rank ends, for as long as it takes but not longer than a third of a second. */
void td_engine_last_words(td_comm_engine *e);
/* Everybody has said goodbye, and what was on its way has come. */
bool td_engine_all_left(td_comm_engine *e);
void td_engine_forget_peers(td_comm_engine *e);

#endif
#endif
