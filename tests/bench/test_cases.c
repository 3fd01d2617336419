/* tandem bench --case and --list from the outside: every case is listed and runs at small sizes, its line has the fields
 * that are promised, and wrong requests are refused in one line. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/safetensors.h"
#include "bench/bench.h"
#include "cli/command.h"
#include "cli/json.h"

typedef struct outcome {
    int code;
    char out[16384], errors[4096];
} outcome;

static outcome last;

/* Runs `tandem bench` with these words. */
#define RUN(...) run_words((char *[]){"tandem", "bench", __VA_ARGS__, NULL})
static int run_words(char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    memset(&last, 0, sizeof last);
    FILE *out = fmemopen(last.out, sizeof last.out, "w"), *errors = fmemopen(last.errors, sizeof last.errors, "w");
    last.code = td_program(argc, argv, out, errors);
    fclose(out);
    fclose(errors);
    return last.code;
}

static json_t *last_line(void)
{
    json_t *line = json_loads(last.out, 0, NULL);
    assert_non_null(line);
    return line;
}

static void test_list_names_every_case(void **state)
{
    (void)state;
    assert_int_equal(RUN("--list"), 0);
    assert_true(td_bench_count() >= 17);
    for (int32_t i = 0; i < td_bench_count(); i++) {
        assert_non_null(strstr(last.out, td_bench_at(i)->name));
        assert_non_null(strstr(last.out, td_bench_at(i)->summary));
        assert_ptr_equal(td_bench_find(td_bench_at(i)->name), td_bench_at(i));
    }
    assert_int_equal(RUN("--list", "--json"), 0);
    json_t *list = last_line();
    assert_int_equal(json_array_size(list), td_bench_count());
    json_decref(list);
}

/* Runs a case with these words and returns its line. */
static json_t *line_of(const char *name, char **words)
{
    char *argv[24] = {"tandem", "bench", "--case", (char *)name, "--json", "--runs", "2", "--no-bound"};
    for (int i = 0; words[i]; i++)
        argv[8 + i] = words[i];
    if (run_words(argv))
        fail_msg("%s: %s", name, last.errors);
    assert_string_equal(last.errors, "");
    assert_ptr_equal(strchr(last.out, '\n'), last.out + strlen(last.out) - 1); /* one line */
    return last_line();
}

static void assert_times(const json_t *line, const char *name)
{
    assert_string_equal(json_string_value(json_object_get(line, "case")), name);
    assert_string_equal(json_string_value(json_object_get(line, "peer")), "tandem");
    double median = json_number_value(json_object_get(line, "median_ms"));
    assert_true(median > 0);
    assert_true(json_number_value(json_object_get(line, "q1_ms")) <= median);
    assert_true(json_number_value(json_object_get(line, "q3_ms")) >= median);
    assert_int_equal(json_integer_value(json_object_get(line, "runs")), 2);
    assert_true(json_is_null(json_object_get(line, "bound_ms")));
}

static void test_every_case_runs_at_a_small_size(void **state)
{
    (void)state;
    static char *const embedding[] = {"--rows", "100", "--batch", "8", "--tables", "3", "--dim", "5", NULL};
    static char *const model[] = {"--rows", "50", "--batch", "4", NULL}, *const dispatch[] = {NULL},
                       *const rows[] = {"--rows", "50", NULL};
    static char *const images[] = {"--batch", "4", NULL}, *const tokens[] = {"--batch", "1", "--dim", "64", NULL};
    for (int32_t i = 0; i < td_bench_count(); i++) {
        const char *name = td_bench_at(i)->name;
        if (!strncmp(name, "ps.", 3)) /* two ranks: tests/mpi/run */
            continue;
        char *const *words = !strncmp(name, "embedding", 9)   ? embedding
                             : !strncmp(name, "dispatch", 8)  ? dispatch
                             : !strncmp(name, "plan.", 5)     ? rows
                             : !strncmp(name, "optimizer", 9) ? rows
                             : !strncmp(name, "lenet", 5)     ? images
                             : !strncmp(name, "gpt", 3)       ? tokens
                                                              : model;
        json_t *line = line_of(name, (char **)words);
        assert_times(line, name);
        json_decref(line);
    }
}

static void test_a_line_has_what_the_peers_lines_have(void **state)
{
    (void)state;
    json_t *line = line_of("embedding.step.lazy_adam",
                           (char *[]){"--rows", "64", "--batch", "8", "--bag", "3", "--alpha", "0", NULL});
    assert_int_equal(json_integer_value(json_object_get(line, "tables")), 8);
    assert_int_equal(json_integer_value(json_object_get(line, "rows")), 64);
    assert_int_equal(json_integer_value(json_object_get(line, "dim")), 64);
    assert_int_equal(json_integer_value(json_object_get(line, "batch")), 8);
    assert_int_equal(json_integer_value(json_object_get(line, "bag")), 3);
    assert_true(json_number_value(json_object_get(line, "alpha")) == 0);
    json_decref(line);
    line = line_of("wide_deep", (char *[]){"--rows", "64", "--batch", "8", NULL});
    assert_true(json_integer_value(json_object_get(line, "samples_per_s")) > 0);
    json_decref(line);
    line = line_of("dispatch.chain250", (char *[]){"--threads", "1", NULL});
    assert_true(json_number_value(json_object_get(line, "us_per_op")) > 0);
    assert_int_equal(json_integer_value(json_object_get(line, "threads")), 1);
    json_decref(line);
}

static void test_ops_are_timed_when_asked_for(void **state)
{
    (void)state;
    json_t *line = line_of("dlrm.kaggle", (char *[]){"--rows", "50", "--batch", "4", "--ops", NULL});
    json_t *ops = json_object_get(line, "ops");
    double sum = 0, before = INFINITY;
    bool bag = false;
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        double ms = json_number_value(json_object_get(op, "ms"));
        assert_true(ms <= before);
        sum += before = ms;
        bag = bag || !strcmp(json_string_value(json_object_get(op, "name")), "interaction/vectors+26");
    }
    assert_true(bag);
    assert_true(sum > 0);
    json_decref(line);
    line = line_of("dlrm.kaggle", (char *[]){"--rows", "50", "--batch", "4", NULL});
    assert_null(json_object_get(line, "ops"));
    json_decref(line);
    assert_int_equal(RUN("--case", "wide_deep", "--rows", "50", "--batch", "4", "--runs", "1", "--no-bound", "--ops"),
                     0);
    assert_non_null(strstr(last.out, "embedding_update"));
}

/* The first losses and the file are those of a fresh start, whatever ran before. */
static void test_losses_come_with_what_they_start_from(void **state)
{
    (void)state;
    char folder[] = "/tmp/tandem-bench-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/case.safetensors", folder);
    char *words[] = {"tandem", "bench",  "--case",   "dlrm.large", "--rows",   "50", "--batch",
                     "4",      "--json", "--losses", "2",          "--export", path, NULL};
    assert_int_equal(run_words(words), 0);
    json_t *line = last_line(), *losses = json_object_get(line, "losses");
    assert_int_equal(json_array_size(losses), 2);
    assert_true(json_number_value(json_array_get(losses, 0)) > 0);
    assert_true(json_number_value(json_array_get(losses, 0)) != json_number_value(json_array_get(losses, 1)));
    td_safetensors *file = NULL;
    assert_null(td_safetensors_open(path, &file));
    const td_safetensors_tensor *table = td_safetensors_find(file, "param/table.7.weight"),
                                *ids = td_safetensors_find(file, "batch.7/ids_t7"),
                                *offsets = td_safetensors_find(file, "batch.7/ids_t7/offsets");
    assert_true(table && table->dims[0] == 50 && table->dims[1] == 64);
    assert_true(ids && ids->elements == 400 && ids->dtype == TD_I64);
    assert_true(offsets && offsets->elements == 5);
    int64_t last_offset = 0;
    assert_null(td_safetensors_read(file, offsets, 4 * 8, 8, &last_offset));
    assert_int_equal(last_offset, 400);
    assert_null(td_safetensors_find(file, "batch.8/ids_t7"));
    td_safetensors_close(file);
    json_decref(line);
    remove(path);
    rmdir(folder);
}

static void test_the_machine_is_measured_beside_the_case(void **state)
{
    (void)state;
    assert_int_equal(RUN("--case", "embedding.forward", "--rows", "64", "--batch", "8", "--json"), 0);
    json_t *line = last_line(), *machine = json_object_get(line, "machine");
    assert_true(json_number_value(json_object_get(line, "bound_ms")) > 0);
    assert_true(json_number_value(json_object_get(machine, "copy_gb_per_s")) > 0);
    assert_true(json_number_value(json_object_get(machine, "gather_gb_per_s")) > 0);
    assert_true(json_is_number(json_object_get(machine, "gflops")));
    json_decref(line);
}

static void test_a_bound_adds_what_each_part_takes(void **state)
{
    (void)state;
    td_machine_limits limits = {.flops = 100, .stream_bytes = 10, .gather_bytes = 5};
    assert_true(td_bench_bound(&limits, 200, 30, 20) == 2 + 3 + 4);
    limits.gather_bytes = limits.flops = 0; /* not measured: left out */
    assert_true(td_bench_bound(&limits, 200, 30, 20) == 3);
}

static void test_wrong_requests_exit_with_2_and_one_line(void **state)
{
    (void)state;
    assert_int_equal(RUN("--case", "dlrm.kagle"), 2);
    assert_string_equal(last.errors, "tandem: bench: unknown case \"dlrm.kagle\"; did you mean \"dlrm.kaggle\"?\n"
                                     "  see: tandem bench --list\n");
    assert_int_equal(RUN("--case", "dlrm.kaggle", "--batch", "many"), 2);
    assert_string_equal(last.errors, "tandem: bench: --batch many: it must be a whole number from 1 to 16777216\n");
    assert_int_equal(RUN("--case", "dlrm.kaggle", "--batch", "1.5"), 2);
    assert_int_equal(RUN("--case", "dlrm.kaggle", "--batch", "0"), 2);
    assert_int_equal(RUN("--case", "dlrm.kaggle", "--alpha", "nan"), 2);
    assert_int_equal(RUN("--case", "dlrm.kaggle", "--dim", "8"), 2);
    assert_string_equal(last.errors, "tandem: bench: dlrm.kaggle has no --dim to change\n");
    assert_int_equal(RUN("--case", "embedding.forward", "--tables", "64"), 2);
    assert_int_equal(RUN("--case", "embedding.forward", "--rows", "9", "--batch", "2", "--losses", "3"), 2);
    assert_string_equal(last.errors, "tandem: bench: embedding.forward trains nothing: it has no losses\n");
    assert_int_equal(RUN("--case", "wide_deep", "--export", "x"), 2);
    assert_non_null(strstr(last.errors, "tandem: bench: --export means nothing without --losses\n"));
    assert_int_equal(RUN("--case", "wide_deep", "--rows", "9", "--batch", "2", "--losses", "1", "--export", "/no/x"),
                     2);
    assert_int_equal(RUN("x.yaml", "--case", "wide_deep"), 2);
    assert_string_equal(last.errors, "tandem: bench: a configuration and --case exclude each other\n");
    assert_int_equal(RUN("x.yaml"), 2);
    assert_int_equal(RUN("--json"), 2);
    assert_non_null(strstr(last.errors, "tandem: bench: something is missing\n  usage: tandem bench "));
    assert_string_equal(last.out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_names_every_case),
        cmocka_unit_test(test_every_case_runs_at_a_small_size),
        cmocka_unit_test(test_a_line_has_what_the_peers_lines_have),
        cmocka_unit_test(test_ops_are_timed_when_asked_for),
        cmocka_unit_test(test_losses_come_with_what_they_start_from),
        cmocka_unit_test(test_the_machine_is_measured_beside_the_case),
        cmocka_unit_test(test_a_bound_adds_what_each_part_takes),
        cmocka_unit_test(test_wrong_requests_exit_with_2_and_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
