/* Exports hold what the trace holds: as many slices, the same names and times; names that would break a format do not. Two
 * recordings differ where they were made to. */
#include "tests/profiler/made_trace.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "profiler/diff.h"
#include "profiler/export.h"
#include "tests/base/folder.h"

static folder here;

static td_trace *trace_of(const made *m)
{
    td_trace *trace = NULL;
    made_file(in_folder(&here, "made.tdt"), m);
    OK(td_trace_read(in_folder(&here, "made.tdt"), &trace));
    return trace;
}

/* Names as somebody may give them who means no good. */
static made hostile(void)
{
    made m = made_defaults();
    m.changes[0][0] = "top/linear\"";
    m.changes[0][1] = "</script>\\\"\\u0001<b>'=1+1,\\u00e9\\n../..\"";
    return m;
}

static void test_chrome_json_has_every_event(void **state)
{
    (void)state;
    made m = hostile();
    td_trace *trace = trace_of(&m);
    OK(td_export_chrome(trace, in_folder(&here, "chrome.json")));
    json_t *json = json_load_file(in_folder(&here, "chrome.json"), 0, NULL),
           *events = json_object_get(json, "traceEvents");
    json_t *event;
    size_t i, slices = 0, counters = 0, found = 0;
    assert_non_null(events);
    json_array_foreach(events, i, event)
    {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        slices += !strcmp(ph, "X");
        counters += !strcmp(ph, "C");
        if (strcmp(ph, "X") != 0 || strcmp(name, "top backward") != 0)
            continue;
        assert_true(json_number_value(json_object_get(event, "dur")) == 1000.0);
        found++;
    }
    assert_int_equal(slices + counters, trace->n_events);
    assert_int_equal(counters, 3 * (m.steps + 1));
    assert_int_equal(found, m.steps + 1);
    json_decref(json);
    td_trace_destroy(trace);
}

/* ---- protobuf, as far as needed to look into a .pftrace -------------------------------------------------------------------------- */

typedef struct field {
    uint64_t number, value; /* value: of a varint, or the bytes of a message */
    const unsigned char *data;
} field;

static uint64_t varint(const unsigned char **at, const unsigned char *end)
{
    uint64_t value = 0;
    for (int shift = 0; *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    fail_msg("a varint that does not end");
    return 0;
}

static bool next_field(const unsigned char **at, const unsigned char *end, field *out)
{
    if (*at == end)
        return false;
    uint64_t key = varint(at, end);
    *out = (field){.number = key >> 3, .value = varint(at, end)};
    assert_true((key & 7) == 0 || (key & 7) == 2);
    if ((key & 7) == 2) {
        assert_true(out->value <= (uint64_t)(end - *at));
        out->data = *at;
        *at += out->value;
    }
    return true;
}

static field find_field(const field *in, uint64_t number)
{
    const unsigned char *at = in->data;
    for (field f; next_field(&at, in->data + in->value, &f);)
        if (f.number == number)
            return f;
    return (field){0};
}

static void test_perfetto_slices_begin_and_end_on_their_tracks(void **state)
{
    (void)state;
    enum { TRACKS = 64 };
    char *data = NULL;
    size_t bytes = 0;
    int64_t depth[TRACKS] = {0}, begins = 0, ends = 0, counters = 0;
    uint64_t last[TRACKS] = {0};
    made m = hostile();
    td_trace *trace = trace_of(&m);
    OK(td_export_perfetto(trace, in_folder(&here, "perfetto.pftrace")));
    OK(td_file_read(in_folder(&here, "perfetto.pftrace"), &data, &bytes));
    const unsigned char *at = (const unsigned char *)data;
    for (field packet; next_field(&at, (const unsigned char *)data + bytes, &packet);) {
        assert_int_equal(packet.number, 1);
        field event = find_field(&packet, 11);
        if (!event.data)
            continue;
        uint64_t type = find_field(&event, 9).value, track = find_field(&event, 11).value;
        uint64_t time = find_field(&packet, 8).value;
        if (type == 4) {
            counters++;
            continue;
        }
        assert_true(track < TRACKS && time >= last[track]); /* in order on each track */
        last[track] = time;
        depth[track] += type == 1 ? 1 : -1;
        assert_true(depth[track] >= 0);
        begins += type == 1;
        ends += type == 2;
    }
    for (int i = 0; i < TRACKS; i++)
        assert_int_equal(depth[i], 0);
    assert_int_equal(begins, ends);
    assert_int_equal(begins + counters, trace->n_events);
    td_free(data);
    td_trace_destroy(trace);
}

/* ---- CSV and HTML -------------------------------------------------------------------------------------------------------------------- */

static void test_csv_begins_with_the_known_columns(void **state)
{
    (void)state;
    static const struct {
        const char *name, *head;
        int lines;
    } files[] = {
        {"step_trace_time.csv",
         "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
         "Communication(Not Overlapped and Exclude Receive),Preparing,",
         5},
        {"op_detail_info.csv",
         "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),total_proportion,"
         "subgraph,"
         "pid,",
         8},
        {"op_type_info.csv",
         "op_type,type_occurrences,execution_frequency(per-step),total_compute_time,avg_time(ms),percent,", 6},
    };
    made m = made_defaults();
    td_trace *trace = trace_of(&m);
    td_analysis *a = NULL;
    OK(td_analysis_create(trace, -1, &a));
    OK(td_export_csv(a, in_folder(&here, "csv")));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64], *text = NULL;
        size_t bytes = 0;
        int lines = 0;
        (void)snprintf(name, sizeof name, "csv/%s", files[i].name);
        OK(td_file_read(in_folder(&here, name), &text, &bytes));
        assert_int_equal(strncmp(text, files[i].head, strlen(files[i].head)), 0);
        for (size_t k = 0; k < bytes; k++)
            lines += text[k] == '\n';
        assert_int_equal(lines, files[i].lines);
        td_free(text);
    }
    td_analysis_destroy(a);
    td_trace_destroy(trace);
}

static void test_a_page_stands_alone_and_names_cannot_break_it(void **state)
{
    (void)state;
    static const char *const never[] = {"</script>", "<b>'", "http://", "https://", "src=", "<script"};
    static const char *const always[] = {"&#60;/script&#62;", "Critical path", "top backward", "Slowest ops",
                                         "</html>"};
    char *text = NULL;
    size_t bytes = 0;
    made m = hostile();
    td_trace *trace = trace_of(&m);
    td_analysis *a = NULL;
    OK(td_analysis_create(trace, -1, &a));
    OK(td_export_html(a, in_folder(&here, "page.html")));
    OK(td_file_read(in_folder(&here, "page.html"), &text, &bytes));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_null(strstr(text, never[i]));
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        assert_non_null(strstr(text, always[i]));
    td_free(text);
    td_analysis_destroy(a);
    td_trace_destroy(trace);
}

static void test_an_export_that_fails_leaves_nothing(void **state)
{
    (void)state;
    made m = made_defaults();
    td_trace *trace = trace_of(&m);
    td_file_fail_after(2);
    td_status *status = td_export_perfetto(trace, in_folder(&here, "failed.pftrace"));
    td_file_fail_after(0);
    assert_non_null(status);
    td_status_destroy(status);
    assert_false(td_file_exists(in_folder(&here, "failed.pftrace")));
    td_trace_destroy(trace);
}

/* ---- two recordings -------------------------------------------------------------------------------------------------------------------- */

static td_diff *diff_of(const made *before, const made *after)
{
    td_trace *traces[2] = {trace_of(before), trace_of(after)};
    td_analysis *a[2] = {NULL, NULL};
    td_diff *diff = NULL;
    for (int i = 0; i < 2; i++)
        OK(td_analysis_create(traces[i], -1, &a[i]));
    OK(td_diff_create(a[0], a[1], 0.02, &diff));
    for (int i = 0; i < 2; i++) {
        td_analysis_destroy(a[i]);
        td_trace_destroy(traces[i]);
    }
    return diff;
}

static const td_diff_row *row_of(const td_diff *diff, const char *name)
{
    for (int64_t i = 0; i < diff->n; i++)
        if (!strcmp(diff->rows[i].name, name))
            return &diff->rows[i];
    fail_msg("no row %s", name);
    return NULL;
}

static void test_differences_beyond_noise_count(void **state)
{
    (void)state;
    made m = made_defaults(), slower = made_defaults(), hardly = made_defaults(), other = made_defaults();
    slower.durations[BACKWARD] += 500000;
    hardly.durations[BACKWARD] += 50000;
    other.changes[0][0] = "\"name\":\"top backward\"";
    other.changes[0][1] = "\"name\":\"another\"";
    td_diff *diff = diff_of(&m, &slower);
    assert_true(diff->slower);
    assert_string_equal(diff->rows[0].name, "step");
    assert_int_equal(row_of(diff, "top backward")->verdict, 1);
    assert_int_equal(row_of(diff, "backward")->verdict, 1);
    assert_int_equal(row_of(diff, "bottom")->verdict, 0);
    td_diff_destroy(diff);
    diff = diff_of(&slower, &m);
    assert_false(diff->slower);
    assert_int_equal(diff->rows[0].verdict, -1);
    td_diff_destroy(diff);
    diff = diff_of(&m, &hardly); /* 1 % of the step, 5 % of the subgraph */
    assert_false(diff->slower);
    assert_int_equal(row_of(diff, "top backward")->verdict, 1);
    td_diff_destroy(diff);
    diff = diff_of(&m, &other);
    assert_true(row_of(diff, "top backward")->after_ns < 0);
    assert_true(row_of(diff, "another")->before_ns < 0);
    td_diff_destroy(diff);
}

/* Of several subgraphs of one name, as older plans have them, each is compared with its own. */
static void test_subgraphs_of_one_name_are_compared_in_order(void **state)
{
    (void)state;
    made m = made_defaults(), slower = made_defaults();
    m.changes[0][0] = slower.changes[0][0] = "\"name\":\"top backward\"";
    m.changes[0][1] = slower.changes[0][1] = "\"name\":\"top\"";
    slower.durations[BACKWARD] += 500000;
    td_diff *diff = diff_of(&m, &slower);
    int rows = 0, longer = 0;
    for (int64_t i = 0; i < diff->n; i++) {
        rows += !strcmp(diff->rows[i].name, "top");
        longer += !strcmp(diff->rows[i].name, "top") && diff->rows[i].verdict > 0;
    }
    assert_int_equal(rows, 2);
    assert_int_equal(longer, 1);
    td_diff_destroy(diff);
}

/* What differs is named; other work is told from the same work that is done otherwise. */
static void test_recordings_of_different_work_are_told_apart(void **state)
{
    static const struct {
        const char *model, *from, *to;
        int samples;
        bool same_work;
        const char *work, *how;
    } variants[] = {
        {"made", NULL, NULL, 256, true, "", ""},
        {"other", NULL, NULL, 256, false, "model made, then other", ""},
        {"made", NULL, NULL, 64, false, "samples a step 256, then 64", ""},
        {"made", "\"[1000, 16]\"", "\"[2000, 16]\"", 256, false, "parameters table [1000, 16], then [2000, 16]", ""},
        {"made", "\"name\":\"accel\",\"backend\":\"emulated\"", "\"name\":\"accel\",\"backend\":\"cuda\"", 256, true,
         "", "devices cpu + accel (emulated), then cpu + accel (cuda)"},
        {"made", "\"hidden\",\"class\":\"activation\",\"storage\":\"arena\",\"device\":1,\"dtype\":\"f32\"",
         "\"hidden\",\"class\":\"activation\",\"storage\":\"arena\",\"device\":1,\"dtype\":\"bf16\"", 256, true, "",
         "precision f32, then f32 + bf16"},
        {"made", "\"name\":\"bottom/linear\"", "\"name\":\"bottom/other\"", 256, true, "",
         "graph bottom/linear and 1 more in one alone, then none"},
        {"made", "\"name\":\"bottom\",\"device\":1", "\"name\":\"bottom\",\"device\":0", 256, true, "",
         "placement bottom/linear on accel, then cpu"},
        {"made", "\"cores\":4", "\"cores\":16", 256, true, "", "cores 4, then 16"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        made m = made_defaults(), other = made_defaults();
        char text[512];
        other.model = variants[i].model;
        other.samples = variants[i].samples;
        other.changes[0][0] = variants[i].from;
        other.changes[0][1] = variants[i].to;
        td_diff *diff = diff_of(&m, &other);
        assert_int_equal(diff->same_work, variants[i].same_work);
        assert_string_equal(td_diff_unlike_text(diff, true, text, sizeof text), variants[i].work);
        assert_string_equal(td_diff_unlike_text(diff, false, text, sizeof text), variants[i].how);
        td_diff_destroy(diff);
    }
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
        cmocka_unit_test(test_chrome_json_has_every_event),
        cmocka_unit_test(test_perfetto_slices_begin_and_end_on_their_tracks),
        cmocka_unit_test(test_csv_begins_with_the_known_columns),
        cmocka_unit_test(test_a_page_stands_alone_and_names_cannot_break_it),
        cmocka_unit_test(test_an_export_that_fails_leaves_nothing),
        cmocka_unit_test(test_differences_beyond_noise_count),
        cmocka_unit_test(test_subgraphs_of_one_name_are_compared_in_order),
        cmocka_unit_test(test_recordings_of_different_work_are_told_apart),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
