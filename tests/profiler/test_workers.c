/* Workers of a job: those that one rank runs since another was lost, each analysed by itself; and a job beside one process that does its
 * work. */
#include "tests/profiler/made_job.h"

#include "profiler/diff.h"

/* The second's records: ids of its own plan, which follows the first's. Whose a batch is stands in its record. */
static void renumber(made_events *events, int worker)
{
    for (uint32_t t = 1; t <= WORKER; t++)
        for (uint32_t i = 0; i < events->n[t]; i++) {
            td_record *record = &events->records[t][i];
            if (td_record_kind_of(record) == TD_RECORD_DATA_FETCH)
                record->id = (uint32_t)worker + 1;
            else if (record->id && worker == 2)
                record->id += 2 * N_SUBGRAPHS;
        }
}

/* One that took over another's work has both in its trace: each has its own plan, and threads of its own. The second is later to sums,
 * and its batches take twice as long. */
static void write_two_in_one(const char *path, int64_t late)
{
    made m = worker(1, 3);
    made_events *events[2] = {calloc(1, sizeof(made_events)), calloc(1, sizeof(made_events))};
    td_trace_writer *writer = NULL;
    char text[64], *plan;
    int64_t end = 0;
    m.role = "workers 1, 2";
    m.changes[0][0] = "\"training\":true";
    m.changes[0][1] = "\"worker\":1,\"training\":true";
    assert_true(events[0] && events[1]);
    for (int w = 0; w < 2; w++) {
        int64_t at = 1000000;
        m.late = w ? late : 0;
        m.sum = 50000 + (w ? 0 : late);
        m.callback = w ? 3000 : 1000;
        m.fetch = w ? 800000 : 400000;
        for (int step = m.first - 1; step < m.first + m.steps; step++)
            at = made_step(events[w], &m, step, at);
        renumber(events[w], 1 + w);
        end = at > end ? at : end;
    }
    (void)unlink(path);
    OK(td_trace_writer_open(path, &writer));
    OK(made_write(writer, &m, events[0], end));
    (void)snprintf(text, sizeof text, "\"worker\":2,\"first_id\":%d", FIRST_ID + 2 * N_SUBGRAPHS);
    m.changes[0][0] = "\"first_id\":1";
    m.changes[0][1] = text;
    plan = made_plan_with(&m);
    OK(td_trace_write(writer, TRACE_PLAN, plan, strlen(plan)));
    free(plan);
    for (uint32_t t = 1; t <= WORKER; t++)
        if (events[1]->n[t])
            OK(td_trace_write_records(writer, WORKER + t, "of the second", events[1]->records[t], events[1]->n[t], 0));
    OK(td_trace_writer_close(writer, 0));
    free(events[0]);
    free(events[1]);
}

static void test_each_worker_of_a_rank_is_analysed(void **state)
{
    (void)state;
    made m = worker(0, 3);
    m.sum += 2 * MS;
    made_file(trace_name(0), &m);
    write_two_in_one(trace_name(1), 2 * MS);
    opened o = open_job();
    assert_int_equal(o.job->n, 4); /* rank 2 is lost */
    for (int i = 1; i < 3; i++) {
        const td_rank_trace *place = &o.job->ranks[i];
        assert_int_equal(place->rank, 1);
        assert_int_equal(place->worker, i);
        assert_string_equal(place->role, i == 1 ? "worker 1" : "worker 2");
        assert_int_equal(place->shares, i == 2);
        assert_int_equal(o.a->ranks->times[i].steps, 6);
        assert_int_equal(o.a->ranks->times[i].sum.n, 6); /* its own, not both */
        near((double)o.a->ranks->times[i].late_median_ns, i == 2 ? 2 * MS : 0);
    }
    assert_int_equal(td_ranks_slowest(o.a->ranks), 2);
    assert_int_equal(td_ranks_on(o.a->ranks, "here"), 2);
    assert_non_null(strstr(find(&o, "slow_rank")->text, "rank 1 (worker 2 on here)"));
    /* the process has two cores; the first waits for sums, and makes its batches sooner */
    const double first = 5.7 - 2.05 + 0.4, second = 5.7 - 0.05 + 0.8;
    near(o.a->ranks->times[1].cores_used, 2 * first / (first + second));
    near(o.a->ranks->times[2].cores_used, 2 * second / (first + second));
    near(td_ranks_cores_used(o.a->ranks, "here"), 2 + 2);
    int64_t intervals[2] = {0};
    for (int w = 1; w < 3; w++) {
        td_analysis *a = NULL;
        OK(td_analysis_create_of(o.job, (td_whose){-1, w}, -1, &a));
        assert_int_equal(a->view->plan->worker, w);
        assert_int_equal(a->steps->n_steps, 6);
        assert_int_equal(a->steps->average.callback_ns, w == 2 ? 3000 : 1000); /* of its own thread */
        assert_int_equal(a->steps->average.all_reduce_ns, w == 2 ? 50000 : 50000 + 2 * MS);
        assert_int_equal(a->steps->average.data_wait_ns, made_defaults().data_wait);
        assert_int_equal(a->view->n_lanes, 4);
        assert_int_equal(a->data.workers, 1); /* its own batches, not both */
        assert_int_equal(a->data.fetches, 6);
        assert_int_equal(a->data.fetch_ns, 6 * (w == 2 ? 800000 : 400000));
        near(a->data.cores_used, o.a->ranks->times[w].cores_used);
        intervals[w - 1] = a->steps->average.interval_ns;
        td_analysis_destroy(a);
    }
    near((double)intervals[1], (double)intervals[0]);
    td_analysis *none = NULL;
    td_status *status = td_analysis_create_of(o.job, (td_whose){0, 2}, -1, &none);
    assert_non_null(strstr(td_status_message(status), "worker 2 is of rank 1, not 0"));
    td_status_destroy(status);
    status = td_analysis_create_of(o.job, (td_whose){-1, 7}, -1, &none);
    assert_non_null(strstr(td_status_message(status), "no worker 7"));
    td_status_destroy(status);
    td_trace *merged = NULL;
    OK(td_job_traces_merge(o.job, &merged));
    assert_int_equal(merged->n_events, o.job->ranks[0].trace->n_events + o.job->ranks[1].trace->n_events);
    td_trace_destroy(merged);
    close_job(&o);
}

/* Each worker looks at all records of its rank: a file of a great many would take for ever. */
static void test_a_rank_of_very_many_workers_is_refused(void **state)
{
    (void)state;
    enum { MANY = 257 };
    made m = worker(0, 1);
    made_events *events = calloc(1, sizeof *events);
    td_trace_writer *writer = NULL;
    td_job_traces *job = NULL;
    char text[64];
    assert_non_null(events);
    (void)unlink(trace_name(0));
    OK(td_trace_writer_open(trace_name(0), &writer));
    OK(made_write(writer, &m, events, 1000000));
    m.changes[0][0] = "\"first_id\":1";
    m.changes[0][1] = text;
    for (int w = 0; w < MANY; w++) {
        (void)snprintf(text, sizeof text, "\"worker\":%d,\"first_id\":%d", w, FIRST_ID + 2 * (w + 1) * N_SUBGRAPHS);
        char *plan = made_plan_with(&m);
        OK(td_trace_write(writer, TRACE_PLAN, plan, strlen(plan)));
        free(plan);
    }
    OK(td_trace_writer_close(writer, 0));
    free(events);
    td_status *status = td_job_traces_read(trace_name(0), &job);
    assert_int_equal(td_status_code(status), TD_DATA_ERROR);
    assert_non_null(strstr(td_status_message(status), "rank 0: it runs more than 256 workers"));
    td_status_destroy(status);
}

/* Two workers of 128 samples each do what one process does with 256. */
static void test_a_job_is_compared_by_the_samples_of_all_its_workers(void **state)
{
    (void)state;
    made alone = made_defaults();
    td_trace *trace = NULL;
    td_analysis *single = NULL;
    td_diff *diff = NULL;
    char text[256];
    for (int r = 0; r < 2; r++) {
        made m = worker(r, 2);
        m.samples = 128;
        made_file(trace_name(r), &m);
    }
    opened o = open_job();
    made_file(in_folder(&here, "alone.tdt"), &alone);
    OK(td_trace_read(in_folder(&here, "alone.tdt"), &trace));
    OK(td_analysis_create(trace, -1, &single));
    OK(td_diff_create(single, o.a, 0.02, &diff));
    assert_true(diff->same_work);
    assert_string_equal(td_diff_unlike_text(diff, false, text, sizeof text), "ranks 1, then 2");
    td_diff_destroy(diff);
    td_analysis_destroy(single);
    td_trace_destroy(trace);
    close_job(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_worker_of_a_rank_is_analysed),
        cmocka_unit_test(test_a_rank_of_very_many_workers_is_refused),
        cmocka_unit_test(test_a_job_is_compared_by_the_samples_of_all_its_workers),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
