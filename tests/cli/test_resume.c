/* A run goes on from its checkpoint in any precision and with the optimizer anywhere: at equal precision with the bits of one that was
 * never interrupted, loss scale included; in another one from the same f32 numbers, which one line says. */
#include "base/safetensors.h"
#include "tests/cli/runs.h"

static const char *const precisions[] = {"fp32", "bf16", "fp16"};
#define SCHEDULE "--set", "optimizer[1].schedule.total_steps=32"

static char *precision_key(int i)
{
    static char text[2][64];
    static int turn;
    turn = !turn;
    (void)snprintf(text[turn], sizeof text[turn], "train.precision=%s", precisions[i]);
    return text[turn];
}

static void train(char *run, int precision, char *steps, char *more)
{
    SUCCEED("train", "x.yaml", "--run", run, "--set", precision_key(precision), "--set", steps, "--set", more,
            SCHEDULE);
}

static void resume(char *run, int precision, char *steps, char *more)
{
    SUCCEED("train", "x.yaml", "--run", run, "--resume", "--set", precision_key(precision), "--set", steps, "--set",
            more, SCHEDULE);
}

static void test_the_optimizer_may_move_between_two_parts_of_a_run(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        train("whole", i, "train.steps=12", "offload.optimizer=none");
        train("there", i, "train.steps=6", "offload.optimizer=none");
        resume("there", i, "train.steps=12", "offload.optimizer=cpu");
        train("back", i, "train.steps=6", "offload.optimizer=cpu");
        resume("back", i, "train.steps=12", "offload.optimizer=none");
        expect_same_parameters("whole/summary.json", "there/summary.json");
        expect_same_parameters("whole/summary.json", "back/summary.json");
        json_t *whole = load("whole/summary.json"), *there = load("there/summary.json");
        assert_true(json_equal(json_object_get(whole, "loss"), json_object_get(there, "loss")));
        const json_t *a = json_object_get(whole, "loss_scale"), *b = json_object_get(there, "loss_scale");
        assert_int_equal(json_is_number(json_object_get(a, "scale")), i == 2);
        assert_true(json_number_value(json_object_get(a, "scale")) == json_number_value(json_object_get(b, "scale")));
        json_decref(whole);
        json_decref(there);
        assert_int_equal(system("rm -r whole there back"), 0);
    }
}

/* No 16-bit copy is in a checkpoint, whatever the run computed in. */
static void expect_f32(const char *path)
{
    td_safetensors *file = NULL;
    td_status *status = td_safetensors_open(path, &file);
    if (status)
        fail_msg("%s", td_status_message(status));
    for (int64_t i = 0; i < td_safetensors_count(file); i++)
        assert_int_equal(td_safetensors_at(file, i)->dtype, TD_F32);
    td_safetensors_close(file);
}

static void test_any_precision_goes_on_from_any_other_and_says_so(void **state)
{
    (void)state;
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            char said[64];
            train("pair", from, "train.steps=6", "checkpoint.keep=2");
            expect_f32("pair/checkpoints/step-000000006/shard-0000.safetensors");
            resume("pair", to, "train.steps=8", "checkpoint.keep=2");
            assert_int_equal(integer_at("pair/summary.json", "steps"), 8);
            (void)snprintf(said, sizeof said, "train.precision was %s and is %s now", precisions[from], precisions[to]);
            assert_true((strstr(errors, said) != NULL || strstr(out, said) != NULL) == (from != to));
            expect_f32("pair/checkpoints/step-000000008/shard-0000.safetensors");
            assert_int_equal(system("rm -r pair"), 0);
        }
}

/* Tables that are kept in 16 bit have no f32 copy, so these numbers are converted. */
static void test_tables_in_another_width_are_converted_and_one_line_says_so(void **state)
{
    (void)state;
    train("wide", 0, "train.steps=6", "train.table_dtype=f32");
    resume("wide", 0, "train.steps=8", "train.table_dtype=bf16");
    assert_true(strstr(errors, "(\"param/table.0.weight\" from f32 to bf16), each number once, to nearest") ||
                strstr(out, "(\"param/table.0.weight\" from f32 to bf16), each number once, to nearest"));
    resume("wide", 0, "train.steps=10", "train.table_dtype=f32");
    assert_true(strstr(errors, "from bf16 to f32), which is exact") ||
                strstr(out, "from bf16 to f32), which is exact"));
}

/* A run in stretches looks a batch ahead at the end of each, to know whether a window goes on. */
static void test_checkpoints_between_windows_lose_no_batch(void **state)
{
    (void)state;
    char *every[] = {"checkpoint.every=0", "checkpoint.every=1", "checkpoint.every=2", "checkpoint.every=3"};
    for (int i = 0; i < 4; i++) {
        SUCCEED("train", "x.yaml", "--run", i ? "often" : "once", "--set", "data.batch=100", "--set",
                "data.train_rows=500", "--set", "train.epochs=3", "--set", "train.accumulate=2", "--set", every[i],
                SCHEDULE);
        if (!i)
            continue;
        assert_int_equal(integer_at("often/summary.json", "steps"), integer_at("once/summary.json", "steps"));
        expect_same_parameters("once/summary.json", "often/summary.json");
        assert_int_equal(system("rm -r often"), 0);
    }
}

static void test_larger_windows_after_resuming_reach_the_end_of_the_data(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        SUCCEED("train", "x.yaml", "--run", "grown", "--set", "data.batch=20", "--set", "train.steps=7", "--set",
                "train.accumulate=3", SCHEDULE);
        SUCCEED("train", "x.yaml", "--run", "grown", "--resume", "--set", "data.batch=20", "--set",
                i ? "train.accumulate=25" : "train.accumulate=6", SCHEDULE);
        assert_int_equal(integer_at("grown/summary.json", "samples"), 2000);
        assert_int_equal(system("rm -r grown"), 0);
    }
}

static bool says(const char *words)
{
    return strstr(errors, words) || strstr(out, words);
}

static void test_settings_that_change_what_an_update_is_are_said(void **state)
{
    (void)state;
    train("said", 0, "train.steps=4", "train.clip_norm=0");
    resume("said", 0, "train.steps=6", "train.clip_norm=0");
    assert_false(says("from here on"));
    SUCCEED("train", "x.yaml", "--run", "said", "--resume", "--set", "train.steps=8", "--set", "train.clip_norm=0.5",
            "--set", "train.reduction=sum", "--set", "optimizer[0].lr=2e-2", SCHEDULE);
    assert_true(says("train.clip_norm was 0 and is 0.5 now"));
    assert_true(says("train.reduction was mean and is sum now"));
    assert_true(says("optimizer[0].lr was 0.01 and is 0.02 now"));
    assert_true(says("from here on updates follow the new settings"));
    assert_int_equal(system("rm -r said"), 0);
}

static void test_a_pipe_or_a_folder_in_a_checkpoint_is_refused_not_waited_for(void **state)
{
    (void)state;
    static const char *const names[] = {"manifest.json", "shard-0000.safetensors"};
    for (int i = 0; i < 4; i++) {
        char command[256], said[96];
        train("odd", 0, "train.steps=4", "train.clip_norm=0");
        (void)snprintf(command, sizeof command, "cd odd/checkpoints/step-000000004 && rm %s && %s %s", names[i / 2],
                       i % 2 ? "mkdir" : "mkfifo", names[i / 2]);
        assert_int_equal(system(command), 0);
        assert_int_equal(RUN("train", "x.yaml", "--run", "odd", "--resume", "--set", "train.steps=6", SCHEDULE), 1);
        (void)snprintf(said, sizeof said, "%s: is not a regular file", names[i / 2]);
        assert_true(says(said));
        assert_int_equal(system("rm -r odd"), 0);
    }
}

static void test_a_pattern_that_keeps_nothing_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "kept", "--set", "train.precision=bf16", "--set",
                         "train.keep_fp32=[\"botom.*\"]", SCHEDULE),
                     2);
    assert_true(says("train.keep_fp32: \"botom.*\" matches no op; did you mean \""));
    SUCCEED("train", "x.yaml", "--run", "kept", "--set", "train.precision=bf16", "--set", "train.steps=2", "--set",
            "train.keep_fp32=[\"bottom.*\"]", SCHEDULE);
}

static void test_keys_that_name_nothing_are_said(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "idle", "--set", "tables.hash=[{match: \"tabel.*\"}]", SCHEDULE),
                     2);
    assert_true(says("tables.hash: \"tabel.*\" matches no table; did you mean \""));
    assert_int_equal(RUN("train", "x.yaml", "--run", "idle", "--set", "ps.servers=many", SCHEDULE), 2);
    assert_true(says("ps.servers is \"many\"; it must be a number of ranks, or colocated"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "idle", "--set", "tables.hash=[{}]", "--set",
                         "offload.optimizer=cpu", "--set", "offload.delayed=true", SCHEDULE),
                     2);
    assert_true(says("offload.delayed is true and tables.hash has tables"));
    assert_int_not_equal(access("idle", F_OK), 0);
    SUCCEED("train", "x.yaml", "--run", "idle", "--set", "train.steps=1", "--set", "summary.gradients=[\"botom.*\"]",
            "--set", "summary.texts=2", SCHEDULE);
    assert_true(
        says("summary.gradients: \"botom.*\" matches no parameter, so nothing is recorded for it; did you mean"));
    assert_true(says("summary.texts: data.format synthetic has no texts, so none are recorded"));
}

static void test_keys_of_jobs_are_said_in_one_process(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "one", "--set", "train.steps=1", "--set", "ps.servers=2", "--set",
            "ps.spares=1", "--set", "ps.consistency=sync", SCHEDULE);
    assert_true(says(
        "ps.servers, ps.spares have no effect in one process; as a job: mpirun --oversubscribe -n 5 tandem train"));
    SUCCEED("train", "x.yaml", "--run", "none", "--set", "train.steps=1", "--set", "ps.consistency=sync", SCHEDULE);
    assert_false(says("no effect"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "stale", "--set", "ps.consistency={stale: 2}", "--set",
                         "ps.cache=1MiB", SCHEDULE),
                     2);
    assert_true(says("ps.consistency is stale, and one process has no other to run ahead of"));
    assert_true(says("as a job: mpirun --oversubscribe -n 2 tandem train"));
    assert_int_not_equal(access("stale", F_OK), 0);
    assert_int_equal(
        RUN("train", "x.yaml", "--run", "served", "--set", "offload.embedding=ps", "--set", "ps.servers=2", SCHEDULE),
        2);
    assert_true(says("start it with mpirun") && !says("no effect"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_optimizer_may_move_between_two_parts_of_a_run),
        cmocka_unit_test(test_any_precision_goes_on_from_any_other_and_says_so),
        cmocka_unit_test(test_checkpoints_between_windows_lose_no_batch),
        cmocka_unit_test(test_larger_windows_after_resuming_reach_the_end_of_the_data),
        cmocka_unit_test(test_settings_that_change_what_an_update_is_are_said),
        cmocka_unit_test(test_a_pipe_or_a_folder_in_a_checkpoint_is_refused_not_waited_for),
        cmocka_unit_test(test_a_pattern_that_keeps_nothing_is_an_error),
        cmocka_unit_test(test_keys_that_name_nothing_are_said),
        cmocka_unit_test(test_keys_of_jobs_are_said_in_one_process),
        cmocka_unit_test(test_tables_in_another_width_are_converted_and_one_line_says_so),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
