/* The engine holds the golden cases of this folder, and of ../shared/golden where that exists; and golden_check, which says so,
 * sees what it is there to see: an expectation that is a little off in any kind of number is a failure that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/base/folder.h"
#include "where.h"

#define CASES TD_SOURCE_DIR "/tests/golden"
#define SHARED TD_SOURCE_DIR "/../shared/golden"

/* Runs golden_check; its output, cut off when it is long, stays valid until the next call. */
static const char *golden_check(int *out_code, const char *arguments)
{
    static char output[16384];
    char command[1024];
    (void)snprintf(command, sizeof command, "%s/tests/golden_check %s 2>&1", TD_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    *out_code = WEXITSTATUS(status);
    return output;
}

static void expect(int code, const char *arguments, const char *text)
{
    int found;
    const char *output = golden_check(&found, arguments);
    if (found != code || !strstr(output, text))
        fail_msg("golden_check %s: exit code %d; expected were %d and \"%s\" in:\n%s", arguments, found, code, text,
                 output);
}

static void test_the_engine_holds_these_cases(void **state)
{
    (void)state;
    expect(0, CASES, " 0 failed");
}

static void test_the_engine_holds_the_shared_cases(void **state)
{
    (void)state;
    if (access(SHARED, R_OK) != 0) {
        print_message("skipped: there is no folder ../shared/golden beside this tree\n");
        skip();
    }
    expect(0, SHARED, " 0 failed");
}

/* ---- expectations that are off ----------------------------------------------------------------------------------------------- */

static void link_file(folder *f, const char *case_name, const char *file)
{
    char from[512], to[128];
    (void)snprintf(from, sizeof from, CASES "/%s/%s", case_name, file);
    (void)snprintf(to, sizeof to, "case/%s", file);
    assert_int_equal(symlink(from, in_folder(f, to)), 0);
}

/* The value that a path of keys and indices leads to: "final/fc.0.bias/first/3". */
static json_t *follow(json_t *at, const char *path)
{
    char keys[256], *rest = NULL;
    (void)snprintf(keys, sizeof keys, "%s", path);
    for (char *key = strtok_r(keys, "/", &rest); key; key = strtok_r(NULL, "/", &rest))
        at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10)) : json_object_get(at, key);
    assert_non_null(at);
    return at;
}

static json_t *expected_of(const char *case_name)
{
    char path[512];
    (void)snprintf(path, sizeof path, CASES "/%s/expected.json", case_name);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

/* golden_check of a folder with a case of these expectations (taken) and the data of a case. */
static void expect_of(json_t *expected, const char *case_name, const char *options, int code, const char *text)
{
    folder f = make_folder();
    char arguments[256];
    assert_int_equal(mkdir(in_folder(&f, "case"), 0700), 0);
    assert_int_equal(json_dump_file(expected, in_folder(&f, "case/expected.json"), 0), 0);
    json_decref(expected);
    link_file(&f, case_name, "init.safetensors");
    link_file(&f, case_name, "batches.safetensors");
    (void)snprintf(arguments, sizeof arguments, "%s --devices cpu %s", f.path, options);
    expect(code, arguments, text);
    remove_folder(&f);
}

/* The case with one number multiplied by a factor. */
static void expect_when_changed(const char *case_name, const char *path, double factor, int code, const char *text)
{
    json_t *expected = expected_of(case_name), *number = follow(expected, path);
    assert_int_equal(json_real_set(number, factor * json_real_value(number)), 0);
    expect_of(expected, case_name, "", code, text);
}

static void test_it_sees_each_kind_of_deviation(void **state)
{
    (void)state;
    expect_when_changed("mlp_sgd", "losses/0", 1, 0, " 0 failed");
    expect_when_changed("mlp_sgd", "losses/9", 1 + 3e-5, 1, "FAILED: step 9: loss");
    expect_when_changed("mlp_sgd", "grad_norms/2", 1 - 3e-5, 1, "FAILED: step 2: the gradients' norm");
    expect_when_changed("dlrm_lazy_adam", "grad_norms/9", 1 + 3e-5, 1, "FAILED: step 9: the gradients' norm");
    expect_when_changed("wide_deep", "grad_norms/9", 1 + 3e-5, 1, "FAILED: step 9: the gradients' norm");
    expect_when_changed("dlrm_sgd", "final/table.1.weight/sum", 1.01, 1, "FAILED: table.1.weight: sum");
    expect_when_changed("dlrm_sgd", "final/table.1.weight/abs_sum", 1.0001, 1, "FAILED: table.1.weight: abs_sum");
    expect_when_changed("dlrm_sgd", "final/top.0.bias/l2", 1.0001, 1, "FAILED: top.0.bias: l2");
    expect_when_changed("dlrm_sgd", "final/top.0.bias/first/7", 1.001, 1, "FAILED: top.0.bias: element 7");
    expect_when_changed("dlrm_lazy_adam", "optimizer_state/table.4.weight.v/l2", 1.001, 1,
                        "FAILED: table.4.weight.v: l2");
}

/* Mistakes that move no loss by as much as its tolerance; the final values show them. */
static void test_it_sees_a_wrong_setting_of_an_optimizer(void **state)
{
    (void)state;
    expect_when_changed("wide_deep", "optimizer/groups/0/l2", 2, 1, " 1 failed");
    expect_when_changed("wide_deep", "optimizer/groups/2/weight_decay", 2, 1, " 1 failed");
    expect_when_changed("dlrm_lazy_adam", "optimizer/groups/1/betas/1", 0.9999, 1, " 1 failed");
}

static void test_it_refuses_what_it_cannot_check(void **state)
{
    (void)state;
    expect(2, CASES " --only absent", "no case absent");
    expect(2, CASES " --devices tpu", "usage");
    expect(2, "/nonexistent", "cannot read");
}

/* The case with one value put in place. */
static void expect_when_given(const char *case_name, const char *path, const char *key, json_t *value, const char *text)
{
    json_t *expected = expected_of(case_name);
    assert_int_equal(json_object_set_new(*path ? follow(expected, path) : expected, key, value), 0);
    expect_of(expected, case_name, "", 1, text);
}

static void test_it_names_what_is_wrong_with_a_case(void **state)
{
    (void)state;
    expect_when_given("mlp_sgd", "", "steps", json_integer(1000000000), "steps is 1e+09; it must be from 1 to");
    expect_when_given("mlp_sgd", "", "micro_batch", json_integer(-1), "micro_batch must be a number of rows");
    expect_when_given("gpt_adamw", "model", "layers", json_integer(1000000000), "1e+09 layers; init.safetensors");
    expect_when_given("gpt_adamw", "optimizer/groups/0", "amsgrad", json_true(), "\"amsgrad\" of optimizer adamw");
    folder f = make_folder();
    assert_int_equal(mkdir(in_folder(&f, "case"), 0700), 0);
    link_file(&f, "mlp_sgd", "init.safetensors");
    expect(1, f.path, "case/expected.json");
    remove_folder(&f);
}

static void test_models_of_later_are_skipped_unless_asked_for(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        json_t *expected = expected_of("mlp_sgd");
        assert_int_equal(json_string_set(follow(expected, "model/type"), "resnet"), 0);
        expect_of(expected, "mlp_sgd", asked ? "--only case" : "", asked, "skipped: model type resnet comes later");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_engine_holds_these_cases),
        cmocka_unit_test(test_the_engine_holds_the_shared_cases),
        cmocka_unit_test(test_it_sees_each_kind_of_deviation),
        cmocka_unit_test(test_it_sees_a_wrong_setting_of_an_optimizer),
        cmocka_unit_test(test_it_refuses_what_it_cannot_check),
        cmocka_unit_test(test_it_names_what_is_wrong_with_a_case),
        cmocka_unit_test(test_models_of_later_are_skipped_unless_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
