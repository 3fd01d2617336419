/* Trainings that are slow for a known reason: the recording names the reason, and its milliseconds within 5 % of what was injected. */
#include "tests/runtime/profiled_run.h"

static bool advises(const td_analysis *a, const char *rule)
{
    td_advice_list list;
    td_advise(a, &list);
    for (int32_t i = 0; i < list.n; i++)
        if (!strcmp(list.items[i].rule, rule))
            return true;
    return false;
}

enum { SLOW_STEPS = 16 };

static void near(double found_ns, double wanted_ns)
{
    if (found_ns < 0.95 * wanted_ns || found_ns > 1.05 * wanted_ns)
        fail_msg("%g ms were injected, %g ms found", 1e-6 * wanted_ns, 1e-6 * found_ns);
}

/* Some steps of a run that is open, all of them recorded. */
static td_analysis *record_all(run *r, td_trace **out_trace)
{
    td_analysis *a = NULL;
    td_profiler *profiler = profiler_of(0, 0, SLOW_STEPS, 1, true);
    train(r, SLOW_STEPS);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), out_trace));
    td_profiler_destroy(profiler);
    assert_ok(td_analysis_create(*out_trace, -1, &a));
    assert_int_equal(a->steps->n_steps, SLOW_STEPS);
    return a;
}

/* One after the other, with a source that takes so long. */
static td_analysis *record_slow(run *r, const char *device, int64_t source_ns, td_trace **out_trace)
{
    open_run_on(r, device, false);
    r->slow_ns = source_ns;
    return record_all(r, out_trace);
}

/* Time is what the source itself took: a loaded machine makes that longer than what it was told. */
static void test_a_slow_source_is_found_with_its_time(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    td_analysis *a = record_slow(&r, "emulated:memory=16MiB,cores=1", 8000000, &trace);
    double found = 0;
    for (int i = 1; i < SLOW_STEPS; i++) /* recording began after the first batch was there */
        found += (double)a->steps->steps[i].path_ns[TD_CAUSE_DATA];
    near(found, (double)r.taken_ns);
    assert_true(advises(a, "data_starvation"));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

/* Through a link of 64 kB/s copies take what their bytes do, at least; the engine's own count says how long they took. */
static void test_a_slow_link_is_found_with_its_time(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    td_analysis *a = record_slow(&r, "emulated:memory=16MiB,cores=1,link=64kB/s", 0, &trace);
    td_session_counters c = td_session_read_counters(r.session);
    double found = (double)a->steps->average.path_ns[TD_CAUSE_COPY] * SLOW_STEPS, copied = 0;
    for (int32_t s = 0; s < a->view->plan->n_subgraphs; s++)
        if (a->view->plan->subgraphs[s].lane != TD_TRACE_COMPUTE)
            copied += (double)a->steps->subgraphs[s].total_ns;
    near(copied, 1e9 * c.copy_s);
    assert_true(found > 0.95 * 1e9 * (double)(c.to_device_bytes + c.to_host_bytes) / 64e3);
    assert_true(found <= 1.05 * copied);
    assert_true(advises(a, "slow_link"));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

static const td_advice *advice_of(const td_analysis *a, const char *rule, td_advice_list *list)
{
    td_advise(a, list);
    for (int32_t i = 0; i < list->n; i++)
        if (!strcmp(list->items[i].rule, rule))
            return &list->items[i];
    fail_msg("%s does not speak", rule);
    return NULL;
}

/* An op that takes 30 ms is the first among the ops, with what it itself says that it took; the step's path has it, and so does the
 * advice. */
static void test_a_slow_op_is_found_with_its_time(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    td_advice_list list;
    open_slowed(&r, "emulated:memory=16MiB,cores=1", false, 1, 30000000);
    td_analysis *a = record_all(&r, &trace);
    double taken = 0;
    for (int i = 0; i < 8; i++)
        taken += (double)r.op_taken_ns[i];
    const td_op_row *first = &a->ops->ops.rows[0];
    assert_string_equal(first->name, "slow.0");
    near((double)first->self_ns, taken);
    int32_t subgraph = a->view->plan->nodes[first->node].subgraph;
    assert_true((double)a->steps->subgraphs[subgraph].path_ns >= 0.95 * taken);
    const td_advice *advice = advice_of(a, "slow_op", &list);
    near(1e6 * advice->gain_ms * SLOW_STEPS, taken);
    assert_non_null(strstr(advice->text, "host_call \"slow.0\" takes"));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

/* All work on one side: what balance would save is half of the difference, by the engine's own count of busy time. */
static void test_an_unbalanced_cut_is_found_with_what_it_costs(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    td_advice_list list;
    open_slowed(&r, "emulated:memory=16MiB,cores=1", false, 4, 10000000);
    td_analysis *a = record_all(&r, &trace);
    double busy[2] = {0};
    for (int32_t i = 0; i < 2; i++)
        busy[i] = 1e9 * td_session_device(r.session, i).busy_s;
    double difference = busy[0] > busy[1] ? busy[0] - busy[1] : busy[1] - busy[0];
    const td_advice *advice = advice_of(a, "unbalanced_cut", &list);
    near(advice->measured * (double)a->steps->average.interval_ns * SLOW_STEPS, difference / 2);
    assert_non_null(strstr(advice->text, "cpu works"));
    assert_non_null(
        strstr(advice->text, "no op or layer there is small enough and free to move")); /* the caller's own code */
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_source_is_found_with_its_time),
        cmocka_unit_test(test_a_slow_link_is_found_with_its_time),
        cmocka_unit_test(test_a_slow_op_is_found_with_its_time),
        cmocka_unit_test(test_an_unbalanced_cut_is_found_with_what_it_costs),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
