/* Ranks of a job beside each other, from traces made by hand: whoever is late is named with its time, servers and ids are counted; advice
 * about ranks speaks on the job made for it and on no other. */
#include "tests/profiler/made_job.h"

#include "profiler/report.h"

/* A server that answers and updates, in milliseconds and bytes a step. */
static void write_server(int rank, int ranks, int64_t ns, uint64_t bytes)
{
    td_trace_writer *writer = NULL;
    td_record records[64];
    uint32_t n = 0;
    char info[128];
    trace_clock clocks[] = {{0, 0, 1700000000000000000, 20}, {1000000000, 1000000000, 1700000001000000000, 30}};
    int length = snprintf(info, sizeof info, "{\"host\":\"here\",\"rank\":%d,\"ranks\":%d,\"role\":\"server %d\"}",
                          rank, ranks, rank);
    for (int step = 6; step < 12; step++)
        for (int kind = TD_RECORD_ANSWER; kind <= TD_RECORD_APPLY; kind++, n++)
            records[n] = (td_record){.begin = (uint64_t)(step * 10 * MS + kind * MS),
                                     .end = (uint64_t)(step * 10 * MS + kind * MS + ns),
                                     .step = (uint32_t)step,
                                     .what = (uint64_t)kind | bytes << TD_RECORD_AMOUNT_SHIFT};
    (void)unlink(trace_name(rank));
    OK(td_trace_writer_open(trace_name(rank), &writer));
    OK(td_trace_write(writer, TRACE_INFO, info, (uint64_t)length));
    for (int i = 0; i < 2; i++)
        OK(td_trace_write(writer, TRACE_CLOCK, &clocks[i], sizeof clocks[i]));
    OK(td_trace_write_records(writer, 1, "server", records, n, 0));
    OK(td_trace_writer_close(writer, 0));
}

/* ---- who is late ------------------------------------------------------------------------------------------------------------------ */

static void test_a_slow_rank_is_named_with_what_the_others_wait_for_it(void **state)
{
    (void)state;
    write_workers(4, 2, 3 * MS);
    opened o = open_job();
    const td_rank_times *slow = &o.a->ranks->times[2];
    assert_int_equal(td_ranks_slowest(o.a->ranks), 2);
    assert_int_equal(slow->met, 6);
    assert_int_equal(slow->times_last, 6);
    assert_int_equal(slow->late_median_ns, 3 * MS);
    assert_int_equal(slow->held_up_ns, 6 * 3 * MS);
    assert_int_equal(o.a->ranks->times[1].late_ns, 0);
    near((double)o.a->ranks->times[1].sum.ns / 6, 3.05 * MS);
    const td_advice *advice = find(&o, "slow_rank");
    assert_non_null(advice);
    near(advice->gain_ms, 3);
    assert_non_null(
        strstr(advice->text, "rank 2 (worker 2 on here) came last to 6 of 6 sums, and the others waited 3.00 ms"));
    json_t *json = NULL;
    OK(td_ranks_json(o.a->ranks, &json));
    const json_t *sum = json_array_get(json_object_get(json, "sums"), 3);
    assert_int_equal(json_integer_value(json_object_get(sum, "step")), 9);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(sum, "order"), 3)), 2);
    near(json_number_value(json_array_get(json_object_get(sum, "late_ms"), 3)), 3);
    json_decref(json);
    close_job(&o);
}

static void test_ranks_that_come_together_get_no_advice(void **state)
{
    (void)state;
    write_workers(4, -1, 0);
    opened o = open_job();
    assert_int_equal(o.a->ranks->times[0].intervals, 6);
    assert_int_equal(o.a->ranks->times[3].steps, 6);
    assert_null(find(&o, "slow_rank"));
    assert_null(find(&o, "unbalanced_servers"));
    assert_null(find(&o, "low_dedup"));
    close_job(&o);
}

/* ---- servers and ids -------------------------------------------------------------------------------------------------------------- */

static void test_a_server_that_moves_most_bytes_is_named(void **state)
{
    (void)state;
    for (int uneven = 0; uneven < 2; uneven++) {
        write_workers(2, -1, 0);
        for (int r = 0; r < 2; r++) {
            made m = worker(r, 5);
            made_file(trace_name(r), &m);
        }
        for (int r = 2; r < 5; r++)
            write_server(r, 5, 200000, uneven && r == 3 ? 900000 : 100000);
        opened o = open_job();
        const td_rank_times *server = &o.a->ranks->times[3];
        assert_int_equal(o.job->n, 5);
        assert_int_equal(server->steps, 6);
        assert_int_equal(server->apply.n, 6);
        assert_int_equal(server->apply.bytes, 6 * (uneven ? 900000 : 100000));
        assert_int_equal(server->answer.ns, 6 * 200000);
        const td_advice *advice = find(&o, "unbalanced_servers");
        assert_int_equal(advice != NULL, uneven);
        if (advice)
            assert_non_null(
                strstr(advice->text, "rank 3 (server 3) moves 1.80 MB of a step's 2.20 MB that 3 servers do"));
        close_job(&o);
    }
}

static void test_ids_that_do_not_repeat_are_named(void **state)
{
    (void)state;
    for (int low = 0; low < 2; low++) {
        char notes[256];
        (void)sprintf(notes,
                      "{\"keys\":[{\"tables\":\"deep.0\",\"batches\":6,\"ids\":1000,\"distinct\":%d,\"sampled\":100,"
                      "\"hot\":[[17,40],[5,3]]}]}",
                      low ? 950 : 400);
        for (int r = 0; r < 2; r++) {
            made m = worker(r, 2);
            m.pull = m.push = 400000;
            m.pull_bytes = 64000;
            m.notes = notes;
            made_file(trace_name(r), &m);
        }
        opened o = open_job();
        assert_int_equal(o.a->ranks->n_keys, 1);
        assert_int_equal(o.a->ranks->keys[0].ids, 2000);
        assert_int_equal(o.a->ranks->keys[0].distinct, low ? 1900 : 800);
        assert_int_equal(o.a->ranks->times[1].pull.bytes, 6 * 64000);
        assert_int_equal(o.a->ranks->times[1].push.ns, 6 * 400000);
        const td_advice *advice = find(&o, "low_dedup");
        assert_int_equal(advice != NULL, low);
        if (advice)
            assert_non_null(strstr(advice->text, "of a batch's ids 95 % name rows of their own"));
        json_t *json = NULL;
        OK(td_report_json(o.a, &json));
        const json_t *rank = json_array_get(json_object_get(json_object_get(json, "ranks"), "ranks"), 0);
        const json_t *hot = json_object_get(json_array_get(json_object_get(rank, "keys"), 0), "hot");
        assert_int_equal(json_integer_value(json_object_get(json_array_get(hot, 0), "id")), 17);
        assert_true(json_number_value(json_object_get(json_array_get(hot, 0), "share")) == 0.4);
        json_decref(json);
        close_job(&o);
    }
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------------- */

static void test_a_step_that_waits_for_ranks_says_so_and_not_that_cores_idle(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        for (int r = 0; r < 2; r++) {
            made m = worker(r, 2);
            m.cpu_share = 0.2;
            m.durations[LOOKUP] = 2 * MS;
            m.pull_within = waits ? 1800000 : 100000;
            made_file(trace_name(r), &m);
        }
        opened o = open_job();
        const td_advice *advice = find(&o, "waiting_for_ranks");
        assert_int_equal(advice != NULL, waits);
        assert_int_equal(find(&o, "idle_cores") != NULL, !waits);
        if (advice) {
            near(advice->gain_ms, 1.8);
            assert_non_null(strstr(advice->text, "pulls, pushes and sums hold a step up for 1.82 ms"));
        }
        close_job(&o);
    }
}

/* What a process leaves of its host's cores the others may use. */
static void test_cores_that_other_ranks_use_do_not_idle(void **state)
{
    (void)state;
    for (int together = 0; together < 2; together++) {
        for (int r = 0; r < 3; r++) {
            made m = worker(r, 3);
            m.cpu_share = 0.25;
            m.host = r && !together ? "there" : "here";
            made_file(trace_name(r), &m);
        }
        opened o = open_job();
        assert_int_equal(td_ranks_on(o.a->ranks, "here"), together ? 3 : 1);
        near(td_ranks_cores_used(o.a->ranks, "here"), together ? 3 : 1);
        assert_int_equal(find(&o, "idle_cores") != NULL, !together);
        close_job(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_rank_is_named_with_what_the_others_wait_for_it),
        cmocka_unit_test(test_ranks_that_come_together_get_no_advice),
        cmocka_unit_test(test_a_server_that_moves_most_bytes_is_named),
        cmocka_unit_test(test_ids_that_do_not_repeat_are_named),
        cmocka_unit_test(test_a_step_that_waits_for_ranks_says_so_and_not_that_cores_idle),
        cmocka_unit_test(test_cores_that_other_ranks_use_do_not_idle),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
