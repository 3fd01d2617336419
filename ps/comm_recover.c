/* Going on without ranks that are lost, where options.recover asks for it: how those that are left agree on who they are.
 *
 * Ranks that are lost are a set that only grows. Who notices a loss, or hears of one, tells everybody; all calls of the callers
 * return the loss as their error once nothing under way touches their memory any more (messages between ranks that live are
 * carried to their end for that), and each calls td_comm_recover. It is then ready, and says so, with the set it knows, to the
 * lowest rank outside that set. Once all outside the set have told that rank the same set, it announces the next epoch, and
 * with the announcement the job goes on. A further loss, of the announcing rank too, makes the set larger and all are ready anew
 * for the next lowest rank; the epoch it announces is larger than any that one of them has seen. Letters carry the epoch: those
 * of an older one are read and dropped, those of a newer one wait.
 *
 * Who closes has done all its work, and nobody closes before all have (td_job_leave): it answers a loss with that word, and who
 * gets it has nothing left to do.
 *
 * A rank that lives, but was silent for too long, is lost like any other. On this host it is killed; elsewhere it ends by itself
 * when it hears that it was given up. Where a network is split each side finds the other lost: only the side with more of the ranks
 * that may live goes on, or of two equal ones that with the lowest of them; the other ends. Ranks that are known to have ended, which
 * somebody on their host sees, or to have been killed, count on neither side.
 *
 * A rank that lives but does not come to td_comm_recover for options.patience_s ends the job; the rank that all report to says
 * who, and should that be the one who does not come, another does a deadline later. */
#include "ps/comm_engine.h"

#if TANDEM_HAVE_MPI
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

enum { VOICES_NS = 1000000000 /* for what others know of who is lost, before this rank gives up */ };

static uint64_t bit(int32_t rank)
{
    return UINT64_C(1) << rank;
}

static int32_t lowest_alive(const td_comm *comm)
{
    int32_t rank = 0;
    while (comm->lost & bit(rank))
        rank++;
    return rank;
}

static void say_all(td_comm_engine *e, uint32_t kind, const uint64_t words[2], const char *text)
{
    const td_comm *comm = e->comm;
    for (int32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && !(comm->lost & bit(r)))
            td_engine_say(e, r, kind, words[0], words[1], text);
}

/* ---- a loss -------------------------------------------------------------------------------------------------------------------- */

void td_engine_suspect(td_comm_engine *e, uint64_t ranks, td_status *why)
{
    e->suspects |= ranks;
    if (e->why)
        td_status_destroy(why);
    else
        e->why = why;
}

/* Nobody waits for messages of before any more. */
static void forget_expected(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    comm->expected = NULL;
    for (td_arrival *arrival = comm->arrived; arrival; arrival = arrival->next)
        arrival->claimed = NULL;
    td_comm_forget_lent(comm);
    e->waiting = NULL;
    e->waiting_end = &e->waiting;
    comm->submitted = NULL;
    comm->submitted_end = &comm->submitted;
}

static void end_processes(td_comm *comm, uint64_t ranks)
{
    for (int32_t r = 0; r < comm->size; r++)
        if (ranks & bit(r) && comm->peers[r].process >= 0) {
            (void)syscall(SYS_pidfd_send_signal, comm->peers[r].process, SIGKILL, NULL, 0);
            comm->ended |= bit(r);
        }
}

static void note_loss(td_comm_engine *e, uint64_t new)
{
    td_comm *comm = e->comm;
    td_status *why = e->why;
    e->why = NULL;
    comm->lost |= new;
    for (int32_t r = 0; r < comm->size; r++)
        comm->peers[r].lost = comm->lost & bit(r);
    if (comm->lost & bit(comm->rank)) {
        td_status_destroy(why);
        td_engine_note(e, TD_ERROR(TD_IO,
                                   "this rank (%d) was not heard of for longer than ps.deadline, %.0f s, and the "
                                   "others went on without it",
                                   comm->rank, comm->options.deadline_s));
        return;
    }
    e->ready_ns = 0;
    end_processes(comm, new);
    say_all(e, TD_LETTER_LOST, (const uint64_t[2]){comm->lost, comm->ended}, td_status_message(why));
    if (comm->closing) {
        say_all(e, TD_LETTER_DONE, (const uint64_t[2]){0, 0}, NULL);
        td_status_destroy(why);
        return;
    }
    if (comm->failure) {
        td_status_destroy(why);
    } else {
        comm->failure = why;
        comm->may_recover = true;
        comm->drained = false;
    }
    forget_expected(e);
    pthread_cond_broadcast(&comm->changed);
}

/* A message from a rank that is lost, which nobody had asked for, will not be whole: its room is another's once MPI is through with the
 * chunks that it still may write there. */
static void abandon(td_comm_engine *e, td_comm_slot *slot)
{
    td_comm_disown(e->comm, slot->arrival);
    slot->arrival->chunks++;
    slot->parcel = NULL;
}

/* Lets go of what is under way and belongs to callers, as far as MPI is through with it. True: all of it. */
static bool drain(td_comm_engine *e)
{
    bool all = true;
    for (int64_t i = 0; i < e->n; i++) {
        td_comm_slot *slot = &e->slots[i];
        if (!slot->parcel)
            continue;
        bool lost = e->comm->lost & bit(slot->parcel->peer);
        if (lost && slot->kind == TD_CHUNK_IN)
            MPI_Cancel(&e->requests[i]);
        if (lost && slot->arrival) {
            abandon(e, slot);
            continue;
        }
        if (lost && slot->at) /* MPI may have it still */
            lost = td_comm_hold(e->comm, slot->at, slot->bytes);
        if (lost || slot->kind == TD_LETTER_OUT) /* a letter is a copy */
            slot->parcel = NULL;
        all = all && (!slot->parcel || slot->arrival);
    }
    return all;
}

/* ---- agreement ----------------------------------------------------------------------------------------------------------------- */

bool td_engine_hear_recovery(td_comm_engine *e, int32_t from, const td_letter *letter)
{
    td_comm *comm = e->comm;
    if (comm->lost & bit(from)) {
        if (letter->kind == TD_LETTER_HEARTBEAT) /* it lives, and does not know */
            td_engine_say(e, from, TD_LETTER_LOST, comm->lost, comm->ended, NULL);
        return false;
    }
    if (comm->closing && (letter->kind == TD_LETTER_LOST || letter->kind == TD_LETTER_READY))
        td_engine_say(e, from, TD_LETTER_DONE, 0, 0, NULL);
    switch (letter->kind) {
    case TD_LETTER_LOST:
        comm->ended |= letter->words[1] & letter->words[0];
        td_engine_suspect(e, letter->words[0] & ~comm->lost,
                          TD_ERROR(TD_IO, "%.*s", (int)letter->bytes, letter->inlined));
        return false;
    case TD_LETTER_READY:
        if (letter->words[0] == comm->lost && letter->words[1] < comm->epoch) /* the announcement did not reach it */
            td_engine_say(e, from, TD_LETTER_MEMBERS, comm->lost, comm->epoch, NULL);
        e->ready[from] = (td_readiness){letter->words[0], (uint32_t)letter->words[1], true};
        if (letter->words[0] & ~comm->lost)
            td_engine_suspect(e, letter->words[0] & ~comm->lost, TD_ERROR(TD_IO, "ranks are lost"));
        return false;
    case TD_LETTER_MEMBERS:
        e->announced = (uint32_t)letter->words[1];
        e->announced_lost = letter->words[0];
        return false;
    case TD_LETTER_DONE:
        comm->work_done = true;
        pthread_cond_broadcast(&comm->changed);
        return false;
    default:
        return true;
    }
}

static void say_ready(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    const int32_t to = lowest_alive(comm);
    if (e->ready_told == comm->lost)
        return; /* the set says to whom, too */
    e->ready_told = comm->lost;
    if (to == comm->rank)
        e->ready[to] = (td_readiness){comm->lost, comm->epoch, true};
    else
        td_engine_say(e, to, TD_LETTER_READY, comm->lost, comm->epoch, NULL);
}

/* The epoch to announce, 0: not all are ready. */
static uint32_t next_epoch(const td_comm_engine *e)
{
    const td_comm *comm = e->comm;
    uint32_t latest = 0;
    if (lowest_alive(comm) != comm->rank)
        return 0;
    for (int32_t r = 0; r < comm->size; r++) {
        const td_readiness *ready = &e->ready[r];
        if (comm->lost & bit(r))
            continue;
        if (!ready->is || ready->lost != comm->lost)
            return 0;
        latest = ready->epoch > latest ? ready->epoch : latest;
    }
    return latest + 1;
}

static int count(uint64_t ranks)
{
    return __builtin_popcountll(ranks);
}

/* Whether this side of the job may go on; *out_elsewhere: ranks that may live on another. */
static bool may_go_on(const td_comm *comm, uint64_t *out_here, uint64_t *out_elsewhere)
{
    const uint64_t all = (comm->size < 64 ? bit(comm->size) : 0) - 1, members = all & ~comm->agreed;
    const uint64_t here = members & ~comm->lost, elsewhere = members & comm->lost & ~comm->ended;
    *out_here = here;
    *out_elsewhere = elsewhere;
    if (count(here) != count(elsewhere))
        return count(here) > count(elsewhere);
    return (here & -here) < (elsewhere & -elsewhere);
}

/* Ends the job here: the other side may go on. */
static void give_up(td_comm_engine *e, uint64_t here, uint64_t elsewhere)
{
    const td_comm *comm = e->comm;
    const int32_t first = __builtin_ctzll(elsewhere);
    td_engine_note_of_all(
        e, TD_ERROR(TD_IO,
                    "%d of %d ranks are here, and %d, from %s (rank %d on %s) on, are out of reach and may go on by "
                    "themselves, as over a network that is split: so this side ends; --resume goes on from the last "
                    "checkpoint",
                    count(here), count(here) + count(elsewhere), count(elsewhere), comm->peers[first].name, first,
                    comm->peers[first].hello.host));
}

/* ---- ranks that live and do not come --------------------------------------------------------------------------------------------- */

static void too_late(td_comm_engine *e, int32_t rank)
{
    const td_comm *comm = e->comm;
    const td_peer *peer = &comm->peers[rank];
    td_engine_note_of_all(e, TD_ERROR(TD_IO,
                                      "%s (rank %d on %s, step %lld) is alive, but has not come for %.0f s to go on "
                                      "without the ranks that are lost",
                                      peer->name, rank, peer->hello.host, (long long)peer->step,
                                      comm->options.patience_s));
}

/* This rank is ready for `waited` ns. */
static void watch_others(td_comm_engine *e, int64_t waited)
{
    const td_comm *comm = e->comm;
    const double seconds = (double)waited / 1e9;
    const int32_t lowest = lowest_alive(comm);
    if (seconds <= comm->options.patience_s)
        return;
    for (int32_t r = 0; lowest == comm->rank && r < comm->size; r++)
        if (!(comm->lost & bit(r)) && !(e->ready[r].is && e->ready[r].lost == comm->lost)) {
            too_late(e, r);
            return;
        }
    if (lowest != comm->rank && seconds > comm->options.patience_s + comm->options.deadline_s)
        too_late(e, lowest);
}

/* ---- the next epoch ---------------------------------------------------------------------------------------------------------------- */

static void adopt(td_comm_engine *e, uint32_t epoch)
{
    td_comm *comm = e->comm;
    const uint64_t gone = comm->lost & ~comm->agreed;
    comm->epoch = epoch;
    comm->agreed = comm->lost;
    e->announced = 0;
    td_comm_forget_before(comm);
    for (int32_t r = 0; r < comm->size; r++)
        if (gone & bit(r))
            td_near_forget(comm->near, r); /* all callers are in td_comm_recover: nobody reads there */
    td_status_destroy(comm->failure);
    comm->failure = NULL;
    comm->may_recover = comm->ready = comm->drained = comm->requests_ended = false;
    e->ready_ns = 0;
    pthread_cond_broadcast(&comm->changed);
}

/* Ready: says so, and goes on once all are, or ends. */
static void meet(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    uint64_t here, elsewhere;
    const int64_t now = td_clock_ns();
    e->ready_ns = e->ready_ns ? e->ready_ns : now;
    say_ready(e);
    const bool may = may_go_on(comm, &here, &elsewhere);
    const uint32_t epoch = may ? next_epoch(e) : 0;
    if (epoch)
        say_all(e, TD_LETTER_MEMBERS, (const uint64_t[2]){comm->lost, epoch}, NULL);
    if (epoch || (e->announced > comm->epoch && e->announced_lost == comm->lost))
        adopt(e, epoch ? epoch : e->announced);
    else if (!may && now - e->ready_ns > VOICES_NS)
        give_up(e, here, elsewhere);
    else
        watch_others(e, now - e->ready_ns);
}

void td_engine_recover(td_comm_engine *e)
{
    td_comm *comm = e->comm;
    pthread_mutex_lock(&comm->mutex);
    if (comm->may_recover && e->repeats) {
        e->ready_told = 0;
        say_all(e, TD_LETTER_LOST, (const uint64_t[2]){comm->lost, comm->ended}, td_status_message(comm->failure));
    }
    e->repeats = false;
    const uint64_t new = e->suspects & ~comm->lost;
    e->suspects = 0;
    if (new)
        note_loss(e, new);
    else if (e->why)
        td_status_destroy(e->why);
    e->why = NULL;
    if (comm->may_recover && !comm->drained) {
        comm->drained = drain(e);
        pthread_cond_broadcast(&comm->changed);
    }
    if (comm->may_recover && comm->drained && comm->ready)
        meet(e);
    pthread_mutex_unlock(&comm->mutex);
}

#endif
