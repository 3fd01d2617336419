/* tandem train, eval, plan and bench from the outside, on a small generated click log in a folder of their own: files and their
 * names, resuming, refusals. */
#include "tests/cli/runs.h"

/* ---- files ---------------------------------------------------------------------------------------------------------------- */

static void test_summary_has_the_promised_names(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "names");
    json_t *json = load("names/summary.json");
    static const char *const names[] = {
        "steps",   "samples", "loss", "metrics", "step_ms", "samples_per_s",       "plan_ms",
        "devices", "copies",  "plan", "overlap", "seed",    "parameters_checksum", "version"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(json_object_get(json, names[i]));
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 32);
    assert_int_equal(json_integer_value(json_object_get(json, "samples")), 2000);
    json_t *metrics = json_object_get(json, "metrics"), *devices = json_object_get(json, "devices");
    static const char *const metric_names[] = {"auc", "logloss", "accuracy", "val_loss", "generator_auc"};
    for (size_t i = 0; i < sizeof metric_names / sizeof *metric_names; i++)
        assert_true(json_is_real(json_object_get(metrics, metric_names[i])));
    double auc = json_real_value(json_object_get(metrics, "auc"));
    assert_true(auc > 0.5 && auc <= 1); /* it learned something */
    assert_int_equal(json_array_size(devices), 2);
    static const char *const device_names[] = {
        "name", "backend", "capacity_bytes", "peak_bytes", "parameter_bytes", "state_bytes", "busy"};
    for (size_t i = 0; i < sizeof device_names / sizeof *device_names; i++)
        assert_non_null(json_object_get(json_array_get(devices, 1), device_names[i]));
    assert_non_null(json_object_get(json_object_get(json, "step_ms"), "median"));
    assert_non_null(json_object_get(json_object_get(json, "step_ms"), "p90"));
    assert_true(json_number_value(json_object_get(json_object_get(json, "copies"), "to_device_bytes_per_step")) > 0);
    assert_true(json_number_value(json_object_get(json_object_get(json, "copies"), "to_host_bytes_per_step")) > 0);
    assert_int_equal(access("names/run.json", F_OK), 0);
    json_decref(json);
}

/* Contract (d): what a run held is never more than its plan said. */
static void test_memory_stays_within_the_plan(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "memory");
    json_t *json = load("memory/summary.json");
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(json, "devices"), i, device)
    {
        assert_true(json_integer_value(json_object_get(device, "peak_bytes")) > 0);
        assert_true(json_integer_value(json_object_get(device, "peak_bytes")) <=
                    json_integer_value(json_object_get(device, "planned_peak_bytes")));
    }
    json_decref(json);
}

static void test_lineage_repeats_the_run(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "first", "--set", "train.steps=10", "--set", "train.seed=7");
    char *text = text_at("first/run.json", "configuration");
    FILE *file = fopen("again.yaml", "w");
    fputs(text, file);
    fclose(file);
    free(text);
    SUCCEED("train", "again.yaml", "--run", "again");
    assert_int_equal(integer_at("again/summary.json", "steps"), 10);
    expect_same_parameters("first/summary.json", "again/summary.json");
}

static void test_runs_are_numbered(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--set", "train.steps=6");
    SUCCEED("train", "x.yaml", "--set", "train.steps=6");
    assert_int_equal(access("runs/dlrm-0001/summary.json", F_OK), 0);
    assert_int_equal(access("runs/dlrm-0002/summary.json", F_OK), 0);
    assert_int_equal(RUN("train", "x.yaml", "--run", "runs/dlrm-0001"), 2);
    assert_non_null(strstr(errors, "tandem: --run runs/dlrm-0001: there is a run in it already\n"));
}

static void test_json_goes_out_alone(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "json", "--json", "--set", "train.steps=6", "--set", "log.level=error");
    json_t *json = json_loads(out, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 6);
    json_decref(json);
}

static void test_a_watched_value_is_printed(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "watched", "--watch", "top.0/linear");
    assert_non_null(strstr(out, "step 8  top.0/linear: mean "));
    assert_non_null(strstr(out, "step 32  top.0/linear: mean "));
}

/* ---- the same results, whatever the way -------------------------------------------------------------------------------------- */

static void test_cut_and_single_runs_end_with_the_same_bits(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "cut");
    SUCCEED("train", "x.yaml", "--run", "host", "--set", "devices=[cpu]", "--set", "placement={default: cpu}");
    SUCCEED("train", "x.yaml", "--run", "accel", "--set", "placement.rules=[]");
    expect_same_parameters("cut/summary.json", "host/summary.json");
    expect_same_parameters("cut/summary.json", "accel/summary.json");
}

static void test_resuming_gives_the_same_bits(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "whole");
    /* the schedule must end where the whole run's does */
    SUCCEED("train", "x.yaml", "--run", "parts", "--set", "train.steps=21", "--set",
            "optimizer[1].schedule.total_steps=32");
    remove("parts/summary.json");
    SUCCEED("train", "x.yaml", "--run", "parts", "--resume");
    assert_int_equal(integer_at("parts/summary.json", "steps"), 32);
    assert_int_equal(integer_at("parts/summary.json", "samples"), 2000);
    expect_same_parameters("whole/summary.json", "parts/summary.json");
}

static void test_checkpoints_on_the_way_change_nothing_and_old_ones_go(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "plain");
    SUCCEED("train", "x.yaml", "--run", "kept", "--set", "checkpoint={every: 5, keep: 2}");
    expect_same_parameters("plain/summary.json", "kept/summary.json");
    assert_int_equal(access("kept/checkpoints/step-000000032", F_OK), 0);
    assert_int_equal(access("kept/checkpoints/step-000000030", F_OK), 0);
    assert_int_not_equal(access("kept/checkpoints/step-000000025", F_OK), 0);
    SUCCEED("train", "x.yaml", "--run", "none", "--set", "checkpoint.keep=0", "--set", "train.steps=6");
    assert_int_not_equal(access("none/checkpoints", F_OK), 0);
}

static void test_eval_repeats_the_metrics_of_the_run(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "trained");
    SUCCEED("eval", "x.yaml", "--checkpoint", "trained", "--json", "--set", "devices=[cpu]", "--set",
            "placement={default: cpu}");
    json_t *evaluated = json_loads(out, 0, NULL), *summary = load("trained/summary.json");
    json_t *a = json_object_get(evaluated, "metrics"), *b = json_object_get(summary, "metrics");
    static const char *const names[] = {"auc", "logloss", "accuracy", "val_loss"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(json_real_value(json_object_get(a, names[i])) == json_real_value(json_object_get(b, names[i])));
    assert_int_equal(json_integer_value(json_object_get(evaluated, "samples")), 300);
    assert_int_equal(json_integer_value(json_object_get(evaluated, "steps")), 32);
    json_decref(evaluated);
    json_decref(summary);
    /* every row of the training part once, whatever the training did with it */
    SUCCEED("eval", "x.yaml", "--checkpoint", "trained", "--part", "train", "--json", "--set",
            "data.drop_remainder=true");
    evaluated = json_loads(out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(evaluated, "samples")), 1000);
    json_decref(evaluated);
    assert_int_equal(RUN("eval", "x.yaml", "--checkpoint", "nowhere"), 2);
    assert_int_equal(RUN("eval", "x.yaml"), 2);
}

static void test_a_graph_from_a_file_trains_like_the_model_that_it_was(void **state)
{
    (void)state;
    SUCCEED("plan", "x.yaml", "--tdg", "model.tdg");
    SUCCEED("train", "x.yaml", "--run", "built");
    SUCCEED("train", "x.yaml", "--run", "read", "--set", "model=null", "--set", "graph=model.tdg");
    expect_same_parameters("built/summary.json", "read/summary.json");
    json_t *json = load("read/summary.json");
    assert_non_null(json_object_get(json_object_get(json, "metrics"), "auc"));
    json_decref(json);
    FILE *file = fopen("bad.tdg", "w");
    fputs("nonsense\n", file);
    fclose(file);
    assert_int_equal(RUN("plan", "x.yaml", "--set", "model=null", "--set", "graph=bad.tdg"), 2);
    assert_non_null(strstr(errors, "tandem: bad.tdg:1:"));
}

static void test_a_run_that_ended_is_left_as_it_is_when_resumed(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "ended", "--set", "train.steps=8");
    json_t *before = load("ended/summary.json");
    SUCCEED("train", "x.yaml", "--run", "ended", "--resume", "--set", "train.steps=8");
    assert_string_equal(out, "ended ended after step 8; train.epochs or train.steps makes it longer\n");
    json_t *after = load("ended/summary.json");
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    SUCCEED("train", "x.yaml", "--run", "ended", "--resume", "--set", "train.steps=8", "--json");
    json_t *json = json_loads(out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 8);
    json_decref(json);
}

static void test_a_run_that_was_stopped_before_its_first_checkpoint_begins_again(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "eight", "--set", "train.steps=8");
    SUCCEED("train", "x.yaml", "--run", "killed", "--set", "train.steps=8");
    remove("killed/summary.json");
    assert_int_equal(system("rm -r killed/checkpoints/*; mkdir killed/checkpoints/step-000000003.partial"), 0);
    SUCCEED("train", "x.yaml", "--run", "killed", "--resume", "--set", "train.steps=8");
    expect_same_parameters("eight/summary.json", "killed/summary.json");
    assert_int_not_equal(access("killed/checkpoints/step-000000003.partial", F_OK), 0);
}

static void test_another_order_of_rows_cannot_be_resumed(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "order", "--set", "train.steps=8");
    assert_int_equal(RUN("train", "x.yaml", "--run", "order", "--resume", "--set", "train.seed=5"), 2);
    assert_non_null(strstr(errors, "train.seed was 1 when order began, and must stay so to resume it"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "order", "--resume", "--set", "data.batch=32"), 2);
    assert_int_equal(RUN("train", "x.yaml", "--run", "order", "--resume", "--set", "data.shuffle=false"), 2);
    assert_non_null(strstr(errors, "data.shuffle was true when order began"));
    SUCCEED("train", "x.yaml", "--run", "order", "--resume", "--set", "train.steps=10");
    assert_int_equal(integer_at("order/summary.json", "steps"), 10);
}

static void test_a_manifest_with_impossible_counters_is_refused(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "counted", "--set", "train.steps=8");
    const char *path = "counted/checkpoints/step-000000008/manifest.json";
    json_t *manifest = load(path);
    json_object_set_new(manifest, "steps", json_integer(-8));
    json_object_del(manifest, "checksum"); /* as version 2 had none */
    json_object_set_new(manifest, "version", json_integer(2));
    assert_int_equal(json_dump_file(manifest, path, 0), 0);
    json_decref(manifest);
    assert_int_equal(RUN("eval", "x.yaml", "--checkpoint", "counted"), 1);
    assert_non_null(strstr(errors, "manifest.json is not a whole checkpoint's: its steps and updates are no counts"));
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------------ */

static void test_what_does_not_fit_exits_with_3_and_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "large", "--set", "devices.accel.memory=4KiB"), 3);
    assert_non_null(strstr(errors, "tandem: does not fit: accel has 4.00 KiB"));
    assert_int_not_equal(access("large", F_OK), 0);
}

static void test_mistakes_in_groups_and_devices_name_their_place(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--set", "optimizer[1].betas=[0.9]"), 2);
    assert_string_equal(errors, "tandem: --set optimizer[1].betas: betas are two numbers, [0.9, 0.999]\n");
    assert_int_equal(RUN("train", "x.yaml", "--set", "optimizer=[{name: adam}]"), 2);
    assert_string_equal(errors, "tandem: --set optimizer: this optimizer group has no lr, its learning rate\n");
    assert_int_equal(RUN("train", "x.yaml", "--set", "devices=[cpu, CPU]"), 2);
    assert_string_equal(errors, "tandem: --set devices: two devices are called \"CPU\"\n");
    assert_int_equal(RUN("train", "x.yaml", "--set", "placement.default=gpu"), 2);
    assert_int_equal(RUN("train", "x.yaml", "--set", "optimizer[0].name=lazy_adm"), 2);
    assert_int_equal(RUN("train", "x.yaml", "--watch", "top.7"), 2);
}

static void test_a_run_without_a_step_is_refused(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "stepless", "--set", "data.train_rows=63", "--set",
                         "data.drop_remainder=true", "--set", "optimizer=[{name: adam, lr: 1e-3}]"),
                     2);
    assert_non_null(
        strstr(errors, "of 63 rows no batch of 64 can be made, and short batches are left out\n  try: data.batch: 63"));
    assert_int_not_equal(access("stepless", F_OK), 0);
}

static void test_names_of_devices_mean_one_thing(void **state)
{
    (void)state;
    assert_int_equal(RUN("plan", "x.yaml", "--set", "devices=[{name: \"\", backend: emulated}]"), 2);
    assert_non_null(strstr(errors, "a device needs a name"));
    assert_int_equal(RUN("plan", "x.yaml", "--set", "devices=[{name: CPU, backend: emulated}]"), 2);
    assert_non_null(strstr(errors, "CPU always means the host; call the emulated device otherwise"));
}

static void test_checkpoints_that_cannot_be_written_are_refused_before_the_first_step(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "nowhere", "--set", "checkpoint.directory=/dev/null/x"), 2);
    assert_string_equal(errors, "tandem: /dev/null: cannot make directory: Not a directory\n"
                                "  it is a file: name a folder\n");
    assert_string_equal(out, "");
}

static void test_a_run_belongs_to_one_process(void **state)
{
    (void)state;
    assert_int_equal(mkdir("held", 0777), 0);
    int holder = open("held", O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(holder, LOCK_EX), 0);
    assert_int_equal(RUN("train", "x.yaml", "--run", "held"), 2);
    assert_non_null(strstr(errors, "tandem: --run held: another process is training into it\n"));
    close(holder);
    SUCCEED("train", "x.yaml", "--run", "held", "--set", "train.steps=8");
}

/* What a run that diverges does: the one op and step named, the last good parameters kept. */
static void test_a_loss_that_is_no_number_is_an_error_of_one_line_and_a_remedy(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "diverged", "--set", "optimizer=[{name: sgd, lr: 1e6}]"), 1);
    assert_int_equal(strncmp(errors, "tandem: step ", 13), 0);
    assert_non_null(strstr(errors, ": the loss is "));
    assert_non_null(strstr(errors, " is the first op to make such a number: "));
    assert_non_null(strstr(errors, "\n  try: a smaller optimizer[].lr"));
    assert_non_null(strstr(errors, "\n  the checkpoint diverged/checkpoints/step-"));
    assert_int_not_equal(access("diverged/summary.json", F_OK), 0);
    assert_int_not_equal(
        RUN("train", "x.yaml", "--run", "diverged", "--resume", "--set", "optimizer=[{name: sgd, lr: 1e-9}]"), 2);
}

static void test_text_has_no_json(void **state)
{
    (void)state;
    assert_int_equal(RUN("plan", "x.yaml", "--explain", "loss", "--json"), 2);
    assert_int_equal(RUN("plan", "x.yaml", "--dump", "place", "--json"), 2);
    assert_int_equal(RUN("ops", "linear", "--json"), 2);
    assert_string_equal(out, "");
}

/* Finite to the end: exit code 0, but said. */
static void test_a_loss_that_grows_without_bound_is_said(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "grown", "--set", "optimizer=[{name: sgd, lr: 30}]", "--set", "train.steps=6");
    assert_non_null(strstr(out, "\n  training diverged: the last loss is "));
    assert_non_null(strstr(out, "; try a smaller optimizer[].lr\n"));
    SUCCEED("train", "x.yaml", "--run", "converged", "--set", "train.steps=6");
    assert_null(strstr(out, "diverged: "));
}

/* ---- plan and bench -------------------------------------------------------------------------------------------------------------- */

static void test_plan_shows_what_and_why(void **state)
{
    (void)state;
    SUCCEED("plan", "x.yaml");
    assert_non_null(strstr(out, "rule \"table.*\" (x.yaml:4)"));
    assert_non_null(strstr(out, "emulated"));
    SUCCEED("plan", "x.yaml", "--explain", "table.1/bag");
    assert_non_null(strstr(out, "runs on cpu\n  because rule \"table.*\" (x.yaml:4)"));
    SUCCEED("plan", "x.yaml", "--explain", "table.1"); /* its parameters */
    assert_non_null(strstr(out, "table.1.weight (parameter f32["));
    assert_non_null(strstr(out, "lives on cpu\n  because \"table.1/bag\" reads it there (rule \"table.*\" (x.yaml:4)"));
    SUCCEED("plan", "x.yaml", "--json");
    json_t *json = json_loads(out, 0, NULL);
    assert_non_null(json);
    json_decref(json);
    SUCCEED("plan", "x.yaml", "--dot", "plan.dot");
    assert_int_equal(access("plan.dot", F_OK), 0);
    SUCCEED("plan", "x.yaml", "--dump", "place");
    assert_int_equal(RUN("plan", "x.yaml", "--dump", "plase"), 2);
    assert_int_equal(RUN("plan", "x.yaml", "--explain", "table.1/bog"), 2);
}

static void test_bench_finds_both_sides_equal(void **state)
{
    (void)state;
    SUCCEED("bench", "x.yaml", "--against", "single", "--steps", "12", "--json");
    json_t *json = json_loads(out, 0, NULL);
    assert_true(json_is_true(json_object_get(json, "same_parameters")));
    assert_true(json_is_true(json_object_get(json, "memory_limit_lifted")));
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 12);
    assert_true(json_number_value(json_object_get(json, "critical_path_ms")) > 0);
    const double reached = json_number_value(json_object_get(json, "overlap")),
                 allowed = json_number_value(json_object_get(json, "overlap_allowed"));
    assert_true(reached >= 0 && reached <= 1 && allowed >= 0 && allowed <= 1);
    json_decref(json);
    SUCCEED("bench", "x.yaml", "--against", "cpu", "--steps", "3");
    assert_non_null(strstr(out, "the same, bit for bit"));
    assert_null(strstr(out, "critical path")); /* too few steps: no op was timed */
    assert_int_equal(RUN("bench", "x.yaml", "--against", "gpu"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary_has_the_promised_names),
        cmocka_unit_test(test_memory_stays_within_the_plan),
        cmocka_unit_test(test_lineage_repeats_the_run),
        cmocka_unit_test(test_runs_are_numbered),
        cmocka_unit_test(test_json_goes_out_alone),
        cmocka_unit_test(test_a_watched_value_is_printed),
        cmocka_unit_test(test_cut_and_single_runs_end_with_the_same_bits),
        cmocka_unit_test(test_resuming_gives_the_same_bits),
        cmocka_unit_test(test_checkpoints_on_the_way_change_nothing_and_old_ones_go),
        cmocka_unit_test(test_eval_repeats_the_metrics_of_the_run),
        cmocka_unit_test(test_a_graph_from_a_file_trains_like_the_model_that_it_was),
        cmocka_unit_test(test_what_does_not_fit_exits_with_3_and_leaves_nothing),
        cmocka_unit_test(test_mistakes_in_groups_and_devices_name_their_place),
        cmocka_unit_test(test_a_run_that_ended_is_left_as_it_is_when_resumed),
        cmocka_unit_test(test_a_run_that_was_stopped_before_its_first_checkpoint_begins_again),
        cmocka_unit_test(test_another_order_of_rows_cannot_be_resumed),
        cmocka_unit_test(test_a_manifest_with_impossible_counters_is_refused),
        cmocka_unit_test(test_a_run_without_a_step_is_refused),
        cmocka_unit_test(test_names_of_devices_mean_one_thing),
        cmocka_unit_test(test_checkpoints_that_cannot_be_written_are_refused_before_the_first_step),
        cmocka_unit_test(test_a_run_belongs_to_one_process),
        cmocka_unit_test(test_a_loss_that_is_no_number_is_an_error_of_one_line_and_a_remedy),
        cmocka_unit_test(test_text_has_no_json),
        cmocka_unit_test(test_a_loss_that_grows_without_bound_is_said),
        cmocka_unit_test(test_plan_shows_what_and_why),
        cmocka_unit_test(test_bench_finds_both_sides_equal),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
