/* What comes to the communication thread: letters, the messages that begin with them, chunks, and MPI requests that have ended. See comm.h
 * for what is promised. */
#include "ps/comm_engine.h"

#if TANDEM_HAVE_MPI
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

/* Where a letter's bytes lie and where its answer goes, if this rank can reach them. */
static bool reach(td_comm_engine *e, int32_t peer, const td_letter *letter, void **out_lent, void **out_answer)
{
    td_near *near = e->comm->near;
    td_status *status = NULL;
    *out_lent = *out_answer = NULL;
    if (letter->lending >= 0)
        status = td_near_reach(near, peer, &letter->lent, letter->bytes, out_lent);
    if (!status && letter->answer.id && letter->epoch >= e->comm->epoch)
        status = td_near_reach(near, peer, &letter->answer, letter->answer_bytes, out_answer);
    td_peer *sender = &e->comm->peers[peer];
    if (status && !e->comm->options.recover &&
        !sender->ended_ns)                /* with recovery it may know of a loss before this rank */
        sender->ended_ns = td_clock_ns(); /* it is ending, as will be seen, unless it says why first */
    bool reached = !status;
    td_status_destroy(status);
    return reached;
}

static td_arrival *new_arrival(td_comm_engine *e, int32_t peer, const td_letter *letter)
{
    td_arrival *arrival = td_comm_take_arrival(e->comm, letter->lending >= 0 ? 0 : letter->bytes);
    if (!arrival) {
        td_engine_note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a message of %lld bytes from %s",
                                   (long long)letter->bytes, e->comm->peers[peer].name));
        return NULL;
    }
    arrival->parcel = (td_parcel){.peer = peer,
                                  .kind = letter->kind,
                                  .number = letter->number,
                                  .data = arrival->room,
                                  .tag = letter->tag,
                                  .is_receive = true};
    arrival->request.freed_by_answer = letter->has_answer;
    arrival->epoch = letter->epoch;
    return arrival;
}

/* Under the mutex: all bytes of a message are here, or where it says. */
static void complete(td_comm *comm, td_parcel *parcel, td_arrival *arrival)
{
    parcel->done = true;
    if (arrival)
        td_comm_complete(comm, arrival);
    else
        td_comm_note_answer(comm, parcel);
    pthread_cond_broadcast(&comm->changed);
}

/* Under the mutex: a message begins. Its bytes go straight to who waits for them. */
static void begin_message(td_comm_engine *e, int32_t peer, const td_letter *letter)
{
    td_comm *comm = e->comm;
    td_arrival *arrival = NULL;
    const bool current = letter->epoch == comm->epoch, stays = letter->lending >= 0 || letter->in_place;
    if (stays && (letter->epoch < comm->epoch || (current && comm->may_recover)))
        return; /* of before a loss: its sender may have the memory no more */
    void *lent = NULL, *answer = NULL;
    if (!reach(e, peer, letter, &lent, &answer))
        return;
    td_parcel *parcel =
        current && letter->kind >= TD_REPLIES ? td_comm_take_expected(comm, peer, letter->kind, letter->number) : NULL;
    const td_parcel none = {.peer = peer};
    td_status *wrong =
        parcel || letter->in_place ? td_comm_check_length(comm, parcel ? parcel : &none, letter->bytes) : NULL;
    if (wrong) {
        td_engine_note(e, wrong);
        return;
    }
    if (!parcel) {
        arrival = new_arrival(e, peer, letter);
        if (!arrival)
            return;
        parcel = &arrival->parcel;
        arrival->request.answer = answer;
        arrival->request.answer_bytes = letter->answer_bytes;
        td_comm_keep(comm, arrival);
    }
    memcpy(parcel->words, letter->words, sizeof letter->words);
    parcel->bytes = letter->bytes;
    parcel->tag = letter->tag;
    parcel->lent = lent;
    parcel->lending = letter->lending;
    if (letter->bytes > TD_COMM_INLINE && !lent && !letter->in_place) {
        td_engine_pump(e, parcel, arrival);
        return;
    }
    if (letter->bytes && !lent && !letter->in_place)
        memcpy(parcel->data, letter->inlined, (size_t)letter->bytes);
    complete(comm, parcel, arrival);
}

/* A chunk, or the letter of a message to be sent, is through. */
static void advance(td_comm_engine *e, const td_comm_slot *what, int64_t bytes)
{
    td_parcel *parcel = what->parcel;
    if (what->kind == TD_LETTER_OUT) {
        e->free_letters[e->n_free++] = what->letter;
        if (!parcel)
            return;
        parcel->letter_out = true;
    } else if (!parcel) {
        return; /* of a rank that is lost */
    } else if (what->kind == TD_PART_OF_SUM) {
        parcel->under_way--;
        parcel->ended = parcel->under_way ? parcel->ended : parcel->bytes;
    } else {
        parcel->under_way--;
        parcel->ended += bytes;
        td_engine_pump(e, parcel, what->arrival);
    }
    if (!parcel->is_receive)
        td_comm_check(e->comm, parcel);
    else if (parcel->ended == parcel->bytes)
        complete(e->comm, parcel, what->arrival);
}

/* Bytes of a chunk that is through; all that are sent are full but the last. */
static int64_t chunk_bytes(const td_comm_slot *what, const MPI_Status *status, int64_t chunk)
{
    int count = 0;
    if (what->kind == TD_LETTER_OUT || what->kind == TD_PART_OF_SUM || !what->parcel)
        return 0;
    if (what->kind == TD_CHUNK_IN) {
        MPI_Get_count(status, MPI_BYTE, &count);
        return count;
    }
    int64_t left = what->parcel->bytes - what->parcel->ended;
    return left < chunk ? left : chunk;
}

static void drop_ended(td_comm_engine *e)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < e->n; i++) {
        if (e->requests[i] == MPI_REQUEST_NULL)
            continue;
        e->requests[kept] = e->requests[i];
        e->slots[kept++] = e->slots[i];
    }
    e->n = kept;
}

/* Whether a letter of so many bytes is one: it comes from another process. */
static bool is_letter(const td_letter *letter, int64_t bytes)
{
    const int64_t head = (int64_t)offsetof(td_letter, inlined);
    if (bytes < head || letter->bytes < 0 || letter->lending < -1 || letter->lending >= TD_LENDINGS)
        return false;
    const bool inlined = letter->lending < 0 && !letter->in_place && letter->bytes <= TD_COMM_INLINE;
    return bytes == head + (inlined ? letter->bytes : 0) &&
           (letter->kind >= TD_REQUESTS || letter->bytes < TD_COMM_INLINE);
}

static void take_letter(td_comm_engine *e, int32_t peer, const td_letter *letter, const MPI_Status *status)
{
    int bytes = 0;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (td_engine_is_cut_off(e, peer))
        return;
    if (!is_letter(letter, bytes))
        td_engine_note(e, TD_ERROR(TD_INTERNAL, "%s (rank %d on %s) sends %d bytes that are no letter",
                                   e->comm->peers[peer].name, peer, e->comm->peers[peer].hello.host, bytes));
    else if (td_engine_hear(e, peer, letter))
        begin_message(e, peer, letter);
}

/* A request that is through, for better or worse. */
static void take_ended(td_comm_engine *e, const td_comm_slot *what, const MPI_Status *status, int code)
{
    const bool letter_in = what->kind == TD_LETTER_IN;
    const int32_t peer = letter_in ? status->MPI_SOURCE : what->parcel ? what->parcel->peer : -1;
    const bool failed = code == MPI_ERR_IN_STATUS && status->MPI_ERROR != MPI_SUCCESS;
    td_free(what->copy);
    if (what->arrival && !what->parcel) {
        td_comm_end_chunk(e->comm, what->arrival);
        return;
    }
    if (failed && (letter_in || what->parcel))
        td_engine_note_mpi(e, status->MPI_ERROR, "exchange messages with", peer);
    if (letter_in) {
        if (!failed)
            take_letter(e, peer, what->letter, status);
        td_engine_post_letter(e, what->letter);
    } else if (!failed) {
        advance(e, what, chunk_bytes(what, status, e->comm->options.chunk_bytes));
    } else if (what->kind == TD_LETTER_OUT) {
        e->free_letters[e->n_free++] = what->letter;
    }
}

bool td_engine_look(td_comm_engine *e)
{
    int n = 0;
    int code = MPI_Testsome((int)e->n, e->requests, &n, e->indices, e->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        td_engine_note_mpi(e, code, "go on with", -1);
    if (n == MPI_UNDEFINED || n == 0)
        return false;
    /* What follows adds requests at the end; those that ended keep their places until drop_ended. */
    pthread_mutex_lock(&e->comm->mutex);
    for (int i = 0; i < n; i++) { /* after an error too: others' last words may be among them */
        const td_comm_slot what = e->slots[e->indices[i]]; /* both lists may grow, and move */
        const MPI_Status status = e->statuses[i];
        take_ended(e, &what, &status, code);
    }
    pthread_mutex_unlock(&e->comm->mutex);
    drop_ended(e);
    return true;
}

#endif
