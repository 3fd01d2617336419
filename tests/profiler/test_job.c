/* Traces of a job's ranks, made by hand: their clocks are brought onto one, a rank without a trace is listed, and all become one trace and
 * one report. */
#include "tests/profiler/made_job.h"

#include <sys/stat.h>

#include "base/memory.h"
#include "profiler/export.h"
#include "tandem/graph.h"
#include "tandem/profiler.h"

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
        cmocka_unit_test(test_ranks_without_a_whole_trace_are_listed),
        cmocka_unit_test(test_a_merged_trace_has_every_rank_as_a_process),
        cmocka_unit_test(test_the_report_of_a_job_has_its_ranks),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
