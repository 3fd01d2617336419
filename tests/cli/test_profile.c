/* Recording through the program: by option, configuration, environment and signal; what it prints; mistakes. */
#include "tests/cli/runs.h"

#include "base/memory.h"
#include "cli/profiling.h"
#include "profiler/trace.h"

/* First and last step of a run's only window, and how many windows there are. */
static int64_t window_of(const char *run, int64_t *out_first, int64_t *out_last)
{
    char *path = NULL;
    td_trace *trace = NULL;
    td_status *status = td_trace_locate(run, &path);
    if (!status)
        status = td_trace_read(path, &trace);
    if (status)
        fail_msg("%s", td_status_message(status));
    int64_t n = trace->n_windows;
    *out_first = n ? trace->windows[n - 1].first_step : 0;
    *out_last = n ? trace->windows[n - 1].last_step : 0;
    td_trace_destroy(trace);
    td_free(path);
    return n;
}

static void expect_window(const char *run, int64_t first, int64_t last)
{
    int64_t a = 0, b = 0;
    assert_int_equal(window_of(run, &a, &b), 1);
    assert_int_equal(a, first);
    assert_int_equal(b, last);
}

static void test_ranges_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t first, last;
    } cases[] = {
        {"10-20", true, 10, 20},
        {"7", true, 7, 7},
        {"3-", true, 3, INT64_MAX},
        {"0-4", false, 0, 0},
        {"5-4", false, 0, 0},
        {"", false, 0, 0},
        {"-3", false, 0, 0},
        {"1-2-3", false, 0, 0},
        {"x", false, 0, 0},
        {"1 - 2", false, 0, 0},
        {"99999999999999999999", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t first = 0, last = 0;
        assert_int_equal(td_profiling_range(cases[i].text, &first, &last), cases[i].good);
        assert_true(!cases[i].good || (first == cases[i].first && last == cases[i].last));
    }
}

static void test_a_run_records_what_it_is_asked_for(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "plain");
    assert_int_equal(access("plain/profile", F_OK), -1);
    SUCCEED("train", "x.yaml", "--run", "option", "--profile");
    expect_window("option", 6, 15);
    assert_non_null(strstr(out, "events, 0 dropped: tandem profile option"));
    expect_same_parameters("plain/summary.json", "option/summary.json");
    SUCCEED("train", "x.yaml", "--run", "steps", "--set", "profile.steps=3-5");
    expect_window("steps", 3, 5);
    SUCCEED("train", "x.yaml", "--run", "epochs", "--set", "profile.epochs=2"); /* of 16 steps */
    expect_window("epochs", 17, 32);
    SUCCEED("train", "x.yaml", "--run", "unit", "--set", "profile.unit=epoch", "--set", "profile.skip=1", "--set",
            "profile.active=1");
    expect_window("unit", 17, 32);
    SUCCEED("train", "x.yaml", "--run", "not", "--profile", "--set", "profile.start=off");
    assert_int_equal(access("not/profile", F_OK), -1);
    setenv("TANDEM_PROFILE", "8-9", 1);
    SUCCEED("train", "x.yaml", "--run", "environment");
    expect_window("environment", 8, 9);
    setenv("TANDEM_PROFILE", "off", 1);
    SUCCEED("train", "x.yaml", "--run", "forbidden", "--profile");
    assert_int_equal(access("forbidden/profile", F_OK), -1);
    unsetenv("TANDEM_PROFILE");
}

#if TANDEM_HAVE_ONEDNN
/* The library's matrix products are made at first use, and again for the short last batch: within recorded ops. */
static void test_kernels_that_are_made_anew_are_recorded(void **state)
{
    (void)state;
    char *path = NULL;
    td_trace *trace = NULL;
    int64_t made = 0;
    SUCCEED("train", "x.yaml", "--run", "anew", "--set", "cpu.gemm=library", "--set", "profile.steps=1-");
    assert_null(td_trace_locate("anew", &path));
    assert_null(td_trace_read(path, &trace));
    for (int64_t i = 0; i < trace->n_events; i++)
        made += trace->events[i].kind == TD_RECORD_PREPARE;
    assert_true(made > 0);
    td_trace_destroy(trace);
    td_free(path);
}
#endif

static void test_mistakes_are_named(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "a", "--set", "profile.steps=ten"), 2);
    assert_non_null(strstr(errors, "profile.steps is \"ten\"; it must be a range from 1 on"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "b", "--set", "profile.steps=100-200"), 2);
    assert_non_null(strstr(errors, "profile.steps begins at step 100, and the training has 32"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "c", "--set", "profile.steps=1", "--set", "profile.epochs=1"), 2);
    assert_non_null(strstr(errors, "exclude each other"));
    assert_int_equal(RUN("profile", "nowhere"), 2);
    assert_non_null(strstr(errors, "nowhere: cannot open: No such file or directory\n"));
    SUCCEED("train", "x.yaml", "--run", "unrecorded");
    assert_int_equal(RUN("profile", "unrecorded"), 2);
    assert_non_null(strstr(errors, "no trace was recorded there"));
    assert_int_equal(RUN("profile"), 2);
    assert_int_equal(RUN("profile", "diff", "a"), 2);
}

static void test_every_view_of_a_run(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "seen", "--profile");
    SUCCEED("profile", "seen");
    static const char *const parts[] = {"dlrm: steps 6 to 15", "critical path", "cut edge", "lane ",
                                        "ops by type",         "slowest ops",   "data: ",   "memory "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(out, parts[i]));
    SUCCEED("profile", "seen", "--step", "8");
    assert_non_null(strstr(out, "step 8: "));
    assert_int_equal(RUN("profile", "seen", "--step", "5"), 2);
    assert_non_null(strstr(errors, "it has steps 6 to 15"));
    SUCCEED("profile", "seen", "--op-info");
    assert_non_null(strstr(out, "(inserted by the planner)"));
    SUCCEED("profile", "seen", "--json");
    json_t *json = json_loads(out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "steps")), 10);
    json_decref(json);
    SUCCEED("profile", "seen", "--chrome", "c.json", "--perfetto", "p.pftrace", "--csv", "csv", "--html", "page.html");
    assert_int_equal(access("c.json", F_OK) + access("p.pftrace", F_OK) + access("csv/op_type_info.csv", F_OK) +
                         access("page.html", F_OK),
                     0);
    SUCCEED("profile", "diff", "seen", "seen");
    assert_non_null(strstr(out, "the same work, done alike\n"));
    assert_non_null(strstr(out, "median of a step"));
}

/* Nobody is told that one model is faster than another without having asked for that. */
static void test_recordings_of_different_work_are_not_compared(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "left", "--profile");
    SUCCEED("train", "x.yaml", "--run", "right", "--profile", "--set", "data.batch=8");
    assert_int_equal(RUN("profile", "diff", "left", "right"), 2);
    assert_non_null(strstr(errors, "recorded different work: samples a step "));
    assert_non_null(strstr(errors, "--anyway"));
    assert_null(strstr(out, "median of a step"));
    const int code = RUN("profile", "diff", "left", "right", "--anyway", "--least", "0.99"); /* 1: it is slower */
    assert_true(code == 0 || code == 1);
    assert_int_equal(strncmp(out, "different work: samples a step ", 31), 0);
    assert_non_null(strstr(out, "median of a step"));
}

/* The signal comes while it trains; it would train for long otherwise. */
static void test_a_signal_asks_for_a_recording(void **state)
{
    (void)state;
    FILE *stream = NULL;
    const char *const words[] = {
        "train", "x.yaml", "--run", "asked", "--set", "train.epochs=100000", "--set", "train.log_every=1", NULL};
    pid_t child = start_program(words, &stream);
    assert_true(read_until(stream, "epoch"));
    assert_int_equal(kill(child, SIGUSR1), 0);
    struct stat status;
    char *path = NULL;
    while (!path && read_until(stream, "epoch")) { /* a line a step: until the window of eleven steps is there */
        td_status_destroy(td_trace_locate("asked", &path));
        if (path && (stat(path, &status) != 0 || status.st_size < 4096)) {
            td_free(path);
            path = NULL;
        }
    }
    for (int i = 0; i < 40 && read_until(stream, "epoch"); i++)
        ;
    assert_int_equal(kill(child, SIGTERM), 0);
    while (read_until(stream, "epoch"))
        ;
    assert_int_equal(wait_for(child), 130);
    fclose(stream);
    int64_t first = 0, last = 0;
    assert_int_equal(window_of("asked", &first, &last), 1);
    assert_int_equal(last - first, 9);
    td_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_read),
        cmocka_unit_test(test_a_run_records_what_it_is_asked_for),
#if TANDEM_HAVE_ONEDNN
        cmocka_unit_test(test_kernels_that_are_made_anew_are_recorded),
#endif
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_every_view_of_a_run),
        cmocka_unit_test(test_recordings_of_different_work_are_not_compared),
        cmocka_unit_test(test_a_signal_asks_for_a_recording),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
