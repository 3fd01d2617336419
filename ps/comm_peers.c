/* The communication thread's eye on the other ranks: who they are, heartbeats, silence, losses, goodbyes. See comm.h for what is
 * promised. */
#include "ps/comm_engine.h"

#if TANDEM_HAVE_MPI
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

enum {
    BEAT_NS = 250000000,
    SILENCE_NS = 2000000000, /* worth a word */
    WORDS_NS = 300000000     /* for telling the others why this rank ends */
};

/* ---- meeting ---------------------------------------------------------------------------------------------------------------- */

static int64_t pid_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (int64_t)info.st_ino : -1;
}

static int32_t cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(getpid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/* Near is who can map this rank's memory and whose memory this rank can map. */
static td_status *find_near(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    uint64_t mine = 0, *all = NULL;
    TD_TRY(TD_NEW(all, comm->size));
    for (int32_t r = 0; r < comm->size && r < TD_NEAR_RANKS; r++) {
        const td_hello *hello = &comm->peers[r].hello;
        if (comm->peers[r].near && td_near_try(comm->near, r, hello->pid, hello->bell_file, hello->token))
            mine |= UINT64_C(1) << r;
    }
    const int code = MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, e->world);
    e->all_near = true;
    for (int32_t r = 0; r < comm->size; r++) {
        const bool both = r < TD_NEAR_RANKS && comm->rank < TD_NEAR_RANKS && mine >> r & 1 && all[r] >> comm->rank & 1;
        if (both)
            td_near_confirm(comm->near, r);
        e->all_near = e->all_near && (both || r == comm->rank);
    }
    td_free(all);
    return code == MPI_SUCCESS ? NULL : TD_ERROR(TD_IO, "the ranks of this job cannot reach each other");
}

td_status *td_engine_meet(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    td_hello mine = {.pid = getpid(),
                     .pid_space = pid_space(),
                     .fingerprint = comm->options.fingerprint,
                     .token = td_near_token(comm->near),
                     .bell_file = td_near_file(comm->near),
                     .cores = cores_allowed(),
                     .online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)},
             *all = NULL;
    (void)gethostname(mine.host, sizeof mine.host - 1);
    TD_TRY(TD_NEW(comm->peers, comm->size));
    TD_TRY(TD_NEW(all, comm->size));
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, e->world) != MPI_SUCCESS) {
        td_free(all);
        return TD_ERROR(TD_IO, "the ranks of this job cannot reach each other (MPI_Allgather failed)");
    }
    td_status *status = NULL;
    for (int32_t r = 0; r < comm->size; r++) {
        td_peer *peer = &comm->peers[r];
        *peer = (td_peer){.hello = all[r], .heard_ns = td_clock_ns(), .process = -1};
        (void)snprintf(peer->name, sizeof peer->name, "rank %d", r);
        bool near = strcmp(peer->hello.host, mine.host) == 0 && peer->hello.pid_space == mine.pid_space;
        peer->near = near && r != comm->rank;
        if (peer->near)
            peer->process = (int)syscall(SYS_pidfd_open, (pid_t)peer->hello.pid, 0);
        if (all[r].fingerprint != all[0].fingerprint && !status)
            status = TD_ERROR(TD_INVALID_ARGUMENT,
                              "rank %d (%s) was started with another configuration or version than rank 0 (%s)", r,
                              all[r].host, all[0].host);
    }
    td_free(all);
    return status ? status : find_near(e);
}

/* ---- whether they live ------------------------------------------------------------------------------------------------------ */

bool td_engine_hear(td_comm_engine *e, int32_t from, const td_letter *letter)
{
    td_peer *peer = &e->comm->peers[from];
    int64_t now = td_clock_ns();
    if (peer->silent)
        td_log(TD_LOG_WARNING, "%s (rank %d on %s) is back after %.1f s", peer->name, from, peer->hello.host,
               (double)(now - peer->heard_ns) / 1e9);
    peer->silent = false;
    peer->heard_ns = now;
    peer->step = letter->step;
    if (letter->kind == TD_LETTER_GOODBYE && letter->words[0] == 0) {
        peer->left = true;
        e->goodbyes++;
    } else if (letter->kind == TD_LETTER_GOODBYE) {
        peer->left = true;
        td_engine_note(e, TD_ERROR(TD_IO, "%s (rank %d on %s) has ended at step %lld: %.*s", peer->name, from,
                                   peer->hello.host, (long long)letter->step, (int)letter->bytes, letter->inlined));
    }
    return letter->kind != TD_LETTER_HEARTBEAT && letter->kind != TD_LETTER_GOODBYE;
}

static void lose(td_comm_engine *e, int32_t rank, const char *why)
{
    const td_peer *peer = &e->comm->peers[rank];
    td_engine_note(e, TD_ERROR(TD_IO, "%s (rank %d on %s) is lost: %s; its last step was %lld", peer->name, rank,
                               peer->hello.host, why, (long long)peer->step));
}

static bool has_ended(const td_peer *peer)
{
    struct pollfd poller = {.fd = peer->process, .events = POLLIN};
    return peer->process >= 0 && poll(&poller, 1, 0) > 0;
}

static void watch(td_comm_engine *e, int64_t now)
{
    td_comm *comm = e->comm;
    char why[64];
    for (int32_t r = 0; r < comm->size && !e->status; r++) {
        td_peer *peer = &comm->peers[r];
        if (r == comm->rank || peer->left)
            continue;
        double silence = (double)(now - peer->heard_ns) / 1e9;
        (void)snprintf(why, sizeof why, "not heard of for %.0f s", silence);
        if (!peer->ended_ns && has_ended(peer))
            peer->ended_ns = now; /* what it sent last is still to be read */
        if (peer->ended_ns && now - peer->ended_ns > TD_COMM_LOOK_NS)
            lose(e, r, "its process has ended");
        else if (silence > comm->options.deadline_s)
            lose(e, r, why);
        else if (silence * 1e9 > SILENCE_NS && !peer->silent) {
            peer->silent = true;
            td_log(TD_LOG_WARNING, "%s (rank %d on %s) has been silent for %.1f s; waiting up to %.0f s", peer->name, r,
                   peer->hello.host, silence, comm->options.deadline_s);
        }
    }
}

void td_engine_beat(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    int64_t now = td_clock_ns();
    if (now - e->last_turn_ns > SILENCE_NS / 2) /* this process slept: nobody else was silent */
        for (int32_t r = 0; r < comm->size; r++)
            comm->peers[r].heard_ns = now;
    e->last_turn_ns = now;
    if (now - e->last_beat_ns > BEAT_NS) {
        e->last_beat_ns = now;
        for (int32_t r = 0; r < comm->size && !e->status; r++)
            if (r != comm->rank && !e->said_goodbye)
                td_engine_say(e, r, TD_LETTER_HEARTBEAT, 0, NULL);
    }
    if (now - e->last_look_ns > TD_COMM_LOOK_NS) {
        e->last_look_ns = now;
        watch(e, now);
    }
}

/* ---- parting ---------------------------------------------------------------------------------------------------------------- */

void td_engine_last_words(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    td_status_destroy(e->status);
    e->status = NULL;
    int64_t end = td_clock_ns() + WORDS_NS;
    for (int32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && !comm->peers[r].left)
            td_engine_say(e, r, TD_LETTER_GOODBYE, 1, comm->last_words);
    while (td_clock_ns() < end && e->n_free < TD_OWN_LETTERS) {
        td_engine_flush(e);
        (void)sched_yield();
    }
}

bool td_engine_all_left(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    pthread_mutex_lock(&comm->mutex);
    bool closing = comm->closing && !comm->submitted;
    pthread_mutex_unlock(&comm->mutex);
    if (!closing || e->waiting)
        return false;
    if (!e->said_goodbye)
        for (int32_t r = 0; r < comm->size; r++)
            if (r != comm->rank)
                td_engine_say(e, r, TD_LETTER_GOODBYE, 0, NULL);
    e->said_goodbye = true;
    return e->goodbyes == comm->size - 1 && e->n == TD_POSTED_LETTERS;
}

void td_engine_forget_peers(td_comm_engine *e)
{
    const td_comm *comm = e->comm;
    for (int32_t r = 0; comm->peers && r < comm->size; r++)
        if (comm->peers[r].process >= 0)
            close(comm->peers[r].process);
}

#endif
