/* Threads of the library take no signals; their maker's mask stays as it was. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_thread_of_the_library_takes_no_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
