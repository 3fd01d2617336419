/* See base/thread.h. */
#include "base/thread.h"

#include <signal.h>

int td_thread_create(pthread_t *out_thread, void *(*run)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* a new thread inherits the mask of its maker */
    int error = pthread_create(out_thread, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
