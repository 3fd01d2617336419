/* model.weights through the program: a run begins with the parameters of a file, a resumed one with its checkpoint's, and a file that
 * does not fit leaves no run behind. */
#include "tests/cli/runs.h"

/* What the first run learnt, under the names that its checkpoint has for it. */
#define LEARNT                                                                                                         \
    "--set", "model.weights.file=teacher/checkpoints/step-000000008/shard-0000.safetensors", "--set",                  \
        "model.weights.map=[{match: \"*\", from: \"param/*\"}]"
#define STILL                                                                                                          \
    "--set", "optimizer=[{name: sgd, lr: 1e-30}]", "--set", "train.steps=1" /* too small a step to change a number */
#define SCHEDULE "--set", "optimizer[1].schedule.total_steps=32"

static void test_a_run_begins_with_the_parameters_of_a_file(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "teacher", "--set", "train.steps=8");
    SUCCEED("train", "x.yaml", "--run", "pupil", LEARNT, "--set", "model.weights.ignore=[\"state/*\"]", STILL);
    expect_same_parameters("teacher/summary.json", "pupil/summary.json");
    SUCCEED("train", "x.yaml", "--run", "narrow", LEARNT, "--set", "model.weights.ignore=[\"state/*\"]", STILL, "--set",
            "train.table_dtype=bf16");
}

static void test_a_resumed_run_goes_on_with_its_own(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "whole", LEARNT, "--set", "model.weights.ignore=[\"state/*\"]", "--set",
            "train.steps=6", SCHEDULE);
    SUCCEED("train", "x.yaml", "--run", "halves", LEARNT, "--set", "model.weights.ignore=[\"state/*\"]", "--set",
            "train.steps=3", SCHEDULE);
    SUCCEED("train", "x.yaml", "--run", "halves", "--resume", LEARNT, "--set", "model.weights.ignore=[\"state/*\"]",
            "--set", "train.steps=6", SCHEDULE);
    expect_same_parameters("whole/summary.json", "halves/summary.json");
    SUCCEED("train", "x.yaml", "--run", "fresh", "--set", "train.steps=6", SCHEDULE);
    char *a = text_at("whole/summary.json", "parameters_checksum"),
         *b = text_at("fresh/summary.json", "parameters_checksum");
    assert_string_not_equal(a, b);
    free(a);
    free(b);
}

static void test_a_file_that_does_not_fit_is_refused_before_there_is_a_run(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "none", LEARNT, STILL), 2);
    assert_non_null(strstr(errors, "shard-0000.safetensors does not fit the model: "));
    assert_non_null(strstr(errors, "extra: no parameter gets \"state/"));
    assert_non_null(strstr(errors, "and "));
    assert_int_equal(RUN("train", "x.yaml", "--run", "none", STILL, "--set", "model.weights.file=nowhere"), 2);
    assert_non_null(strstr(errors, "nowhere: cannot open"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "none", STILL, "--set", "model.weights.fil=nowhere"), 2);
    assert_non_null(strstr(errors, "model.weights.file"));
    assert_int_not_equal(access("none", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_begins_with_the_parameters_of_a_file),
        cmocka_unit_test(test_a_resumed_run_goes_on_with_its_own),
        cmocka_unit_test(test_a_file_that_does_not_fit_is_refused_before_there_is_a_run),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
