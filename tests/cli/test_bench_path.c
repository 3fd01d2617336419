/* What `tandem bench --against` makes of measured times: medians over blocks, and the critical path that they give. */
#include "cli/bench_path.h"

#include "tests/partition/models.h"

static void test_an_op_takes_the_median_of_its_blocks(void **state)
{
    (void)state;
    td_op_time times[] = {{.name = "odd"}, {.name = "even"}, {.name = "never", .seconds = 5, .runs = 5}};
    double blocks[3][4] = {{3, 900, 1}, {8, 2, 700, 4}, {0}};
    int32_t n_blocks[] = {3, 4, 0};
    td_measured_ops ops = {.times = times, .blocks = blocks[0], .n_blocks = n_blocks, .n = 3, .capacity = 4};
    assert_true(td_measured_ops_settle(&ops));
    assert_string_equal(times[0].name, "even"); /* by name */
    assert_true(times[0].seconds == 6 && times[0].runs == 1);
    assert_true(times[1].seconds == 0 && times[1].runs == 0);
    assert_true(times[2].seconds == 3 && times[2].runs == 1);
    memset(n_blocks, 0, sizeof n_blocks);
    assert_false(td_measured_ops_settle(&ops));
}

enum { MOST_OPS = 64 };

/* A device that took so long for `name` and no time for any other of the plan's ops but those it is not to know. */
static td_measured_ops measured_on(const char *device, const td_plan *plan, const char *name, double seconds,
                                   const char *unknown, td_op_time *times, double *blocks, int32_t *n_blocks)
{
    td_measured_ops ops = {
        .device = device, .plan = plan, .times = times, .blocks = blocks, .n_blocks = n_blocks, .capacity = 1};
    assert_true(plan->graph->n_nodes <= MOST_OPS);
    for (int32_t i = 0; i < plan->graph->n_nodes; i++) {
        const char *node = plan->graph->nodes[i].name;
        if (!strcmp(node, unknown))
            continue;
        times[ops.n] = (td_op_time){.name = node};
        blocks[ops.n] = strcmp(node, name) ? 0 : seconds;
        n_blocks[ops.n++] = 1;
    }
    assert_true(td_measured_ops_settle(&ops));
    return ops;
}

/* The path where a takes 7 s on the host and c 2 s on the accelerator, all else no time; `unknown` was not measured there. */
static td_bench_path path_of(const model *m, const char *unknown)
{
    td_op_time times[2][MOST_OPS];
    double blocks[2][MOST_OPS];
    int32_t n_blocks[2][MOST_OPS];
    const td_session_counters counters = {0};
    td_bench_path path = {0};
    td_measured_ops all[] = {measured_on("cpu", m->plan, "a", 7, "", times[0], blocks[0], n_blocks[0]),
                             measured_on("accel", m->plan, "c", 2, unknown, times[1], blocks[1], n_blocks[1])};
    assert_ok(td_bench_critical_path(m->plan, &counters, all, 2, &path));
    return path;
}

/* a on the host, then its copy over the link, then c on the accelerator, whose other input b is there by then; at last the loss
 * comes back. */
static void test_the_path_has_each_devices_times_and_the_link_as_stated(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB,link=1kB/s,latency=1ms");
    td_value a = td_target(td_name(td_relu(m.x), "a"), "cpu"), b = td_target(td_name(td_tanh(m.x), "b"), "accel");
    assert_ok(model_plan(&m, td_linear(td_target(td_name(td_add(a, b), "c"), "accel"), 1, "top")));
    const td_bench_path path = path_of(&m, "b");
    const double a_bytes = 8 * 4 * sizeof(float), loss_bytes = sizeof(float);
    const double expected = 7 + (0.001 + a_bytes / 1000) + 2 + (0.001 + loss_bytes / 1000);
    assert_true(path.seconds > expected - 1e-9 && path.seconds < expected + 1e-9);
    assert_int_equal(path.estimated, 1); /* b was not measured: it takes what the plan says */
    assert_true(path.accelerator_s >= 2 && path.accelerator_s < 2.001);
    assert_true(path.others_s > 7);
    model_end(&m);
}

/* a and d go to the accelerator together. */
static void test_copies_of_one_list_have_the_latency_once(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB,link=1kB/s,latency=1s");
    td_value a = td_target(td_name(td_relu(m.x), "a"), "cpu"), d = td_target(td_name(td_tanh(m.x), "d"), "cpu");
    assert_ok(model_plan(&m, td_linear(td_target(td_name(td_add(a, d), "c"), "accel"), 1, "top")));
    const td_bench_path path = path_of(&m, "");
    const double a_bytes = 8 * 4 * sizeof(float), loss_bytes = sizeof(float);
    const double expected = 7 + (1 + 2 * a_bytes / 1000) + 2 + (1 + loss_bytes / 1000);
    assert_true(path.seconds > expected - 1e-9 && path.seconds < expected + 1e-9);
    const td_plan_node *first = node_of(m.plan, "a@accel"), *second = node_of(m.plan, "d@accel");
    assert_int_equal(first->cluster, second->cluster);
    assert_true(first->seconds + second->seconds > 1 + 2 * a_bytes / 1000 - 1e-9);
    assert_true(first->seconds + second->seconds < 1 + 2 * a_bytes / 1000 + 1e-9);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_op_takes_the_median_of_its_blocks),
        cmocka_unit_test(test_copies_of_one_list_have_the_latency_once),
        cmocka_unit_test(test_the_path_has_each_devices_times_and_the_link_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
