/* Signals and sudden ends: what is on disk afterwards, and that a run resumed from it ends with the bits of one that was left alone. */
#include <sys/inotify.h>

#include "base/philox.h"
#include "tests/cli/runs.h"

/* A run without a foreseeable end, with a line of progress every eighth step. */
static const char *const endless[] = {
    "train", "x.yaml", "--run", "long", "--set", "train.epochs=100000", "--set", "optimizer[1].schedule.total_steps=32",
    NULL};

/* It has a checkpoint that can be read and gone on from. */
static void expect_resumable(int64_t least_steps)
{
    char more[64];
    assert_int_not_equal(access("long/summary.json", F_OK), 0);
    SUCCEED("eval", "x.yaml", "--checkpoint", "long", "--json");
    json_t *json = json_loads(out, 0, NULL);
    int64_t steps = json_integer_value(json_object_get(json, "steps"));
    json_decref(json);
    assert_true(steps >= least_steps);
    snprintf(more, sizeof more, "train.steps=%lld", (long long)steps + 3);
    SUCCEED("train", "x.yaml", "--run", "long", "--resume", "--set", "train.epochs=100000", "--set", more, "--set",
            "optimizer[1].schedule.total_steps=32");
    assert_int_equal(integer_at("long/summary.json", "steps"), steps + 3);
    assert_int_equal(system("rm -r long"), 0);
}

static void test_a_signal_ends_the_step_and_leaves_a_checkpoint_to_go_on_from(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        FILE *stream = NULL;
        pid_t child = start_program(endless, &stream);
        assert_true(read_until(stream, "epoch"));
        kill(child, signals[i]);
        (void)read_until(stream, "no such line"); /* the pipe must not fill */
        assert_int_equal(wait_for(child), 130);
        fclose(stream);
        expect_resumable(1);
    }
}

/* Begins the endless run with what it says on standard error and more settings, and interrupts it after some step. Returns the next
 * line that is none of progress in `line`. */
static pid_t interrupt(const char *set, void (*before)(void), FILE **out_stream, char line[512])
{
    const char *words[16] = {0};
    int n = 0;
    for (; endless[n]; n++)
        words[n] = endless[n];
    words[n++] = "--json"; /* progress goes there too */
    words[n++] = "--set";
    words[n] = set;
    pid_t child = start_program_by(2, words, out_stream);
    assert_true(read_until(*out_stream, "epoch"));
    before();
    kill(child, SIGINT);
    do
        assert_non_null(fgets(line, 512, *out_stream));
    while (!strncmp(line, "epoch", 5));
    return child;
}

static void put_a_file_for_the_checkpoints(void)
{
    assert_int_equal(rename("long/checkpoints", "long/away"), 0);
    assert_int_equal(close(open("long/checkpoints", O_CREAT | O_WRONLY, 0600)), 0);
}

static void change_nothing(void)
{
}

/* It cannot be written, so the line is not one that follows it. */
static void test_a_signal_is_answered_before_the_checkpoint_is_written(void **state)
{
    (void)state;
    FILE *stream = NULL;
    char line[512], expected[512];
    long long steps = 0;
    pid_t child = interrupt("checkpoint.keep=1", put_a_file_for_the_checkpoints, &stream, line);
    assert_int_equal(sscanf(line, "tandem: interrupted after step %lld", &steps), 1);
    snprintf(expected, sizeof expected,
             "tandem: interrupted after step %lld: writing a checkpoint; another signal ends without it\n", steps);
    assert_string_equal(line, expected);
    assert_true(steps > 0);
    assert_true(read_until(stream, "tandem: "));
    assert_int_not_equal(wait_for(child), 130);
    fclose(stream);
    assert_int_equal(system("rm -r long"), 0);
}

static void test_a_signal_announces_no_checkpoint_where_none_is_kept(void **state)
{
    (void)state;
    FILE *stream = NULL;
    char line[512];
    pid_t child = interrupt("checkpoint.keep=0", change_nothing, &stream, line);
    assert_non_null(strstr(line, " of 1600000\n")); /* what is said at the end */
    assert_int_equal(wait_for(child), 130);
    fclose(stream);
    assert_int_equal(system("rm -r long"), 0);
}

static void test_a_run_without_a_step_is_resumed_before_the_first(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "begun", "--set", "train.steps=8");
    assert_int_equal(system("rm -r begun/summary.json begun/checkpoints/*"), 0);
    SUCCEED("train", "x.yaml", "--run", "begun", "--resume", "--set", "train.steps=8");
    assert_non_null(strstr(out, "\nresumed before the first step\n"));
    assert_int_equal(system("rm -r begun"), 0);
}

/* The test part is so large that the evaluation would take hours. */
static void test_a_signal_in_the_evaluation_says_that_training_is_done(void **state)
{
    (void)state;
    static const char *const words[] = {
        "train", "x.yaml", "--run", "done", "--json", "--set", "train.steps=8", "--set", "data.test_rows=100000000",
        NULL};
    static const char *const said[] = {
        "tandem: interrupted after the last step: training is done, the evaluation was left out\n",
        "  evaluate with: tandem eval x.yaml --checkpoint done --set train.steps=8 --set data.test_rows=100000000\n",
        ("  or, with done/summary.json: tandem train x.yaml --run done --resume --set train.steps=8 --set "
         "data.test_rows=100000000\n")};
    FILE *stream = NULL;
    char line[512];
    pid_t child = start_program_by(2, words, &stream);
    assert_true(read_until(stream, "epoch"));
    while (access("done/checkpoints/step-000000008/manifest.json", F_OK))
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    kill(child, SIGINT);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        assert_non_null(fgets(line, sizeof line, stream));
        assert_string_equal(line, said[i]);
    }
    assert_int_equal(wait_for(child), 130);
    fclose(stream);
    assert_int_not_equal(access("done/summary.json", F_OK), 0);
    SUCCEED("train", "x.yaml", "--run", "done", "--resume", "--set", "train.steps=8");
    assert_int_equal(integer_at("done/summary.json", "steps"), 8);
    assert_non_null(strstr(out, "auc 0."));
    assert_int_equal(system("rm -r done"), 0);
}

/* The program waits for a pipe to give it the model, so it is certain to be before its first step. */
static void test_a_signal_before_the_first_step_or_a_result_is_said_and_leaves_no_run(void **state)
{
    (void)state;
    static const struct {
        const char *command, *option;
        int signal;
        const char *said;
    } cases[] = {
        {"train", "--run", SIGINT, "tandem: interrupted before the first step: no run was begun\n"},
        {"train", "--run", SIGTERM, "tandem: ended by SIGTERM before the first step: no run was begun\n"},
        {"eval", "--checkpoint", SIGINT, "tandem: interrupted before there was a result\n"},
        {"eval", "--checkpoint", SIGHUP, "tandem: ended by SIGHUP (the terminal is gone) before there was a result\n"}};
    assert_int_equal(mkfifo("pipe.tdg", 0600), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const words[] = {cases[i].command, "x.yaml", cases[i].option,  "long", "--set",
                                     "model=null",     "--set",  "graph=pipe.tdg", NULL};
        FILE *errors_of = NULL;
        pid_t child = start_program_by(2, words, &errors_of);
        int pipe_end = open("pipe.tdg", O_WRONLY); /* returns when the program reads */
        assert_true(pipe_end >= 0);
        kill(child, cases[i].signal);
        close(pipe_end); /* TSan keeps a signal back until the read that it met returns */
        char line[512] = "";
        assert_non_null(fgets(line, sizeof line, errors_of));
        assert_string_equal(line, cases[i].said);
        assert_int_equal(wait_for(child), 130);
        fclose(errors_of);
        assert_int_not_equal(access("long", F_OK), 0);
    }
    assert_int_equal(unlink("pipe.tdg"), 0);
}

/* As soon as there is a folder: before the first step or after some. */
static void test_a_signal_when_the_folder_appears_leaves_a_run_that_goes_on(void **state)
{
    (void)state;
    char event[4096] __attribute__((aligned(8)));
    FILE *stream = NULL;
    const int watch = inotify_init1(IN_CLOEXEC);
    assert_true(watch >= 0 && inotify_add_watch(watch, ".", IN_CREATE) >= 0);
    pid_t child = start_program(endless, &stream);
    while (access("long", F_OK))
        assert_true(read(watch, event, sizeof event) > 0);
    kill(child, SIGINT);
    (void)read_until(stream, "no such line");
    assert_int_equal(wait_for(child), 130);
    fclose(stream);
    close(watch);
    expect_resumable(0);
}

/* As in `tandem train ... | head -3`. */
static void test_a_reader_that_goes_away_costs_no_checkpoint(void **state)
{
    (void)state;
    FILE *stream = NULL;
    pid_t child = start_program(endless, &stream);
    assert_true(read_until(stream, "epoch"));
    fclose(stream);
    assert_int_equal(wait_for(child), 130);
    expect_resumable(1);
}

static void test_a_second_signal_ends_at_once(void **state)
{
    (void)state;
    FILE *stream = NULL;
    pid_t child = start_program(endless, &stream);
    assert_true(read_until(stream, "epoch"));
    kill(child, SIGSTOP); /* so that both wait for it */
    kill(child, SIGINT);
    kill(child, SIGTERM);
    kill(child, SIGCONT);
    (void)read_until(stream, "no such line");
    int ended = wait_for(child);
    assert_true(ended == -SIGINT || ended == -SIGTERM);
    fclose(stream);
    assert_int_equal(system("rm -r long"), 0);
}

/* ---- kill -9 ---------------------------------------------------------------------------------------------------------------------- */

enum { KILLS = 12, STEPS = 48, LINES = 9 };

/* Goes on with the run and kills it after some lines of progress (0: leaves it alone); whether it was killed. */
static bool train_and_kill(bool resume, uint32_t lines)
{
    const char *words[] = {"train",
                           "x.yaml",
                           "--run",
                           "killed",
                           "--set",
                           "train.epochs=3",
                           "--set",
                           "train.log_every=1",
                           "--set",
                           "checkpoint.every=2",
                           "--set",
                           "checkpoint.keep=2",
                           resume ? "--resume" : NULL,
                           NULL};
    FILE *stream = NULL;
    pid_t child = start_program(words, &stream);
    bool alive = true;
    for (uint32_t i = 0; i < lines && alive; i++)
        alive = read_until(stream, "epoch");
    if (lines)
        kill(child, SIGKILL);
    (void)read_until(stream, "no such line");
    int ended = wait_for(child);
    fclose(stream);
    assert_true(ended == 0 || (lines && ended == -SIGKILL));
    return ended != 0;
}

static void test_killed_at_any_moment_and_resumed_it_ends_with_the_same_bits(void **state)
{
    (void)state;
    bool killed = true;
    SUCCEED("train", "x.yaml", "--run", "alone", "--set", "train.epochs=3");
    assert_int_equal(integer_at("alone/summary.json", "steps"), STEPS);
    for (uint64_t i = 0; i < KILLS && killed; i++) {
        uint32_t bits[4];
        td_philox_block(td_philox_key_of(4, "kill", ""), i, 0, bits);
        killed = train_and_kill(!access("killed/run.json", F_OK), 1 + bits[0] % LINES);
    }
    if (killed)
        assert_false(train_and_kill(true, 0));
    expect_same_parameters("alone/summary.json", "killed/summary.json");
    assert_int_equal(integer_at("killed/summary.json", "steps"), STEPS);
}

int main(void)
{
    signal(SIGINT, SIG_DFL); /* where a shell runs this in the background it is ignored, and a child keeps that */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_signal_ends_the_step_and_leaves_a_checkpoint_to_go_on_from),
        cmocka_unit_test(test_a_signal_is_answered_before_the_checkpoint_is_written),
        cmocka_unit_test(test_a_signal_announces_no_checkpoint_where_none_is_kept),
        cmocka_unit_test(test_a_signal_in_the_evaluation_says_that_training_is_done),
        cmocka_unit_test(test_a_run_without_a_step_is_resumed_before_the_first),
        cmocka_unit_test(test_a_signal_before_the_first_step_or_a_result_is_said_and_leaves_no_run),
        cmocka_unit_test(test_a_signal_when_the_folder_appears_leaves_a_run_that_goes_on),
        cmocka_unit_test(test_a_reader_that_goes_away_costs_no_checkpoint),
        cmocka_unit_test(test_a_second_signal_ends_at_once),
        cmocka_unit_test(test_killed_at_any_moment_and_resumed_it_ends_with_the_same_bits),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
