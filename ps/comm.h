/* Messages between the ranks of a distributed job, over MPI.
 *
 * One thread per rank, the communication thread, calls MPI (MPI_THREAD_FUNNELED) and nobody else does. Other threads hand it
 * parcels and sleep until they are through. It looks with MPI_Testsome and rests between looks, until a rank of its host rings,
 * or, where there are others, longer the longer nothing happens; so ranks that share cores do not take them from each other.
 * Only two-sided calls are used.
 *
 *     td_comm *comm = NULL;
 *     TD_TRY(td_comm_open(&options, &comm));                  // every rank of the job, at the same time
 *     td_parcel question = {.peer = 1, .kind = TD_REQUESTS, .number = 7, .data = keys, .bytes = n * 8};
 *     td_parcel answer = {.peer = 1, .kind = TD_REPLIES, .number = 7, .data = rows, .bytes = room};
 *     td_comm_receive(comm, &answer);                          // first, so that its bytes need no buffer in between
 *     td_comm_send(comm, &question);
 *     TD_TRY(td_comm_wait(comm, &answer));                     // answer.bytes: how many came
 *
 * A message is a letter (kind, number, four words, up to TD_COMM_INLINE bytes) and, where it is longer, its bytes in chunks of
 * TD_COMM_CHUNK, at most TD_COMM_CHUNKS of one message under way: any length, a bounded number of MPI requests. A chunk waits
 * in the sender until the receiver has room for it. Letters travel into a fixed number of posted receives, so a sender whose
 * receiver is slow waits too. Whoever asks must bound what it asks before it has the answers.
 *
 * Ranks of one host exchange long messages without copies by MPI where their bytes lie in a td_buffer (ps/near.h); what a caller
 * sees is the same. A message to this rank itself is handed over likewise, or copied.
 *
 * Every wait ends: with the message, or with the job's failure. A rank fails the job for itself, and tells the others, when
 * a peer's process on the same host has ended (seen within two TD_COMM_LOOK_NS), when a peer was not heard of for
 * options.deadline_s, when a message that somebody waits for does not come for options.patience_s although its sender lives,
 * when a rank that lives does not come to td_comm_recover for so long, or when it is told to. After a failure no MPI call is made any more; the process must leave by _exit. */
#ifndef TANDEM_PS_COMM_H
#define TANDEM_PS_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

enum {
    TD_COMM_WORDS = 5,
    TD_COMM_INLINE = 3456,
    TD_COMM_CHUNK = 1 << 22,
    TD_COMM_CHUNKS = 4,
    TD_COMM_NAME = 64,
    TD_COMM_RANKS = 32,         /* at most */
    TD_COMM_LOOK_NS = 100000000 /* how often processes of this host are looked after */
};

/* Kinds of messages: requests go to whoever serves (td_comm_next_request), replies to who waits for them by peer, kind and
 * number. */
enum { TD_REQUESTS = 16, TD_REPLIES = 32 };

typedef struct td_comm td_comm;
typedef struct td_buffer td_buffer;

typedef struct td_comm_options {
    double deadline_s, patience_s; /* 0: 60 and 600 */
    int64_t chunk_bytes;           /* 0: TD_COMM_CHUNK, at most; the same on all ranks */
    double notice_s;               /* so long a silence is worth a warning; 0: 2 */
    uint64_t fingerprint;          /* of what all ranks must agree on: another one is refused at the start */
    bool all_far;                  /* ranks of one host are as on hosts of their own: for tests */
    /* Ranks that no letter reaches or comes from, a bit each, as if for deadline_s: for tests. NULL: none. */
    const atomic_ullong *cut_off;
    bool recover;               /* a loss is no failure: see td_comm_recover; one rank that says so is enough */
    bool adds_up;               /* td_comm_add_up will be called; not with `recover` */
    int32_t apart;              /* the last ranks, which do not call it */
    int32_t adds_at_once;       /* numbers of a sum in one call of MPI's; 0: 2^28. The same on all ranks */
    atomic_bool *asked_to_stop; /* spreads: once it is set on a rank, it is on all soon. NULL: there is none */
} td_comm_options;

/* One message on its way. The first fields are the caller's; nothing may be touched between start and the end of the wait. */
typedef struct td_parcel {
    int32_t peer;
    uint32_t kind;
    uint64_t number;
    uint64_t words[TD_COMM_WORDS]; /* received ones: of the letter */
    void *data;
    int64_t bytes; /* a receive: room, then how many came */
    int64_t least; /* a receive: fewer bytes than these are a failure, that names the sender */
    /* A send: data lies in it, so a near rank reads it there; the parcel is through once it has. A receive that answers a
     * request: a near rank writes there. NULL: neither. */
    const td_buffer *buffer;
    struct td_parcel *answer; /* a request: where its answer is waited for; it may come in place */
    bool by_reference;        /* a receive: data becomes where the bytes lie, until td_comm_release */
    bool in_place;            /* a send: the receiver's buffer has the bytes already (td_request.answer) */
    bool patient;             /* waits for longer than patience_s while the other lives */
    /* the communication thread's */
    struct td_parcel *next;
    int64_t begun, ended;
    int32_t tag, under_way;
    bool is_receive, is_sum, letter_out, done;
    int32_t lending;            /* which of the sender's, while it is lent; -1: none */
    void *lent;                 /* a receive: where lent bytes lie */
    struct td_parcel *question; /* of an answer */
} td_parcel;

typedef struct td_request {
    int32_t from;
    uint32_t kind;
    uint64_t number;
    uint64_t words[TD_COMM_WORDS];
    void *data; /* the sender's own memory where lending >= 0: read it, and no more */
    int64_t bytes;
    /* NULL, or the asker's memory: an answer of at most answer_bytes may be written here (td_parcel.in_place). */
    void *answer;
    int64_t answer_bytes;
    int32_t lending;
    bool freed_by_answer; /* the asker knows by the answer that this is read */
    struct td_request *next;
} td_request;

/* Whether this process was started by mpirun (or another MPI launcher) as one of several ranks. Calls nothing of MPI. */
bool td_comm_is_wanted(void);
/* Errors: TD_UNSUPPORTED (built without MPI, or an MPI without threads), TD_INVALID_ARGUMENT (ranks that disagree), TD_IO (some rank
 * does not start within two deadlines). The process must leave by _exit then. */
td_status *td_comm_open(const td_comm_options *options, td_comm **out_comm) TD_MUST_USE;
/* Waits until every rank closes, then finalizes MPI; `error`: tells the others that this rank ends, and why, and does not
 * wait. False: MPI was not finalized, so the process must leave by _exit. *out_told: the job has failed, and a rank that speaks
 * before this one (td_comm_set_speaker, then the lowest) knows why; it may be NULL, and comm too. */
bool td_comm_close(td_comm *comm, const td_status *error, bool *out_told);
/* Who tells people about the job: rank 0 at first. */
void td_comm_set_speaker(td_comm *comm, int32_t rank);
int32_t td_comm_rank(const td_comm *comm);
int32_t td_comm_size(const td_comm *comm);
const char *td_comm_host(const td_comm *comm, int32_t rank);
/* Cores that a rank may use, as its launcher bound it. */
int32_t td_comm_cores(const td_comm *comm, int32_t rank);
/* Whether the launcher keeps it to some of its host's cores. */
bool td_comm_is_bound(const td_comm *comm, int32_t rank);
/* What messages call a rank: "worker 0". Before the first of them is waited for. */
void td_comm_name(td_comm *comm, int32_t rank, const char *name);
/* The step this rank is at, told to the others with every letter. */
void td_comm_set_step(td_comm *comm, int64_t step);
/* The latest that any rank has told. */
int64_t td_comm_latest_step(td_comm *comm);

void td_comm_send(td_comm *comm, td_parcel *parcel);
void td_comm_receive(td_comm *comm, td_parcel *parcel);
/* data: numbers (f32), to which those of every rank but the last `apart` are added, in an order that MPI chooses; the bits are the
 * same on all of them. They call it in the same order, of as many numbers. Ends as any parcel. */
void td_comm_add_up(td_comm *comm, td_parcel *parcel);
/* Gives back what a receive by reference has brought; the last use of its bytes. Fine where nothing was lent. */
void td_comm_release(td_comm *comm, td_parcel *parcel);
/* Memory for messages, which near ranks read in place: see ps/near.h. At least `bytes`; contents undefined where it grows. Nothing
 * of it may be under way. */
td_status *td_comm_buffer_room(td_comm *comm, td_buffer *buffer, int64_t bytes) TD_MUST_USE;
void td_comm_buffer_free(td_comm *comm, td_buffer *buffer);
/* Frees other memory (base/memory.h) of so many bytes that messages used. Both this and the one before keep what MPI may still touch,
 * because a loss cut its message short, until all else is gone. */
void td_comm_free(td_comm *comm, void *memory, int64_t bytes);
/* Whether a rank of the job shares memory with this one. This one does not count. */
bool td_comm_is_near(const td_comm *comm, int32_t rank);
/* Whether td_comm_wait would not wait. */
bool td_comm_is_through(td_comm *comm, const td_parcel *parcel);
/* Until the parcel is through. An error is the job's failure, a copy for each who waits. */
td_status *td_comm_wait(td_comm *comm, td_parcel *parcel) TD_MUST_USE;
/* The next request of any rank; *out NULL: the job ends. Errors: its failure. */
td_status *td_comm_next_request(td_comm *comm, td_request **out_request) TD_MUST_USE;
void td_comm_free_request(td_comm *comm, td_request *request);
/* No rank will send a request any more: whoever waits for one returns. */
void td_comm_end_requests(td_comm *comm);
/* Whether one of the ranks has options.recover: all have it then. */
bool td_comm_recovers(const td_comm *comm);
/* With options.recover: whether calls fail now because ranks are lost, and td_comm_recover is to be called. True once
 * nothing under way touches callers' memory any more. */
bool td_comm_may_recover(td_comm *comm);
/* When no other call is being made any more and none will be: waits until all ranks that are left have come here, options.patience_s at
 * most, and begins anew with them; messages of before are gone. *out_done: one of them had closed already, so there is nothing left to
 * do but closing. Errors: the job's failure, and that more ranks are out of reach, and may live, than are here. */
td_status *td_comm_recover(td_comm *comm, bool *out_done) TD_MUST_USE;
/* As all ranks that are left have agreed. */
bool td_comm_is_lost(td_comm *comm, int32_t rank);
/* NULL, or a copy of the failure. */
td_status *td_comm_failure(td_comm *comm);
/* Fails the job; takes the status. */
void td_comm_fail(td_comm *comm, td_status *status);

#endif
