/* Threads of the library take no signals, their maker's mask stays as it was; what they ask of the scheduler. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread.h"

static void *read_mask(void *argument)
{
    (void)pthread_sigmask(SIG_SETMASK, NULL, argument);
    return NULL;
}

static void test_a_thread_of_the_library_takes_no_signals(void **state)
{
    (void)state;
    sigset_t of_thread, own;
    pthread_t thread;
    sigemptyset(&of_thread);
    assert_int_equal(td_thread_create(&thread, read_mask, &of_thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &own);
    assert_true(sigismember(&of_thread, SIGINT) && sigismember(&of_thread, SIGTERM));
    assert_false(sigismember(&own, SIGINT));
}

/* Its policy before and after, and then of one that had another policy. */
static void *run_aside(void *argument)
{
    int *policies = argument;
    struct sched_param priority;
    (void)pthread_getschedparam(pthread_self(), &policies[0], &priority);
    td_thread_run_aside();
    (void)pthread_getschedparam(pthread_self(), &policies[1], &priority);
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &priority);
    td_thread_run_aside();
    (void)pthread_getschedparam(pthread_self(), &policies[2], &priority);
    return NULL;
}

static void test_a_thread_aside_interrupts_nobody(void **state)
{
    (void)state;
    int policies[3] = {0};
    pthread_t thread;
    assert_int_equal(td_thread_create(&thread, run_aside, policies), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(policies[1], policies[0] == SCHED_OTHER ? SCHED_BATCH : policies[0]);
    assert_int_equal(policies[2], SCHED_IDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_of_the_library_takes_no_signals),
        cmocka_unit_test(test_a_thread_aside_interrupts_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
