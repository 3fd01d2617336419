/* A job's recording in the board: its ranks, their timeline on one clock, and what a hostile folder may put beside it. */
#include "tests/profiler/made_trace.h"

#include <jansson.h>
#include <sys/stat.h>

#include "base/file.h"
#include "board/board.h"

static char folder[64];

static const char *in(const char *name)
{
    static char paths[4][192];
    static int at;
    at = (at + 1) % 4;
    (void)snprintf(paths[at], sizeof paths[at], "%s/%s", folder, name);
    return paths[at];
}

static void write_rank(const char *run, int rank, int64_t late)
{
    char name[96];
    made m = made_defaults();
    m.rank = rank;
    m.ranks = 3;
    m.late = late;
    m.sum = 4000000 - late;
    (void)snprintf(name, sizeof name, rank ? "%s/profile/trace-0001.rank%d.tdt" : "%s/profile/trace-0001.tdt", run,
                   rank);
    made_file(in(name), &m);
}

static json_t *ask(td_board *board, int status, const char *path, const char *run)
{
    td_board_parameter parameter = {"run", run};
    td_board_request request = {path, &parameter, 1};
    td_board_response response = td_board_answer(board, &request);
    json_t *json = json_loadb(response.body, response.bytes, 0, NULL);
    if (!json || response.status != status)
        fail_msg("%s of %s: %d: %.*s", path, run, response.status, (int)(response.bytes < 300 ? response.bytes : 300),
                 response.body);
    td_board_response_deinit(&response);
    return json;
}

static void test_a_job_is_shown_with_its_ranks(void **state)
{
    (void)state;
    td_board *board = NULL;
    OK(td_directory_create(in("job/profile")));
    for (int rank = 0; rank < 3; rank++)
        write_rank("job", rank, rank == 1 ? 3000000 : 0);
    OK(td_board_open(folder, &board));
    json_t *json = ask(board, 200, "/api/v1/cluster", "job");
    const json_t *ranks = json_object_get(json, "ranks"), *slow = json_array_get(ranks, 1);
    assert_int_equal(json_array_size(ranks), 3);
    assert_int_equal(json_integer_value(json_object_get(slow, "times_last")), 4);
    assert_true(json_number_value(json_object_get(slow, "late_ms")) == 3);
    json_decref(json);
    json = ask(board, 200, "/api/v1/timeline", "job");
    const json_t *row;
    size_t i;
    bool seen[3] = {false};
    json_array_foreach(json_object_get(json, "rows"), i, row)
    {
        int64_t rank = json_integer_value(json_object_get(row, "rank"));
        assert_in_range(rank, 0, 2);
        assert_int_equal(json_string_value(json_object_get(row, "thread"))[0] - '0', rank);
        seen[rank] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    json_decref(json);
    json = ask(board, 200, "/api/v1/profile", "job");
    assert_non_null(json_object_get(json, "ranks"));
    json_decref(json);
    write_rank("job", 2, 3500000); /* a rank's file has changed: it is read anew */
    json = ask(board, 200, "/api/v1/cluster", "job");
    assert_true(json_number_value(json_object_get(json_array_get(json_object_get(json, "ranks"), 2), "late_ms")) ==
                3.5);
    json_decref(json);
    td_board_close(board);
}

static json_t *ask_of(td_board *board, int status, const char *path, const char *whose, const char *number)
{
    td_board_parameter parameters[] = {{"run", "whose"}, {whose, number}, {"step", "7"}};
    td_board_response response = td_board_answer(board, &(td_board_request){path, parameters, 3});
    json_t *json = json_loadb(response.body, response.bytes, 0, NULL);
    assert_int_equal(response.status, status);
    td_board_response_deinit(&response);
    return json;
}

static void test_steps_are_those_of_the_rank_that_is_asked_for(void **state)
{
    (void)state;
    td_board *board = NULL;
    double lasts[2];
    OK(td_directory_create(in("whose/profile")));
    for (int rank = 0; rank < 2; rank++) {
        made m = made_defaults();
        m.rank = rank;
        m.ranks = 2;
        m.callback = rank ? 2000000 : 1000;
        made_file(in(rank ? "whose/profile/trace-0001.rank1.tdt" : "whose/profile/trace-0001.tdt"), &m);
    }
    OK(td_board_open(folder, &board));
    for (int turn = 0; turn < 4; turn++) { /* one after the other, and back */
        const int rank = turn % 2;
        json_t *json = ask_of(board, 200, "/api/v1/profile", "rank", rank ? "1" : "0");
        const json_t *ranks = json_object_get(json, "ranks");
        assert_int_equal(json_integer_value(json_object_get(ranks, "shown")), rank);
        assert_true(json_is_true(json_object_get(json_array_get(json_object_get(ranks, "ranks"), 1), "trained")));
        lasts[rank] = json_number_value(json_object_get(json_object_get(json, "average"), "callback_ms"));
        json_decref(json);
        json = ask_of(board, 200, "/api/v1/step", "rank", rank ? "1" : "0");
        assert_true(json_number_value(json_object_get(json_object_get(json, "step"), "callback_ms")) == lasts[rank]);
        json_decref(json);
        json = ask_of(board, 200, "/api/v1/curves", "rank", rank ? "1" : "0");
        const json_t *callbacks = json_object_get(json_object_get(json, "step"), "callback_ms");
        assert_true(json_number_value(json_array_get(callbacks, 1)) == lasts[rank]);
        json_decref(json);
    }
    assert_true(lasts[0] == 0.001 && lasts[1] == 2);
    json_decref(ask_of(board, 400, "/api/v1/profile", "rank", "9"));
    json_decref(ask_of(board, 400, "/api/v1/step", "worker", "9"));
    td_board_close(board);
}

static void test_what_lies_beside_a_trace_cannot_break_it(void **state)
{
    (void)state;
    td_board *board = NULL;
    OK(td_directory_create(in("odd/profile")));
    write_rank("odd", 0, 0);
    assert_int_equal(symlink("/etc/passwd", in("odd/profile/trace-0001.rank1.tdt")), 0);
    OK(td_file_write(in("odd/profile/trace-0001.rank2.tdt"), "TDTRACE\nno trace", 16));
    OK(td_file_write(in("odd/profile/trace-0001.rank99999999.tdt"), "x", 1));
    OK(td_directory_create(in("odd/profile/trace-0001.rank4.tdt")));
    OK(td_board_open(folder, &board));
    json_t *json = ask(board, 200, "/api/v1/cluster", "odd");
    const json_t *rank, *ranks = json_object_get(json, "ranks");
    size_t i;
    assert_int_equal(json_array_size(ranks), 3); /* those that the first one says there were */
    json_array_foreach(ranks, i, rank) assert_true(i == 0 || *json_string_value(json_object_get(rank, "problem")));
    json_decref(json);
    json_decref(ask(board, 200, "/api/v1/timeline", "odd"));
    td_board_close(board);
}

static void test_curves_and_single_steps_are_answered(void **state)
{
    (void)state;
    td_board *board = NULL;
    made m = made_defaults();
    OK(td_directory_create(in("curves/profile")));
    made_file(in("curves/profile/trace-0001.tdt"), &m);
    OK(td_board_open(folder, &board));
    json_t *json = ask(board, 200, "/api/v1/curves", "curves");
    assert_int_equal(json_array_size(json_object_get(json, "steps")), m.steps);
    assert_int_equal(json_array_size(json_object_get(json_object_get(json, "step"), "interval_ms")), m.steps);
    json_decref(json);
    json_decref(ask(board, 400, "/api/v1/step", "curves"));
    static const char *const steps[] = {"7", "99"};
    for (int i = 0; i < 2; i++) {
        td_board_parameter parameters[] = {{"run", "curves"}, {"step", steps[i]}};
        td_board_response response = td_board_answer(board, &(td_board_request){"/api/v1/step", parameters, 2});
        assert_int_equal(response.status, i ? 404 : 200);
        td_board_response_deinit(&response);
    }
    td_board_close(board);
}

static void test_a_run_of_one_process_says_how_to_record_a_job(void **state)
{
    (void)state;
    td_board *board = NULL;
    made m = made_defaults();
    OK(td_directory_create(in("one/profile")));
    made_file(in("one/profile/trace-0001.tdt"), &m);
    OK(td_board_open(folder, &board));
    json_t *json = ask(board, 404, "/api/v1/cluster", "one");
    assert_non_null(
        strstr(json_string_value(json_object_get(json, "error")), "mpirun -n 4 tandem train CONFIG --profile"));
    json_decref(json);
    json_decref(ask(board, 200, "/api/v1/timeline", "one"));
    td_board_close(board);
}

static int enter(void **state)
{
    (void)state;
    (void)strcpy(folder, "board-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int leave(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_is_shown_with_its_ranks),
        cmocka_unit_test(test_steps_are_those_of_the_rank_that_is_asked_for),
        cmocka_unit_test(test_what_lies_beside_a_trace_cannot_break_it),
        cmocka_unit_test(test_curves_and_single_steps_are_answered),
        cmocka_unit_test(test_a_run_of_one_process_says_how_to_record_a_job),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
