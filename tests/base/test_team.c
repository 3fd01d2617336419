/* A team runs each index once, on the promised thread, and what tasks wrote is there afterwards. */
#include "tests/base/check.h"

#include <stdatomic.h>

#include "base/cores.h"
#include "base/team.h"

enum { MOST = 1000 };

typedef struct record {
    int32_t times[MOST], thread[MOST]; /* plain on purpose: a race would show under TSan */
    atomic_int threads_seen[8];
} record;

static void note(void *context, int64_t index, int32_t thread)
{
    record *r = context;
    r->times[index]++;
    r->thread[index] = thread;
    atomic_fetch_add(&r->threads_seen[thread], 1);
}

static void check_all_ran_once(const record *r, int64_t tasks)
{
    for (int64_t i = 0; i < MOST; i++)
        assert_int_equal(r->times[i], i < tasks);
}

static void test_each_index_runs_once_on_the_promised_thread(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 64, 999, 1000};
    for (int32_t threads = 1; threads <= 5; threads++) {
        td_team *team = NULL;
        assert_ok(td_team_create(threads, NULL, 0, &team));
        assert_int_equal(td_team_threads(team), threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            record r = {0};
            td_team_run(team, sizes[s], note, &r);
            check_all_ran_once(&r, sizes[s]);
            for (int64_t i = 0; sizes[s] > 1 && i < sizes[s]; i++) {
                int64_t begin, end;
                td_team_span(sizes[s], r.thread[i], threads, &begin, &end);
                assert_true(begin <= i && i < end);
            }
        }
        td_team_destroy(team);
    }
}

static void test_dynamic_runs_each_index_once(void **state)
{
    (void)state;
    td_team *team = NULL;
    assert_ok(td_team_create(4, NULL, 0, &team));
    for (int round = 0; round < 200; round++) {
        record r = {0};
        td_team_run_dynamic(team, round * 5, note, &r);
        check_all_ran_once(&r, round * 5);
    }
    td_team_destroy(team);
}

static void test_null_team_runs_on_the_caller(void **state)
{
    (void)state;
    record r = {0};
    td_team_run(NULL, 10, note, &r);
    td_team_run_dynamic(NULL, 0, note, &r);
    check_all_ran_once(&r, 10);
    assert_int_equal(atomic_load(&r.threads_seen[0]), 10);
    assert_int_equal(td_team_threads(NULL), 1);
    assert_ok(td_team_bind_self(NULL));
    td_team_destroy(NULL);
}

/* Every thread waits inside a task for all others: proves that they run at the same time. */
typedef struct meeting {
    atomic_int arrived;
    int32_t expected;
} meeting;

static void meet(void *context, int64_t index, int32_t thread)
{
    (void)index, (void)thread;
    meeting *m = context;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected)
        ;
}

static void test_threads_run_at_the_same_time(void **state)
{
    (void)state;
    td_team *team = NULL;
    assert_ok(td_team_create(3, NULL, 0, &team));
    for (int round = 0; round < 20; round++) {
        meeting m = {.expected = 3};
        td_team_run(team, 3, meet, &m);
        meeting again = {.expected = 3};
        td_team_run_dynamic(team, 3, meet, &again);
        assert_int_equal(atomic_load(&m.arrived), 3);
    }
    td_team_destroy(team);
}

/* Many short runs with and without spinning: lost wake-ups would hang, races would miss counts. */
static void add(void *context, int64_t index, int32_t thread)
{
    int64_t *sums = context;
    sums[8 * thread] += index;
}

static void test_many_short_runs_lose_nothing(void **state)
{
    (void)state;
    td_team *team = NULL;
    assert_ok(td_team_create(2, NULL, 0, &team));
    for (int spinning = 0; spinning < 2; spinning++) {
        td_team_allow_spinning(team, spinning);
        int64_t sums[16] = {0};
        for (int round = 0; round < 3000; round++)
            td_team_run(team, 10, add, sums);
        assert_int_equal(sums[0], 3000 * (0 + 1 + 2 + 3 + 4));
        assert_int_equal(sums[8], 3000 * (5 + 6 + 7 + 8 + 9));
    }
    td_team_destroy(team);
}

static void read_cores(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    td_core_set *sets = context;
    td_status_destroy(td_cores_allowed(&sets[index]));
}

static int32_t first_core(const td_core_set *set)
{
    for (int32_t core = 0; core < TD_MAX_CORES; core++)
        if (td_core_set_has(set, core))
            return core;
    return -1;
}

static void test_threads_are_bound_to_given_cores(void **state)
{
    (void)state;
    td_core_set before, sets[2];
    assert_ok(td_cores_allowed(&before));
    int32_t core = first_core(&before);
    td_team *team = NULL;
    assert_ok(td_team_create(2, &core, 1, &team));
    td_team_run(team, 2, read_cores, sets);
    assert_int_equal(td_core_set_count(&sets[0]), td_core_set_count(&before)); /* the caller stays where it is ... */
    assert_int_equal(td_core_set_count(&sets[1]), 1);
    assert_true(td_core_set_has(&sets[1], core));
    assert_ok(td_team_bind_self(team)); /* ... until it asks */
    td_team_run(team, 2, read_cores, sets);
    assert_int_equal(td_core_set_count(&sets[0]), 1);
    td_team_destroy(team);
    assert_ok(td_cores_bind_self(&before));
}

static void test_one_core_each_where_there_are_enough(void **state)
{
    (void)state;
    td_core_set before, sets[2];
    assert_ok(td_cores_allowed(&before));
    int32_t cores[2], n = 0;
    for (int32_t core = 0; core < TD_MAX_CORES && n < 2; core++)
        if (td_core_set_has(&before, core))
            cores[n++] = core;
    if (n < 2)
        skip();
    td_team *team = NULL;
    assert_ok(td_team_create(2, cores, 2, &team));
    assert_ok(td_team_bind_self(team));
    td_team_run(team, 2, read_cores, sets);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(td_core_set_count(&sets[i]), 1);
        assert_true(td_core_set_has(&sets[i], cores[i]));
    }
    td_team_destroy(team);
    assert_ok(td_cores_bind_self(&before));
}

/* The creating thread's own mask does not matter: a lane's thread is bound before it makes the next lane's team. */
static void test_a_bound_thread_makes_teams_elsewhere(void **state)
{
    (void)state;
    td_core_set before, first = {{0}}, after, sets[2];
    assert_ok(td_cores_allowed(&before));
    int32_t cores[2], n = 0;
    for (int32_t core = 0; core < TD_MAX_CORES && n < 2; core++)
        if (td_core_set_has(&before, core))
            cores[n++] = core;
    if (n < 2)
        skip();
    td_core_set_add(&first, cores[0]);
    assert_ok(td_cores_bind_self(&first));
    td_team *team = NULL;
    td_status *status = td_team_create(2, &cores[1], 1, &team);
    td_status *read = td_cores_allowed(&after);
    if (!status)
        td_team_run(team, 2, read_cores, sets);
    assert_ok(td_cores_bind_self(&before));
    assert_ok(status);
    assert_ok(read);
    assert_memory_equal(&after, &first, sizeof after); /* and keeps its own */
    assert_int_equal(td_core_set_count(&sets[1]), 1);
    assert_true(td_core_set_has(&sets[1], cores[1]));
    td_team_destroy(team);
}

static void test_refusals_name_the_value(void **state)
{
    (void)state;
    td_team *team = NULL;
    assert_error(td_team_create(0, NULL, 0, &team), TD_INVALID_ARGUMENT, "0 threads");
    const int32_t impossible = TD_MAX_CORES - 1;
    assert_error(td_team_create(2, &impossible, 1, &team), TD_INVALID_ARGUMENT, "core 8191");
    const int32_t negative = -3;
    assert_error(td_team_create(2, &negative, 1, &team), TD_INVALID_ARGUMENT, "core -3");
    assert_null(team);
}

static td_status *create(void *context)
{
    return td_team_create(3, NULL, 0, context);
}
static void destroy(void *context)
{
    td_team_destroy(*(td_team **)context);
}

static void test_survives_allocation_failures(void **state)
{
    (void)state;
    td_team *team = NULL;
    assert_int_equal(assert_survives_allocation_failures(create, destroy, &team), 2);
}

static void test_a_run_allocates_nothing(void **state)
{
    (void)state;
    td_team *team = NULL;
    assert_ok(td_team_create(3, NULL, 0, &team));
    uint64_t before = td_memory_read().allocations;
    int64_t sums[24] = {0};
    td_team_run(team, 100, add, sums);
    td_team_run_dynamic(team, 100, add, sums);
    assert_int_equal(td_memory_read().allocations, before);
    td_team_destroy(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_index_runs_once_on_the_promised_thread),
        cmocka_unit_test(test_dynamic_runs_each_index_once),
        cmocka_unit_test(test_null_team_runs_on_the_caller),
        cmocka_unit_test(test_threads_run_at_the_same_time),
        cmocka_unit_test(test_many_short_runs_lose_nothing),
        cmocka_unit_test(test_threads_are_bound_to_given_cores),
        cmocka_unit_test(test_one_core_each_where_there_are_enough),
        cmocka_unit_test(test_a_bound_thread_makes_teams_elsewhere),
        cmocka_unit_test(test_refusals_name_the_value),
        cmocka_unit_test(test_survives_allocation_failures),
        cmocka_unit_test(test_a_run_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
