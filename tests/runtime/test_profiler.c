/* Recording a run: as many ops are recorded as were executed, parameters come out the same with and without, the schedule is
 * kept, and a profiler that cannot write turns itself off while training goes on. */
#include "tests/runtime/profiled_run.h"

static int64_t count(const td_trace *trace, int kind, int64_t first, int64_t last)
{
    int64_t n = 0;
    for (int64_t i = 0; i < trace->n_events; i++)
        n += trace->events[i].kind == kind && trace->events[i].step >= first && trace->events[i].step <= last;
    return n;
}

/* What each step runs: ops that compute, by the trace's own plan. */
static int64_t ops_of_a_step(const td_trace_plan *plan)
{
    int64_t n = 0;
    for (int32_t i = 0; i < plan->n_nodes; i++)
        n += !plan->nodes[i].view && plan->subgraphs[plan->nodes[i].subgraph].lane == TD_TRACE_COMPUTE;
    return n;
}

static void test_every_op_is_recorded_once(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(4, 1, 10, 1, true);
    int64_t before = 0;
    train(&r, 30);
    for (int32_t i = 0; i < td_session_devices(r.session); i++)
        before += td_session_device(r.session, i).kernels;
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->n_windows, 1);
    assert_int_equal(trace->windows[0].first_step, 6);
    assert_int_equal(trace->windows[0].last_step, 15);
    assert_int_equal(trace->dropped, 0);
    static const char *const costs[] = {"event_ns", "off_ns", "step_share"}; /* every trace says what it cost */
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        assert_true(json_number_value(json_object_get(trace->info, costs[i])) > 0);
    const td_trace_plan *plan = &trace->plans[0];
    assert_int_equal(before, 30 * ops_of_a_step(plan));
    assert_int_equal(count(trace, TD_RECORD_OP, 6, 15), 10 * ops_of_a_step(plan));
    assert_int_equal(count(trace, TD_RECORD_SUBGRAPH, 6, 15), 10 * plan->n_subgraphs);
    assert_int_equal(count(trace, TD_RECORD_STEP, 6, 15), 10);
    td_view *view = NULL;
    assert_ok(td_view_create(trace, -1, &view));
    assert_int_equal(td_view_count(view), 10);
    td_view_destroy(view);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static int64_t elements_of(const td_trace_plan *plan, int32_t value)
{
    return plan->values[value].bytes / 4;
}

/* Every update of a parameter on the host comes in chunks, which have its elements together: of a dense one all, of a table those of
 * the batch's gradients. */
static void test_updates_on_the_host_are_recorded_by_chunks(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(0, 0, 6, 1, true);
    train(&r, 6);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    const td_trace_plan *plan = &trace->plans[0];
    int64_t updates = 0;
    for (int32_t n = 0; n < plan->n_nodes; n++) {
        const td_trace_node *node = &plan->nodes[n];
        if (node->phase != TD_TRACE_UPDATE || !plan->devices[plan->subgraphs[node->subgraph].device].host)
            continue;
        int64_t elements = 0;
        for (int64_t i = 0; i < trace->n_events; i++)
            if (trace->events[i].kind == TD_RECORD_UPDATE && trace->events[i].id == plan->first_id + (uint32_t)n)
                elements += (int64_t)trace->events[i].amount;
        if (!elements)
            continue; /* a number that the update needs */
        const bool table = !strcmp(plan->values[node->inputs[0]].name, "table.weight");
        assert_int_equal(elements, 6 * (table ? BATCH * DIM : elements_of(plan, node->inputs[0])));
        updates++;
    }
    assert_int_equal(updates, 1); /* the table's: the layers' are made on the accelerator */
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

/* Of a training that accumulates: each micro-step's work is its own, and they add up to the step. */
static void test_micro_steps_have_their_own_times(void **state)
{
    enum { MICRO = 3, STEPS = 5 };
    (void)state;
    run r = {.accumulate = MICRO};
    td_trace *trace = NULL;
    td_analysis *a = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(1, 1, STEPS, 1, true);
    train(&r, STEPS + 3);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(count(trace, TD_RECORD_MICRO_STEP, 3, 2 + STEPS), MICRO * STEPS);
    assert_int_equal(count(trace, TD_RECORD_STEP, 3, 2 + STEPS), STEPS);
    assert_ok(td_analysis_create(trace, -1, &a));
    assert_int_equal(a->view->n_micro, MICRO);
    for (int64_t i = 0; i < STEPS; i++) {
        const td_step_times *step = &a->steps->steps[i], *micros = &a->steps->micros[i * MICRO];
        td_step_times sum = {0};
        int64_t waited = 0;
        for (int m = 0; m < MICRO; m++) {
            assert_int_equal(micros[m].step, step->step);
            assert_int_equal(micros[m].micro, m);
            assert_int_equal(micros[m].samples, BATCH);
            assert_true(micros[m].forward_ns > 0);
            sum.interval_ns += micros[m].interval_ns;
            sum.forward_ns += micros[m].forward_ns;
            sum.backward_ns += micros[m].backward_ns;
            sum.update_ns += micros[m].update_ns;
            sum.to_device_bytes += micros[m].to_device_bytes;
            waited += micros[m].data_wait_ns;
            int64_t path = 0;
            for (int c = 0; c < TD_CAUSES; c++)
                path += micros[m].path_ns[c];
            assert_int_equal(path, micros[m].interval_ns);
        }
        assert_int_equal(sum.interval_ns, step->interval_ns);
        assert_int_equal(sum.forward_ns, step->forward_ns);
        assert_int_equal(sum.backward_ns, step->backward_ns);
        assert_int_equal(sum.update_ns, step->update_ns);
        assert_int_equal(sum.to_device_bytes, step->to_device_bytes);
        assert_int_equal(waited, step->data_wait_ns);
        assert_true(micros[MICRO - 1].update_ns >
                    micros[0].update_ns); /* the window's end is where parameters change */
    }
    for (int64_t l = 0; l < a->view->n_lanes; l++) /* a lane does one thing at a time */
        for (int64_t i = 1; i < a->view->lanes[l].n_runs; i++)
            assert_true(a->view->lanes[l].runs[i]->begin_ns >= a->view->lanes[l].runs[i - 1]->end_ns);
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_parameters_are_the_same_with_and_without(void **state)
{
    (void)state;
    uint64_t checksums[2];
    for (int with = 0; with < 2; with++) {
        run r = {0};
        open_run(&r);
        td_profiler *profiler = with ? profiler_of(0, 0, 1000, 1, true) : NULL;
        train(&r, 25);
        assert_ok(td_store_checksum(r.store, &checksums[with]));
        assert_true(!with || td_profiler_is_recording(profiler));
        td_profiler_destroy(profiler);
        close_run(&r);
    }
    assert_int_equal(checksums[0], checksums[1]);
}

static void test_windows_repeat_by_the_schedule(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler_options options = td_profiler_defaults();
    td_profiler *profiler = NULL;
    options.directory = folder;
    options.skip = 3;
    options.wait = 2;
    options.warm_up = 1;
    options.active = 2;
    options.repeat = 3;
    assert_ok(td_profiler_create(&options, &profiler));
    train(&r, 10);
    train(&r, 15); /* across runs of a session too */
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->n_windows, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(trace->windows[i].first_step, 7 + 5 * i);
        assert_int_equal(trace->windows[i].last_step, 8 + 5 * i);
    }
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_a_request_records_from_the_next_step_on(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(0, 1, 3, 1, false);
    train(&r, 10);
    assert_null(td_profiler_trace(profiler));
    td_profiler_request(profiler);
    train(&r, 10);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->n_windows, 1);
    assert_int_equal(trace->windows[0].first_step, 12);
    assert_int_equal(trace->windows[0].last_step, 14);
    assert_true(trace->cut); /* the profiler may be asked again */
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_a_training_that_ends_first_has_a_shorter_window(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(4, 1, 10, 1, true);
    train(&r, 9);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->windows[0].first_step, 6);
    assert_int_equal(trace->windows[0].last_step, 9);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

/* With room for 64 records a ring, and no look at it in between, most are dropped: that is counted and said. */
static void test_what_is_dropped_is_counted(void **state)
{
    (void)state;
    run r = {0};
    td_trace *trace = NULL;
    td_profiler_options options = td_profiler_defaults();
    td_profiler *profiler = NULL;
    uint64_t records = 0, dropped = 0;
    open_run(&r);
    options.directory = folder;
    options.ring_records = 16;
    options.skip = options.warm_up = 0;
    options.active = 20;
    assert_ok(td_profiler_create(&options, &profiler));
    train(&r, 20);
    td_profiler_stop(profiler);
    td_profiler_counts(profiler, &records, &dropped);
    assert_true(dropped > 0);
    td_profiler_start(profiler); /* what a ring dropped at last is told with its next record */
    train(&r, 20);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    td_profiler_counts(profiler, &records, &dropped);
    assert_int_equal(trace->n_events, records);
    assert_int_equal(trace->dropped, dropped);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_a_profiler_that_cannot_write_turns_itself_off(void **state)
{
    (void)state;
    bool through = false;
    for (uint64_t n = 1; !through; n++) {
        run r = {0};
        open_run(&r);
        td_profiler *profiler = profiler_of(2, 1, 3, 1, true);
        td_file_fail_after(n);
        train(&r, 10);
        through = !td_file_failed();
        td_file_fail_after(0);
        assert_int_equal(td_store_steps(r.store), 10);
        assert_true(through == (td_profiler_error(profiler) == NULL));
        assert_false(td_profiler_is_recording(profiler));
        td_profiler_destroy(profiler);
        close_run(&r);
    }
}

/* Who turns recording on by himself, to see what it costs, gets the ops' records without any profiler. */
static void test_lanes_record_without_a_profiler(void **state)
{
    (void)state;
    run r = {0};
    td_record_span span;
    int64_t ops = 0;
    open_run(&r);
    assert_true(td_record_open(1 << 12));
    td_record_switch(true);
    train(&r, 4);
    td_record_switch(false);
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span)) {
            for (uint32_t k = 0; k < span.n; k++)
                ops += td_record_kind_of(&span.records[k]) == TD_RECORD_OP;
            td_record_consume(i, &span);
        }
    assert_int_equal(ops % 4, 0);
    assert_true(ops >= 4 * 10);
    close_run(&r);
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    td_profiler_options options = td_profiler_defaults();
    td_profiler *first = profiler_of(0, 0, 1, 1, false), *second = NULL;
    options.directory = folder;
    td_status *status = td_profiler_create(&options, &second);
    assert_non_null(strstr(td_status_message(status), "has a profiler already"));
    td_status_destroy(status);
    td_profiler_destroy(first);
    options.active = 0;
    status = td_profiler_create(&options, &second);
    assert_non_null(strstr(td_status_message(status), "active at least 1"));
    td_status_destroy(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_is_recorded_once),
        cmocka_unit_test(test_updates_on_the_host_are_recorded_by_chunks),
        cmocka_unit_test(test_micro_steps_have_their_own_times),
        cmocka_unit_test(test_parameters_are_the_same_with_and_without),
        cmocka_unit_test(test_windows_repeat_by_the_schedule),
        cmocka_unit_test(test_a_request_records_from_the_next_step_on),
        cmocka_unit_test(test_a_training_that_ends_first_has_a_shorter_window),
        cmocka_unit_test(test_what_is_dropped_is_counted),
        cmocka_unit_test(test_a_profiler_that_cannot_write_turns_itself_off),
        cmocka_unit_test(test_lanes_record_without_a_profiler),
        cmocka_unit_test(test_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
