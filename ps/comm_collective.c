/* Sums over ranks by MPI itself (td_comm_add_up): what `ps.dense_sync: mpi` asks for, the communication thread's side. MPI chooses the
 * order of additions, so the bits are not those of one process; every rank has the same.
 *
 * The ranks that take part have a communicator of their own, and begin their sums in the same order. A sum that a rank is lost from
 * never ends, and MPI has no way to take it back: so a job that goes on after losses has no such sums. */
#include "ps/comm_engine.h"

#if TANDEM_HAVE_MPI

enum { MOST_AT_ONCE = 1 << 28 }; /* numbers: MPI counts with int */

td_status *td_engine_open_collective(td_comm_engine *e)
{
    const td_comm *comm = e->comm;
    e->adders = MPI_COMM_NULL;
    if (!comm->options.adds_up)
        return NULL;
    const bool takes_part = comm->rank < comm->size - comm->options.apart;
    if (MPI_Comm_split(e->world, takes_part ? 0 : MPI_UNDEFINED, comm->rank, &e->adders) != MPI_SUCCESS)
        return TD_ERROR(TD_IO, "MPI makes no group of the ranks that sum up");
    if (takes_part)
        MPI_Comm_set_errhandler(e->adders, MPI_ERRORS_RETURN);
    return NULL;
}

void td_engine_close_collective(td_comm_engine *e)
{
    if (e->adders != MPI_COMM_NULL)
        MPI_Comm_free(&e->adders);
}

int td_engine_begin_adding(const td_comm_engine *e, td_parcel *parcel, MPI_Request *out_request)
{
    const int64_t left = (parcel->bytes - parcel->begun) / (int64_t)sizeof(float);
    const int32_t most = e->comm->options.adds_at_once > 0 ? e->comm->options.adds_at_once : MOST_AT_ONCE;
    const int n = (int)(left < most ? left : most);
    char *at = (char *)parcel->data + parcel->begun;
    parcel->begun += n * (int64_t)sizeof(float);
    return MPI_Iallreduce(MPI_IN_PLACE, at, n, MPI_FLOAT, MPI_SUM, e->adders, out_request);
}

#endif
