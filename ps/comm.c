/* The callers' side of messages between ranks: a job's beginning and end, its failures, requests and going on. comm_parcels.c has what is sent
 * and waited for. See comm.h. */
#include "ps/absent.h"
#include "ps/comm_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

enum { WAIT_SLICE_NS = 200000000, STARTS = 2 /* deadlines for all ranks to start */ };

bool td_comm_is_wanted(void)
{
    /* Open MPI's, PMIx', Slurm's and MPICH's launchers: more than one rank, or a rank at all under mpirun. */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return true;
    return false;
}

/* What the others are told of an error, its lines of help too. */
static void keep_words(td_comm *comm, const td_status *status)
{
    (void)strncpy(comm->last_words, td_status_message(status), sizeof comm->last_words - 1);
    comm->last_code = td_status_code(status);
}

void td_comm_rest(td_comm *comm)
{
    struct timespec until;
    int64_t at = td_clock_ns() + WAIT_SLICE_NS;
    until.tv_sec = at / 1000000000;
    until.tv_nsec = at % 1000000000;
    (void)pthread_cond_timedwait(&comm->changed, &comm->mutex, &until);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static void destroy(td_comm *comm)
{
    while (comm->requests) {
        td_arrival *arrival = (td_arrival *)comm->requests;
        comm->requests = arrival->request.next;
        td_comm_free_arrival(comm, arrival);
    }
    while (comm->arrived) {
        td_arrival *arrival = comm->arrived;
        comm->arrived = arrival->next;
        td_comm_free_arrival(comm, arrival);
    }
    while (comm->idle) {
        td_arrival *arrival = comm->idle;
        comm->idle = arrival->next;
        td_free(arrival->room);
        td_free(arrival);
    }
    td_comm_free_held(comm);
    td_status_destroy(comm->failure);
    pthread_mutex_destroy(&comm->mutex);
    pthread_cond_destroy(&comm->changed);
    td_near_destroy(comm->near);
    td_free(comm->peers);
    td_free(comm);
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static td_status *not_all_started(double seconds)
{
    char *absent = td_absent_ranks();
    td_status *status =
        TD_ERROR(TD_IO, "the ranks of this job have not all started within %.0f s (twice ps.deadline): %s", seconds,
                 absent ? absent : "one of them has ended, or its host cannot be reached");
    td_free(absent);
    return status;
}

td_status *td_comm_open(const td_comm_options *options, td_comm **out_comm)
{
    td_comm *comm = NULL;
    *out_comm = NULL;
    TD_TRY(TD_NEW(comm, 1));
    comm->options = *options;
    comm->options.deadline_s = options->deadline_s > 0 ? options->deadline_s : 60;
    comm->options.patience_s = options->patience_s > 0 ? options->patience_s : 600;
    if (options->chunk_bytes <= 0 || options->chunk_bytes > TD_COMM_CHUNK)
        comm->options.chunk_bytes = TD_COMM_CHUNK;
    comm->options.notice_s = options->notice_s > 0 ? options->notice_s : 2;
    comm->submitted_end = &comm->submitted;
    comm->requests_end = &comm->requests;
    pthread_mutex_init(&comm->mutex, NULL);
    init_condition(&comm->changed);
    td_status *status = td_near_create(!options->all_far, &comm->near);
    if (!status && td_thread_create(&comm->thread, td_comm_main, comm) != 0)
        status = TD_ERROR(TD_IO, "no thread for communication");
    if (status) {
        destroy(comm);
        return status;
    }
    pthread_mutex_lock(&comm->mutex);
    const int64_t limit = td_clock_ns() + (int64_t)(STARTS * comm->options.deadline_s * 1e9);
    while (!comm->opened && !comm->stopped && td_clock_ns() < limit)
        td_comm_rest(comm);
    const bool stuck = !comm->opened && !comm->stopped; /* MPI does not come back: its thread and what it uses stay */
    status = comm->failure;
    comm->failure = NULL;
    pthread_mutex_unlock(&comm->mutex);
    if (stuck)
        return not_all_started(STARTS * comm->options.deadline_s);
    if (status) {
        pthread_join(comm->thread, NULL);
        destroy(comm);
        return status;
    }
    *out_comm = comm;
    return NULL;
}

bool td_comm_close(td_comm *comm, const td_status *error, bool *out_told)
{
    if (out_told)
        *out_told = false;
    if (!comm)
        return true;
    pthread_mutex_lock(&comm->mutex);
    if (error && (!comm->failure || comm->may_recover)) {
        comm->abandon = true;
        keep_words(comm, error);
    }
    comm->closing = true;
    td_near_ring_own(comm->near);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread, NULL);
    bool finalized = comm->finalized;
    if (out_told)
        *out_told = comm->told;
    destroy(comm);
    return finalized;
}

int32_t td_comm_rank(const td_comm *comm)
{
    return comm->rank;
}

int32_t td_comm_size(const td_comm *comm)
{
    return comm->size;
}

const char *td_comm_host(const td_comm *comm, int32_t rank)
{
    return comm->peers[rank].hello.host;
}

int32_t td_comm_cores(const td_comm *comm, int32_t rank)
{
    return comm->peers[rank].hello.cores;
}

bool td_comm_is_bound(const td_comm *comm, int32_t rank)
{
    return comm->peers[rank].hello.cores < comm->peers[rank].hello.online;
}

void td_comm_name(td_comm *comm, int32_t rank, const char *name)
{
    pthread_mutex_lock(&comm->mutex);
    (void)strncpy(comm->peers[rank].name, name, TD_COMM_NAME - 1);
    pthread_mutex_unlock(&comm->mutex);
}

void td_comm_set_speaker(td_comm *comm, int32_t rank)
{
    pthread_mutex_lock(&comm->mutex);
    comm->speaker = rank;
    pthread_mutex_unlock(&comm->mutex);
}

void td_comm_set_step(td_comm *comm, int64_t step)
{
    atomic_store_explicit(&comm->step, step, memory_order_relaxed);
}

int64_t td_comm_latest_step(td_comm *comm)
{
    int64_t latest = 0;
    pthread_mutex_lock(&comm->mutex);
    for (int32_t r = 0; r < comm->size; r++)
        latest = comm->peers[r].step > latest ? comm->peers[r].step : latest;
    pthread_mutex_unlock(&comm->mutex);
    return latest;
}

/* ---- failure --------------------------------------------------------------------------------------------------------------- */

static td_status *copy_of(const td_status *status)
{
    return td_status_create(td_status_code(status), __FILE__, __LINE__, "%s", td_status_message(status));
}

void td_comm_note_failure(td_comm *comm, td_status *status, bool of_all)
{
    if (comm->failure) {
        td_status_destroy(status);
    } else {
        comm->failure = status;
        comm->abandon = true;
        comm->of_all = of_all;
        keep_words(comm, status);
    }
    pthread_cond_broadcast(&comm->changed);
    td_near_ring_own(comm->near);
}

td_status *td_comm_failed(td_comm *comm)
{
    while (!comm->stopped && !comm->drained)
        td_comm_rest(comm);
    return copy_of(comm->failure);
}

void td_comm_fail(td_comm *comm, td_status *status)
{
    pthread_mutex_lock(&comm->mutex);
    td_comm_note_failure(comm, status, false);
    pthread_mutex_unlock(&comm->mutex);
}

bool td_comm_is_lost(td_comm *comm, int32_t rank)
{
    pthread_mutex_lock(&comm->mutex);
    bool lost = comm->agreed >> rank & 1;
    pthread_mutex_unlock(&comm->mutex);
    return lost;
}

td_status *td_comm_failure(td_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    td_status *status = comm->failure ? copy_of(comm->failure) : NULL;
    pthread_mutex_unlock(&comm->mutex);
    return status;
}

/* ---- requests -------------------------------------------------------------------------------------------------------------- */

td_status *td_comm_next_request(td_comm *comm, td_request **out_request)
{
    td_status *status = NULL;
    *out_request = NULL;
    pthread_mutex_lock(&comm->mutex);
    while (!comm->requests && !comm->failure && !comm->requests_ended)
        td_comm_rest(comm);
    if (comm->failure) {
        status = td_comm_failed(comm);
    } else if (comm->requests) {
        *out_request = comm->requests;
        comm->requests = comm->requests->next;
        if (!comm->requests)
            comm->requests_end = &comm->requests;
        (*out_request)->next = NULL;
    }
    pthread_mutex_unlock(&comm->mutex);
    return status;
}

void td_comm_end_requests(td_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    comm->requests_ended = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
}

/* ---- going on ------------------------------------------------------------------------------------------------------------- */

bool td_comm_recovers(const td_comm *comm)
{
    return comm->options.recover;
}

bool td_comm_may_recover(td_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    while (comm->may_recover && !comm->drained && !comm->stopped)
        td_comm_rest(comm);
    bool may = comm->may_recover;
    pthread_mutex_unlock(&comm->mutex);
    return may;
}

td_status *td_comm_recover(td_comm *comm, bool *out_done)
{
    pthread_mutex_lock(&comm->mutex);
    const uint32_t epoch = comm->epoch;
    comm->ready = true;
    td_near_ring_own(comm->near);
    while (comm->epoch == epoch && !comm->work_done && (!comm->failure || comm->may_recover))
        td_comm_rest(comm);
    if (comm->work_done && comm->may_recover) {
        td_status_destroy(comm->failure);
        comm->failure = NULL;
        comm->may_recover = false;
    }
    *out_done = comm->work_done;
    td_status *status = comm->failure && !comm->may_recover ? td_comm_failed(comm) : NULL;
    pthread_mutex_unlock(&comm->mutex);
    return status;
}
