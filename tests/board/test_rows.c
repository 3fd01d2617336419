/* Long traces are read and laid out by several threads: what comes out is what one thread makes of them. */
#include "tests/profiler/made_trace.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "board/traces.h"

enum { LANES = 5, EVENTS = 4000 };

static const char *path(void)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "rows-%d.tdt", (int)getpid());
    return text;
}

/* By end, as a thread writes them; every twentieth event holds the 19 before it, and some overlap the one before. One lasts for
 * longer than 32 bits of nanoseconds. */
static void write_lane(td_trace_writer *writer, uint32_t lane)
{
    td_record *records = calloc(EVENTS, sizeof *records);
    uint64_t now = 1000 + lane, began = now;
    assert_non_null(records);
    for (uint32_t i = 0; i < EVENTS; i++) {
        const uint64_t random = td_hash_number(i, lane);
        const bool outer = i % 20 == 19;
        const uint64_t begin = outer ? began : now - (random % 7 == 0 && now > began + 50 ? 40 : 0);
        now = outer ? now : now + 100 + random % 300;
        now += i == EVENTS - 1 ? UINT64_C(5000000000) : 0;
        records[i] = (td_record){.begin = begin,
                                 .end = now,
                                 .id = i,
                                 .step = i / 100,
                                 .what = outer         ? TD_RECORD_SUBGRAPH
                                         : random % 5  ? TD_RECORD_OP
                                         : random % 10 ? TD_RECORD_STEP
                                                       : TD_RECORD_MEMORY};
        began = outer ? now : began;
    }
    for (uint32_t at = 0; at < EVENTS; at += 1000)
        OK(td_trace_write_records(writer, lane + 1, "lane", records + at, 1000, 0));
    free(records);
}

static void write_trace(void)
{
    const trace_clock clocks[] = {{0, 0, 0, 1}, {1000000000, 1500000000, 1500000000, 1}}; /* a tick is one and a half */
    td_trace_writer *writer = NULL;
    (void)unlink(path());
    OK(td_trace_writer_open(path(), &writer));
    for (int i = 0; i < 2; i++)
        OK(td_trace_write(writer, TRACE_CLOCK, &clocks[i], sizeof clocks[i]));
    for (uint32_t lane = 0; lane < LANES; lane++)
        write_lane(writer, lane);
    OK(td_trace_writer_close(writer, 0));
}

static void same_rows(const td_trace *trace, const td_board_row *rows, const td_board_row *others, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const td_board_row *a = &rows[i], *b = &others[i];
        assert_int_equal(a->thread, b->thread);
        assert_int_equal(a->depth, b->depth);
        assert_int_equal(a->overflow, b->overflow);
        assert_int_equal(a->n_events, b->n_events);
        assert_int_equal(a->last_end_ns, b->last_end_ns);
        assert_memory_equal(a->items, b->items, (size_t)a->n_events * sizeof *a->items);
        assert_int_equal(a->n_levels, b->n_levels);
        for (int k = 0; k < a->n_levels; k++) {
            assert_int_equal(a->levels[k].n, b->levels[k].n);
            assert_memory_equal(a->levels[k].boxes, b->levels[k].boxes,
                                (size_t)a->levels[k].n * sizeof *a->levels[k].boxes);
        }
        for (int64_t j = 0; j < a->n_events; j++)
            assert_int_equal(td_board_box_at(trace, a, NULL, j).end_ns, trace->events[a->items[j].event].end_ns);
    }
}

static void test_threads_share_a_trace_without_changing_it(void **state)
{
    (void)state;
    td_trace *alone = NULL, *shared = NULL;
    char *data = NULL;
    size_t bytes = 0;
    td_board_row *rows = NULL, *others = NULL;
    int64_t n = 0, n_others = 0, placed = 0, boxes = 0;
    write_trace();
    OK(td_file_read(path(), &data, &bytes));
    OK(td_trace_parse_by(data, bytes, "alone", 0, &alone));
    assert_int_equal(alone->n_events, LANES * EVENTS);
    assert_int_equal(alone->threads[1].n_events, EVENTS);
    OK(td_board_make_rows(alone, 0, &rows, &n));
    assert_true(n > 3 * LANES); /* some events overlap */
    for (int64_t i = 0; i < n; i++) {
        placed += rows[i].n_events;
        boxes += rows[i].n_levels;
    }
    for (int64_t i = 0; i < alone->n_events; i++)
        placed -= td_board_depth_of(&alone->events[i]) >= 0;
    assert_int_equal(placed, 0);
    assert_true(boxes > 0);
    for (int helpers = 1; helpers <= 9; helpers += 4) {
        OK(td_trace_parse_by(data, bytes, "shared", helpers, &shared));
        assert_int_equal(shared->n_events, alone->n_events);
        assert_memory_equal(shared->events, alone->events, (size_t)alone->n_events * sizeof *alone->events);
        OK(td_board_make_rows(shared, helpers, &others, &n_others));
        assert_int_equal(n_others, n);
        same_rows(shared, rows, others, n);
        td_board_free_rows(others, n_others);
        td_trace_destroy(shared);
    }
    td_board_free_rows(rows, n);
    td_trace_destroy(alone);
    td_free(data);
    (void)unlink(path());
}

/* Whichever chunk is damaged, several threads read up to it as one does. */
static void test_threads_agree_on_where_a_damaged_trace_ends(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    write_trace();
    OK(td_file_read(path(), &data, &bytes));
    for (size_t at = 1000; at < bytes; at += bytes / 7) {
        td_trace *alone = NULL, *shared = NULL;
        data[at] = (char)(data[at] ^ 1);
        OK(td_trace_parse_by(data, bytes, "alone", 0, &alone));
        OK(td_trace_parse_by(data, bytes, "shared", 3, &shared));
        assert_true(alone->cut && shared->cut);
        assert_int_equal(alone->cut_at, shared->cut_at);
        assert_int_equal(alone->n_events, shared->n_events);
        assert_memory_equal(shared->events, alone->events, (size_t)alone->n_events * sizeof *alone->events);
        td_trace_destroy(alone);
        td_trace_destroy(shared);
        data[at] = (char)(data[at] ^ 1);
    }
    td_free(data);
    (void)unlink(path());
}

static void test_rows_are_bounded(void **state)
{
    (void)state;
    enum { THREADS = 3000 };
    td_trace trace = {.n_threads = THREADS, .n_events = 3 * THREADS};
    td_board_row *rows = NULL;
    int64_t n = 0;
    trace.threads = calloc(THREADS, sizeof *trace.threads);
    trace.events = calloc((size_t)trace.n_events, sizeof *trace.events);
    assert_true(trace.threads && trace.events);
    for (int64_t i = 0; i < trace.n_events; i++)
        trace.events[i] =
            (td_trace_event){.begin_ns = i, .end_ns = 1000000, .kind = TD_RECORD_OP, .thread = (uint16_t)(i % THREADS)};
    for (int64_t t = 0; t < THREADS; t++)
        trace.threads[t].n_events = 3;
    OK(td_board_make_rows(&trace, 1, &rows, &n));
    assert_in_range(n, 1000, 4096);
    assert_int_equal(td_board_threads_left_out(&trace),
                     THREADS - (rows[n - 1].thread + 1)); /* and it is said how many */
    trace.n_threads = 1000;
    assert_int_equal(td_board_threads_left_out(&trace), 0);
    td_board_free_rows(rows, n);
    free(trace.threads);
    free(trace.events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_share_a_trace_without_changing_it),
        cmocka_unit_test(test_threads_agree_on_where_a_damaged_trace_ends),
        cmocka_unit_test(test_rows_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
