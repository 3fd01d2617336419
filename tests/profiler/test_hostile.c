/* Traces made by somebody who means no good: names cannot reach a terminal or break a report, and what would take endless memory or
 * time is refused with one line. */
#include "tests/profiler/made_trace.h"

#include "base/memory.h"
#include "base/string.h"
#include "profiler/report.h"

static const char *path(void)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "hostile-%d.tdt", (int)getpid());
    return text;
}

static void refused(td_status *status, const char *words)
{
    assert_non_null(status);
    if (!strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
}

/* ---- texts ----------------------------------------------------------------------------------------------------------------------- */

static void test_texts_are_cut_between_characters(void **state)
{
    (void)state;
    char small[6], whole[16];
    td_text_cut(small, sizeof small, "abcd\xC3\xA9"); /* the last one has two bytes */
    assert_string_equal(small, "abcd");
    td_text_cut(small, sizeof small, "ab\xE2\x82\xAC!");
    assert_string_equal(small, "ab\xE2\x82\xAC");
    td_text_cut(small, 1, "x");
    assert_string_equal(small, "");
    static const char *const cut[][2] = {{"a\xC3", "a"},
                                         {"a\xE2\x82", "a"},
                                         {"a\xF0\x9F\x98", "a"},
                                         {"a\xC3\xA9", "a\xC3\xA9"},
                                         {"a\xE2\x82\xAC", "a\xE2\x82\xAC"},
                                         {"\xC3", ""},
                                         {"", ""},
                                         {"abc", "abc"}};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        (void)strcpy(whole, cut[i][0]);
        td_text_mend(whole);
        assert_string_equal(whole, cut[i][1]);
    }
    (void)strcpy(whole, "a\x1B[1m\x7F\xC2\x9B\xC2\xA9");
    td_text_plain(whole);
    assert_string_equal(whole, "a?[1m???\xC2\xA9");
}

static json_t *report_of(const made *m)
{
    td_trace *trace = NULL;
    td_analysis *a = NULL;
    json_t *json = NULL;
    made_file(path(), m);
    OK(td_trace_read(path(), &trace));
    OK(td_analysis_create(trace, -1, &a));
    OK(td_report_json(a, &json));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    (void)unlink(path());
    return json;
}

/* A device's name of two-byte characters, of which a cut at any even length would leave half of one. */
static void test_long_names_of_any_language_lose_no_lane(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        char name[256];
        made m = made_defaults();
        (void)snprintf(name, sizeof name, "\"name\":\"%s", odd ? "x" : "");
        for (int i = 0; i < 40; i++)
            (void)strcat(name, "\xC3\xA9");
        (void)strcat(name, "\"");
        m.changes[0][0] = "\"name\":\"accel\"";
        m.changes[0][1] = name;
        m.durations[TOP] = 5000000; /* advice that has the name in it */
        json_t *json = report_of(&m), *lane;
        size_t i;
        assert_int_equal(json_array_size(json_object_get(json, "lanes")), 4);
        json_array_foreach(json_object_get(json, "lanes"), i, lane) assert_true(json_is_object(lane));
        assert_true(json_array_size(json_object_get(json, "advice")) > 0);
        json_decref(json);
    }
}

static void test_names_hold_no_control_characters(void **state)
{
    (void)state;
    made m = made_defaults();
    m.changes[0][0] = "\"name\":\"top/linear\"";
    m.changes[0][1] = "\"name\":\"\\u001b]0;mine\\u0007\\u009b31m\"";
    m.notes = "{\"model\":\"\\u001b[2J\"}";
    json_t *json = report_of(&m);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_null(strstr(text, "\\u001"));
    assert_null(strstr(text, "\xC2\x9B"));
    assert_non_null(strstr(text, "?]0;mine?"));
    assert_non_null(strstr(text, "\"?[2J\""));
    free(text);
    json_decref(json);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------------------------- */

/* A trace of steps alone, of a plan with so many subgraphs. */
static td_trace *sparse(int32_t subgraphs, int32_t steps)
{
    static const trace_clock clocks[] = {{0, 0, 0, 1}, {1000000000, 1000000000, 1000000000, 1}};
    td_trace_writer *writer = NULL;
    td_trace *trace = NULL;
    td_string plan = {0};
    char *text = NULL;
    td_string_append(&plan,
                     "{\"first_id\":1,\"training\":true,\"devices\":[{\"name\":\"cpu\"}],\"values\":[],\"nodes\":[],"
                     "\"subgraphs\":[");
    for (int32_t s = 0; s < subgraphs; s++)
        td_string_append(&plan, s ? ",{\"device\":0}" : "{\"device\":0}");
    td_string_append(&plan, "]}");
    OK(td_string_finish(&plan, &text));
    td_record *records = calloc((size_t)steps, sizeof *records);
    assert_non_null(records);
    for (int32_t s = 0; s < steps; s++)
        records[s] = (td_record){.begin = (uint64_t)s * 10,
                                 .end = (uint64_t)s * 10 + 9,
                                 .id = 1,
                                 .step = (uint32_t)s + 1,
                                 .what = TD_RECORD_STEP};
    trace_window window = {0, (uint64_t)steps * 10, 1, steps};
    (void)unlink(path());
    OK(td_trace_writer_open(path(), &writer));
    for (int i = 0; i < 2; i++)
        OK(td_trace_write(writer, TRACE_CLOCK, &clocks[i], sizeof clocks[i]));
    OK(td_trace_write(writer, TRACE_PLAN, text, strlen(text)));
    OK(td_trace_write_records(writer, 1, "run", records, (uint32_t)steps, 0));
    OK(td_trace_write(writer, TRACE_WINDOW, &window, sizeof window));
    OK(td_trace_writer_close(writer, 0));
    OK(td_trace_read(path(), &trace));
    (void)unlink(path());
    td_free(text);
    free(records);
    return trace;
}

static void test_a_few_events_cannot_ask_for_a_table_of_millions(void **state)
{
    (void)state;
    td_view *view = NULL;
    td_trace *trace = sparse(4000, 3000);
    refused(td_view_create(trace, -1, &view),
            "a window of 3000 steps of 4000 subgraphs, with 3000 events: more than can be analysed at once");
    td_trace_destroy(trace);
    trace = sparse(20, 3000);
    OK(td_view_create(trace, -1, &view));
    td_view_destroy(view);
    td_trace_destroy(trace);
}

static td_status *read_plans(const char *text, int n)
{
    td_trace_writer *writer = NULL;
    td_trace *trace = NULL;
    (void)unlink(path());
    OK(td_trace_writer_open(path(), &writer));
    for (int i = 0; i < n; i++)
        OK(td_trace_write(writer, TRACE_PLAN, text, strlen(text)));
    OK(td_trace_writer_close(writer, 0));
    td_status *status = td_trace_read(path(), &trace);
    td_trace_destroy(trace);
    (void)unlink(path());
    return status;
}

static void test_plans_beyond_measure_are_refused(void **state)
{
    (void)state;
    static const char *const small = "{\"first_id\":1,\"devices\":[],\"values\":[],\"nodes\":[],\"subgraphs\":[]}";
    char devices[4096] = "{\"first_id\":1,\"values\":[],\"nodes\":[],\"subgraphs\":[],\"devices\":[{}";
    for (int i = 0; i < 300; i++)
        (void)strcat(devices, ",{}");
    (void)strcat(devices, "]}");
    OK(read_plans(small, 4096));
    refused(read_plans(small, 4097), "more than 4096 plans");
    refused(read_plans(devices, 1), "a plan of 301 devices; a trace's plan has at most 256");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_cut_between_characters),
        cmocka_unit_test(test_long_names_of_any_language_lose_no_lane),
        cmocka_unit_test(test_names_hold_no_control_characters),
        cmocka_unit_test(test_a_few_events_cannot_ask_for_a_table_of_millions),
        cmocka_unit_test(test_plans_beyond_measure_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
