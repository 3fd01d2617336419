/* The communication thread's life: the only thread that calls MPI. See comm.h for what it promises and comm_engine.h for its parts. */
#include "ps/comm_engine.h"

#if TANDEM_HAVE_MPI
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ps/absent.h"

enum {
    LOOKS = 4, /* without a rest after something happened: MPI tells of what it finds at the next look */
    SHORT_REST_NS = 20000,
    LONG_REST_NS = 1000000,
    BELL_REST_NS = 20000000 /* heartbeats are due */
};

/* Between two looks. Near ranks ring when they have sent something; others, and messages that MPI carries piece by piece, are
 * looked for, less often the longer nothing happens. `heard`: the bell before the last look. */
static void rest(td_comm_engine *e, bool progressed, unsigned heard)
{
    const bool rung_for = e->all_near && e->n == TD_POSTED_LETTERS;
    e->idle = progressed ? 0 : e->idle + 1;
    if (e->idle < LOOKS) {
        (void)sched_yield();
        return;
    }
    int64_t ns = SHORT_REST_NS << ((e->idle - LOOKS) / 32 < 6 ? (e->idle - LOOKS) / 32 : 6);
    if (rung_for)
        ns = BELL_REST_NS;
    td_near_sleep(e->comm->near, heard, ns < LONG_REST_NS || rung_for ? ns : LONG_REST_NS);
    if (td_near_heard(e->comm->near) != heard)
        e->idle = 0;
}

static td_status *begin(td_comm_engine *e)
{
    int provided = 0, rank = 0, size = 1;
    td_comm *comm = e->comm;
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* short rests are short */
    /* Once a TCP connection has failed, Open MPI 4.1 looks at the others every 10 ms only; now every 0.1 ms. */
    if (comm->options.recover)
        (void)setenv("OMPI_MCA_mpi_event_tick_rate", "100", 0);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return TD_ERROR(TD_IO, "MPI does not start");
    if (provided < MPI_THREAD_FUNNELED)
        return TD_ERROR(TD_UNSUPPORTED, "this MPI knows no threads (MPI_THREAD_FUNNELED)");
    MPI_Comm_dup(MPI_COMM_WORLD, &e->world);
    MPI_Comm_set_errhandler(e->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(e->world, &rank);
    MPI_Comm_size(e->world, &size);
    comm->rank = rank;
    comm->size = size;
    if (size > TD_COMM_RANKS)
        return TD_ERROR(TD_UNSUPPORTED, "a job of %d ranks: at most %d are supported", size, TD_COMM_RANKS);
    TD_TRY(td_engine_meet(e));
    TD_TRY(td_engine_open_collective(e));
    td_engine_open_letters(e);
    e->last_turn_ns = td_clock_ns();
    td_status *status = e->status;
    e->status = NULL;
    return status;
}

static bool is_over(td_comm_engine *e)
{
    pthread_mutex_lock(&e->comm->mutex);
    if (e->status && e->comm->may_recover) { /* not any more */
        td_status_destroy(e->comm->failure);
        e->comm->failure = NULL;
        e->comm->may_recover = false;
    }
    if (e->status && !e->comm->failure) {
        td_comm_note_failure(e->comm, e->status, e->of_all);
        e->status = NULL;
    }
    bool over = (e->comm->failure && !e->comm->may_recover) || e->comm->abandon;
    pthread_mutex_unlock(&e->comm->mutex);
    return over;
}

static void finish(td_comm_engine *e)
{
    if (e->comm->lost)
        return; /* MPI would wait for them */
    td_engine_cancel(e);
    td_engine_close_collective(e);
    MPI_Comm_free(&e->world);
    e->comm->finalized = MPI_Finalize() == MPI_SUCCESS;
}

static void run(td_comm_engine *e)
{
    for (;;) {
        const unsigned heard = td_near_heard(e->comm->near);
        bool progressed = td_engine_start_submitted(e);
        progressed = td_engine_look(e) || progressed;
        td_engine_beat(e);
        if (e->comm->options.recover)
            td_engine_recover(e);
        if (is_over(e)) {
            td_engine_last_words(e);
            return;
        }
        if (td_engine_all_left(e)) {
            finish(e);
            return;
        }
        rest(e, progressed, heard);
    }
}

static void close_engine(td_comm_engine *e)
{
    td_engine_close_messages(e);
    td_engine_forget_peers(e);
    td_status_destroy(e->status);
    td_status_destroy(e->why);
    td_free(e);
}

void *td_comm_main(void *argument)
{
    td_comm *comm = argument;
    td_comm_engine *e = NULL;
    td_status *status = TD_NEW(e, 1);
    (void)pthread_setname_np(pthread_self(), TD_COMM_THREAD);
    if (!status) {
        e->comm = comm;
        e->waiting_end = &e->waiting;
        status = begin(e);
    }
    pthread_mutex_lock(&comm->mutex);
    comm->opened = !status;
    comm->stopped = status != NULL;
    comm->failure = status;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    if (!status)
        run(e);
    if (e)
        close_engine(e);
    pthread_mutex_lock(&comm->mutex);
    comm->stopped = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

#else

void *td_comm_main(void *argument)
{
    td_comm *comm = argument;
    pthread_mutex_lock(&comm->mutex);
    comm->failure = td_status_help(TD_ERROR(TD_UNSUPPORTED, "this build has no MPI, so it cannot be a rank of a job"),
                                   "install libopenmpi-dev and openmpi-bin (tools/install-packages), and build again");
    comm->stopped = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

#endif
