/* What went on at the same time, curves over steps, and one step in detail: on traces whose times are known, in the report and in its
 * CSV files. */
#include "tests/profiler/made_trace.h"

#include "base/file.h"
#include "base/memory.h"
#include "profiler/curves.h"
#include "profiler/export.h"
#include "profiler/report.h"
#include "tests/base/folder.h"

static folder here;

typedef struct opened {
    td_trace *trace;
    td_analysis *a;
} opened;

static opened open_made(const made *m)
{
    opened o = {0};
    made_file(in_folder(&here, "made.tdt"), m);
    OK(td_trace_read(in_folder(&here, "made.tdt"), &o.trace));
    OK(td_analysis_create(o.trace, -1, &o.a));
    return o;
}

static void close_made(opened *o)
{
    td_analysis_destroy(o->a);
    td_trace_destroy(o->trace);
}

static int32_t activity(const td_overlaps *o, const char *name)
{
    for (int32_t i = 0; i < o->n; i++)
        if (!strcmp(o->activities[i].name, name))
            return i;
    fail_msg("no activity %s", name);
    return -1;
}

static int64_t together(const td_overlaps *o, const char *a, const char *b)
{
    return td_overlap_ns(o, activity(o, a), activity(o, b));
}

static void test_each_pair_of_activities_says_how_long_both_went_on(void **state)
{
    (void)state;
    made m = made_defaults();
    m.fetch = 900;
    opened o = open_made(&m);
    const td_overlaps *all = o.a->overlaps;
    const int64_t n = m.steps, *d = m.durations;
    assert_int_equal(together(all, "accel compute", "accel compute"), n * (d[BOTTOM] + d[TOP] + d[BACKWARD]));
    assert_int_equal(together(all, "cpu compute", "cpu compute"), n * d[LOOKUP]);
    assert_int_equal(together(all, "cpu update", "cpu update"), n * d[UPDATE]);
    assert_int_equal(together(all, "to accel", "to accel"), n * d[TO_ACCEL]);
    assert_int_equal(together(all, "from accel", "from accel"), n * d[TO_CPU]);
    assert_int_equal(together(all, "waiting for data", "waiting for data"), n * m.data_wait);
    assert_int_equal(together(all, "cpu compute", "accel compute"),
                     n * d[BOTTOM]); /* the lookup is longer than bottom */
    assert_int_equal(together(all, "accel compute", "cpu compute"), n * d[BOTTOM]);
    assert_int_equal(together(all, "making batches", "waiting for data"), n * m.fetch);
    assert_int_equal(together(all, "cpu update", "accel compute"), 0);
    assert_int_equal(together(all, "to accel", "accel compute"), 0);
    for (int32_t a = 0; a < all->n; a++)
        for (int32_t b = 0; b < all->n; b++) {
            int64_t sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += td_overlap_in_step_ns(all, a, b, i);
            assert_int_equal(sum, td_overlap_ns(all, a, b));
        }
    close_made(&o);
}

/* What pulls and pushes is no computing of its device. */
static void test_communication_is_an_activity_of_its_own(void **state)
{
    (void)state;
    made m = made_defaults();
    m.push = 300000;
    m.sum = 200000;
    opened o = open_made(&m);
    const td_overlaps *all = o.a->overlaps;
    assert_int_equal(together(all, "push", "push"), m.steps * m.push);
    assert_int_equal(together(all, "all-reduce", "all-reduce"), m.steps * m.sum);
    assert_int_equal(together(all, "push", "all-reduce"), 0);
    for (int32_t i = 0; i < all->n; i++) /* the node that pushes is the update: its op is no update any more */
        assert_string_not_equal(all->activities[i].name, "cpu update");
    close_made(&o);
}

static double at(const json_t *list, int64_t i)
{
    return json_number_value(json_array_get(list, (size_t)i));
}

static const json_t *named(const json_t *list, const char *name)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) if (!strcmp(json_string_value(json_object_get(item, "name")), name)) return item;
    fail_msg("no %s", name);
    return NULL;
}

static void near_ms(double found, int64_t ns)
{
    if (found < 1e-6 * (double)ns - 1e-9 || found > 1e-6 * (double)ns + 1e-9)
        fail_msg("%g is not %g", found, 1e-6 * (double)ns);
}

static void test_curves_of_some_steps_are_those_of_all(void **state)
{
    (void)state;
    made m = made_defaults();
    m.steps = 6;
    opened o = open_made(&m);
    td_curves *all = NULL, *some = NULL, *none = NULL;
    OK(td_curves_create(o.a->steps, 0, m.steps, &all));
    OK(td_curves_create(o.a->steps, 2, 3, &some));
    for (int64_t i = 0; i < 3; i++) {
        for (int32_t s = 0; s < N_SUBGRAPHS; s++) {
            assert_memory_equal(td_curves_subgraph(some, s, i), td_curves_subgraph(all, s, 2 + i),
                                sizeof(td_subgraph_point));
            assert_int_equal(td_curves_subgraph(some, s, i)->total_ns, m.durations[s]);
        }
        for (int64_t l = 0; l < o.a->view->n_lanes; l++)
            assert_int_equal(td_curves_lane_ns(some, l, i), td_curves_lane_ns(all, l, 2 + i));
    }
    td_status *status = td_curves_create(o.a->steps, 0, td_curves_most(o.a->steps) + 1, &none);
    assert_non_null(strstr(td_status_message(status), "steps are more than 4194304 points"));
    assert_null(none);
    td_status_destroy(status);
    td_curves_destroy(all);
    td_curves_destroy(some);
    close_made(&o);
}

static void test_curves_have_every_quantity_of_every_step(void **state)
{
    (void)state;
    made m = made_defaults();
    m.slow_step = 7;
    m.slow_by = 400000;
    opened o = open_made(&m);
    json_t *json = NULL;
    OK(td_report_curves_json(o.a, 7, 8, &json));
    const json_t *steps = json_object_get(json, "steps"), *step = json_object_get(json, "step");
    assert_int_equal(json_array_size(steps), 2);
    assert_int_equal(json_integer_value(json_array_get(steps, 0)), 7);
    assert_int_equal(json_integer_value(json_array_get(steps, 1)), 8);
    for (int i = 0; i < 2; i++) {
        const td_step_times *of = td_step_times_of(o.a->steps, 7 + i);
        near_ms(at(json_object_get(step, "interval_ms"), i), of->interval_ns);
        near_ms(at(json_object_get(step, "backward_ms"), i), m.durations[BACKWARD]);
        near_ms(at(json_object_get(json_object_get(json, "critical_path"), "host_ms"), i), of->path_ns[TD_CAUSE_HOST]);
        near_ms(at(json_object_get(named(json_object_get(json, "subgraphs"), "top"), "forward_ms"), i),
                m.durations[TOP]);
        near_ms(at(json_object_get(named(json_object_get(json, "subgraphs"), "top"), "update_ms"), i), 0);
        near_ms(at(json_object_get(named(json_object_get(json, "lanes"), "cpu"), "busy_ms"), i),
                m.durations[LOOKUP] + m.durations[UPDATE]);
        near_ms(at(json_object_get(named(json_object_get(json, "activities"), "to accel"), "ms"), i),
                m.durations[TO_ACCEL]);
        near_ms(at(json_object_get(json_array_get(json_object_get(json, "overlaps"), 0), "ms"), i),
                m.durations[BOTTOM]);
    }
    assert_int_equal(json_array_size(json_object_get(json, "overlaps")), 1); /* of the others none was together */
    assert_true(at(json_object_get(step, "interval_ms"), 1) >
                at(json_object_get(step, "interval_ms"), 0)); /* 7 was slow */
    json_decref(json);
    close_made(&o);
}

static void test_one_step_has_its_path_its_lanes_and_its_subgraphs(void **state)
{
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    json_t *json = NULL;
    const json_t *item;
    size_t i;
    double path = 0, before = 0;
    OK(td_report_step_json(o.a, 8, &json));
    const double interval = json_number_value(json_object_get(json_object_get(json, "step"), "interval_ms"));
    json_array_foreach(json_object_get(json, "critical_path"), i, item)
    {
        assert_true(json_number_value(json_object_get(item, "from_ms")) > before - 1e-9); /* one after the other */
        before = json_number_value(json_object_get(item, "from_ms"));
        path += json_number_value(json_object_get(item, "ms"));
    }
    assert_true(path > interval - 1e-6 && path < interval + 1e-6);
    json_array_foreach(json_object_get(json, "lanes"), i, item)
    {
        double all =
            json_number_value(json_object_get(item, "busy_ms")) + json_number_value(json_object_get(item, "idle_ms"));
        assert_true(all > interval - 1e-6 && all < interval + 1e-6);
    }
    near_ms(json_number_value(json_object_get(named(json_object_get(json, "lanes"), "accel"), "busy_ms")),
            m.durations[BOTTOM] + m.durations[TOP] + m.durations[BACKWARD]);
    assert_int_equal(json_array_size(json_object_get(json, "subgraphs")), N_SUBGRAPHS);
    json_decref(json);
    td_status *status = td_report_step_json(o.a, 10, &json);
    assert_int_equal(td_status_code(status), TD_NOT_FOUND);
    assert_non_null(strstr(td_status_message(status), "step 10 is not in the recording: it has steps 6 to 9"));
    td_status_destroy(status);
    close_made(&o);
}

static void test_csv_has_a_row_for_each_step_and_thing(void **state)
{
    static const struct {
        const char *file, *head, *row;
        int rows;
    } files[] = {
        {"csv/subgraph_step_time.csv", "Step,Subgraph,Device,Runs,Total,Forward,Backward,Update\n",
         "\n7,top,accel,1,1000.000,1000.000,0.000,0.000\n", 4 * N_SUBGRAPHS},
        {"csv/lane_step_time.csv", "Step,Lane,Busy,Interval\n", "\n8,cpu,2700.000,", 4 * 4},
        {"csv/overlap_step_time.csv", "Step,First,Second,Overlap\n", "\n9,cpu compute,accel compute,1000.000\n", 4},
    };
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    OK(td_export_csv(o.a, in_folder(&here, "csv")));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text = NULL;
        size_t bytes = 0;
        int rows = -1;
        OK(td_file_read(in_folder(&here, files[i].file), &text, &bytes));
        assert_int_equal(strncmp(text, files[i].head, strlen(files[i].head)), 0);
        assert_non_null(strstr(text, files[i].row));
        for (size_t k = 0; k < bytes; k++)
            rows += text[k] == '\n';
        assert_int_equal(rows, files[i].rows);
        td_free(text);
    }
    assert_false(td_file_exists(in_folder(&here, "csv/micro_step_time.csv"))); /* it does not accumulate */
    close_made(&o);
}

/* Of more steps than curves have at a time the files are written in pieces: they are those of one piece. */
static void test_csv_does_not_depend_on_how_many_steps_are_done_at_once(void **state)
{
    static const char *const files[] = {"subgraph_step_time.csv", "lane_step_time.csv"};
    (void)state;
    made m = made_defaults();
    m.steps = 7;
    opened o = open_made(&m);
    OK(td_directory_create(in_folder(&here, "whole")));
    OK(td_directory_create(in_folder(&here, "pieces")));
    for (int64_t at_once = 1; at_once < 7; at_once += 2) {
        OK(td_export_csv_curves(o.a, in_folder(&here, "whole"), 0));
        OK(td_export_csv_curves(o.a, in_folder(&here, "pieces"), at_once));
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            char *text[2] = {NULL}, name[64];
            size_t bytes[2] = {0};
            for (int k = 0; k < 2; k++) {
                (void)snprintf(name, sizeof name, "%s/%s", k ? "pieces" : "whole", files[i]);
                OK(td_file_read(in_folder(&here, name), &text[k], &bytes[k]));
            }
            assert_int_equal(bytes[0], bytes[1]);
            assert_memory_equal(text[0], text[1], bytes[0]);
            td_free(text[0]);
            td_free(text[1]);
        }
    }
    close_made(&o);
}

/* ---- data and totals --------------------------------------------------------------------------------------------------------------- */

static void test_steps_that_starve_are_named(void **state)
{
    (void)state;
    made m = made_defaults();
    char text[80];
    m.queue = 3;
    m.queue_most = 8;
    opened o = open_made(&m);
    assert_int_equal(o.a->data.queue_least, 3);
    assert_int_equal(o.a->data.queue_greatest, 3);
    assert_int_equal(o.a->data.queue_places, 8);
    for (int i = 0; i < m.steps; i++) {
        assert_int_equal(o.a->data.steps[i].ready, 3);
        assert_int_equal(o.a->data.steps[i].waited_ns, m.data_wait);
        assert_false(o.a->data.steps[i].starved);
    }
    assert_string_equal(td_data_starved_text(o.a->steps, &o.a->data, text, sizeof text), "");
    close_made(&o);
    m.data_wait = 2000000;
    o = open_made(&m);
    assert_int_equal(o.a->data.starved_steps, m.steps);
    assert_string_equal(td_data_starved_text(o.a->steps, &o.a->data, text, sizeof text), "6 to 9");
    o.a->data.steps[1].starved = false;
    assert_string_equal(td_data_starved_text(o.a->steps, &o.a->data, text, sizeof text), "6, 8 to 9");
    close_made(&o);
}

static void test_totals_count_what_lanes_did(void **state)
{
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    json_t *json = NULL;
    OK(td_report_json(o.a, &json));
    const json_t *totals = json_object_get(json, "totals"), *kinds = json_object_get(totals, "kinds");
    assert_int_equal(json_integer_value(json_object_get(totals, "tasks")), m.steps * N_SUBGRAPHS);
    assert_int_equal(json_integer_value(json_object_get(totals, "lanes")), 4);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kinds, "op"), "count")), m.steps * 5);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kinds, "copy"), "count")), m.steps * 2);
    near_ms(json_number_value(json_object_get(json_object_get(kinds, "copy"), "ms")),
            m.steps * (m.durations[TO_ACCEL] + m.durations[TO_CPU]));
    const json_t *devices = json_object_get(json_object_get(json, "machine"), "devices");
    double busy = (double)(m.durations[LOOKUP] + m.durations[UPDATE]) / (double)o.a->steps->average.interval_ns;
    double found = json_number_value(json_object_get(named(devices, "cpu"), "utilisation"));
    assert_true(found > busy - 1e-3 && found < busy + 1e-3);
    json_decref(json);
    close_made(&o);
}

static int enter(void **state)
{
    (void)state;
    here = make_folder();
    return 0;
}

static int leave(void **state)
{
    (void)state;
    remove_folder(&here);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_pair_of_activities_says_how_long_both_went_on),
        cmocka_unit_test(test_communication_is_an_activity_of_its_own),
        cmocka_unit_test(test_curves_of_some_steps_are_those_of_all),
        cmocka_unit_test(test_curves_have_every_quantity_of_every_step),
        cmocka_unit_test(test_one_step_has_its_path_its_lanes_and_its_subgraphs),
        cmocka_unit_test(test_csv_has_a_row_for_each_step_and_thing),
        cmocka_unit_test(test_csv_does_not_depend_on_how_many_steps_are_done_at_once),
        cmocka_unit_test(test_steps_that_starve_are_named),
        cmocka_unit_test(test_totals_count_what_lanes_did),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
