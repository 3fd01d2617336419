/* Memory of callers that MPI may still read or write, because a rank was lost in the middle of a message: a send cannot be taken back,
 * nor a receive that has begun. Nobody waits for either any more, and the rank may yet live and go on with them; so what callers free of
 * such memory stays until MPI is called no more. There are as many such pieces as chunks were under way, once per loss. */
#include "base/memory.h"
#include "ps/comm_state.h"

bool td_comm_hold(td_comm *comm, const void *at, int64_t bytes)
{
    td_status *status = td_grow(&comm->held, &comm->held_capacity, comm->n_held, sizeof *comm->held);
    const bool grown = !status;
    td_status_destroy(status);
    if (grown)
        comm->held[comm->n_held++] = (td_held){at, bytes};
    return grown;
}

static bool is_held(const td_comm *comm, const void *memory, int64_t bytes)
{
    const char *first = memory;
    for (int64_t i = 0; i < comm->n_held; i++)
        if (comm->held[i].at < first + bytes && first < comm->held[i].at + comm->held[i].bytes)
            return true;
    return false;
}

void td_comm_buffer_free(td_comm *comm, td_buffer *buffer)
{
    bool held = false;
    if (comm) {
        pthread_mutex_lock(&comm->mutex);
        held = is_held(comm, buffer->data, buffer->bytes);
        td_status *status =
            held ? td_grow(&comm->retired, &comm->retired_capacity, comm->n_retired, sizeof *comm->retired) : NULL;
        if (held && !status)
            comm->retired[comm->n_retired++] = *buffer;
        td_status_destroy(status); /* then it stays without anybody who could free it */
        pthread_mutex_unlock(&comm->mutex);
    }
    if (!held)
        td_buffer_free(comm ? comm->near : NULL, buffer);
    *buffer = (td_buffer){.memory.file = -1};
}

void td_comm_free(td_comm *comm, void *memory, int64_t bytes)
{
    bool held = false;
    if (comm && memory) {
        pthread_mutex_lock(&comm->mutex);
        held = is_held(comm, memory, bytes);
        td_status *status = held ? td_grow(&comm->retired_memory, &comm->retired_memory_capacity,
                                           comm->n_retired_memory, sizeof *comm->retired_memory)
                                 : NULL;
        if (held && !status)
            comm->retired_memory[comm->n_retired_memory++] = memory;
        td_status_destroy(status);
        pthread_mutex_unlock(&comm->mutex);
    }
    if (!held)
        td_free(memory);
}

void td_comm_free_held(td_comm *comm)
{
    for (int64_t i = 0; i < comm->n_retired; i++)
        td_buffer_free(NULL, &comm->retired[i]);
    for (int64_t i = 0; i < comm->n_retired_memory; i++)
        td_free(comm->retired_memory[i]);
    td_free(comm->retired);
    td_free(comm->retired_memory);
    td_free(comm->held);
}
