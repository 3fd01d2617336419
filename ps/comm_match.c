/* What comes and what is waited for, brought together, whichever is first; requests, which nobody in particular waits for, queue. Arrivals that
 * are done with are kept, with their room, for others. All of it under the mutex. See comm_state.h. */
#include <string.h>

#include "base/memory.h"
#include "ps/comm_state.h"

static bool answers(const td_parcel *parcel, int32_t peer, uint32_t kind, uint64_t number)
{
    return parcel->peer == peer && parcel->kind == kind && parcel->number == number;
}

td_parcel *td_comm_take_expected(td_comm *comm, int32_t peer, uint32_t kind, uint64_t number)
{
    for (td_parcel **at = &comm->expected; *at; at = &(*at)->next)
        if (answers(*at, peer, kind, number)) {
            td_parcel *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

td_status *td_comm_check_length(const td_comm *comm, const td_parcel *parcel, int64_t bytes)
{
    const td_peer *peer = &comm->peers[parcel->peer];
    if (bytes >= parcel->least && bytes <= parcel->bytes)
        return NULL;
    return TD_ERROR(TD_INTERNAL, "%s (rank %d on %s, step %lld) sends %lld bytes where %s%lld are expected", peer->name,
                    parcel->peer, peer->hello.host, (long long)peer->step, (long long)bytes,
                    parcel->least == parcel->bytes ? "" : "at most ", (long long)parcel->bytes);
}

/* Bytes that came go where they were asked for. */
void td_comm_hand_over(td_comm *comm, const td_arrival *arrival, td_parcel *parcel)
{
    td_status *status = td_comm_check_length(comm, parcel, arrival->parcel.bytes);
    if (status) {
        td_comm_note_failure(comm, status, false);
        return;
    }
    parcel->lent = arrival->parcel.lent;
    parcel->lending = arrival->parcel.lending;
    if (arrival->parcel.bytes && !parcel->lent && !arrival->parcel.in_place)
        memcpy(parcel->data, arrival->parcel.data, (size_t)arrival->parcel.bytes);
    parcel->bytes = arrival->parcel.bytes;
    memcpy(parcel->words, arrival->parcel.words, sizeof parcel->words);
    parcel->done = true;
    td_comm_note_answer(comm, parcel);
}

static void queue_request(td_comm *comm, td_arrival *arrival)
{
    const td_parcel *parcel = &arrival->parcel;
    td_request *request = &arrival->request;
    request->from = parcel->peer;
    request->kind = parcel->kind;
    request->number = parcel->number;
    request->data = parcel->lent ? parcel->lent : parcel->data;
    request->bytes = parcel->bytes;
    request->lending = parcel->lending;
    request->next = NULL;
    memcpy(request->words, parcel->words, sizeof request->words);
    *comm->requests_end = request;
    comm->requests_end = &request->next;
}

/* The place in the list of an arrival that answers; *place NULL: there is none. */
td_arrival **td_comm_find_arrival(td_comm *comm, int32_t peer, uint32_t kind, uint64_t number)
{
    td_arrival **at = &comm->arrived;
    while (*at && !answers(&(*at)->parcel, peer, kind, number))
        at = &(*at)->next;
    return at;
}

void td_comm_give(td_comm *comm, td_arrival **at, td_parcel *parcel)
{
    td_arrival *arrival = *at;
    *at = arrival->next;
    td_comm_hand_over(comm, arrival, parcel);
    td_comm_free_arrival(comm, arrival);
}

void td_comm_keep(td_comm *comm, td_arrival *arrival)
{
    if (arrival->parcel.kind < TD_REPLIES || arrival->epoch < comm->epoch)
        return;
    arrival->next = comm->arrived;
    comm->arrived = arrival;
}

void td_comm_complete(td_comm *comm, td_arrival *arrival)
{
    td_parcel *parcel = &arrival->parcel;
    parcel->done = true;
    if (arrival->epoch < comm->epoch)
        td_comm_free_arrival(comm, arrival); /* nobody's any more */
    else if (parcel->kind < TD_REPLIES)
        queue_request(comm, arrival);
    else if (arrival->claimed)
        td_comm_give(comm, td_comm_find_arrival(comm, parcel->peer, parcel->kind, parcel->number), arrival->claimed);
    pthread_cond_broadcast(&comm->changed);
}

static bool is_past(const td_comm *comm, int32_t peer, uint32_t epoch)
{
    return epoch < comm->epoch || comm->lost >> peer & 1;
}

void td_comm_forget_before(td_comm *comm)
{
    for (td_arrival **at = &comm->arrived; *at;) {
        td_arrival *arrival = *at;
        const bool past = is_past(comm, arrival->parcel.peer, arrival->epoch);
        if (past)
            *at = arrival->next;
        else
            at = &arrival->next;
        if (past && arrival->parcel.done)
            td_comm_free_arrival(comm, arrival);
        /* the others' bytes may still come: they are freed when they have */
    }
    for (td_request **at = &comm->requests; *at;) {
        td_request *request = *at;
        td_arrival *arrival = (td_arrival *)request;
        if (!is_past(comm, request->from, arrival->epoch)) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        td_comm_free_arrival(comm, arrival);
    }
    comm->requests_end = &comm->requests;
    while (*comm->requests_end)
        comm->requests_end = &(*comm->requests_end)->next;
}

/* Of those that are idle the one with the smallest room that is enough, or with the largest: so few of them are ever long. */
static td_arrival *take_idle(td_comm *comm, int64_t bytes)
{
    td_arrival **best = NULL;
    for (td_arrival **at = &comm->idle; *at; at = &(*at)->next) {
        const int64_t room = (*at)->room_bytes, so_far = best ? (*best)->room_bytes : -1;
        if (so_far < bytes ? room > so_far : room >= bytes && room < so_far)
            best = at;
    }
    td_arrival *found = best ? *best : NULL;
    if (found)
        *best = found->next;
    return found;
}

td_arrival *td_comm_take_arrival(td_comm *comm, int64_t bytes)
{
    td_arrival *arrival = take_idle(comm, bytes);
    if (!arrival)
        arrival = td_calloc(1, sizeof *arrival);
    if (arrival && bytes > arrival->room_bytes) {
        const int64_t room = bytes > TD_COMM_INLINE ? td_room_of(bytes) : TD_COMM_INLINE;
        td_free(arrival->room);
        arrival->room = td_realloc(NULL, (size_t)room, 1);
        arrival->room_bytes = arrival->room ? room : 0;
    }
    if (arrival && bytes > arrival->room_bytes) {
        td_comm_free_arrival(comm, arrival);
        return NULL;
    }
    if (arrival)
        *arrival = (td_arrival){.room = arrival->room, .room_bytes = arrival->room_bytes};
    return arrival;
}

void td_comm_free_arrival(td_comm *comm, td_arrival *arrival)
{
    arrival->next = comm->idle;
    comm->idle = arrival;
}

void td_comm_disown(td_comm *comm, td_arrival *arrival)
{
    td_arrival **at = &comm->arrived;
    while (*at && *at != arrival)
        at = &(*at)->next;
    if (*at)
        *at = arrival->next;
    arrival->claimed = NULL;
}

void td_comm_end_chunk(td_comm *comm, td_arrival *arrival)
{
    if (--arrival->chunks == 0)
        td_comm_free_arrival(comm, arrival);
}

void td_comm_free_request(td_comm *comm, td_request *request)
{
    if (!request)
        return;
    if (request->lending >= 0 && !request->freed_by_answer)
        td_near_give_back(comm->near, request->from, request->lending);
    pthread_mutex_lock(&comm->mutex);
    td_comm_free_arrival(comm, (td_arrival *)request);
    pthread_mutex_unlock(&comm->mutex);
}
