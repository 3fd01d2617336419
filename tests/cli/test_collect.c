/* What tandem train records for charts: it changes no bit of the result. (Files that cannot be written:
 * test_faults.c.) */
#include "tests/cli/runs.h"

#define SHORT "--set", "train.steps=8"
#define ALL                                                                                                            \
    "--set", "summary.every=2", "--set", "summary.parameters=[\"*\"]", "--set", "summary.gradients=[\"*\"]", "--set",  \
        "summary.activations=[\"*\"]", "--set", "summary.tensors=[\"*\"]"

static void test_no_bit_depends_on_what_is_recorded(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "none", SHORT, "--set", "summary.scalars=0", "--set", "summary.every=0");
    SUCCEED("train", "x.yaml", "--run", "all", SHORT, ALL);
    SUCCEED("train", "x.yaml", "--run", "clipped", SHORT, "--set", "train.clip_norm=1");
    SUCCEED("train", "x.yaml", "--run", "clipped_all", SHORT, ALL, "--set", "train.clip_norm=1");
    expect_same_parameters("none/summary.json", "all/summary.json");
    expect_same_parameters("clipped/summary.json", "clipped_all/summary.json");
    assert_int_equal(system("test -z \"$(ls none | grep events)\" && test -n \"$(ls all | grep events)\""), 0);
}

static void test_watching_finds_its_value_among_other_outputs(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "watched", SHORT, ALL, "--watch", "loss", "--set", "train.log_every=4");
    char *first = strstr(out, "loss: mean ");
    assert_non_null(first);
    assert_true(strtod(first + 11, NULL) > 0.3 && strtod(first + 11, NULL) < 1.5);
    assert_non_null(strstr(out, "deviation 0;")); /* one number */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_bit_depends_on_what_is_recorded),
        cmocka_unit_test(test_watching_finds_its_value_among_other_outputs),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
