/* Traces of a job's ranks, made by hand: their clocks are brought onto one, whoever is late is named with its time, servers and ids
 * are counted, a rank without a trace is listed; advice about ranks speaks on the job made for it and on no other. */
#include "tests/profiler/made_job.h"

#include <sys/stat.h>

#include "base/memory.h"
#include "profiler/export.h"
#include "profiler/report.h"
#include "tandem/graph.h"
#include "tandem/profiler.h"

/* So many workers that come to their sums together; one may be late, and then the others wait in theirs. */
static void write_workers(int n, int late_rank, int64_t late)
{
    for (int r = 0; r < n; r++) {
        made m = worker(r, n);
        m.late = r == late_rank ? late : 0;
        m.sum += r == late_rank ? 0 : late;
        made_file(trace_name(r), &m);
    }
}

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

/* ---- clocks ---------------------------------------------------------------------------------------------------------------------- */

/* Three ranks do the same at the same time on clocks that began at other moments and run at other rates. */
static void test_clocks_of_all_ranks_become_one(void **state)
{
    static const int64_t starts[] = {1000 * INT64_C(1000000000), 7 * INT64_C(1000000000), 90000 * INT64_C(1000000000)};
    static const double drifts[] = {0, 50e-6, -120e-6};
    static const int64_t begin = 500000,
                         end = 900000000; /* when they were compared, on the first one's clock, from its start */
    char notes[1024] = "", *at = notes;
    (void)state;
    for (int i = 0; i < 2; i++) {
        at += sprintf(at, "%s\"clocks_%s\":[", i ? "," : "{", i ? "end" : "begin");
        for (int r = 1; r < 3; r++)
            at += sprintf(at, "%s{\"rank\":%d,\"mine_ns\":%lld,\"theirs_ns\":%lld,\"error_ns\":%d}", r > 1 ? "," : "",
                          r, (long long)(starts[0] + (i ? end : begin)),
                          (long long)(starts[r] + (int64_t)((double)(i ? end : begin) * (1 + drifts[r]))), 3000 + r);
        at += sprintf(at, "]%s", i ? "}" : "");
    }
    for (int r = 0; r < 3; r++) {
        made m = worker(r, 3);
        m.host = r ? "there" : "here";
        m.start_ns = starts[r];
        m.drift = drifts[r];
        m.notes = r ? NULL : notes;
        made_file(trace_name(r), &m);
    }
    opened o = open_job();
    for (int r = 1; r < 3; r++) {
        const td_rank_trace *rank = &o.job->ranks[r];
        assert_int_equal(rank->aligned, TD_JOB_ALIGNED);
        assert_int_equal(rank->error_ns, 3000 + r);
        near(rank->drift, drifts[r]);
        for (int64_t i = 0; i < rank->trace->n_events; i++) /* the same events as the first one's */
            assert_true(llabs(td_rank_time(rank, rank->trace->events[i].begin_ns) -
                              o.job->ranks[0].trace->events[i].begin_ns) < 100);
        assert_true(o.a->ranks->times[r].late_most_ns < 100);
    }
    close_job(&o);
}

static void write_compared(int64_t theirs, const char *host)
{
    char notes[256];
    (void)sprintf(notes,
                  "{\"clocks_begin\":[{\"rank\":1,\"mine_ns\":5000000000,\"theirs_ns\":%lld,\"error_ns\":20000}]}",
                  (long long)theirs);
    for (int r = 0; r < 2; r++) {
        made m = worker(r, 2);
        m.host = r ? host : "here";
        m.start_ns = 5000000000 + (r && strcmp(host, "here") ? 1000000 : 0);
        m.notes = r ? NULL : notes;
        made_file(trace_name(r), &m);
    }
}

static void test_ranks_of_one_host_share_its_clock_unless_readings_say_otherwise(void **state)
{
    (void)state;
    write_compared(5000000000 + 15000, "here"); /* within the error: it is the reading that is wrong */
    opened o = open_job();
    assert_int_equal(o.job->ranks[1].aligned, TD_JOB_SHARED);
    assert_int_equal(o.job->ranks[1].error_ns, 0);
    assert_int_equal(o.a->ranks->times[1].late_most_ns, 0);
    close_job(&o);
    write_compared(5000000000 + 1000000, "there");
    o = open_job();
    assert_int_equal(o.job->ranks[1].aligned, TD_JOB_ALIGNED_ONCE);
    assert_int_equal(o.job->ranks[1].error_ns, 20000);
    assert_int_equal(o.a->ranks->times[1].late_most_ns, 0);
    close_job(&o);
    write_workers(2, -1, 0); /* nobody compared them: the clocks of day say the same */
    o = open_job();
    assert_int_equal(o.job->ranks[1].aligned, TD_JOB_UNALIGNED);
    assert_int_equal(o.a->ranks->times[1].late_most_ns, 0);
    close_job(&o);
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

/* ---- what is missing -------------------------------------------------------------------------------------------------------------- */

/* Rank 1's trace is cut off, rank 2's is no trace, rank 3 left none; the first one may be the one that is not there. */
static void test_ranks_without_a_whole_trace_are_listed(void **state)
{
    struct stat info;
    (void)state;
    write_workers(4, -1, 0);
    assert_int_equal(stat(trace_name(1), &info), 0);
    assert_int_equal(truncate(trace_name(1), info.st_size - 400), 0);
    assert_int_equal(truncate(trace_name(2), 5), 0);
    assert_int_equal(unlink(trace_name(3)), 0);
    opened o = open_job();
    assert_int_equal(o.job->n, 4);
    assert_true(o.job->ranks[1].trace->cut);
    assert_non_null(strstr(o.job->ranks[2].problem, "not a trace of tandem"));
    assert_string_equal(o.job->ranks[3].problem, "it recorded nothing");
    assert_int_equal(o.a->ranks->times[0].steps, 6);
    td_trace *merged = NULL;
    OK(td_job_traces_merge(o.job, &merged));
    assert_int_equal(merged->n_ranks, 2);
    assert_true(merged->cut);
    td_trace_destroy(merged);
    td_analysis *none = NULL;
    td_status *status = td_analysis_create_of(o.job, (td_whose){3, -1}, -1, &none);
    assert_non_null(strstr(td_status_message(status), "rank 3 has no trace that can be read: it recorded nothing"));
    td_status_destroy(status);
    status = td_analysis_create_of(o.job, (td_whose){9, -1}, -1, &none);
    assert_non_null(strstr(td_status_message(status), "no rank 9"));
    td_status_destroy(status);
    close_job(&o);

    write_workers(3, 1, 2 * MS);
    assert_int_equal(unlink(trace_name(0)), 0);
    char *found = NULL;
    status = td_job_traces_read(trace_name(0), &o.job); /* others are there, but not the one that is asked for */
    assert_int_equal(td_status_code(status), TD_NOT_FOUND);
    assert_null(o.job);
    td_status_destroy(status);
    OK(td_trace_locate(here.path, &found));
    assert_string_equal(found, trace_name(1));
    OK(td_job_traces_read(found, &o.job));
    OK(td_analysis_create_of(o.job, (td_whose){-1, -1}, -1, &o.a));
    assert_string_equal(o.job->ranks[0].problem, "it recorded nothing");
    assert_int_equal(o.a->view->trace == o.job->ranks[1].trace, 1);
    assert_int_equal(o.a->ranks->times[1].late_median_ns, 2 * MS);
    td_free(found);
    close_job(&o);

    write_workers(1, 0, 0);
    assert_int_equal(rename(trace_name(0), trace_name(5000)), 0); /* no rank has such a number: it stands alone */
    OK(td_job_traces_read(trace_name(5000), &o.job));
    OK(td_analysis_create_of(o.job, (td_whose){-1, -1}, -1, &o.a));
    assert_true(o.job->n == 1 && o.job->opened == 0);
    assert_int_equal(unlink(trace_name(5000)), 0);
    close_job(&o);
}

/* ---- one trace of all ------------------------------------------------------------------------------------------------------------- */

static void test_a_merged_trace_has_every_rank_as_a_process(void **state)
{
    (void)state;
    write_workers(3, 1, MS);
    opened o = open_job();
    td_trace *merged = NULL;
    int64_t events = 0;
    OK(td_job_traces_merge(o.job, &merged));
    for (int r = 0; r < 3; r++)
        events += o.job->ranks[r].trace->n_events;
    assert_int_equal(merged->n_events, events);
    assert_int_equal(merged->n_plans, 3);
    assert_string_equal(merged->ranks[1].name, "rank 1: worker 1 on here");
    int64_t tops[3] = {0};
    for (int64_t i = 0; i < merged->n_events; i++) { /* ids still name what they named */
        int32_t node, subgraph;
        const td_trace_event *e = &merged->events[i];
        assert_true(!i || merged->events[i - 1].begin_ns <= e->begin_ns);
        const td_trace_plan *plan = e->kind == TD_RECORD_OP ? td_trace_find(merged, e->id, &node, &subgraph) : NULL;
        if (plan && !strcmp(plan->nodes[node].name, "top/linear"))
            tops[merged->threads[e->thread].rank]++;
    }
    for (int r = 0; r < 3; r++)
        assert_int_equal(tops[r], 7);
    OK(td_export_chrome(merged, in_folder(&here, "chrome.json")));
    json_t *json = json_load_file(in_folder(&here, "chrome.json"), 0, NULL), *event;
    int64_t slices[5] = {0}, named = 0;
    size_t i;
    json_array_foreach(json_object_get(json, "traceEvents"), i, event)
    {
        int64_t pid = json_integer_value(json_object_get(event, "pid"));
        const char *ph = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        assert_in_range(pid, 1, 3);
        slices[pid] += !strcmp(ph, "X");
        named += !strcmp(name, "process_name");
    }
    json_decref(json);
    assert_int_equal(named, 3);
    assert_int_equal(slices[1], slices[3]);
    assert_true(slices[1] > 0 && slices[1] == slices[2]);
    OK(td_export_csv(o.a, in_folder(&here, "csv")));
    FILE *csv = fopen(in_folder(&here, "csv/rank_info.csv"), "r");
    char line[512];
    int lines = 0;
    while (fgets(line, sizeof line, csv))
        lines++;
    fclose(csv);
    assert_int_equal(lines, 4);
    OK(td_export_html(o.a, in_folder(&here, "page.html")));
    td_trace_destroy(merged);
    close_job(&o);
}

static void test_the_report_of_a_job_has_its_ranks(void **state)
{
    char *text = NULL;
    (void)state;
    write_workers(2, 1, MS);
    OK(td_profiler_analyse(trace_name(0), TD_PROFILER_LAST_WINDOW, &text));
    json_t *json = json_loads(text, 0, NULL), *ranks = json_object_get(json, "ranks");
    const json_t *second = json_array_get(json_object_get(ranks, "ranks"), 1);
    assert_string_equal(json_string_value(json_object_get(second, "role")), "worker 1");
    near(json_number_value(json_object_get(second, "late_ms")), 1);
    json_decref(json);
    td_text_free(text);
    for (int r = 0; r < 2; r++)
        (void)unlink(trace_name(r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks_of_all_ranks_become_one),
        cmocka_unit_test(test_ranks_of_one_host_share_its_clock_unless_readings_say_otherwise),
        cmocka_unit_test(test_a_slow_rank_is_named_with_what_the_others_wait_for_it),
        cmocka_unit_test(test_ranks_that_come_together_get_no_advice),
        cmocka_unit_test(test_a_server_that_moves_most_bytes_is_named),
        cmocka_unit_test(test_ids_that_do_not_repeat_are_named),
        cmocka_unit_test(test_a_step_that_waits_for_ranks_says_so_and_not_that_cores_idle),
        cmocka_unit_test(test_cores_that_other_ranks_use_do_not_idle),
        cmocka_unit_test(test_ranks_without_a_whole_trace_are_listed),
        cmocka_unit_test(test_a_merged_trace_has_every_rank_as_a_process),
        cmocka_unit_test(test_the_report_of_a_job_has_its_ranks),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
