/* The board's answers, without a network: what they hold, and what a hostile folder can do to them. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "board/board.h"
#include "board/page.h"
#include "cli/run_directory.h"

static char folder[64];
static td_board *board;

static void ok(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

static int enter(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/tandem_board_XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    return mkdtemp(folder) ? 0 : 1;
}

static int leave(void **state)
{
    (void)state;
    char command[128];
    td_board_close(board);
    board = NULL;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A path in the folder; the next call but three makes it invalid. */
static const char *in(const char *name)
{
    static char paths[4][4400];
    static int at;
    at = (at + 1) % 4;
    snprintf(paths[at], sizeof paths[at], "%s/%s", folder, name);
    return paths[at];
}

static void write_file(const char *name, const char *text)
{
    ok(td_file_write(in(name), text, strlen(text)));
}

/* Opened anew, so that nothing is remembered. */
static td_board_response ask_all(const char *path, const td_board_parameter *parameters, int32_t n)
{
    td_board_close(board);
    ok(td_board_open(folder, &board));
    td_board_request request = {path, parameters, n};
    return td_board_answer(board, &request);
}

/* The answer as JSON, which it must be, with this status. */
static json_t *ask(int status, const char *path, const td_board_parameter *parameters, int32_t n)
{
    td_board_response response = ask_all(path, parameters, n);
    json_error_t error;
    json_t *json = json_loadb(response.body, response.bytes, 0, &error);
    if (!json || response.status != status)
        fail_msg("%s: %d, %s: %.*s", path, response.status, json ? "" : error.text,
                 (int)(response.bytes < 300 ? response.bytes : 300), response.body);
    td_board_response_deinit(&response);
    return json;
}
#define ASK(status, path, ...)                                                                                         \
    ask(status, path, (const td_board_parameter[]){{"", ""}, __VA_ARGS__},                                             \
        sizeof((const td_board_parameter[]){{"", ""}, __VA_ARGS__}) / sizeof(td_board_parameter))

static td_event_writer *begin(const char *run)
{
    td_event_writer *writer = NULL;
    ok(td_directory_create(in(run)));
    ok(td_event_writer_open(in(run), 1000, &writer));
    return writer;
}

static void end(td_event_writer *writer)
{
    ok(td_event_writer_flush(writer));
    td_event_writer_close(writer);
}

static void add(td_event_writer *writer, int64_t step, const char *tag, double value)
{
    ok(td_event_scalars(writer, (td_event_stamp){1000 + (double)step, step}, &tag, &value, 1));
}

static double number(const json_t *list, size_t row, size_t column)
{
    return json_number_value(json_array_get(json_array_get(list, row), column));
}

/* ---- scalars ---------------------------------------------------------------------------------------------------------------- */

static void test_a_pixel_keeps_its_least_and_greatest_value_and_smoothing_sees_all(void **state)
{
    (void)state;
    td_event_writer *writer = begin("a");
    double sum = 0, weight = 0;
    for (int64_t step = 1; step <= 10000; step++) {
        double value = step == 5003 ? 100 : step == 5004 ? NAN : (double)(step % 7);
        add(writer, step, "x", value);
        if (isfinite(value)) {
            sum = 0.99 * sum + value;
            weight = 0.99 * weight + 1;
        }
    }
    end(writer);
    json_t *json = ASK(200, "/api/v1/scalars", {"run", "a"}, {"tag", "x"}, {"pixels", "100"}, {"smoothing", "0.99"});
    const json_t *points = json_object_get(json, "points");
    assert_int_equal(json_integer_value(json_object_get(json, "n")), 10000);
    assert_int_equal(json_integer_value(json_object_get(json, "not_finite")), 1);
    assert_int_equal(json_integer_value(json_object_get(json, "first_not_finite")), 5004);
    assert_in_range(json_array_size(points), 95, 100);
    double greatest = 0;
    for (size_t i = 0; i < json_array_size(points); i++) {
        greatest = fmax(greatest, number(points, i, 3));
        assert_true(number(points, i, 2) == 0); /* every pixel has a multiple of seven */
    }
    assert_true(greatest == 100);
    assert_true(fabs(number(points, json_array_size(points) - 1, 4) - sum / weight) < 1e-6);
    json_decref(json);
    json = ASK(200, "/api/v1/scalars", {"run", "a"}, {"tag", "x"}, {"pixels", "100"}, {"from", "5000"}, {"to", "5010"});
    points = json_object_get(json, "points"); /* zoomed in: every value */
    assert_int_equal(json_array_size(points), 10);
    assert_true(number(points, 3, 0) == 5003 && number(points, 3, 1) == 100);
    json_decref(json);
    json_decref(ASK(200, "/api/v1/scalars", {"run", "a"}, {"tag", "x"}, {"pixels", "nan"}, {"from", "1e999"},
                    {"to", "-5"}, {"smoothing", "7"}));
    json_decref(ASK(404, "/api/v1/scalars", {"run", "a"}, {"tag", "y"}));
    json_decref(ASK(400, "/api/v1/scalars", {"run", "a"}));
}

static void test_a_resumed_run_goes_on_from_its_checkpoint(void **state)
{
    (void)state;
    td_event_writer *first = begin("r");
    for (int64_t step = 1; step <= 10; step++)
        add(first, step, "loss", 1);
    end(first);
    td_event_writer *second = NULL;
    ok(td_event_writer_open(in("r"), 2000, &second));
    for (int64_t step = 7; step <= 12; step++)
        add(second, step, "loss", 2);
    end(second);
    json_t *json = ASK(200, "/api/v1/scalars", {"run", "r"}, {"tag", "loss"});
    const json_t *points = json_object_get(json, "points");
    assert_int_equal(json_array_size(points), 12);
    assert_true(number(points, 5, 1) == 1 && number(points, 6, 1) == 2 && number(points, 6, 0) == 7);
    json_decref(json);
}

/* ---- runs that change while the board is open ------------------------------------------------------------------------------ */

/* The board that is open looks again, and answers. */
static json_t *look_again(const char *path, const td_board_parameter *parameters, int32_t n)
{
    board->looked_ns = 0;
    td_board_request request = {path, parameters, n};
    td_board_response response = td_board_answer(board, &request);
    json_t *json = json_loadb(response.body, response.bytes, 0, NULL);
    td_board_response_deinit(&response);
    assert_non_null(json);
    return json;
}
#define LOOK(path, ...)                                                                                                \
    look_again(path, (const td_board_parameter[]){__VA_ARGS__},                                                        \
               sizeof((const td_board_parameter[]){__VA_ARGS__}) / sizeof(td_board_parameter))

/* What stands as the problem of the folder's only run; "" for none. */
static const char *problem(void)
{
    static char text[300];
    json_t *json = look_again("/api/v1/runs", NULL, 0);
    const json_t *run = json_array_get(json_object_get(json, "runs"), 0);
    const char *said = json_string_value(json_object_get(run, "problem"));
    snprintf(text, sizeof text, "%s", said ? said : "");
    json_decref(json);
    return text;
}

static void test_a_long_file_is_read_to_its_end_before_the_next_one(void **state)
{
    (void)state;
    enum { STEPS = 500 };
    td_event_writer *first = begin("r"), *second = NULL;
    for (int64_t step = 1; step <= STEPS; step++)
        add(first, step, "loss", 1);
    end(first);
    ok(td_event_writer_open(in("r"), 2000, &second));
    for (int64_t step = STEPS - 9; step <= STEPS + 10; step++)
        add(second, step, "loss", 2);
    end(second);
    ok(td_board_open(folder, &board));
    board->most_at_once = 1000; /* much less than the first file has */
    json_t *json = NULL;
    bool reading = true;
    int requests = 0;
    for (uint64_t was = board->state; reading; requests++) {
        json_t *tags = LOOK("/api/v1/tags", {"run", "r"});
        reading = json_is_true(json_object_get(tags, "reading"));
        json_decref(tags);
        assert_true(board->state != was || !reading); /* listeners are told that there is more */
        was = board->state;
    }
    assert_true(requests > 10);
    json = LOOK("/api/v1/scalars", {"run", "r"}, {"tag", "loss"}, {"pixels", "8000"});
    const json_t *points = json_object_get(json, "points");
    assert_int_equal(json_array_size(points), STEPS + 10);
    for (size_t i = 0; i < STEPS + 10; i++)
        assert_true(number(points, i, 0) == (double)(i + 1) && number(points, i, 1) == (i < STEPS - 10 ? 1 : 2));
    json_decref(json);
}

static void test_what_an_earlier_file_gets_late_is_not_taken_for_what_came_after(void **state)
{
    (void)state;
    td_event_writer *first = begin("r"), *second = NULL;
    add(first, 1, "loss", 1);
    ok(td_event_writer_flush(first));
    ok(td_event_writer_open(in("r"), 2000, &second));
    add(second, 5, "loss", 2);
    ok(td_event_writer_flush(second));
    json_decref(ASK(200, "/api/v1/scalars", {"run", "r"}, {"tag", "loss"}));
    add(first, 2, "loss", 1);
    add(first, 7, "loss", 1); /* was given up when the second began at 5 */
    end(first);
    add(second, 6, "loss", 2);
    end(second);
    json_t *json = LOOK("/api/v1/scalars", {"run", "r"}, {"tag", "loss"});
    const json_t *points = json_object_get(json, "points");
    assert_int_equal(json_array_size(points), 4);
    static const double steps[] = {1, 2, 5, 6};
    for (size_t i = 0; i < 4; i++)
        assert_true(number(points, i, 0) == steps[i]);
    json_decref(json);
}

static void test_a_run_that_is_made_anew_under_its_name_is_read_anew(void **state)
{
    (void)state;
    char command[128];
    td_event_writer *writer = begin("r");
    for (int64_t step = 1; step <= 50; step++)
        add(writer, step, "old", 1);
    end(writer);
    write_file("r/run.json", "{\"model\": {\"name\": \"old\"}}");
    json_decref(ASK(200, "/api/v1/scalars", {"run", "r"}, {"tag", "old"}));
    snprintf(command, sizeof command, "rm -rf '%s/r'", folder);
    assert_int_equal(system(command), 0);
    writer = begin("r"); /* of the same second: the same name */
    add(writer, 1, "new", 7);
    end(writer);
    write_file("r/run.json", "{\"model\": {\"name\": \"new\"}}");
    json_t *json = LOOK("/api/v1/scalars", {"run", "r"}, {"tag", "new"});
    assert_true(number(json_object_get(json, "points"), 0, 1) == 7);
    json_decref(json);
    json = LOOK("/api/v1/tags", {"run", "r"});
    assert_int_equal(json_integer_value(json_object_get(json, "total")), 1); /* nothing of the old one is left */
    json_decref(json);
    assert_string_equal(problem(), "");
    json = look_again("/api/v1/runs", NULL, 0);
    const json_t *run = json_array_get(json_object_get(json, "runs"), 0);
    assert_string_equal(json_string_value(json_object_get(run, "model")), "new");
    json_decref(json);
}

static void test_a_problem_that_is_over_is_not_said_any_more(void **state)
{
    (void)state;
    td_event_writer *writer = begin("r");
    add(writer, 1, "x", 1);
    end(writer);
    write_file("r/run.json", "{\"started\": ");
    ok(td_board_open(folder, &board));
    assert_non_null(strstr(problem(), "run.json:1"));
    assert_non_null(strstr(problem(), "run.json:1")); /* and goes on being said */
    write_file("r/run.json", "{}");
    assert_string_equal(problem(), "");
    write_file("r/events.out.tfevents.9", "this is no event file at all, but it is long enough to be one");
    assert_non_null(strstr(problem(), "events.out.tfevents.9: at byte 0"));
    assert_non_null(strstr(problem(), "events.out.tfevents.9: at byte 0"));
    assert_int_equal(unlink(in("r/events.out.tfevents.9")), 0);
    assert_string_equal(problem(), "");
    assert_int_equal(unlink(in("r/run.json")), 0);
    assert_string_equal(problem(), "");
}

static void test_a_board_that_looks_does_not_keep_a_training_from_starting(void **state)
{
    (void)state;
    ok(td_directory_create(in("r")));
    write_file("r/run.json", "{}");
    pid_t looks = fork();
    if (!looks) { /* at whether somebody trains, without a pause */
        int run = open(in("r"), O_RDONLY | O_DIRECTORY);
        while (!flock(run, LOCK_SH) && !flock(run, LOCK_UN))
            ;
        _exit(0);
    }
    for (int i = 0, lock = -1; i < 300; i++) {
        ok(td_run_lock(in("r"), &lock));
        close(lock);
    }
    kill(looks, SIGKILL);
    waitpid(looks, NULL, 0);
    int first = -1, second = -1;
    ok(td_run_lock(in("r"), &first));
    td_status *status = td_run_lock(in("r"), &second); /* another training does */
    assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    td_status_destroy(status);
    json_t *json = ASK(200, "/api/v1/runs");
    const json_t *run = json_array_get(json_object_get(json, "runs"), 0);
    assert_string_equal(json_string_value(json_object_get(run, "state")), "running");
    json_decref(json);
    close(first);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */

static void test_slices_are_those_of_python(void **state)
{
    (void)state;
    static const struct {
        const char *slice;
        int n;
        double first, last;
    } cases[] = {{"", 24, 0, 23},        {"1", 12, 12, 23},       {":,2:5", 8, 8, 23},
                 {"0,1:3,:", 8, 4, 11},  {"-1,-1,-1", 1, 23, 23}, {"1:,0,:2", 2, 12, 13},
                 {"0, : , 3", 3, 3, 11}, {"5:,0,0", 0, 0, 0},     {":,:,:-3", 6, 0, 20}};
    float numbers[24];
    for (int i = 0; i < 24; i++)
        numbers[i] = (float)i;
    td_event_writer *writer = begin("t");
    ok(td_event_tensor(writer, (td_event_stamp){1, 5}, "w", numbers, (int64_t[]){2, 3, 4}, 3));
    end(writer);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = ASK(200, "/api/v1/tensors", {"run", "t"}, {"tag", "w"}, {"slice", cases[i].slice});
        const json_t *values = json_object_get(json, "values");
        assert_int_equal(json_array_size(values), cases[i].n);
        if (cases[i].n) {
            assert_true(json_number_value(json_array_get(values, 0)) == cases[i].first);
            assert_true(json_number_value(json_array_get(values, (size_t)cases[i].n - 1)) == cases[i].last);
        }
        json_decref(json);
    }
    static const char *const wrong[] = {"2", "a", "1:2:3", "0,0,0,0", "-3", ",", "9999999999999999999999", "0,,0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        json_decref(ASK(400, "/api/v1/tensors", {"run", "t"}, {"tag", "w"}, {"slice", wrong[i]}));
}

/* ---- hostile folders ---------------------------------------------------------------------------------------------------------- */

static void test_nothing_outside_the_folder_is_reached(void **state)
{
    (void)state;
    static const char *const paths[] = {"..",  "../..", "/etc",   "a/../..", "/",
                                        "a/b", "",      "%2e%2e", "....//",  "good/.."};
    ok(td_directory_create(in("good")));
    write_file("good/run.json", "{}");
    ok(td_directory_create(in("links")));
    assert_int_equal(symlink("/etc", in("out")), 0);
    assert_int_equal(symlink("/etc/hostname", in("links/run.json")), 0);
    assert_int_equal(symlink("/etc/passwd", in("good/summary.json")), 0);
    assert_int_equal(symlink("..", in("good/up")), 0);
    assert_int_equal(mkfifo(in("good/events.out.tfevents.1.fifo"), 0600), 0);
    json_t *json = ASK(200, "/api/v1/runs");
    const json_t *runs = json_object_get(json, "runs");
    assert_int_equal(json_array_size(runs), 1); /* neither what lies behind a link nor a link that is called run.json */
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "name")), "good");
    assert_true(json_is_null(json_object_get(json_array_get(runs, 0), "problem")));
    json_decref(json);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        json_decref(ASK(404, "/api/v1/run", {"run", paths[i]}));
        json_decref(ASK(404, "/api/v1/timeline", {"run", paths[i]}));
    }
    int file = -1;
    static const char *const files[] = {
        "../x", "good/../good/run.json", "good/summary.json", "out/hostname", "good/up/good/run.json", ".", "good"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        td_status *status = td_board_open_file(board->folder, files[i], &file);
        assert_int_equal(td_status_code(status), TD_NOT_FOUND);
        assert_int_equal(file, -1);
        td_status_destroy(status);
    }
    ok(td_board_open_file(board->folder, "good/run.json", &file));
    close(file);
}

static void test_any_name_is_shown_as_text(void **state)
{
    (void)state;
    char longest[256];
    memset(longest, 'x', 255);
    longest[255] = '\0';
    const char *const names[] = {"\"quoted\\",
                                 "<script>alert(1)</script>",
                                 "new\nline\ttab",
                                 "\x01\x02\x7f",
                                 "not utf-8 \xff\xc0\xaf\xed\xa0\x80",
                                 longest,
                                 "' or 1=1 --",
                                 "%s%n"};
    const int n = sizeof names / sizeof *names;
    for (int i = 0; i < n; i++) {
        td_event_writer *writer = begin(names[i]);
        add(writer, 1, names[i], i);
        ok(td_event_text(writer, (td_event_stamp){1, 1}, "text", names[i]));
        end(writer);
    }
    json_t *json = ASK(200, "/api/v1/runs");
    const json_t *runs = json_object_get(json, "runs"), *run;
    size_t index;
    assert_int_equal(json_array_size(runs), n);
    json_array_foreach(runs, index, run)
    {
        const char *id = json_string_value(json_object_get(run, "id"));
        json_t *tags = ASK(200, "/api/v1/tags", {"run", id}, {"kind", "scalar"});
        const json_t *tag = json_array_get(json_object_get(tags, "tags"), 0);
        assert_non_null(tag);
        json_t *scalars =
            ASK(200, "/api/v1/scalars", {"run", id}, {"id", json_string_value(json_object_get(tag, "id"))});
        assert_int_equal(json_array_size(json_object_get(scalars, "points")), 1);
        json_decref(scalars);
        json_decref(tags);
        json_decref(ASK(200, "/api/v1/texts", {"run", id}, {"tag", "text"}));
    }
    json_decref(json);
}

static void test_damaged_files_spoil_their_own_run_only(void **state)
{
    (void)state;
    td_event_writer *writer = begin("good");
    add(writer, 1, "x", 3);
    end(writer);
    ok(td_directory_create(in("half")));
    write_file("half/run.json", "{\"started\": \"2026-");
    write_file("half/summary.json", "[1, 2]");
    write_file("half/events.out.tfevents.1", "this is no event file at all, but it is long enough to be one");
    ok(td_directory_create(in("odd/profile")));
    write_file("odd/run.json",
               "{\"model\": 3, \"settings\": [1], \"plan\": \"x\", \"started\": {}, \"devices\": null}");
    write_file("odd/profile/trace-0001.tdt", "TDTRACE\nno trace");
    json_t *json = ASK(200, "/api/v1/runs");
    const json_t *runs = json_object_get(json, "runs");
    assert_int_equal(json_array_size(runs), 3);
    assert_true(json_is_null(json_object_get(json_array_get(runs, 0), "problem")));
    assert_true(json_number_value(json_object_get(json_object_get(json_array_get(runs, 0), "tags"), "scalar")) == 1);
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(runs, 1), "problem")), "run.json:1"));
    json_decref(json);
    td_board_response response = ask_all("/api/v1/timeline", (const td_board_parameter[]){{"run", "odd"}}, 1);
    assert_true(response.status >= 400 && response.status != 404);
    td_board_response_deinit(&response);
    json_decref(ASK(404, "/api/v1/profile", {"run", "good"})); /* it says how to record one */
}

static void test_many_tags_are_listed_in_part_and_found_by_search(void **state)
{
    (void)state;
    enum { TAGS = 1000000, AT_ONCE = 1000 };
    static char texts[AT_ONCE][24];
    const char *tags[AT_ONCE];
    double values[AT_ONCE];
    td_event_writer *writer = begin("many");
    for (int first = 0; first < TAGS; first += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            snprintf(texts[i], sizeof texts[i], "tag/%d", first + i);
            tags[i] = texts[i];
            values[i] = i;
        }
        ok(td_event_scalars(writer, (td_event_stamp){1, 1}, tags, values, AT_ONCE));
    }
    end(writer);
    json_t *json = ASK(200, "/api/v1/tags", {"run", "many"}, {"limit", "10"});
    assert_int_equal(json_integer_value(json_object_get(json, "total")), TAGS);
    assert_int_equal(json_array_size(json_object_get(json, "tags")), 10);
    json_decref(json);
    json = LOOK("/api/v1/tags", {"run", "many"}, {"search", "TAG/999999"});
    assert_int_equal(json_integer_value(json_object_get(json, "total")), 1);
    json_decref(json);
    json = LOOK("/api/v1/scalars", {"run", "many"}, {"tag", "tag/923456"});
    assert_int_equal(json_integer_value(json_object_get(json, "n")), 1);
    json_decref(json);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    td_event_writer *writer = begin("a");
    td_histogram histogram;
    td_histogram_of((float[]){1, 2, 3}, 3, &histogram);
    add(writer, 1, "x", 1);
    ok(td_event_histogram(writer, (td_event_stamp){1, 1}, "h", &histogram));
    end(writer);
    write_file("a/run.json", "{}");
    td_board_close(board);
    board = NULL;
    uint64_t before = td_memory_read().bytes_now;
    static const char *const paths[] = {"/api/v1/runs", "/api/v1/histograms"};
    for (int p = 0; p < 2; p++)
        for (uint64_t n = 1, failed = 1; failed; n++) {
            td_memory_fail_after(n);
            td_status *status = td_board_open(folder, &board);
            if (!status) {
                const td_board_parameter parameters[] = {{"run", "a"}, {"tag", "h"}};
                td_board_response response = td_board_answer(board, &(td_board_request){paths[p], parameters, 2});
                assert_true(response.status == 200 || response.status == 500 || response.status == 404);
                td_board_response_deinit(&response);
            }
            failed = td_memory_failed();
            td_memory_fail_after(0);
            td_status_destroy(status);
            td_board_close(board);
            board = NULL;
            assert_int_equal(td_memory_read().bytes_now, before);
        }
}

/* ---- the page ------------------------------------------------------------------------------------------------------------------- */

static void test_the_page_is_in_the_program_and_asks_nobody_else(void **state)
{
    (void)state;
    ok(td_directory_create(in("empty")));
    td_board_response response = ask_all("/", NULL, 0);
    assert_int_equal(response.status, 200);
    assert_non_null(strstr(response.type, "text/html"));
    for (const td_board_asset *asset = td_board_assets; asset->path; asset++) {
        if (strstr(asset->path, "uplot") || strstr(asset->path, ".svg"))
            continue; /* a comment of the one and the name space of the other are addresses */
        const char *at = memmem(asset->data, asset->bytes, "//", 2);
        for (; at; at = memmem(at + 2, asset->bytes - (size_t)((const unsigned char *)at + 2 - asset->data), "//", 2))
            assert_false((const unsigned char *)at > asset->data && at[-1] == ':' &&
                         memcmp(at + 2, "www.w3.org/2000/svg", 19) != 0);
    }
    json_decref(ASK(404, "/index.htm"));
    json_decref(ASK(404, "/../board.c"));
    json_t *json = ASK(200, "/api/v1/runs");
    assert_int_equal(json_array_size(json_object_get(json, "runs")), 0);
    json_decref(json);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_pixel_keeps_its_least_and_greatest_value_and_smoothing_sees_all),
        TEST(test_a_resumed_run_goes_on_from_its_checkpoint),
        TEST(test_a_long_file_is_read_to_its_end_before_the_next_one),
        TEST(test_what_an_earlier_file_gets_late_is_not_taken_for_what_came_after),
        TEST(test_a_run_that_is_made_anew_under_its_name_is_read_anew),
        TEST(test_a_problem_that_is_over_is_not_said_any_more),
        TEST(test_a_board_that_looks_does_not_keep_a_training_from_starting),
        TEST(test_slices_are_those_of_python),
        TEST(test_nothing_outside_the_folder_is_reached),
        TEST(test_any_name_is_shown_as_text),
        TEST(test_damaged_files_spoil_their_own_run_only),
        TEST(test_many_tags_are_listed_in_part_and_found_by_search),
        TEST(test_every_allocation_may_fail),
        TEST(test_the_page_is_in_the_program_and_asks_nobody_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
