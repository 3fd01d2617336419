/* Messages whose bytes stay where they are: near ranks, and this one itself, read them there and give them back. See near.h. */
#include <string.h>

#include "ps/comm_state.h"

/* Whether the receiver can read the bytes where they are. */
static bool may_lend(const td_comm *comm, const td_parcel *parcel)
{
    if (!parcel->buffer || parcel->in_place || parcel->bytes <= TD_COMM_INLINE || comm->n_lent == TD_LENDINGS)
        return false;
    return parcel->peer == comm->rank || (parcel->buffer->id && td_near_is(comm->near, parcel->peer));
}

void td_comm_lend(td_comm *comm, td_parcel *parcel)
{
    if (!may_lend(comm, parcel))
        return;
    parcel->lending = 0;
    while (comm->lent[parcel->lending])
        parcel->lending++;
    comm->lent[parcel->lending] = parcel;
    comm->n_lent++;
    td_near_lend(comm->near, parcel->lending);
}

static void end_lending(td_comm *comm, td_parcel *parcel)
{
    comm->lent[parcel->lending] = NULL;
    comm->n_lent--;
    parcel->lending = -1;
    td_comm_check(comm, parcel);
}

void td_comm_forget_lent(td_comm *comm)
{
    for (int32_t k = 0; k < TD_LENDINGS; k++)
        if (comm->lent[k]) {
            td_near_end_lending(comm->near, k);
            comm->lent[k] = NULL;
        }
    comm->n_lent = 0;
}

void td_comm_collect(td_comm *comm)
{
    for (int32_t k = 0; comm->n_lent && k < TD_LENDINGS; k++)
        if (comm->lent[k] && !td_near_is_lent(comm->near, k))
            end_lending(comm, comm->lent[k]);
}

void td_comm_note_answer(td_comm *comm, td_parcel *answer)
{
    td_parcel *question = answer->question;
    if (!question || question->lending < 0)
        return;
    td_near_end_lending(comm->near, question->lending);
    end_lending(comm, question);
}

void td_comm_check(td_comm *comm, td_parcel *parcel)
{
    bool sent = parcel->letter_out && parcel->lending < 0;
    if (parcel->ended != parcel->bytes || (!parcel->is_receive && !sent))
        return;
    parcel->done = true;
    pthread_cond_broadcast(&comm->changed);
}

void td_comm_release(td_comm *comm, td_parcel *parcel)
{
    if (parcel->lent && parcel->lending >= 0)
        td_near_give_back(comm->near, parcel->peer, parcel->lending);
    parcel->lent = NULL;
    parcel->lending = -1;
}

td_status *td_comm_buffer_room(td_comm *comm, td_buffer *buffer, int64_t bytes)
{
    return td_buffer_room(comm->near, buffer, bytes);
}

bool td_comm_is_near(const td_comm *comm, int32_t rank)
{
    return td_near_is(comm->near, rank);
}

void td_comm_take_lent(td_comm *comm, td_parcel *parcel)
{
    if (parcel->by_reference) {
        parcel->data = parcel->lent;
        return;
    }
    memcpy(parcel->data, parcel->lent, (size_t)parcel->bytes);
    td_comm_release(comm, parcel);
}
