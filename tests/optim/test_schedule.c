/* The factor of each update under each schedule, and which schedules are refused. */
#include "tests/base/check.h"

#include <math.h>

#include "optim/rule.h"

static void assert_factor(const td_schedule *schedule, int64_t update, double expected)
{
    double found = td_schedule_factor(schedule, update);
    if (!(fabs(found - expected) <= 1e-15))
        fail_msg("update %lld: factor %.17g, not %.17g", (long long)update, found, expected);
}

static void test_constant_is_one(void **state)
{
    (void)state;
    td_schedule schedule = {0};
    assert_ok(td_schedule_check(&schedule));
    assert_factor(&schedule, 1, 1);
    assert_factor(&schedule, INT64_MAX, 1);
}

static void test_warm_up_rises_in_a_line_to_one(void **state)
{
    (void)state;
    td_schedule schedules[] = {{.kind = TD_SCHEDULE_CONSTANT, .warmup_steps = 4},
                               {.kind = TD_SCHEDULE_COSINE, .warmup_steps = 4, .total_steps = 14},
                               {.kind = TD_SCHEDULE_LINEAR, .warmup_steps = 4, .total_steps = 14},
                               {.kind = TD_SCHEDULE_STEP, .warmup_steps = 4, .every = 2, .factor = 0.5}};
    for (int i = 0; i < 4; i++) {
        assert_ok(td_schedule_check(&schedules[i]));
        for (int64_t t = 1; t <= 4; t++)
            assert_factor(&schedules[i], t, (double)t / 4);
    }
}

static void test_cosine_falls_as_half_a_cosine_and_stays(void **state)
{
    (void)state;
    td_schedule schedule = {.kind = TD_SCHEDULE_COSINE, .warmup_steps = 10, .total_steps = 1010, .final_factor = 0.1};
    for (int64_t t = 11; t <= 1010; t++)
        assert_factor(&schedule, t, 0.1 + 0.9 * 0.5 * (1 + cos(M_PI * (double)(t - 10) / 1000)));
    assert_factor(&schedule, 1010, 0.1);
    assert_factor(&schedule, 5000, 0.1);
}

static void test_linear_falls_in_a_line_and_stays(void **state)
{
    (void)state;
    td_schedule schedule = {.kind = TD_SCHEDULE_LINEAR, .total_steps = 8, .final_factor = 0.5};
    for (int64_t t = 1; t <= 8; t++)
        assert_factor(&schedule, t, 1 - 0.5 * (double)t / 8);
    assert_factor(&schedule, 9, 0.5);
}

static void test_step_multiplies_every_so_many_updates(void **state)
{
    (void)state;
    td_schedule schedule = {.kind = TD_SCHEDULE_STEP, .warmup_steps = 2, .every = 3, .factor = 0.5};
    static const double expected[] = {0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25};
    for (int64_t t = 1; t <= 9; t++)
        assert_factor(&schedule, t, expected[t - 1]);
}

static void test_power_is_exact_where_it_can_be(void **state)
{
    (void)state;
    assert_true(td_power(2, 0) == 1 && td_power(2, 1) == 2 && td_power(2, 62) == 0x1p62 && td_power(0, 3) == 0);
    assert_true(fabs(td_power(0.999, 1000) - pow(0.999, 1000)) < 1e-13);
}

static void test_refusals_say_what_must_hold(void **state)
{
    (void)state;
    static const struct {
        td_schedule schedule;
        const char *says;
    } cases[] = {
        {{.warmup_steps = -1}, "warmup_steps is -1 but must not be negative"},
        {{.kind = TD_SCHEDULE_COSINE}, "schedule cosine: total_steps is 0 but must be more than warmup_steps (0)"},
        {{.kind = TD_SCHEDULE_LINEAR, .warmup_steps = 5, .total_steps = 5}, "total_steps is 5 but must be more than"},
        {{.kind = TD_SCHEDULE_COSINE, .total_steps = 5, .final_factor = 2},
         "final_factor is 2 but must be from 0 to 1"},
        {{.kind = TD_SCHEDULE_STEP, .factor = 0.5}, "schedule step: every is 0 but must be at least 1"},
        {{.kind = TD_SCHEDULE_STEP, .every = 1}, "schedule step: factor is 0 but must be above 0"},
        {{.kind = (td_schedule_kind)9}, "unknown kind 9; known are constant, cosine, linear and step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_error(td_schedule_check(&cases[i].schedule), TD_INVALID_ARGUMENT, cases[i].says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_constant_is_one),
                                       cmocka_unit_test(test_warm_up_rises_in_a_line_to_one),
                                       cmocka_unit_test(test_cosine_falls_as_half_a_cosine_and_stays),
                                       cmocka_unit_test(test_linear_falls_in_a_line_and_stays),
                                       cmocka_unit_test(test_step_multiplies_every_so_many_updates),
                                       cmocka_unit_test(test_power_is_exact_where_it_can_be),
                                       cmocka_unit_test(test_refusals_say_what_must_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
