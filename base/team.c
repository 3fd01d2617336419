/* See base/team.h.
 *
 * A run: the caller fills in the job, sets `pending` to the number of workers and raises `generation`. Each worker sees
 * a new generation, does its share, lowers `pending`. The last to do so wakes the caller if that one went to sleep.
 * Nobody touches the job between the last lowering and the next raise, so its fields need no lock.
 *
 * No wake-up is lost: a sleeper announces itself (`sleepers`, `caller_sleeps`) before the kernel compares the word it
 * sleeps on, the waker changes the word before it looks for sleepers, and both are sequentially consistent. */
#include "base/team.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/futex.h"
#include "base/memory.h"
#include "base/record.h"
#include "base/thread.h"

/* How long a thread looks before it sleeps. Waking one up was measured to take 20 to 120 us on a virtual machine, so a wait
 * that may end within that is better spun out. A thread whose last waits were all in vain (its partners do not get a core, or
 * there is nothing to do) looks for a moment only, until one is not. */
enum { SPIN_NS = 200000, SHORT_SPIN_NS = 4000, PATIENCE = 8 };
enum { FIRST_LOOKS = 200, LOOKS_PER_CLOCK = 64, CACHE_LINE = 64 };

typedef struct worker {
    td_team *team;
    pthread_t thread;
    int32_t index;
    td_core_set cores; /* empty: not bound */
    int32_t vain;      /* waits in a row that ended in sleep */
} worker;

struct td_team {
    int32_t threads;
    bool has_cores, core_each; /* bound; every thread can have a core */
    td_core_set caller_cores;
    worker *workers; /* threads - 1 */
    /* the job */
    td_team_task task;
    void *context;
    int64_t tasks;
    bool dynamic, stop;
    atomic_bool spins;
    int32_t caller_vain;
    _Alignas(CACHE_LINE) atomic_uint generation;
    _Alignas(CACHE_LINE) atomic_int sleepers;
    _Alignas(CACHE_LINE) atomic_uint pending;
    atomic_int caller_sleeps;
    _Alignas(CACHE_LINE) atomic_int_fast64_t next; /* dynamic runs */
};

static void do_share(td_team *team, int32_t thread)
{
    if (team->dynamic) {
        for (int64_t i; (i = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed)) < team->tasks;)
            team->task(team->context, i, thread);
        return;
    }
    int64_t begin, end;
    td_team_span(team->tasks, thread, team->threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        team->task(team->context, i, thread);
}

static bool differs(const atomic_uint *word, unsigned value, int looks)
{
    for (; looks > 0; looks--) {
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return true;
        td_spin_pause();
    }
    return false;
}

/* Looks until the word is no longer `value`: true. False: the time is up. The clock is not asked before some looks have been
 * in vain: reading it takes longer than most waits. */
static bool spin(const td_team *team, const atomic_uint *word, unsigned value, int32_t *vain)
{
    if (!atomic_load_explicit(&team->spins, memory_order_relaxed))
        return false;
    bool found = differs(word, value, FIRST_LOOKS);
    const int64_t begin = found ? 0 : td_clock_ns(), limit = *vain < PATIENCE ? SPIN_NS : SHORT_SPIN_NS;
    while (!found && td_clock_ns() - begin < limit)
        found = differs(word, value, LOOKS_PER_CLOCK);
    *vain = found ? 0 : *vain < PATIENCE ? *vain + 1 : PATIENCE;
    return found;
}

static unsigned wait_for_generation(td_team *team, unsigned seen, int32_t *vain)
{
    unsigned now;
    if (spin(team, &team->generation, seen, vain))
        return atomic_load(&team->generation);
    atomic_fetch_add(&team->sleepers, 1);
    while ((now = atomic_load(&team->generation)) == seen)
        td_futex_wait(&team->generation, seen, -1);
    atomic_fetch_sub(&team->sleepers, 1);
    return now;
}

static void *work(void *argument)
{
    worker *self = argument;
    td_team *team = self->team;
    td_record_name_thread("team, thread %d", (int)self->index);
    if (team->has_cores)
        td_status_destroy(
            td_cores_bind_self(&self->cores)); /* checked at creation; a mask that shrank since is no error */
    for (unsigned seen = 0;;) {
        seen = wait_for_generation(team, seen, &self->vain);
        if (team->stop)
            return NULL;
        do_share(team, self->index);
        if (atomic_fetch_sub(&team->pending, 1) == 1 && atomic_load(&team->caller_sleeps))
            td_futex_wake_one(&team->pending);
    }
}

static void announce(td_team *team)
{
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->sleepers))
        td_futex_wake_all(&team->generation);
}

static void wait_for_workers(td_team *team)
{
    for (unsigned left; (left = atomic_load_explicit(&team->pending, memory_order_acquire)) != 0;)
        if (!spin(team, &team->pending, left, &team->caller_vain))
            break;
    atomic_store(&team->caller_sleeps, 1);
    for (unsigned left; (left = atomic_load(&team->pending)) != 0;)
        td_futex_wait(&team->pending, left, -1);
    atomic_store(&team->caller_sleeps, 0);
}

static void run(td_team *team, int64_t tasks, td_team_task task, void *context, bool dynamic)
{
    if (!team || team->threads == 1 || tasks <= 1) {
        for (int64_t i = 0; i < tasks; i++)
            task(context, i, 0);
        return;
    }
    team->task = task;
    team->context = context;
    team->tasks = tasks;
    team->dynamic = dynamic;
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_store_explicit(&team->pending, (unsigned)team->threads - 1, memory_order_relaxed);
    announce(team);
    do_share(team, 0);
    wait_for_workers(team);
}

void td_team_run(td_team *team, int64_t tasks, td_team_task task, void *context)
{
    run(team, tasks, task, context, false);
}

void td_team_run_dynamic(td_team *team, int64_t tasks, td_team_task task, void *context)
{
    run(team, tasks, task, context, true);
}

/* ---- life -----------------------------------------------------------------------------------------------------------
 */

/* Ends and joins the first `started` workers. */
static void end_workers(td_team *team, int32_t started)
{
    team->stop = true;
    announce(team);
    for (int32_t i = 0; i < started; i++)
        (void)pthread_join(team->workers[i].thread, NULL);
}

static td_status *start_workers(td_team *team)
{
    int32_t started = 0;
    int error = 0;
    for (; started < team->threads - 1; started++) {
        worker *each = &team->workers[started];
        error = td_thread_create(&each->thread, work, each);
        if (error)
            break;
    }
    if (!error)
        return NULL;
    end_workers(team, started);
    return TD_ERROR(TD_IO, "cannot start thread %d of %d: %s; use fewer threads or raise the process limit (ulimit -u)",
                    started + 2, team->threads, strerror(error));
}

static td_status *assign_cores(td_team *team, const int32_t *cores, int32_t n_cores)
{
    td_core_set allowed, given = {{0}};
    TD_TRY(td_cores_allowed(&allowed));
    for (int32_t i = 0; i < n_cores; i++) {
        if (!td_cores_usable(cores[i]))
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "core %d is not among those this process may use; see `taskset -cp $$`", cores[i]);
        td_core_set_add(&given, cores[i]);
    }
    int32_t usable = td_core_set_count(n_cores ? &given : &allowed);
    team->has_cores = n_cores > 0;
    bool one_each = usable >= team->threads && usable == n_cores;
    team->caller_cores = given;
    for (int32_t i = 0; i < team->threads - 1; i++)
        team->workers[i].cores = given;
    for (int32_t i = 0; one_each && i < team->threads; i++) {
        td_core_set one = {{0}};
        td_core_set_add(&one, cores[i]);
        *(i ? &team->workers[i - 1].cores : &team->caller_cores) = one;
    }
    double quota = td_cgroup_read("").cpus; /* spinning uses up a quota of time without getting anything done */
    team->core_each = usable >= team->threads && (quota == 0 || quota >= team->threads);
    atomic_init(&team->spins, team->core_each);
    return NULL;
}

td_status *td_team_create(int32_t threads, const int32_t *cores, int32_t n_cores, td_team **out_team)
{
    *out_team = NULL;
    if (threads < 1 || threads > TD_MAX_CORES)
        return TD_ERROR(TD_INVALID_ARGUMENT, "a team of %d threads: need 1 to %d", threads, TD_MAX_CORES);
    td_team *team = NULL;
    td_status *status = NULL;
    TD_TRY(TD_NEW(team, 1));
    team->threads = threads;
    TD_TRY_OR(status, fail, TD_NEW(team->workers, threads));
    for (int32_t i = 0; i < threads - 1; i++) {
        team->workers[i].team = team;
        team->workers[i].index = i + 1;
    }
    TD_TRY_OR(status, fail, assign_cores(team, cores, n_cores));
    TD_TRY_OR(status, fail, start_workers(team));
    *out_team = team;
    return NULL;
fail:
    td_free(team->workers);
    td_free(team);
    return status;
}

void td_team_destroy(td_team *team)
{
    if (!team)
        return;
    end_workers(team, team->threads - 1);
    td_free(team->workers);
    td_free(team);
}

td_status *td_team_bind_self(const td_team *team)
{
    return team && team->has_cores ? td_cores_bind_self(&team->caller_cores) : NULL;
}

int32_t td_team_threads(const td_team *team)
{
    return team ? team->threads : 1;
}

void td_team_allow_spinning(td_team *team, bool allow)
{
    if (team)
        atomic_store_explicit(&team->spins, allow && team->core_each, memory_order_relaxed);
}
