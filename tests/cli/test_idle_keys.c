/* Keys that change nothing beside the others are said, and only those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "cli/idle_keys.h"
#include "config_helpers.h"

static char heard[2048];

static void hear(void *context, td_log_level level, const char *message)
{
    (void)context;
    assert_int_equal(level, TD_LOG_WARNING);
    strncat(heard, message, sizeof heard - strlen(heard) - 2);
    strcat(heard, "\n");
}

static void expect_warnings(const char *text, const char *set, const char *warnings)
{
    td_config *config = good_config(text, set);
    heard[0] = '\0';
    td_log_set(hear, NULL, TD_LOG_WARNING);
    td_warn_of_idle_keys(td_config_root(config));
    td_log_set(NULL, NULL, TD_LOG_NULL);
    assert_string_equal(heard, warnings);
    td_config_destroy(config);
}

static void test_keys_without_effect_are_said(void **state)
{
    (void)state;
    expect_warnings("checkpoint: {keep: 0, every: 10}\n", NULL,
                    "checkpoint.every (x.yaml:1) has no effect: checkpoint.keep is 0\n");
    expect_warnings("train: {clip_norm: 0.0}\noffload: {optimizer: cpu, speculate: off}\n", NULL,
                    "offload.speculate (x.yaml:2) has no effect: train.clip_norm is 0.0\n");
    expect_warnings(
        "", "summary.tensor_elements=9",
        "summary.tensor_elements (--set summary.tensor_elements) has no effect: summary.tensors is not given\n");
    expect_warnings("data: {format: csv, train: a, label: b, cross_buckets: 7}\n", NULL,
                    "data.cross_buckets (x.yaml:1) has no effect: data.crosses is not given\n");
    expect_warnings("data: {format: csv, train: a, test: c, label: b, train_share: 0.5}\n", NULL,
                    "data.train_share (x.yaml:1) has no effect: data.test is given\n");
    expect_warnings("optimizer: [{name: adam, lr: 1, schedule: {kind: cosine, total_steps: 9, every: 3}}]\n", NULL,
                    "optimizer[0].schedule.every has no effect: it is for schedule.kind step, and that is cosine\n");
    expect_warnings("train: {table_rounding: stochastic}\n", NULL,
                    "train.table_rounding has no effect: nothing that is updated is kept in 16 bit (train.table_dtype, "
                    "offload.master)\n");
    expect_warnings("summary: {every: 7}\n", NULL,
                    "summary.every (x.yaml:1) has no effect: summary.parameters, summary.gradients, "
                    "summary.activations and summary.tensors are not given, summary.images and summary.texts are 0\n");
    expect_warnings("summary: {every: 0, parameters: [\"*\"], texts: 3}\n", NULL,
                    "summary.parameters (x.yaml:1) has no effect: summary.every is 0\n"
                    "summary.texts (x.yaml:1) has no effect: summary.every is 0\n");
    expect_warnings("landscape: {landscape_size: 9, num_samples: 4}\n", NULL,
                    "landscape.landscape_size (x.yaml:1) has no effect: landscape.intervals is not given, "
                    "landscape.create_landscape.result is off\n"
                    "landscape.num_samples (x.yaml:1) has no effect: landscape.intervals is not given, "
                    "landscape.create_landscape.result is off\n");
    expect_warnings("landscape: {intervals: [[1]], create_landscape: {train: off}}\n", NULL,
                    "landscape.intervals (x.yaml:1) has no effect: landscape.create_landscape.train is off\n");
    expect_warnings("train: {most_skipped: 3}\n", NULL,
                    "train.most_skipped has no effect: no step is skipped without train.on_nan: skip or fp16\n");
}

static void test_keys_that_count_or_say_what_holds_anyway_are_not(void **state)
{
    (void)state;
    expect_warnings("offload: {optimizer: {ratio: 0.5}}\n", NULL, "");
    expect_warnings("offload: {optimizer: cpu, delayed: off, speculate: yes}\n", NULL, "");
    expect_warnings("checkpoint: {keep: 2, every: 10}\n", NULL, "");
    expect_warnings("summary: {every: 7, texts: 2}\n", NULL, "");
    expect_warnings("summary: {every: 7, gradients: [\"*\"]}\n", NULL, "");
    expect_warnings("landscape: {landscape_size: 9, intervals: [[1]]}\n", NULL, "");
    expect_warnings("landscape: {num_samples: 4, create_landscape: {result: on}}\n", NULL, "");
    expect_warnings("data: {format: csv, train: a, label: b, crosses: [[c, d]], cross_buckets: 7}\n", NULL, "");
    expect_warnings("train: {most_skipped: 3, on_nan: skip, table_dtype: bf16, table_rounding: stochastic}\n", NULL,
                    "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_without_effect_are_said),
        cmocka_unit_test(test_keys_that_count_or_say_what_holds_anyway_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
