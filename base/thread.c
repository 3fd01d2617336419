/* See base/thread.h. */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cores.h"

int td_thread_create(pthread_t *out_thread, void *(*run)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* a new thread inherits the mask of its maker */
    int error = pthread_create(out_thread, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* The system's struct sched_attr in its first version; its header cannot stand beside <sched.h>. */
typedef struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} scheduling;

void td_thread_run_soon(void)
{
    scheduling attr = {.size = sizeof attr};
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) || attr.policy != SCHED_OTHER)
        return;
    attr.runtime = 100000; /* nanoseconds: the least that there is */
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void td_thread_run_aside(void)
{
    int policy;
    struct sched_param priority;
    if (!pthread_getschedparam(pthread_self(), &policy, &priority) && policy == SCHED_OTHER)
        (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &priority);
}

int td_thread_helpers(void)
{
    td_core_set cores;
    td_status *status = td_cores_allowed(&cores);
    int32_t n = status ? 1 : td_core_set_count(&cores);
    td_status_destroy(status);
    return n > TD_MOST_HELPERS ? TD_MOST_HELPERS : n > 1 ? (int)n - 1 : 0;
}

void td_thread_share(void *(*run)(void *argument), void *argument, int helpers)
{
    pthread_t threads[TD_MOST_HELPERS];
    int n = 0;
    while (n < helpers && n < TD_MOST_HELPERS && !td_thread_create(&threads[n], run, argument))
        n++;
    (void)run(argument);
    while (n)
        (void)pthread_join(threads[--n], NULL);
}
