/* The communication thread's messages: letters and chunks as MPI requests, and what is sent. What comes is in comm_receive.c. See
 * comm.h for what is promised.
 *
 * It keeps one list of MPI requests with a slot each that says what the request is part of. A long message has a tag of its
 * own for its chunks, so those of several messages between the same two ranks do not mix. */
#include "ps/comm_engine.h"

#if TANDEM_HAVE_MPI
#include <string.h>

#include "base/memory.h"

enum {
    TAG_LETTER = 1,
    TAG_CHUNKS = 2, /* and so many more */
    N_CHUNK_TAGS = 16384
};

/* ---- requests -------------------------------------------------------------------------------------------------------------- */

static bool grow(td_comm_engine *e)
{
    if (e->n < e->capacity)
        return true;
    int64_t capacity = e->capacity ? 2 * e->capacity : 64;
    void *requests = td_realloc(e->requests, (size_t)capacity, sizeof *e->requests);
    e->requests = requests ? requests : e->requests;
    void *slots = td_realloc(e->slots, (size_t)capacity, sizeof *e->slots);
    e->slots = slots ? slots : e->slots;
    void *indices = td_realloc(e->indices, (size_t)capacity, sizeof *e->indices);
    e->indices = indices ? indices : e->indices;
    void *statuses = td_realloc(e->statuses, (size_t)capacity, sizeof *e->statuses);
    e->statuses = statuses ? statuses : e->statuses;
    if (!requests || !slots || !indices || !statuses)
        return false;
    e->capacity = capacity;
    return true;
}

void td_engine_note(td_comm_engine *e, td_status *status)
{
    if (e->status)
        td_status_destroy(status);
    else
        e->status = status;
}

void td_engine_note_of_all(td_comm_engine *e, td_status *status)
{
    e->of_all = e->of_all || !e->status;
    td_engine_note(e, status);
}

void td_engine_note_mpi(td_comm_engine *e, int code, const char *what, int32_t peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    if (e->comm->options.recover && peer >= 0) {
        td_engine_lose(e, peer, text);
        return;
    }
    td_engine_note(e, TD_ERROR(TD_IO, "MPI cannot %s %s (rank %d on %s): %s", what,
                               peer < 0 ? "?" : e->comm->peers[peer].name, peer,
                               peer < 0 ? "?" : e->comm->peers[peer].hello.host, text));
}

static void add(td_comm_engine *e, MPI_Request request, td_comm_slot what)
{
    e->requests[e->n] = request;
    e->slots[e->n++] = what;
}

bool td_engine_is_cut_off(const td_comm_engine *e, int32_t peer)
{
    return e->comm->options.cut_off && atomic_load(e->comm->options.cut_off) >> peer & 1;
}

void td_engine_post_letter(td_comm_engine *e, td_letter *letter)
{
    MPI_Request request;
    if (!grow(e)) {
        td_engine_note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
        return;
    }
    int code = MPI_Irecv(letter, (int)sizeof *letter, MPI_BYTE, MPI_ANY_SOURCE, TAG_LETTER, e->world, &request);
    td_engine_note_mpi(e, code, "receive from", -1);
    if (code == MPI_SUCCESS)
        add(e, request, (td_comm_slot){.kind = TD_LETTER_IN, .letter = letter});
}

static void send_letter(td_comm_engine *e, int32_t peer, td_letter *letter, td_parcel *parcel, int64_t inlined)
{
    MPI_Request request;
    letter->step = atomic_load_explicit(&e->comm->step, memory_order_relaxed);
    letter->epoch = e->comm->epoch;
    if (td_engine_is_cut_off(e, peer)) {
        e->free_letters[e->n_free++] = letter;
        return;
    }
    if (!grow(e)) {
        e->free_letters[e->n_free++] = letter;
        td_engine_note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
        return;
    }
    int code = MPI_Isend(letter, (int)(offsetof(td_letter, inlined) + (size_t)inlined), MPI_BYTE, peer, TAG_LETTER,
                         e->world, &request);
    td_engine_note_mpi(e, code, "send to", peer);
    if (code == MPI_SUCCESS)
        add(e, request, (td_comm_slot){.kind = TD_LETTER_OUT, .letter = letter, .parcel = parcel});
    else
        e->free_letters[e->n_free++] = letter; /* a job that goes on without the peer needs it */
    if (td_near_is(e->comm->near, peer))
        td_near_ring(e->comm->near, peer);
}

/* What MPI sends of a job that goes on after losses lies in memory that lasts: a td_buffer (comm_held.c), or a copy. False: out of
 * memory. */
static bool copy_chunk(const td_comm_engine *e, const td_parcel *parcel, char **data, int64_t bytes, void **out_copy)
{
    *out_copy = NULL;
    if (parcel->is_receive || parcel->buffer || !e->comm->options.recover)
        return true;
    *out_copy = td_realloc(NULL, (size_t)bytes, 1);
    if (*out_copy)
        *data = memcpy(*out_copy, *data, (size_t)bytes);
    return *out_copy != NULL;
}

/* Chunks of a message that may travel now. */
void td_engine_pump(td_comm_engine *e, td_parcel *parcel, td_arrival *arrival)
{
    while (parcel->under_way < TD_COMM_CHUNKS && parcel->begun < parcel->bytes && !e->status) {
        int64_t left = parcel->bytes - parcel->begun;
        const int64_t most = e->comm->options.chunk_bytes;
        int bytes = (int)(left < most ? left : most);
        char *data = (char *)parcel->data + parcel->begun;
        MPI_Request request;
        void *copy = NULL;
        if (!grow(e) || !copy_chunk(e, parcel, &data, bytes, &copy)) {
            td_engine_note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
            return;
        }
        bool incoming = parcel->is_receive;
        int code = incoming ? MPI_Irecv(data, bytes, MPI_BYTE, parcel->peer, parcel->tag, e->world, &request)
                            : MPI_Isend(data, bytes, MPI_BYTE, parcel->peer, parcel->tag, e->world, &request);
        td_engine_note_mpi(e, code, incoming ? "receive from" : "send to", parcel->peer);
        if (code != MPI_SUCCESS) {
            td_free(copy);
            return;
        }
        parcel->begun += bytes;
        parcel->under_way++;
        add(e, request,
            (td_comm_slot){.kind = incoming ? TD_CHUNK_IN : TD_CHUNK_OUT,
                           .parcel = parcel,
                           .arrival = arrival,
                           .at = copy ? NULL : data,
                           .bytes = bytes,
                           .copy = copy});
    }
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

/* Where a near rank finds the bytes, and where it may write its answer. */
static void say_places(const td_comm_engine *e, const td_parcel *parcel, td_letter *letter)
{
    const td_parcel *answer = parcel->answer;
    const bool writes = answer && answer->buffer && td_near_is(e->comm->near, parcel->peer);
    letter->lending = parcel->lending;
    letter->in_place = parcel->in_place;
    letter->has_answer = answer != NULL;
    letter->lent = parcel->lending >= 0 ? td_buffer_place(parcel->buffer, parcel->data) : (td_near_place){0};
    letter->answer = writes ? td_buffer_place(answer->buffer, answer->data) : (td_near_place){0};
    letter->answer_bytes = writes ? answer->bytes : 0;
}

/* A part of a sum by MPI. */
static void add_part(td_comm_engine *e, td_parcel *parcel)
{
    MPI_Request request;
    if (!grow(e)) {
        td_engine_note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
        return;
    }
    const int code = td_engine_begin_adding(e, parcel, &request);
    td_engine_note_mpi(e, code, "sum up with", parcel->peer);
    if (code == MPI_SUCCESS)
        add(e, request, (td_comm_slot){.kind = TD_PART_OF_SUM, .parcel = parcel});
    parcel->under_way += code == MPI_SUCCESS;
}

/* All parts at once: sums that are under way at the same time begin theirs in the same order on all ranks. */
static void start_sum(td_comm_engine *e, td_parcel *parcel)
{
    do
        add_part(e, parcel);
    while (parcel->begun < parcel->bytes && !e->status);
}

static void start_send(td_comm_engine *e, td_parcel *parcel)
{
    td_letter *letter = e->free_letters[--e->n_free];
    const bool stays = parcel->in_place || parcel->lending >= 0; /* its bytes do */
    const int64_t inlined = !stays && parcel->bytes <= TD_COMM_INLINE ? parcel->bytes : 0;
    say_places(e, parcel, letter);
    letter->kind = parcel->kind;
    letter->number = parcel->number;
    letter->bytes = parcel->bytes;
    letter->tag = parcel->tag = TAG_CHUNKS + e->next_tag;
    memcpy(letter->words, parcel->words, sizeof letter->words);
    if (inlined)
        memcpy(letter->inlined, parcel->data, (size_t)inlined);
    parcel->begun = parcel->ended = stays ? parcel->bytes : inlined;
    if (parcel->begun < parcel->bytes)
        e->next_tag = (e->next_tag + 1) % N_CHUNK_TAGS;
    send_letter(e, parcel->peer, letter, parcel, inlined);
    td_engine_pump(e, parcel, NULL);
}

bool td_engine_start_submitted(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    bool any = false;
    pthread_mutex_lock(&comm->mutex);
    td_comm_collect(comm);
    if (comm->submitted) {
        *e->waiting_end = comm->submitted;
        e->waiting_end = comm->submitted_end;
        comm->submitted = NULL;
        comm->submitted_end = &comm->submitted;
    }
    pthread_mutex_unlock(&comm->mutex);
    while (e->waiting && e->n_free > comm->size && !e->status) { /* the rest is for this thread's own letters */
        td_parcel *parcel = e->waiting;
        e->waiting = parcel->next;
        if (!e->waiting)
            e->waiting_end = &e->waiting;
        if (parcel->is_sum)
            start_sum(e, parcel);
        else
            start_send(e, parcel);
        any = true;
    }
    return any;
}

void td_engine_say(td_comm_engine *e, int32_t peer, uint32_t kind, uint64_t word0, uint64_t word1, const char *text)
{
    if (!e->n_free)
        return;
    td_letter *letter = e->free_letters[--e->n_free];
    int64_t bytes = text ? (int64_t)strlen(text) + 1 : 0;
    *letter = (td_letter){.kind = kind, .bytes = bytes, .words = {word0, word1}, .lending = -1};
    if (text)
        memcpy(letter->inlined, text, (size_t)bytes);
    send_letter(e, peer, letter, NULL, bytes);
}

/* ---- beginning and end ----------------------------------------------------------------------------------------------------- */

void td_engine_open_letters(td_comm_engine *e)
{
    for (int i = 0; i < TD_OWN_LETTERS; i++)
        e->free_letters[e->n_free++] = &e->out[i];
    for (int i = 0; i < TD_POSTED_LETTERS; i++)
        td_engine_post_letter(e, &e->in[i]);
}

void td_engine_cancel(td_comm_engine *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        MPI_Cancel(&e->requests[i]);
        MPI_Request_free(&e->requests[i]);
    }
}

void td_engine_close_messages(td_comm_engine *e)
{
    pthread_mutex_lock(&e->comm->mutex);
    for (int64_t i = 0; i < e->n; i++) {
        const td_comm_slot *slot = &e->slots[i];
        td_free(slot->copy);
        if (slot->arrival && !slot->parcel)
            td_comm_end_chunk(e->comm, slot->arrival);
    }
    pthread_mutex_unlock(&e->comm->mutex);
    td_free(e->requests);
    td_free(e->slots);
    td_free(e->indices);
    td_free(e->statuses);
}

#endif
