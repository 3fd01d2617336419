/* The callers' side of messages between ranks: handing parcels over, and waiting. comm_match.c has what came for whom. A rank's messages to itself go through here alone, by copy. See comm.h. */
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

/* One slice of a wait: the condition is signalled, or a fifth of a second is over. */
static void rest(td_comm *comm)
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
        rest(comm);
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

/* ---- parcels --------------------------------------------------------------------------------------------------------------- */

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

/* The failure of the job, once the communication thread has let go of every buffer. */
static td_status *failed(td_comm *comm)
{
    while (!comm->stopped && !comm->drained)
        rest(comm);
    return copy_of(comm->failure);
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
        rest(comm);
        if (!parcel->done && !comm->failure && !parcel->patient && td_clock_ns() > limit) {
            td_comm_note_failure(comm, too_late(comm, parcel), true);
        }
    }
    if (!parcel->done)
        status = failed(comm);
    pthread_mutex_unlock(&comm->mutex);
    if (!status && parcel->is_receive && parcel->lent)
        td_comm_take_lent(comm, parcel);
    return status;
}

/* ---- requests -------------------------------------------------------------------------------------------------------------- */

td_status *td_comm_next_request(td_comm *comm, td_request **out_request)
{
    td_status *status = NULL;
    *out_request = NULL;
    pthread_mutex_lock(&comm->mutex);
    while (!comm->requests && !comm->failure && !comm->requests_ended)
        rest(comm);
    if (comm->failure) {
        status = failed(comm);
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
        rest(comm);
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
        rest(comm);
    if (comm->work_done && comm->may_recover) {
        td_status_destroy(comm->failure);
        comm->failure = NULL;
        comm->may_recover = false;
    }
    *out_done = comm->work_done;
    td_status *status = comm->failure && !comm->may_recover ? failed(comm) : NULL;
    pthread_mutex_unlock(&comm->mutex);
    return status;
}
