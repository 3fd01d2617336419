/* The critical path of a plan from given times: what waits for what, and for a lane. */
#include "partition/path.h"

#include "tests/partition/models.h"

/* Times by name; every other op takes none. */
typedef struct timed {
    const char *name;
    double seconds;
} timed;

static double seconds_of(const void *context, const td_plan *plan, int32_t node)
{
    for (const timed *t = context; t->name; t++)
        if (!strcmp(t->name, plan->graph->nodes[node].name))
            return t->seconds;
    return 0;
}

static double path_of(const model *m, const timed *times)
{
    double path = 0;
    assert_ok(td_plan_critical_path(m->plan, seconds_of, times, &path));
    return path;
}

static void test_one_lane_runs_one_op_after_the_other(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value a = td_name(td_relu(m.x), "a"), b = td_name(td_tanh(m.x), "b");
    assert_ok(model_plan(&m, td_linear(td_concat(2, (td_value[]){a, b}, 1), 1, "top")));
    assert_true(path_of(&m, (timed[]){{"a", 2}, {"b", 3}, {"top/linear", 4}, {0}}) == 9);
    assert_true(path_of(&m, (timed[]){{0}}) == 0);
    model_end(&m);
}

/* a and b are independent: on two lanes at the same time. */
static void test_lanes_run_independent_subgraphs_together(void **state)
{
    (void)state;
    model m = model_begin(4);
    m.options.jit_level = TD_O1; /* chains stay single ops */
    td_add_device(&m.options, "cpu", "cpu:cores=2,lanes=2");
    td_value a = td_name(td_tanh(td_name(td_relu(m.x), "a.0")), "a.1"),
             b = td_name(td_tanh(td_name(td_sigmoid(m.x), "b.0")), "b.1");
    assert_ok(model_plan(&m, td_linear(td_concat(2, (td_value[]){a, b}, 1), 1, "top")));
    assert_true(path_of(&m, (timed[]){{"a.0", 2}, {"a.1", 1}, {"b.0", 5}, {"top/linear", 4}, {0}}) == 9);
    model_end(&m);
}

/* One lane of a device is busy with a while b, which needs nothing, waits; on two devices they overlap. */
static void test_devices_overlap_and_copies_take_their_time(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_value a = td_target(td_name(td_relu(m.x), "a"), "cpu"), b = td_target(td_name(td_tanh(m.x), "b"), "accel");
    assert_ok(model_plan(&m, td_linear(td_target(td_name(td_add(a, b), "c"), "accel"), 1, "top")));
    assert_true(path_of(&m, (timed[]){{"a", 2}, {"b", 5}, {"c", 1}, {0}}) == 6);
    assert_true(path_of(&m, (timed[]){{"a", 7}, {"b", 5}, {"c", 1}, {0}}) == 8);
    assert_true(path_of(&m, (timed[]){{"a", 7}, {"b", 5}, {"a@accel", 10}, {"c", 1}, {0}}) == 18);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_lane_runs_one_op_after_the_other),
        cmocka_unit_test(test_lanes_run_independent_subgraphs_together),
        cmocka_unit_test(test_devices_overlap_and_copies_take_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
