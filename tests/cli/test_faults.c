/* Everything that can fail fails once: allocations, writes, devices, data. Each time one clear line and the right exit code, nothing
 * stays allocated, and what is on disk can be gone on from to the same bits. */
#include "base/file.h"
#include "base/memory.h"
#include "tandem/ops.h"
#include "tests/cli/runs.h"
#include "where.h"

/* A fresh process per failure would be the real thing; here the program runs in this one, which is what lets failures be injected. */

/* ---- memory --------------------------------------------------------------------------------------------------------------------- */

enum { TRIES = 40 };

/* Lets allocations fail one at a time, at TRIES places evenly over the run. */
static void fail_allocations(char **words, const char *clean)
{
    td_memory_fail_after(0);
    assert_int_equal(run_words(words), 0); /* what is found once per process is found now */
    assert_int_equal(system(clean), 0);
    uint64_t first = td_memory_read().allocations;
    assert_int_equal(run_words(words), 0);
    assert_int_equal(system(clean), 0);
    uint64_t n = td_memory_read().allocations - first, bytes = td_memory_read().bytes_now;
    int failures = 0;
    for (uint64_t i = 0; i < TRIES; i++) {
        td_memory_fail_after(1 + i * n / TRIES);
        int code = run_words(words);
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        assert_true(failed || n < TRIES || i + 1 == TRIES); /* threads vary the order a little, not the number */
        if (code) { /* a figure that is only for information is left out instead */
            assert_int_equal(code, 1);
            if (!strstr(errors, "memory"))
                fail_msg("%s", errors);
            failures++;
        }
        assert_int_equal(td_memory_read().bytes_now, bytes);
        assert_int_equal(system(clean), 0);
    }
    assert_true(failures > TRIES / 2);
}

#define SHORT_RUN                                                                                                      \
    "--set", "train.steps=6", "--set", "checkpoint.every=4", "--set", "optimizer[1].schedule.total_steps=6"
#define WORDS(...) ((char *[]){"tandem", __VA_ARGS__, NULL})

static void test_allocations_that_fail_are_errors_of_one_line(void **state)
{
    (void)state;
    fail_allocations(WORDS("train", "x.yaml", "--run", "m", SHORT_RUN), "rm -rf m");
    fail_allocations(WORDS("plan", "x.yaml"), "true");
    SUCCEED("train", "x.yaml", "--run", "kept", SHORT_RUN);
    fail_allocations(WORDS("eval", "x.yaml", "--checkpoint", "kept"), "true");
    fail_allocations(WORDS("plan", "x.yaml", "--explain", "loss"), "true");
}

/* ---- writing -------------------------------------------------------------------------------------------------------------------- */

#define SMALL_RUN                                                                                                      \
    "--set", "train.steps=6", "--set", "checkpoint.every=4", "--set", "data.table_rows=[20]", "--set",                 \
        "devices=[cpu]", "--set", "placement={default: cpu}", "--set", "optimizer=[{name: sgd, lr: 1e-2}]"

static void test_every_write_that_fails_leaves_a_run_that_can_be_gone_on_from(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "whole", SMALL_RUN);
    int tried = 0;
    for (bool failed = true; failed; tried++) {
        td_file_fail_after((uint64_t)tried + 1);
        int code = RUN("train", "x.yaml", "--run", "full", SMALL_RUN);
        failed = td_file_failed();
        td_file_fail_after(0);
        if (!failed) {
            assert_int_equal(code, 0);
        } else if (code) { /* the last step of all, making a rename durable, may fail with the file in place */
            assert_int_equal(code, 1);
            assert_non_null(strstr(errors, "No space left on device"));
        }
        bool begun = !access("full/run.json", F_OK);
        int resumed = begun ? RUN("train", "x.yaml", "--run", "full", "--resume", SMALL_RUN)
                            : RUN("train", "x.yaml", "--run", "full", SMALL_RUN);
        if (resumed)
            fail_msg("after failure %d: %s", tried + 1, errors);
        expect_same_parameters("whole/summary.json", "full/summary.json");
        assert_int_equal(system("test -z \"$(find full -name '*.partial')\" && rm -r full"), 0);
    }
    print_message("%d operations on files\n", tried - 1);
    assert_true(tried > 20);
}

static void test_output_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w"), *error_stream = fmemopen(errors, sizeof errors, "w");
    assert_non_null(full);
    assert_int_equal(td_program(4, WORDS("plan", "x.yaml", "--json"), full, error_stream), 1);
    fclose(error_stream);
    (void)fclose(full);
    assert_non_null(strstr(errors, "cannot write"));
    full = fopen("/dev/full", "w");
    error_stream = fmemopen(errors, sizeof errors, "w");
    assert_int_equal(td_program(6, WORDS("train", "x.yaml", "--run", "said", "--set"), full, error_stream), 2);
    fclose(error_stream);
    (void)fclose(full);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A click log's own words as CSV, and a configuration that reads it with a cache. */
static void write_csv(const char *row_50)
{
    FILE *file = fopen("rows.csv", "w");
    fputs("city,minutes,bought\n", file);
    for (int i = 2; i <= 200; i++)
        if (i == 50 && row_50)
            fprintf(file, "%s\n", row_50);
        else
            fprintf(file, "%s,%d,%s\n", i % 3 ? "Bonn" : "Lyon", i % 7, i % 2 ? "yes" : "no");
    assert_int_equal(fclose(file), 0);
    write_text("csv.yaml",
               "model: {name: wide_deep, dim: 4, hidden: [8]}\n"
               "data: {format: csv, train: rows.csv, batch: 32, label: bought, positive: \"yes\", numeric: [minutes], "
               "categorical: [city], cache: cache}\n"
               "optimizer: [{name: adam, lr: 1e-2}]\n");
}

static void test_a_cache_that_cannot_be_written_costs_only_time(void **state)
{
    (void)state;
    write_csv(NULL);
    for (uint64_t n = 1, failed = 1; failed; n++) { /* data is read before anything else is written */
        td_file_fail_after(n);
        int code = RUN("plan", "csv.yaml");
        failed = td_file_failed();
        td_file_fail_after(0);
        assert_int_equal(code, 0);
        assert_int_equal(system("test -z \"$(find cache -name '*.tmp' 2>/dev/null)\" && rm -rf cache"), 0);
    }
}

/* ---- data ----------------------------------------------------------------------------------------------------------------------- */

static void test_numbers_that_are_none_are_named_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *row, *words;
    } bad[] = {
        {"Bonn,nan,yes", "rows.csv:50:2: \"nan\" is not a number in column minutes"},
        {"Bonn,inf,yes", "rows.csv:50:2: \"inf\" is not a number in column minutes"},
        {"Bonn,-Infinity,yes", "rows.csv:50:2: \"-Infinity\" is not a number in column minutes"},
        {"Bonn,1e39,yes", "rows.csv:50:2: \"1e39\" in column minutes is beyond 32-bit floating point"},
        {"Bonn,1e999,yes", "rows.csv:50:2: \"1e999\" "},
        {"Bonn,3,", "rows.csv:50:3: the label is missing (column bought)"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_csv(bad[i].row);
        assert_int_equal(RUN("train", "csv.yaml", "--run", "bad"), 1);
        if (!strstr(errors, bad[i].words))
            fail_msg("%s", errors);
        SUCCEED("train", "csv.yaml", "--run", "bad", "--set", "data.bad_rows=0.01", "--set", "train.steps=2");
        assert_non_null(strstr(out, bad[i].words)); /* left out, and said */
        assert_int_equal(system("rm -rf bad cache"), 0);
    }
    write_csv(NULL);
    assert_int_equal(RUN("train", "csv.yaml", "--set", "data.label=sold"), 2);
    assert_non_null(strstr(errors, "sold"));
}

/* A model that squares what it is given. */
static void write_squares(void)
{
    td_graph *graph = NULL;
    char *text = NULL;
    assert_null(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", 32);
    td_value x = td_input(graph, "numeric", TD_F32, TD_SHAPE(batch, 1)),
             y = td_input(graph, "label", TD_F32, TD_SHAPE(batch, 1));
    td_value squares = td_name(td_mul(x, x), "squares");
    (void)td_name(td_bce_with_logits(td_linear(td_dropout(td_linear(squares, 8, "a"), 0.25), 1, "b"), y), "loss");
    assert_null(td_graph_print(graph, &text));
    write_text("squares.tdg", text);
    td_text_free(text);
    td_graph_destroy(graph);
}

#define SQUARES                                                                                                        \
    "--set", "data.transform=none", "--set", "model=null", "--set", "graph=squares.tdg", "--set",                      \
        "data.categorical=[]", "--set", "train.epochs=3"

/* A row whose square is infinite: skip leaves its step out, in a cut run, a single one and one of two halves alike. */
static void test_steps_without_a_finite_loss_are_skipped_and_counted(void **state)
{
    (void)state;
    write_csv("Bonn,3e38,yes");
    write_squares();
    assert_int_equal(RUN("train", "csv.yaml", "--run", "stop", SQUARES), 1);
    assert_non_null(
        strstr(errors, ": mul \"squares\" on cpu is the first op to make such a number: inf in \"squares\""));
    SUCCEED("train", "csv.yaml", "--run", "single", SQUARES, "--set", "train.on_nan=skip");
    assert_int_equal(integer_at("single/summary.json", "skipped_steps"), 3);
    assert_int_equal(integer_at("single/summary.json", "steps"), 15);
    assert_non_null(strstr(out, "skipped: 3 steps"));
    assert_non_null(strstr(errors, "warning: step "));
    SUCCEED("train", "csv.yaml", "--run", "cut", SQUARES, "--set", "train.on_nan=skip", "--set",
            "devices=[cpu, {name: accel, backend: emulated}]", "--set",
            "placement.rules=[{match: \"squares\", target: cpu}]", "--set", "log.level=error");
    assert_string_equal(errors, "");
    expect_same_parameters("single/summary.json", "cut/summary.json");
    SUCCEED("train", "csv.yaml", "--run", "halves", SQUARES, "--set", "train.on_nan=skip", "--set", "train.steps=7");
    SUCCEED("train", "csv.yaml", "--run", "halves", "--resume", SQUARES, "--set", "train.on_nan=skip");
    expect_same_parameters("single/summary.json", "halves/summary.json");
    assert_int_equal(integer_at("halves/summary.json", "skipped_steps"), 3);
    assert_int_equal(system("rm -rf cache"), 0);
}

/* ---- files that are not what they were ---------------------------------------------------------------------------------------------- */

/* Cuts a file to `bytes`, or flips one bit of byte `at`. */
static void spoil(const char *path, int64_t cut_to, int64_t flip_at)
{
    if (cut_to >= 0)
        assert_int_equal(truncate(path, cut_to), 0);
    if (flip_at < 0)
        return;
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, flip_at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, flip_at, SEEK_SET);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

static void test_a_damaged_checkpoint_is_refused_and_named(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int64_t cut_to, flip_at;
    } damage[] = {{"shard-0000.safetensors", 100, -1},
                  {"shard-0000.safetensors", -1, 3000},
                  {"shard-0000.safetensors", -1, 4},
                  {"manifest.json", 40, -1},
                  {"manifest.json", -1, 1},
                  {"manifest.json", 0, -1}};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char path[200];
        SUCCEED("train", "x.yaml", "--run", "damaged", SHORT_RUN);
        snprintf(path, sizeof path, "damaged/checkpoints/step-000000006/%s", damage[i].file);
        spoil(path, damage[i].cut_to, damage[i].flip_at);
        int code = RUN("eval", "x.yaml", "--checkpoint", "damaged");
        assert_true(code == 1 || code == 2);
        assert_non_null(strstr(errors, "tandem: checkpoint damaged/checkpoints/step-000000006: "));
        assert_non_null(strstr(errors, damage[i].file));
        SUCCEED("eval", "x.yaml", "--checkpoint", "damaged/checkpoints/step-000000004"); /* the one before is whole */
        assert_int_equal(system("rm -r damaged"), 0);
    }
}

static void test_damaged_papers_of_a_run_do_not_stop_it(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "papers", SHORT_RUN);
    spoil("papers/run.json", 50, -1);
    SUCCEED("train", "x.yaml", "--run", "papers", "--resume", "--set", "train.steps=8", "--set", "checkpoint.every=2");
    assert_non_null(strstr(errors, "warning: papers/run.json does not read"));
    spoil("papers/summary.json", 30, -1);
    assert_int_equal(RUN("train", "x.yaml", "--run", "papers", "--resume", "--set", "train.steps=8", "--json"), 1);
    assert_non_null(strstr(errors, "papers/summary.json"));
}

/* Killed after its last checkpoint and before its summary. */
static void test_a_summary_that_was_not_written_is_made_again(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "late", SHORT_RUN);
    json_t *before = load("late/summary.json");
    assert_int_equal(unlink("late/summary.json"), 0);
    SUCCEED("train", "x.yaml", "--run", "late", "--resume", SHORT_RUN);
    json_t *after = load("late/summary.json");
    static const char *const same[] = {"loss", "steps", "samples", "metrics", "parameters_checksum"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(json_equal(json_object_get(before, same[i]), json_object_get(after, same[i])));
    assert_true(json_real_value(json_object_get(after, "loss")) > 0);
    json_decref(before);
    json_decref(after);
}

/* ---- devices -------------------------------------------------------------------------------------------------------------------------- */

#define ON_PARTNER(options)                                                                                            \
    "--set", "devices=[cpu, {name: accel, backend: \"" TD_PARTNER_PLUGIN "\", options: \"" options "\"}]"

static void test_a_device_that_is_lost_in_mid_run_ends_it_with_what_was_good(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "lost", SHORT_RUN, ON_PARTNER("fail=linear,after=9")), 1);
    assert_non_null(strstr(errors, "linear \""));
    assert_non_null(strstr(errors, "\" on accel: partner: the device is lost"));
    assert_non_null(strstr(errors, "go on with: tandem train x.yaml --run lost --resume"));
    SUCCEED("train", "x.yaml", "--run", "lost", "--resume", SHORT_RUN); /* on a device that is well */
    SUCCEED("train", "x.yaml", "--run", "well", SHORT_RUN, ON_PARTNER(""), "--set", "cpu.gemm=reference");
    assert_int_equal(integer_at("lost/summary.json", "steps"), 6);
    /* in its update: which parameters it has changed nobody can say, so no checkpoint is made of them */
    assert_int_equal(RUN("train", "x.yaml", "--run", "update", SHORT_RUN, ON_PARTNER("fail=adam,after=20")), 1);
    assert_non_null(strstr(errors, "partner: the device is lost"));
    assert_int_not_equal(access("update/summary.json", F_OK), 0);
    SUCCEED("train", "x.yaml", "--run", "update", "--resume", SHORT_RUN);
}

static void test_a_device_without_memory_after_the_plan_is_an_error(void **state)
{
    (void)state;
    int failures = 0;
    for (int n = 1; n < 40 && failures == n - 1; n++) {
        char device[512];
        snprintf(device, sizeof device, "devices=[cpu, {name: accel, backend: \"%s\", options: \"allocations=%d\"}]",
                 TD_PARTNER_PLUGIN, n);
        uint64_t bytes = td_memory_read().bytes_now;
        int code = RUN("train", "x.yaml", "--run", "tight", SHORT_RUN, "--set", device);
        failures += code == 1;
        if (code == 1)
            assert_non_null(strstr(errors, "partner: out of memory"));
        assert_int_equal(td_memory_read().bytes_now, bytes);
        assert_int_equal(system("rm -rf tight"), 0);
    }
    assert_true(failures > 3); /* each parameter and state, and the arena */
}

static void test_a_target_that_cannot_run_its_op_is_named_with_the_reason(void **state)
{
    (void)state;
    assert_int_equal(RUN("plan", "x.yaml", ON_PARTNER("without=relu"), "--set",
                         "placement.rules=[{match: \"*relu*\", target: accel}, {match: \"table.*\", target: cpu}]"),
                     2);
    assert_non_null(strstr(errors, "accel"));
    assert_non_null(strstr(errors, "partner was told to do without relu"));
    SUCCEED("plan", "x.yaml", ON_PARTNER("without=relu")); /* unmarked, it moves to the host */
    assert_non_null(strstr(out, "relu"));
}

/* ---- graphs ---------------------------------------------------------------------------------------------------------------------------- */

static void test_a_graph_with_a_cycle_is_refused(void **state)
{
    (void)state;
    SUCCEED("plan", "x.yaml", "--tdg", "model.tdg");
    write_text("cycle.tdg", "a = relu(b)\nb = relu(a)\n");
    int code = RUN("plan", "x.yaml", "--set", "model=null", "--set", "graph=cycle.tdg");
    assert_true(code == 1 || code == 2);
    assert_non_null(strstr(errors, "tandem: cycle.tdg:1:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocations_that_fail_are_errors_of_one_line),
        cmocka_unit_test(test_every_write_that_fails_leaves_a_run_that_can_be_gone_on_from),
        cmocka_unit_test(test_output_that_cannot_be_written_is_an_error),
        cmocka_unit_test(test_a_cache_that_cannot_be_written_costs_only_time),
        cmocka_unit_test(test_numbers_that_are_none_are_named_with_their_line),
        cmocka_unit_test(test_steps_without_a_finite_loss_are_skipped_and_counted),
        cmocka_unit_test(test_a_damaged_checkpoint_is_refused_and_named),
        cmocka_unit_test(test_damaged_papers_of_a_run_do_not_stop_it),
        cmocka_unit_test(test_a_summary_that_was_not_written_is_made_again),
        cmocka_unit_test(test_a_device_that_is_lost_in_mid_run_ends_it_with_what_was_good),
        cmocka_unit_test(test_a_device_without_memory_after_the_plan_is_an_error),
        cmocka_unit_test(test_a_target_that_cannot_run_its_op_is_named_with_the_reason),
        cmocka_unit_test(test_a_graph_with_a_cycle_is_refused),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
