/* Trace files: what is written is read, byte for byte the same on every machine; a file that was cut off is read up to the cut;
 * the reader believes nothing that a checksum does not. */
#include "tests/profiler/made_trace.h"

#include "profiler/advice.h"
#include "where.h"

#include "base/file.h"
#include "base/memory.h"
#include "profiler/view.h"

static const char *path(void)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "trace-%d.tdt", (int)getpid());
    return text;
}

static void test_reads_what_was_written(void **state)
{
    (void)state;
    td_trace *trace = NULL;
    made m = made_defaults();
    made_file(path(), &m);
    OK(td_trace_read(path(), &trace));
    assert_false(trace->cut);
    assert_int_equal(trace->n_plans, 1);
    assert_int_equal(trace->n_threads, 5);
    assert_int_equal(trace->n_windows, 1);
    assert_int_equal(trace->n_events, 5 * (2 * N_SUBGRAPHS + 6));
    assert_int_equal(trace->windows[0].first_step, 6);
    assert_int_equal(trace->windows[0].last_step, 9);
    for (int64_t i = 1; i < trace->n_events; i++)
        assert_true(trace->events[i - 1].begin_ns <= trace->events[i].begin_ns);
    int32_t node, subgraph;
    const td_trace_plan *plan = td_trace_find(trace, FIRST_ID + N_SUBGRAPHS + BACKWARD, &node, &subgraph);
    assert_int_equal(node, -1);
    assert_string_equal(plan->subgraphs[subgraph].name, "top backward");
    assert_null(td_trace_find(trace, FIRST_ID + 2 * N_SUBGRAPHS, &node, &subgraph));
    td_trace_destroy(trace);
    (void)unlink(path());
}

/* A file of one thread with two records, as docs/profiler.md lays it out; whatever is changed in the program, these bytes stay. */
static void test_the_bytes_of_a_fixed_run_are_fixed(void **state)
{
    (void)state;
    static const char golden[] =
        "544454524143450a010000002000000001000000000000000a00000000000000545b6a5de9fda94b7b2272616e6b223a"
        "307d0000000000000300000000000000200000000000000049e693e6c838b7d401000000000000000200000000000000"
        "0300000000000000040000000000000004000000000000002800000000000000c3d3f8ce0b83885d0900000000000000"
        "6c616e650000000000000000000000000000000000000000000000000000000005000000000000005000000000000000"
        "a3814e73bfecd90b090000000200000005000000000000006400000000000000fa000000000000000700000003000000"
        "050000001000000004010000000000000501000000000000080000000400000004020000000000000600000000000000"
        "2000000000000000f4f29a912fb6b5875a000000000000002c0100000000000003000000000000000400000000000000"
        "070000000000000010000000000000002ed9b0e91dcc39bb02000000000000000600000000000000";
    static const td_record records[] = {
        {.begin = 100, .end = 250, .id = 7, .step = 3, .what = TD_RECORD_COPY | UINT64_C(4096) << 24},
        {.begin = 260, .end = 261, .id = 8, .step = 4, .what = TD_RECORD_OP | UINT64_C(2) << 8},
    };
    const trace_clock clock = {.ticks = 1, .monotonic_ns = 2, .unix_ns = 3, .error_ns = 4};
    const trace_window window = {.begin = 90, .end = 300, .first_step = 3, .last_step = 4};
    td_trace_writer *writer = NULL;
    td_trace *trace = NULL;
    char *data = NULL, text[4096] = "";
    size_t bytes = 0;
    OK(td_trace_writer_open(path(), &writer));
    OK(td_trace_write(writer, TRACE_INFO, "{\"rank\":0}", 10));
    OK(td_trace_write(writer, TRACE_CLOCK, &clock, sizeof clock));
    OK(td_trace_write_records(writer, 9, "lane", records, 2, 5));
    OK(td_trace_write(writer, TRACE_WINDOW, &window, sizeof window));
    OK(td_trace_writer_close(writer, 1));
    OK(td_file_read(path(), &data, &bytes));
    for (size_t i = 0; i < bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", (unsigned char)data[i]);
    assert_string_equal(text, golden);
    OK(td_trace_parse(data, bytes, "golden", &trace));
    assert_int_equal(trace->n_events, 2);
    assert_int_equal(trace->events[0].begin_ns, 99);
    assert_int_equal(trace->events[0].end_ns, 249);
    assert_int_equal(trace->events[0].amount, 4096);
    assert_int_equal(trace->events[0].kind, TD_RECORD_COPY);
    assert_int_equal(trace->events[1].micro, 2);
    assert_int_equal(trace->dropped, 6);
    assert_string_equal(trace->threads[trace->events[1].thread].name, "lane");
    td_trace_destroy(trace);
    td_free(data);
    (void)unlink(path());
}

/* golden.tdt was written by this program when it was checked in: it is written so still, and read to the same numbers. */
static void test_a_file_of_before_is_read_and_written_the_same(void **state)
{
    (void)state;
    const char *golden = TD_SOURCE_DIR "/tests/profiler/golden.tdt";
    char *before = NULL, *now = NULL;
    size_t before_bytes = 0, now_bytes = 0;
    td_trace *trace = NULL;
    td_analysis *a = NULL;
    const made m = made_defaults();
    made_file(path(), &m);
    OK(td_file_read(golden, &before, &before_bytes));
    OK(td_file_read(path(), &now, &now_bytes));
    assert_int_equal(now_bytes, before_bytes);
    assert_memory_equal(now, before, now_bytes);
    OK(td_trace_read(golden, &trace));
    assert_false(trace->cut);
    assert_int_equal(trace->n_events, 5 * (2 * N_SUBGRAPHS + 6));
    OK(td_analysis_create(trace, -1, &a));
    assert_int_equal(a->steps->average.interval_ns, 4748000);
    assert_int_equal(a->steps->average.path_ns[TD_CAUSE_SUBGRAPH], 4700000);
    assert_string_equal(a->ops->ops.rows[0].name, "table/update");
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    td_free(before);
    td_free(now);
    (void)unlink(path());
}

static void test_a_cut_file_is_read_up_to_the_cut(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    int64_t most = -1;
    made m = made_defaults();
    made_file(path(), &m);
    OK(td_file_read(path(), &data, &bytes));
    for (size_t cut = sizeof(trace_header); cut < bytes; cut += 7) {
        td_trace *trace = NULL;
        td_view *view = NULL;
        OK(td_trace_parse(data, cut, "cut", &trace));
        assert_true(trace->cut);
        assert_true(trace->cut_at <= (int64_t)cut);
        assert_true(trace->n_events >= most);
        most = trace->n_events;
        td_status *status = td_view_create(trace, -1, &view);
        assert_true(status || td_view_count(view) > 0);
        td_status_destroy(status);
        td_view_destroy(view);
        td_trace_destroy(trace);
    }
    assert_int_equal(most, 5 * (2 * N_SUBGRAPHS + 6));
    td_free(data);
    (void)unlink(path());
}

/* A file is read a piece at a time: chunks on both sides of pieces' ends, and one that is longer than a piece. */
static void test_a_file_reads_like_its_bytes(void **state)
{
    (void)state;
    enum { LONG = 3 << 20, EVENTS = 100000 };
    td_trace_writer *writer = NULL;
    td_trace *file = NULL, *memory = NULL;
    char *data = NULL, *note = calloc(1, LONG + 16);
    size_t bytes = 0;
    td_record *records = calloc(EVENTS, sizeof *records);
    const trace_clock clocks[] = {{0, 0, 0, 1}, {1000000000, 1000000000, 1000000000, 1}};
    assert_true(note && records);
    memcpy(note, "{\"note\":\"", 9);
    memset(note + 9, 'x', LONG);
    memcpy(note + 9 + LONG, "\"}", 3);
    for (int i = 0; i < EVENTS; i++) /* of two threads, each in order, and together not */
        records[i] = (td_record){.begin = (uint64_t)(i % (EVENTS / 2)) * 100,
                                 .end = (uint64_t)(i % (EVENTS / 2)) * 100 + 60,
                                 .id = (uint32_t)i,
                                 .what = TD_RECORD_OP};
    (void)unlink(path());
    OK(td_trace_writer_open(path(), &writer));
    for (int i = 0; i < 2; i++)
        OK(td_trace_write(writer, TRACE_CLOCK, &clocks[i], sizeof clocks[i]));
    for (uint32_t t = 0; t < 2; t++)
        OK(td_trace_write_records(writer, t + 1, "lane", records + t * (EVENTS / 2), EVENTS / 2, 0));
    OK(td_trace_write(writer, TRACE_INFO, note, strlen(note)));
    OK(td_trace_writer_close(writer, 0));
    OK(td_file_read(path(), &data, &bytes));
    OK(td_trace_read(path(), &file));
    OK(td_trace_parse(data, bytes, "memory", &memory));
    assert_false(file->cut);
    assert_int_equal(file->n_events, EVENTS);
    assert_int_equal(memory->n_events, EVENTS);
    assert_memory_equal(file->events, memory->events, EVENTS * sizeof *file->events);
    for (int64_t i = 1; i < EVENTS; i++)
        assert_true(file->events[i - 1].begin_ns <= file->events[i].begin_ns);
    for (int64_t i = 0; i < EVENTS; i += 2) { /* the two threads by turns, each with its own */
        assert_int_equal(file->events[i].id, i / 2);
        assert_int_equal(file->events[i + 1].id, EVENTS / 2 + i / 2);
    }
    assert_int_equal(json_string_length(json_object_get(file->info, "note")), LONG);
    td_trace_destroy(file);
    td_trace_destroy(memory);
    td_free(data);
    free(note);
    free(records);
    (void)unlink(path());
}

static void test_a_changed_byte_ends_the_trace_there(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    made m = made_defaults();
    made_file(path(), &m);
    OK(td_file_read(path(), &data, &bytes));
    for (size_t at = 20; at < bytes; at += 101) {
        td_trace *trace = NULL;
        data[at] = (char)(data[at] ^ 0x40);
        td_status *status = td_trace_parse(data, bytes, "changed", &trace);
        assert_true(status || trace->cut || trace->cut_at == (int64_t)bytes);
        td_status_destroy(status);
        td_trace_destroy(trace);
        data[at] = (char)(data[at] ^ 0x40);
    }
    td_free(data);
    (void)unlink(path());
}

static void test_what_is_no_trace_is_refused(void **state)
{
    (void)state;
    td_trace *trace = NULL;
    static const struct {
        const char *bytes, *says;
    } cases[] = {
        {"", "not a trace of tandem"},
        {"TDTRACE\n\1\0\0", "not a trace of tandem"},
        {"TDTRACE\n\2\0\0\0\x20\0\0\0", "a trace of version 2"},
        {"TDTRACE\n\1\0\0\0\x18\0\0\0", "records of 24 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_status *status = td_trace_parse(cases[i].bytes, i < 2 ? strlen(cases[i].bytes) : 16, "x.tdt", &trace);
        assert_non_null(strstr(td_status_message(status), cases[i].says));
        td_status_destroy(status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_was_written),
        cmocka_unit_test(test_the_bytes_of_a_fixed_run_are_fixed),
        cmocka_unit_test(test_a_file_of_before_is_read_and_written_the_same),
        cmocka_unit_test(test_a_cut_file_is_read_up_to_the_cut),
        cmocka_unit_test(test_a_file_reads_like_its_bytes),
        cmocka_unit_test(test_a_changed_byte_ends_the_trace_there),
        cmocka_unit_test(test_what_is_no_trace_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
