/* The callers' side of parcels: handing them over, and waiting. comm_match.c has what came for whom. A rank's messages to itself go through
 * here alone, by copy. See comm.h. */
#include "ps/comm_state.h"

#include <string.h>

#include "base/clock.h"

/* To this rank itself: into what waits for it, or into an arrival. */
static void send_to_self(td_comm *comm, td_parcel *parcel)
{
    const bool lent = parcel->lending >= 0;
    td_arrival as_if = {.parcel = *parcel}, *arrival = NULL;
    as_if.parcel.lent = lent ? parcel->data : NULL;
    td_parcel *waiting = NULL;
    parcel->letter_out = true;
    parcel->ended = parcel->bytes;
    if (parcel->kind >= TD_REPLIES)
        waiting = td_comm_take_expected(comm, parcel->peer, parcel->kind, parcel->number);
    if (waiting) {
        td_comm_hand_over(comm, &as_if, waiting);
    } else {
        arrival = td_comm_take_arrival(comm, lent ? 0 : parcel->bytes);
        if (!arrival) {
            td_comm_note_failure(
                comm, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a message of %lld bytes", (long long)parcel->bytes),
                false);
            return;
        }
        arrival->parcel = as_if.parcel;
        arrival->epoch = comm->epoch;
        arrival->parcel.data = arrival->room;
        if (parcel->bytes && !lent)
            memcpy(arrival->room, parcel->data, (size_t)parcel->bytes);
        arrival->request.freed_by_answer = parcel->answer != NULL;
        if (parcel->answer && parcel->answer->buffer) {
            arrival->request.answer = parcel->answer->data;
            arrival->request.answer_bytes = parcel->answer->bytes;
        }
        td_comm_keep(comm, arrival);
        td_comm_complete(comm, arrival);
    }
    td_comm_check(comm, parcel);
    pthread_cond_broadcast(&comm->changed);
}

/* Under the mutex. */
static void submit(td_comm *comm, td_parcel *parcel)
{
    td_comm_lend(comm, parcel);
    if (parcel->answer)
        parcel->answer->question = parcel;
    if (parcel->peer == comm->rank) {
        send_to_self(comm, parcel);
        return;
    }
    *comm->submitted_end = parcel;
    comm->submitted_end = &parcel->next;
    td_near_ring_own(comm->near);
}

void td_comm_send(td_comm *comm, td_parcel *parcel)
{
    parcel->next = NULL;
    parcel->begun = parcel->ended = 0;
    parcel->under_way = 0;
    parcel->is_receive = parcel->is_sum = parcel->letter_out = parcel->done = false;
    parcel->question = NULL;
    parcel->lent = NULL;
    parcel->lending = -1;
    pthread_mutex_lock(&comm->mutex);
    if (!comm->failure) /* else its wait says so */
        submit(comm, parcel);
    pthread_mutex_unlock(&comm->mutex);
}

void td_comm_add_up(td_comm *comm, td_parcel *parcel)
{
    parcel->next = NULL;
    parcel->begun = parcel->ended = 0;
    parcel->under_way = 0;
    parcel->is_receive = false;
    parcel->is_sum = true;
    parcel->letter_out = true; /* there is none */
    parcel->done = parcel->bytes == 0;
    parcel->lending = -1;
    pthread_mutex_lock(&comm->mutex);
    if (!comm->failure && !parcel->done) {
        *comm->submitted_end = parcel;
        comm->submitted_end = &parcel->next;
        td_near_ring_own(comm->near);
    }
    pthread_mutex_unlock(&comm->mutex);
}

void td_comm_receive(td_comm *comm, td_parcel *parcel)
{
    parcel->begun = parcel->ended = 0;
    parcel->under_way = 0;
    parcel->is_receive = true;
    parcel->is_sum = false;
    parcel->done = false;
    parcel->lending = -1;
    parcel->lent = NULL;
    parcel->question = NULL;
    pthread_mutex_lock(&comm->mutex);
    td_arrival **at = td_comm_find_arrival(comm, parcel->peer, parcel->kind, parcel->number);
    if (comm->failure) {
        /* its wait says so */
    } else if (!*at) {
        parcel->next = comm->expected;
        comm->expected = parcel;
        if (parcel->peer != comm->rank && !td_near_is(comm->near, parcel->peer))
            td_near_ring_own(comm->near); /* an answer is near: shorter rests */
    } else if ((*at)->parcel.done) {
        td_comm_give(comm, at, parcel);
    } else {
        (*at)->claimed = parcel;
    }
    pthread_mutex_unlock(&comm->mutex);
}

bool td_comm_is_through(td_comm *comm, const td_parcel *parcel)
{
    pthread_mutex_lock(&comm->mutex);
    const bool through = parcel->done;
    pthread_mutex_unlock(&comm->mutex);
    return through;
}

/* What was waited for longer than any rank that lives should take. */
static td_status *too_late(const td_comm *comm, const td_parcel *parcel)
{
    const td_peer *peer = &comm->peers[parcel->peer];
    if (parcel->is_sum)
        return TD_ERROR(TD_IO, "all ranks are alive, but have not summed up for %.0f s", comm->options.patience_s);
    return TD_ERROR(TD_IO, "%s (rank %d on %s, step %lld) is alive, but has not %s for %.0f s", peer->name,
                    parcel->peer, peer->hello.host, (long long)peer->step,
                    parcel->is_receive ? "answered" : "taken a message", comm->options.patience_s);
}

td_status *td_comm_wait(td_comm *comm, td_parcel *parcel)
{
    td_status *status = NULL;
    int64_t limit = td_clock_ns() + (int64_t)(comm->options.patience_s * 1e9);
    pthread_mutex_lock(&comm->mutex);
    while (!parcel->done && !comm->failure) {
        td_comm_rest(comm);
        if (!parcel->done && !comm->failure && !parcel->patient && td_clock_ns() > limit) {
            td_comm_note_failure(comm, too_late(comm, parcel), true);
        }
    }
    if (!parcel->done)
        status = td_comm_failed(comm);
    pthread_mutex_unlock(&comm->mutex);
    if (!status && parcel->is_receive && parcel->lent)
        td_comm_take_lent(comm, parcel);
    return status;
}
