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
    SLEPT_NS = 1000000000, /* between two turns: this process did not run */
    WORDS_NS = 1000000000, /* for telling the others why this rank ends */
    SPEECH_S = 5           /* for the one that tells the user, which may have a recording to finish first */
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
                     .recovers = comm->options.recover,
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
        comm->options.recover = comm->options.recover || all[r].recovers;
        bool near = !comm->options.all_far && strcmp(peer->hello.host, mine.host) == 0 &&
                    peer->hello.pid_space == mine.pid_space;
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

static void hear_goodbye(td_comm_engine *e, int32_t from, const td_letter *letter)
{
    td_peer *peer = &e->comm->peers[from];
    const int length = (int)letter->bytes;
    peer->left = true;
    peer->knows = letter->words[0] != TD_GOODBYE_WELL;
    if (letter->words[0] == TD_GOODBYE_WELL)
        return;
    const bool is_code = letter->words[1] > TD_OK && letter->words[1] <= TD_NOT_FINITE;
    const td_code code = is_code ? (td_code)letter->words[1] : TD_IO;
    if (letter->words[0] == TD_GOODBYE_ERROR)
        td_engine_note_of_all(e, TD_ERROR(code, "%s (rank %d on %s) has ended at step %lld: %.*s", peer->name, from,
                                          peer->hello.host, (long long)letter->step, length, letter->inlined));
    else
        td_engine_note_of_all(e, TD_ERROR(code, "%.*s", length, letter->inlined));
}

bool td_engine_hear(td_comm_engine *e, int32_t from, const td_letter *letter)
{
    td_peer *peer = &e->comm->peers[from];
    int64_t now = td_clock_ns();
    if (peer->silent)
        td_log(TD_LOG_WARNING, "%s (rank %d on %s) is back after %.1f s", peer->name, from, peer->hello.host,
               (double)(now - peer->heard_ns) / 1e9);
    peer->silent = false;
    peer->unheard = peer->unheard && now - e->woke_ns < 2 * BEAT_NS; /* what had come meanwhile says nothing */
    peer->heard_ns = now;
    peer->step = letter->step;
    if (e->comm->options.recover && !td_engine_hear_recovery(e, from, letter))
        return false;
    if (letter->kind == TD_LETTER_GOODBYE)
        hear_goodbye(e, from, letter);
    if (letter->kind == TD_LETTER_HEARTBEAT && letter->words[0] && e->comm->options.asked_to_stop)
        atomic_store(e->comm->options.asked_to_stop, true);
    return letter->kind != TD_LETTER_HEARTBEAT && letter->kind != TD_LETTER_GOODBYE;
}

void td_engine_lose(td_comm_engine *e, int32_t rank, const char *why)
{
    td_peer *peer = &e->comm->peers[rank];
    peer->lost = true;
    td_status *status = TD_ERROR(TD_IO, "%s (rank %d on %s) is lost: %s; its last step was %lld", peer->name, rank,
                                 peer->hello.host, why, (long long)peer->step);
    if (e->comm->options.recover)
        td_engine_suspect(e, UINT64_C(1) << rank, status);
    else
        td_engine_note_of_all(e, status);
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
        if (r == comm->rank || peer->left || peer->lost)
            continue;
        const double silence =
            td_engine_is_cut_off(e, r) ? comm->options.deadline_s + 1 : (double)(now - peer->heard_ns) / 1e9;
        (void)snprintf(why, sizeof why, "not heard of for %.0f s", silence);
        if (!peer->ended_ns && has_ended(peer))
            peer->ended_ns = now; /* what it sent last is still to be read */
        if (peer->ended_ns && now - peer->ended_ns > TD_COMM_LOOK_NS)
            td_engine_lose(e, r, has_ended(peer) ? "its process has ended" : "its memory cannot be read");
        else if (silence > comm->options.deadline_s && peer->unheard)
            td_engine_note(
                e, TD_ERROR(TD_IO,
                            "this rank (%d) stood still for longer than ps.deadline, %.0f s, and %s has not been "
                            "heard of since: the others went on without it",
                            comm->rank, comm->options.deadline_s, peer->name));
        else if (silence > comm->options.deadline_s)
            td_engine_lose(e, r, why);
        else if (silence > comm->options.notice_s && !peer->silent) {
            peer->silent = true;
            td_log(TD_LOG_WARNING, "%s (rank %d on %s) has been silent for %.1f s; waiting up to %.0f s", peer->name, r,
                   peer->hello.host, silence, comm->options.deadline_s);
        }
    }
}

static bool asked_to_stop(const td_comm *comm)
{
    return comm->options.asked_to_stop && atomic_load(comm->options.asked_to_stop);
}

/* This process slept: nobody else was silent. Where it slept for so long that the others may have gone on without it, they have if
 * they stay silent. */
static void note_sleep(td_comm_engine *e, int64_t slept_ns)
{
    td_comm *comm = e->comm;
    if (slept_ns < SLEPT_NS)
        return;
    e->woke_ns = td_clock_ns();
    for (int32_t r = 0; r < comm->size; r++) {
        comm->peers[r].heard_ns = td_clock_ns();
        comm->peers[r].unheard = (double)slept_ns / 1e9 > comm->options.deadline_s;
    }
}

void td_engine_beat(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    int64_t now = td_clock_ns();
    note_sleep(e, now - e->last_turn_ns);
    e->last_turn_ns = now;
    if (now - e->last_beat_ns > BEAT_NS) {
        e->last_beat_ns = now;
        e->repeats = true;
        for (int32_t r = 0; r < comm->size && !e->status; r++)
            if (r != comm->rank && !comm->peers[r].lost && !e->said_goodbye)
                td_engine_say(e, r, TD_LETTER_HEARTBEAT, asked_to_stop(comm), 0, NULL);
    }
    if (now - e->last_look_ns > TD_COMM_LOOK_NS) {
        e->last_look_ns = now;
        watch(e, now);
    }
}

/* ---- parting ---------------------------------------------------------------------------------------------------------------- */

/* Nothing more can be told to it, or need be. */
static bool is_told(const td_comm *comm, int32_t rank)
{
    const td_peer *peer = &comm->peers[rank];
    return rank == comm->rank || peer->left || peer->lost || has_ended(peer);
}

static bool all_told(const td_comm *comm)
{
    for (int32_t r = 0; r < comm->size; r++)
        if (!is_told(comm, r))
            return false;
    return true;
}

/* Who tells the user of the failure: of those that know of it the speaker, else the first. Who is lost or gone without a word does
 * not speak. */
static int32_t who_speaks(const td_comm *comm)
{
    if (comm->speaker == comm->rank || comm->peers[comm->speaker].knows)
        return comm->speaker;
    for (int32_t r = 0; r < comm->rank; r++)
        if (comm->peers[r].knows)
            return r;
    return comm->rank;
}

/* Open MPI 5's mpirun prints nothing more of any rank once another has ended with an error, and who then speaks dies of SIGPIPE:
 * who speaks goes first. */
static void let_speak(const td_peer *speaker)
{
    const int64_t end = td_clock_ns() + SPEECH_S * INT64_C(1000000000);
    while (!has_ended(speaker) && td_clock_ns() < end)
        (void)poll(NULL, 0, 1);
}

/* All ranks have the same configuration, so all find the same mistake in it. */
static bool is_of_configuration(td_code code)
{
    return code == TD_INVALID_ARGUMENT || code == TD_UNSUPPORTED || code == TD_DOES_NOT_FIT;
}

void td_engine_last_words(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    const int64_t end = td_clock_ns() + WORDS_NS;
    const td_goodbye how = comm->of_all || is_of_configuration(comm->last_code) ? TD_GOODBYE_FAILED : TD_GOODBYE_ERROR;
    td_status_destroy(e->status);
    e->status = NULL;
    for (int32_t r = 0; r < comm->size; r++)
        if (!is_told(comm, r) || (r != comm->rank && comm->peers[r].knows))
            td_engine_say(e, r, TD_LETTER_GOODBYE, how, (uint64_t)comm->last_code, comm->last_words);
    do {
        if (!td_engine_look(e))
            (void)sched_yield();
        td_status_destroy(e->status); /* others fail of the same */
        e->status = NULL;
    } while (td_clock_ns() < end && !(all_told(comm) && e->n_free == TD_OWN_LETTERS));
    const int32_t speaker = who_speaks(comm);
    comm->told = speaker != comm->rank;
    if (comm->told)
        let_speak(&comm->peers[speaker]);
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
            if (r != comm->rank && !comm->peers[r].lost)
                td_engine_say(e, r, TD_LETTER_GOODBYE, TD_GOODBYE_WELL, 0, NULL);
    e->said_goodbye = true;
    for (int32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && !comm->peers[r].lost && !comm->peers[r].left)
            return false;
    return e->n_free == TD_OWN_LETTERS || comm->lost; /* a letter to a rank that is lost may never be through */
}

void td_engine_forget_peers(td_comm_engine *e)
{
    const td_comm *comm = e->comm;
    for (int32_t r = 0; comm->peers && r < comm->size; r++)
        if (comm->peers[r].process >= 0)
            close(comm->peers[r].process);
}

#endif
