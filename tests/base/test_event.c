/* Gates: waits end when the count is reached or the gate is stopped, and publish what came before the post. */
#include "tests/base/check.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/event.h"

typedef struct pair {
    td_gate ping, pong;
    int32_t spins;
    int64_t shared; /* plain on purpose: only the gates order it */
} pair;

enum { ROUNDS = 2000 };

static void *answer(void *context)
{
    pair *p = context;
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        if (!td_gate_wait_at_least(&p->ping, i))
            return NULL;
        p->shared++;
        td_gate_post(&p->pong, 1);
    }
    return NULL;
}

static void test_two_threads_take_turns(void **state)
{
    (void)state;
    for (int32_t spins = 0; spins <= 1000; spins += 1000) {
        pair p = {.shared = 0};
        td_gate_init(&p.ping, spins);
        td_gate_init(&p.pong, spins);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, answer, &p), 0);
        for (uint32_t i = 1; i <= ROUNDS; i++) {
            p.shared++;
            td_gate_post(&p.ping, 1);
            assert_true(td_gate_wait_at_least(&p.pong, i));
            assert_int_equal(p.shared, 2 * i);
        }
        pthread_join(thread, NULL);
    }
}

static void test_what_is_reached_needs_no_wait(void **state)
{
    (void)state;
    td_gate gate;
    td_gate_init(&gate, 0);
    assert_true(td_gate_wait_at_least(&gate, 0));
    td_gate_post(&gate, 5);
    assert_int_equal(td_gate_count(&gate), 5);
    assert_true(td_gate_wait_at_least(&gate, 3));
    assert_int_equal(td_gate_wait_for(&gate, 5, 0), TD_GATE_REACHED);
}

static void test_timed_waits_end(void **state)
{
    (void)state;
    td_gate gate;
    td_gate_init(&gate, 10);
    int64_t before = td_clock_ns();
    assert_int_equal(td_gate_wait_for(&gate, 1, 1000000), TD_GATE_TIMEOUT);
    assert_true(td_clock_ns() - before >= 1000000);
    assert_int_equal(td_gate_wait_for(&gate, 1, 0), TD_GATE_TIMEOUT);
    assert_int_equal(td_gate_wait_for(&gate, 1, -5), TD_GATE_TIMEOUT);
    td_gate_post(&gate, 1);
    assert_int_equal(td_gate_wait_for(&gate, 1, INT64_MAX), TD_GATE_REACHED);
}

static void test_the_count_may_wrap_around(void **state)
{
    (void)state;
    td_gate gate;
    td_gate_init(&gate, 0);
    td_gate_post(&gate, UINT32_MAX - 1);
    assert_int_equal(td_gate_wait_for(&gate, UINT32_MAX + 2u, 0), TD_GATE_TIMEOUT); /* 1, three steps ahead */
    td_gate_post(&gate, 3);
    assert_true(td_gate_wait_at_least(&gate, UINT32_MAX + 2u));
    assert_true(td_gate_wait_at_least(&gate, UINT32_MAX)); /* long past */
}

static void *wait_forever(void *context)
{
    return td_gate_wait_at_least(context, 1) ? context : NULL;
}

static void test_stop_ends_all_waits(void **state)
{
    (void)state;
    td_gate gate;
    td_gate_init(&gate, 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_forever, &gate), 0);
    td_gate_stop(&gate);
    for (int i = 0; i < 3; i++) {
        void *result = &gate;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    assert_false(td_gate_wait_at_least(&gate, 1));
    assert_int_equal(td_gate_wait_for(&gate, 1, 1000), TD_GATE_STOPPED);
    td_gate_post(&gate, 1);
    assert_true(td_gate_wait_at_least(&gate, 1)); /* what is reached is reached */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_threads_take_turns), cmocka_unit_test(test_what_is_reached_needs_no_wait),
        cmocka_unit_test(test_timed_waits_end),        cmocka_unit_test(test_the_count_may_wrap_around),
        cmocka_unit_test(test_stop_ends_all_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
