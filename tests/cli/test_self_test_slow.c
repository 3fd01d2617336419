/* tandem profile --self-test: what recording costs, with the steps that it is a share of. */
#include "tests/cli/runs.h"

static void test_the_cost_of_recording_is_told(void **state)
{
    (void)state;
    SUCCEED("profile", "--self-test", "--json");
    json_t *costs = json_loads(out, 0, NULL), *step;
    size_t i;
    assert_non_null(costs);
    assert_true(json_real_value(json_object_get(costs, "event_ns")) > 0);
    assert_true(json_is_real(json_object_get(costs, "off_ns")));
    const json_t *steps = json_object_get(costs, "steps");
    assert_int_equal(json_array_size(steps), 2);
    double most = 0;
    json_array_foreach(steps, i, step)
    {
        const double share = json_real_value(json_object_get(step, "share"));
        const double expected = json_real_value(json_object_get(costs, "event_ns")) *
                                json_real_value(json_object_get(step, "events")) /
                                (1e6 * json_real_value(json_object_get(step, "step_ms")));
        assert_true(share > 0.99 * expected && share < 1.01 * expected);
        most = share > most ? share : most;
    }
    assert_true(most == json_real_value(json_object_get(costs, "step_share")));
    json_decref(costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_cost_of_recording_is_told, enter, leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
