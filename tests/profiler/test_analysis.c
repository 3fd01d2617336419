/* The step trace, lanes, operators and memory of a trace whose every time is given; everything is in the report. */
#include "tests/profiler/open_made.h"

#include "profiler/report.h"
#include "tandem/graph.h"
#include "tandem/profiler.h"

/* ---- the step trace -------------------------------------------------------------------------------------------------------------- */

static void test_a_step_is_the_sum_of_its_critical_path(void **state)
{
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    const td_step_times *step = &o.a->steps->average;
    int64_t copies = m.durations[TO_ACCEL] + m.durations[TO_CPU];
    int64_t ops = m.durations[LOOKUP] + m.durations[TOP] + m.durations[BACKWARD] + m.durations[UPDATE];
    assert_int_equal(o.a->steps->n_steps, m.steps);
    assert_int_equal(step->path_ns[TD_CAUSE_SUBGRAPH], ops);
    assert_int_equal(step->path_ns[TD_CAUSE_COPY], copies);
    assert_int_equal(step->path_ns[TD_CAUSE_WAKE_UP], 6 * m.wake_up);
    assert_int_equal(step->path_ns[TD_CAUSE_DATA], m.data_wait);
    assert_int_equal(step->path_ns[TD_CAUSE_HOST], m.callback);
    assert_int_equal(step->path_ns[TD_CAUSE_UNKNOWN], 0);
    assert_int_equal(step->interval_ns, ops + copies + 6 * m.wake_up + m.data_wait + m.callback);
    assert_int_equal(step->forward_ns, m.durations[LOOKUP] + m.durations[BOTTOM] + m.durations[TOP]);
    assert_int_equal(step->backward_ns, m.durations[BACKWARD]);
    assert_int_equal(step->update_ns, m.durations[UPDATE]);
    assert_int_equal(step->to_device_bytes, m.copied_bytes);
    assert_int_equal(step->tail_ns, m.durations[TO_CPU] + m.durations[UPDATE] + 2 * m.wake_up);
    assert_int_equal(o.a->steps->subgraphs[BOTTOM].path_ns, 0); /* it ran beside the lookup */
    assert_int_equal(o.a->steps->subgraphs[TO_CPU].bytes, m.copied_bytes * m.steps);
    close_made(&o);
}

static const td_view_lane *lane_named(const opened *o, const char *name, const td_lane_times **out_times)
{
    for (int64_t l = 0; l < o->a->view->n_lanes; l++)
        if (!strcmp(o->a->view->lanes[l].name, name)) {
            *out_times = &o->a->steps->lanes[l];
            return &o->a->view->lanes[l];
        }
    fail_msg("no lane %s", name);
    return NULL;
}

static void test_lanes_say_what_they_waited_for(void **state)
{
    (void)state;
    made m = made_defaults();
    m.data_wait = 300000;
    opened o = open_made(&m);
    const td_lane_times *accel = NULL, *cpu = NULL;
    int64_t n = m.steps, w = m.wake_up, *d = m.durations;
    (void)lane_named(&o, "accel", &accel);
    (void)lane_named(&o, "cpu", &cpu);
    assert_int_equal(accel->busy_ns, n * (d[BOTTOM] + d[TOP] + d[BACKWARD]));
    assert_int_equal(cpu->busy_ns, n * (d[LOOKUP] + d[UPDATE]));
    assert_int_equal(accel->waits_ns[TD_CAUSE_DATA], n * m.data_wait);
    assert_int_equal(cpu->waits_ns[TD_CAUSE_DATA], n * m.data_wait);
    /* top: the rest of the lookup, and its copy */
    assert_int_equal(accel->by_subgraph_ns[LOOKUP], n * (d[LOOKUP] - d[BOTTOM]));
    assert_int_equal(accel->by_subgraph_ns[TO_ACCEL], n * d[TO_ACCEL]);
    assert_int_equal(cpu->by_subgraph_ns[TOP], n * d[TOP]);
    assert_int_equal(cpu->by_subgraph_ns[BACKWARD], n * d[BACKWARD]);
    assert_int_equal(cpu->waits_ns[TD_CAUSE_COPY], n * (d[TO_ACCEL] + d[TO_CPU]));
    assert_int_equal(cpu->waits_ns[TD_CAUSE_WAKE_UP], n * 6 * w);
    assert_int_equal(cpu->busy_ns + cpu->idle_ns, o.a->steps->wall_ns);
    /* the lookup and bottom begin together */
    assert_int_equal(accel->overlap_ns[0] + accel->overlap_ns[1] - accel->busy_ns, n * d[BOTTOM]);
    close_made(&o);
}

/* Subgraphs may begin when the batch is bound: what that takes is the run's own thread's, and no lane's. */
static void test_binding_a_batch_is_no_waking_up(void **state)
{
    (void)state;
    made m = made_defaults();
    m.admit = 600000;
    opened o = open_made(&m);
    const td_step_times *step = &o.a->steps->average;
    assert_int_equal(step->path_ns[TD_CAUSE_WAKE_UP], 6 * m.wake_up);
    assert_int_equal(step->path_ns[TD_CAUSE_HOST], m.callback + m.admit);
    const td_lane_times *accel = NULL;
    (void)lane_named(&o, "accel", &accel);
    assert_int_equal(accel->waits_ns[TD_CAUSE_HOST], m.steps * (m.callback + m.admit));
    assert_null(find(&o, "wake_ups"));
    const td_advice *advice = find(&o, "host_work");
    assert_non_null(advice);
    assert_non_null(
        strstr(advice->text,
               "holds a step up for 601 us (11 %): binding batches (ids are told apart there) 600 us; fewer ids"));
    close_made(&o);
}

/* ---- operators, memory, data ------------------------------------------------------------------------------------------------------------ */

static void test_operators_are_counted_and_held_against_their_device(void **state)
{
    (void)state;
    made m = made_defaults();
    m.changes[0][0] = "\"link_bytes_per_s\":1e9";
    m.changes[0][1] = "\"flops_per_s\":4e9,\"memory_bytes_per_s\":1e12,\"link_bytes_per_s\":1e9";
    opened o = open_made(&m);
    const td_op_statistics *ops = o.a->ops;
    int64_t sum = 0;
    assert_int_equal(ops->ops.n, N_SUBGRAPHS);
    for (int64_t i = 0; i < ops->ops.n; i++) {
        assert_int_equal(ops->ops.rows[i].count, m.steps);
        sum += ops->ops.rows[i].self_ns;
        if (!strcmp(ops->ops.rows[i].name, "bottom/linear")) /* 2 GFLOP/s of 4 */
            near(td_op_reached(o.a->view, &ops->ops.rows[i]), 0.5);
    }
    assert_int_equal(sum, ops->self_ns);
    const td_op_row *linear = NULL;
    for (int64_t i = 0; i < ops->types.n; i++)
        if (!strcmp(ops->types.rows[i].name, "linear"))
            linear = &ops->types.rows[i];
    assert_int_equal(linear->count, 2 * m.steps);
    assert_int_equal(linear->total_ns, m.steps * (m.durations[BOTTOM] + m.durations[TOP]));
    assert_int_equal(ops->devices.n, 2);
    char text[64];
    assert_string_equal(td_op_shapes(o.a->view->plan, o.a->view->plan->nodes[TOP].inputs, 2, text, sizeof text),
                        "f32 [256, 16], f32 [256, 64]");
    close_made(&o);
}

static void test_memory_lives_from_its_maker_to_its_last_reader(void **state)
{
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    const td_device_memory *accel = &o.a->memory->devices[1], *cpu = &o.a->memory->devices[0];
    assert_int_equal(accel->peak_live_bytes,
                     65536 + 16384 + 4); /* hidden, the bag's copy and the loss, while top runs */
    assert_int_equal(accel->in_use_bytes, 500000);
    assert_string_equal(accel->tenants[0].name, "hidden");
    assert_string_equal(cpu->tenants[0].name, "table");
    assert_int_equal(accel->points[accel->n_points - 1].bytes, 0);
    close_made(&o);
}

static void test_everything_is_in_the_report(void **state)
{
    (void)state;
    static const char *const keys[] = {"totals",   "trace",  "average",   "steps", "subgraphs", "lanes",  "activities",
                                       "overlaps", "memory", "operators", "data",  "machine",   "advice", "device_ops"};
    char *text = NULL;
    made m = made_defaults();
    made_file(path(), &m);
    OK(td_profiler_analyse(path(), TD_PROFILER_LAST_WINDOW, &text));
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_non_null(json_object_get(json, keys[i]));
    assert_int_equal(json_object_size(json), sizeof keys / sizeof *keys);
    json_decref(json);
    td_text_free(text);
    td_status *status = td_profiler_analyse(path(), 1, &text);
    assert_non_null(strstr(td_status_message(status), "the trace has 1 recorded window; there is no window 1"));
    td_status_destroy(status);
    (void)unlink(path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_is_the_sum_of_its_critical_path),
        cmocka_unit_test(test_lanes_say_what_they_waited_for),
        cmocka_unit_test(test_binding_a_batch_is_no_waking_up),
        cmocka_unit_test(test_operators_are_counted_and_held_against_their_device),
        cmocka_unit_test(test_memory_lives_from_its_maker_to_its_last_reader),
        cmocka_unit_test(test_everything_is_in_the_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
