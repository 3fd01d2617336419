/* The program from the outside: help, near misses, exit codes, where output goes; and doctor's judgements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/shell_word.h"

typedef struct outcome {
    int code;
    char out[65536], errors[4096];
} outcome;

static outcome last;

/* Runs `tandem` with these words. */
#define RUN(...) run_words((char *[]){"tandem", __VA_ARGS__, NULL})
static void run_words(char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    memset(&last, 0, sizeof last);
    FILE *out = fmemopen(last.out, sizeof last.out, "w"), *errors = fmemopen(last.errors, sizeof last.errors, "w");
    last.code = td_program(argc, argv, out, errors);
    fclose(out);
    fclose(errors);
}

static void test_help_lists_every_command(void **state)
{
    (void)state;
    RUN("--help");
    assert_int_equal(last.code, 0);
    for (int32_t i = 0; i < td_command_count(); i++)
        assert_non_null(strstr(last.out, td_command_at(i)->summary));
    assert_string_equal(last.errors, "");
}

static void test_every_command_has_help(void **state)
{
    (void)state;
    for (int32_t i = 0; i < td_command_count(); i++) {
        const td_command *command = td_command_at(i);
        RUN((char *)command->name, "--help");
        assert_int_equal(last.code, 0);
        assert_non_null(strstr(last.out, command->usage));
        for (const td_command_option *option = command->options; option && option->name; option++)
            assert_non_null(strstr(last.out, option->help));
    }
}

static void test_a_command_says_what_it_misses(void **state)
{
    (void)state;
    RUN("board");
    assert_string_equal(last.errors, "tandem: board: the folder of runs is missing\n"
                                     "  usage: tandem board DIR [--port N] [--host ADDR --token TEXT]\n");
    for (int32_t i = 0; i < td_command_count(); i++) {
        const td_command *command = td_command_at(i);
        assert_int_equal(command->first != NULL, command->least > 0);
        if (!command->first)
            continue;
        RUN((char *)command->name);
        assert_int_equal(last.code, 2);
        assert_non_null(strstr(last.errors, command->first));
    }
}

static void test_usage_errors_exit_with_2_and_one_line(void **state)
{
    (void)state;
    RUN("confg");
    assert_int_equal(last.code, 2);
    assert_string_equal(last.errors, "tandem: unknown command \"confg\"; did you mean \"config\"?\n");
    RUN("config", "--explian");
    assert_int_equal(last.code, 2);
    assert_string_equal(last.errors, "tandem: config: unknown option --explian; did you mean --explain?\n");
    RUN("doctor", "now");
    assert_int_equal(last.code, 2);
    assert_string_equal(last.errors, "tandem: doctor: unexpected \"now\"\n  usage: tandem doctor [--json]\n");
    RUN("config", "x.yaml", "--set");
    assert_string_equal(last.errors, "tandem: config: --set needs a value: --set KEY=VALUE\n");
    RUN("config", "/no/such.yaml");
    assert_int_equal(last.code, 2);
    assert_string_equal(
        last.errors, "tandem: /no/such.yaml: cannot open: No such file or directory\n  the folder / has no \"no\"\n");
    assert_string_equal(last.out, "");
    RUN("eval", "x.yaml", "--checkpoint", "c", "--length", "3");
    assert_int_equal(last.code, 2);
    assert_non_null(strstr(last.errors, "tandem: eval: --length means nothing without --generate\n"));
    RUN("plan", "x.yaml", "--explain", "a", "--dump", "place");
    assert_string_equal(last.errors, "tandem: plan: --explain and --dump exclude each other; give one of them\n");
    RUN("bench", "x.yaml", "--against", "single", "--steps", "12abc");
    assert_string_equal(last.errors, "tandem: bench: --steps 12abc: it must be a whole number from 1 to 1000000\n");
}

/* What the program prints for a person to copy. */
static void test_words_for_a_shell_are_quoted_where_they_must_be(void **state)
{
    (void)state;
    static const char *const words[][2] = {{"runs/x-0001", "runs/x-0001"},
                                           {"a b", "'a b'"},
                                           {"it's", "'it'\\''s'"},
                                           {"", "''"},
                                           {"devices=[cpu]", "'devices=[cpu]'"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *text = td_shell_word_text(words[i][0]);
        assert_string_equal(text, words[i][1]);
        td_free(text);
    }
}

static void test_explain_answers_from_the_table(void **state)
{
    (void)state;
    RUN("config", "--explain", "offload");
    assert_int_equal(last.code, 0);
    assert_non_null(strstr(last.out, "offload.embedding"));
    RUN("config", "--explain", "train.epochs");
    assert_non_null(strstr(last.out, "passes over the data"));
    RUN("config", "--explain", "model.name");
    assert_non_null(strstr(last.out, "one of   dlrm, wide_deep, deepfm, lenet, gpt, mlp\n"));
    RUN("config", "--explain", "train.epoch");
    assert_int_equal(last.code, 2);
    assert_string_equal(last.errors, "tandem: unknown key \"train.epoch\"; did you mean \"train.epochs\"?\n");
}

static void test_codes_follow_the_error(void **state)
{
    (void)state;
    static const struct {
        td_code code;
        int exit;
    } cases[] = {{TD_OK, 0},           {TD_INVALID_ARGUMENT, 2}, {TD_UNSUPPORTED, 2}, {TD_NOT_FOUND, 2},
                 {TD_DOES_NOT_FIT, 3}, {TD_CANCELLED, 130},      {TD_DATA_ERROR, 1},  {TD_IO, 1},
                 {TD_INTERNAL, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_status *status = cases[i].code ? TD_ERROR(cases[i].code, "x") : NULL;
        assert_int_equal(td_exit_code(status), cases[i].exit);
        td_status_destroy(status);
    }
}

/* ---- doctor ------------------------------------------------------------------------------------------------------------------ */

static td_doctor_facts healthy(void)
{
    td_doctor_facts facts = {.cores_online = 8,
                             .cores_allowed = 8,
                             .host = "avx512 kernels",
                             .library = "oneDNN 3.1.1",
                             .x86 = true,
                             .avx2 = true,
                             .avx512 = true,
                             .huge_pages = "madvise",
                             .memory_bytes = (int64_t)16 << 30,
                             .available_bytes = (int64_t)8 << 30,
                             .disk_free_bytes = (int64_t)8 << 30,
                             .folder_writable = true};
    return facts;
}

/* The line that mentions `text`, or NULL. */
static const td_doctor_line *line_about(const td_doctor_facts *facts, const char *text)
{
    static td_doctor_line lines[TD_DOCTOR_MOST_LINES];
    int32_t n = td_doctor_judge(facts, lines);
    for (int32_t i = 0; i < n; i++)
        if (strstr(lines[i].text, text))
            return &lines[i];
    return NULL;
}

static void test_doctor_is_content_with_a_healthy_machine(void **state)
{
    (void)state;
    td_doctor_facts facts = healthy();
    td_doctor_line lines[TD_DOCTOR_MOST_LINES];
    int32_t n = td_doctor_judge(&facts, lines);
    assert_true(n > 0);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(lines[i].level, TD_DOCTOR_OK);
}

static void test_doctor_names_each_trouble_and_its_fix(void **state)
{
    (void)state;
    td_doctor_facts facts = healthy();
    facts.cores_allowed = 1;
    facts.mpi_local_ranks = 2;
    assert_string_equal(line_about(&facts, "mpirun")->fix, "add: --bind-to none");
    facts = healthy();
    facts.cores_quota = 2;
    assert_int_equal(line_about(&facts, "control group")->level, TD_DOCTOR_WARN);
    facts = healthy();
    strcpy(facts.omp_threads, "1");
    assert_string_equal(line_about(&facts, "OMP_NUM_THREADS=1")->fix, "unset it");
    strcpy(facts.omp_threads, "8");
    assert_null(line_about(&facts, "OMP_NUM_THREADS"));
    strcpy(facts.omp_wait_policy, "ACTIVE");
    assert_non_null(line_about(&facts, "OMP_WAIT_POLICY"));
    facts = healthy();
    assert_non_null(strstr(line_about(&facts, "bf16")->text, "no bf16 instructions"));
    facts.bf16 = true;
    assert_int_equal(line_about(&facts, "bf16")->level, TD_DOCTOR_WARN);
    strcpy(facts.host, "own gemm, avx512 kernels, bf16 products in hardware");
    assert_int_equal(line_about(&facts, "bf16 instructions")->level, TD_DOCTOR_OK);
    facts = healthy();
    strcpy(facts.huge_pages, "never");
    assert_int_equal(line_about(&facts, "huge pages")->level, TD_DOCTOR_WARN);
    facts = healthy();
    facts.available_bytes = 1 << 20;
    assert_int_equal(line_about(&facts, "available")->level, TD_DOCTOR_WARN);
    facts = healthy();
    facts.load = 6;
    assert_non_null(strstr(line_about(&facts, "other work")->text, "keeps 6.0 cores busy"));
    strcpy(facts.governor, "powersave");
    assert_int_equal(line_about(&facts, "powersave")->level, TD_DOCTOR_WARN);
    facts = healthy();
    facts.strict_overcommit = true;
    assert_int_equal(line_about(&facts, "overcommitted")->level, TD_DOCTOR_WARN);
    facts.file_limit_bytes = 1 << 20;
    assert_string_equal(line_about(&facts, "1.00 MiB")->fix, "ulimit -f unlimited");
    facts.address_limit_bytes = 1 << 30;
    assert_string_equal(line_about(&facts, "1.00 GiB")->fix, "ulimit -v unlimited");
    facts = healthy();
    facts.disk_free_bytes = 1 << 20;
    assert_int_equal(line_about(&facts, "left for checkpoints")->level, TD_DOCTOR_WARN);
    facts.folder_writable = false;
    assert_int_equal(line_about(&facts, "no runs/")->level, TD_DOCTOR_WARN);
    facts = healthy();
    facts.library[0] = 0;
    assert_int_equal(line_about(&facts, "without oneDNN")->level, TD_DOCTOR_MISS);
    facts = healthy();
    strcpy(facts.plugin_missing, "/opt/none");
    assert_int_equal(line_about(&facts, "/opt/none")->level, TD_DOCTOR_MISS);
}

static void test_doctor_runs_here(void **state)
{
    (void)state;
    RUN("doctor");
    assert_int_equal(last.code, 0);
    assert_non_null(strstr(last.out, "core"));
    RUN("doctor", "--json");
    assert_int_equal(last.code, 0);
    assert_int_equal(last.out[0], '[');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_lists_every_command),
        cmocka_unit_test(test_every_command_has_help),
        cmocka_unit_test(test_a_command_says_what_it_misses),
        cmocka_unit_test(test_usage_errors_exit_with_2_and_one_line),
        cmocka_unit_test(test_words_for_a_shell_are_quoted_where_they_must_be),
        cmocka_unit_test(test_explain_answers_from_the_table),
        cmocka_unit_test(test_codes_follow_the_error),
        cmocka_unit_test(test_doctor_is_content_with_a_healthy_machine),
        cmocka_unit_test(test_doctor_names_each_trouble_and_its_fix),
        cmocka_unit_test(test_doctor_runs_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
