/* The samples gpt, lenet and mlp through the program: they train a few steps, evaluate, and gpt goes on from a text, the same way
 * each time. */
#include "tests/cli/runs.h"

#define SAMPLES TD_SOURCE_DIR "/samples"

#define SMALL_GPT "--set", "model.layers=1", "--set", "model.width=32", "--set", "data.context=16"

static void test_gpt_goes_on_from_a_text(void **state)
{
    (void)state;
    char first[512];
    SUCCEED("train", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--set", "train.steps=20", "--set", "data.test_windows=5",
            "--run", "gpt");
    SUCCEED("eval", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--checkpoint", "gpt", "--generate", "The King", "--length",
            "40");
    assert_int_equal(strlen(out), 8 + 40 + 1);
    assert_memory_equal(out, "The King", 8);
    memcpy(first, out, sizeof first);
    SUCCEED("eval", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--checkpoint", "gpt", "--generate", "The King", "--length",
            "40");
    assert_string_equal(out, first);
    SUCCEED("eval", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--checkpoint", "gpt", "--generate", "The King", "--length",
            "40", "--temperature", "0");
    assert_string_not_equal(out, first);
    assert_int_equal(RUN("eval", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--checkpoint", "gpt", "--generate", "a%b"), 2);
    assert_non_null(strstr(errors, "character 2 of the text (byte 37) does not occur in the training text"));
    assert_int_equal(RUN("eval", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--checkpoint", "gpt", "--generate", ""), 2);
    assert_int_equal(
        RUN("eval", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--checkpoint", "gpt", "--generate", "a", "--length", "many"),
        2);
}

/* "activation_bytes" of the accelerator, and that without recomputing. */
static void activation_bytes(double *out_now, double *out_without)
{
    json_t *plan = json_loads(out, 0, NULL);
    const json_t *device = json_array_get(json_object_get(json_object_get(plan, "recompute"), "devices"), 1);
    *out_now = json_number_value(json_object_get(device, "activation_bytes"));
    *out_without = json_number_value(json_object_get(device, "activation_bytes_without"));
    json_decref(plan);
}

static void test_gpt_computes_its_blocks_again_with_the_same_result(void **state)
{
    (void)state;
    double now, without;
    SUCCEED("train", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--set", "train.steps=4", "--set", "data.test_windows=5",
            "--run", "kept");
    SUCCEED("train", SAMPLES "/gpt/gpt.yaml", SMALL_GPT, "--set", "train.steps=4", "--set", "data.test_windows=5",
            "--run", "again", "--set", "train.recompute=[\"h.*\"]");
    json_t *kept = json_load_file("kept/summary.json", 0, NULL), *again = json_load_file("again/summary.json", 0, NULL);
    assert_true(json_equal(json_object_get(kept, "loss"), json_object_get(again, "loss")));
    assert_true(
        json_equal(json_object_get(kept, "parameters_checksum"), json_object_get(again, "parameters_checksum")));
    json_decref(kept);
    json_decref(again);
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "train.recompute=[\"h.*\"]", "--json");
    activation_bytes(&now, &without);
    assert_true(now > 0 && now < 0.6 * without);
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "train.recompute=[\"h.*\"]");
    assert_non_null(strstr(out, "recompute h.*: backward runs 34 ops again, same bits"));
    assert_int_equal(RUN("plan", SAMPLES "/gpt/gpt.yaml", "--set", "train.recompute=[\"b.*\"]"), 2);
    assert_non_null(strstr(errors, "train.recompute: \"b.*\" matches no op; did you mean"));
}

/* A share of the optimizer ends within a parameter, and the plan says where, in its text and as JSON. */
static void test_a_plan_says_which_parameter_is_split(void **state)
{
    (void)state;
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "offload.optimizer={ratio: 0.6}", "--json");
    json_t *plan = json_loads(out, 0, NULL);
    const json_t *split = json_object_get(json_object_get(plan, "ledger"), "split");
    const json_int_t on_host = json_integer_value(json_object_get(split, "host_elements"));
    assert_non_null(json_string_value(json_object_get(split, "parameter")));
    assert_true(on_host > 0 && on_host < json_integer_value(json_object_get(split, "elements")));
    json_decref(plan);
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "offload.optimizer={ratio: 0.6}");
    assert_non_null(strstr(out, "elements on the host"));
}

/* A ledger would compare equal numbers. */
static void test_a_plan_says_in_a_line_that_auto_moves_nothing(void **state)
{
    (void)state;
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "offload.optimizer=auto");
    assert_non_null(strstr(out, "\n  offload.optimizer: auto moves nothing: accel has room for all, needing "));
    assert_non_null(strstr(out, " MiB of 256 MiB\n"));
    assert_null(strstr(out, "ledger of"));
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "offload.optimizer=auto", "--set", "devices.accel.memory=46MiB");
    assert_non_null(strstr(out, "ledger of"));
    SUCCEED("plan", SAMPLES "/gpt/gpt.yaml", "--set", "offload.optimizer=auto", "--json");
    json_t *plan = json_loads(out, 0, NULL);
    assert_non_null(json_object_get(json_object_get(plan, "ledger"), "devices"));
    json_decref(plan);
}

static double metric(const char *run, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/summary.json", run);
    json_t *summary = json_load_file(path, 0, NULL);
    assert_non_null(summary);
    const json_t *value = json_object_get(json_object_get(summary, "metrics"), name);
    assert_true(json_is_number(value));
    const double number = json_number_value(value);
    json_decref(summary);
    return number;
}

static void test_images_are_told_apart_better_than_by_chance(void **state)
{
    (void)state;
    SUCCEED("train", SAMPLES "/lenet/lenet.yaml", "--set", "train.steps=120", "--set", "data.most_rows=2000", "--run",
            "lenet");
    assert_true(metric("lenet", "accuracy") > 0.5);
    SUCCEED("train", SAMPLES "/lenet/classic.yaml", "--set", "train.steps=3", "--set", "data.most_rows=200", "--run",
            "classic");
    assert_true(metric("classic", "accuracy") >= 0);
    SUCCEED("train", SAMPLES "/mlp/mlp.yaml", "--set", "train.steps=30", "--set", "data.most_rows=2000", "--run",
            "mlp");
    assert_true(metric("mlp", "accuracy") > 0.5);
    assert_int_equal(RUN("eval", SAMPLES "/lenet/lenet.yaml", "--checkpoint", "lenet", "--generate", "a"), 2);
    assert_non_null(strstr(errors, "--generate needs a model that predicts characters, like gpt"));
}

static void test_settings_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    assert_int_equal(RUN("plan", SAMPLES "/gpt/gpt.yaml", "--set", "model.heads=3"), 2);
    assert_non_null(strstr(errors, "model.heads 3 does not divide model.width 128"));
    assert_int_equal(RUN("plan", SAMPLES "/lenet/lenet.yaml", "--set", "model.initial=normal"), 2);
    assert_non_null(strstr(errors, "is neither fan_in nor normal(0.02)"));
    assert_int_equal(RUN("plan", SAMPLES "/lenet/lenet.yaml", "--set", "model.padding=[1]"), 2);
    assert_non_null(strstr(errors, "one number for each convolution"));
    assert_int_equal(RUN("plan", SAMPLES "/lenet/classic.yaml", "--set", "data.transforms=[resize]"), 2);
    assert_non_null(strstr(errors, "resize needs size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt_goes_on_from_a_text),
        cmocka_unit_test(test_gpt_computes_its_blocks_again_with_the_same_result),
        cmocka_unit_test(test_a_plan_says_which_parameter_is_split),
        cmocka_unit_test(test_a_plan_says_in_a_line_that_auto_moves_nothing),
        cmocka_unit_test(test_images_are_told_apart_better_than_by_chance),
        cmocka_unit_test(test_settings_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
