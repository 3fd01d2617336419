/* Metrics: values computed apart by NumPy from the same samples (mid-ranks; logaddexp), what is refused, and masks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/memory.h"
#include "tandem/data.h"

static double value_of(const char *name, const float *logits, const float *labels, const uint8_t *mask, int64_t n)
{
    td_metric *metric = NULL;
    double value = -1;
    assert_null(td_metric_create(name, &metric));
    assert_null(td_metric_add(metric, logits, labels, mask, n / 3)); /* in two parts, as batches come */
    assert_null(td_metric_add(metric, logits + n / 3, labels + n / 3, mask ? mask + n / 3 : NULL, n - n / 3));
    assert_null(td_metric_finish(metric, &value));
    td_metric_destroy(metric);
    return value;
}

static void refused(td_status *status, td_code code)
{
    assert_int_equal(td_status_code(status), code);
    td_status_destroy(status);
}

static void test_ties_count_one_half_and_zeros_of_either_sign_tie(void **state)
{
    (void)state;
    const float logits[] = {0.5f, -1.25f, 3, 0.5f, -0.0f, 0.0f, 2, -7.5f, 0.5f, -1.25f};
    const float labels[] = {1, 0, 1, 0, 1, 0, 0, 0, 1, 1};
    assert_true(value_of("auc", logits, labels, NULL, 10) == 0.64);
    assert_true(fabs(value_of("logloss", logits, labels, NULL, 10) - 0.7238451770443032) < 1e-15);
    assert_true(value_of("accuracy", logits, labels, NULL, 10) == 0.6);
}

static void make_samples(float *logits, float *labels, int32_t n)
{
    int64_t x = 12345;
    for (int32_t i = 0; i < n; i++) {
        x = (x * 1103515245 + 12345) & 0x7fffffff;
        logits[i] = (float)((x >> 8) % 1000 - 500) / 64;
        x = (x * 1103515245 + 12345) & 0x7fffffff;
        labels[i] = (float)((x >> 8) % 1000) < 500 + 60 * logits[i];
    }
}

static void test_five_thousand_samples_with_many_ties(void **state)
{
    (void)state;
    static float logits[5000], labels[5000];
    make_samples(logits, labels, 5000);
    assert_true(fabs(value_of("auc", logits, labels, NULL, 5000) - 0.8062100791540601) < 1e-15);
    assert_true(fabs(value_of("logloss", logits, labels, NULL, 5000) - 0.8646476328119573) < 1e-13);
    assert_true(value_of("accuracy", logits, labels, NULL, 5000) == 0.732);
}

static void test_auc_keeps_its_value_when_more_is_added_later(void **state)
{
    (void)state;
    static float logits[5000], labels[5000];
    make_samples(logits, labels, 5000);
    td_metric *metric = NULL;
    double half = 0, whole = 0;
    assert_null(td_metric_create("auc", &metric));
    assert_null(td_metric_add(metric, logits, labels, NULL, 2500));
    assert_null(td_metric_finish(metric, &half));
    assert_null(td_metric_add(metric, logits + 2500, labels + 2500, NULL, 2500));
    assert_null(td_metric_finish(metric, &whole));
    assert_true(half == value_of("auc", logits, labels, NULL, 2500));
    assert_true(whole == value_of("auc", logits, labels, NULL, 5000));
    td_metric_destroy(metric);
}

static void test_a_mask_leaves_samples_out(void **state)
{
    (void)state;
    const float logits[] = {1, NAN, 2, 3}, labels[] = {0, 1, 1, 0}, kept_logits[] = {1, 2, 3},
                kept_labels[] = {0, 1, 0};
    const uint8_t mask[] = {1, 0, 7, 1};
    for (int32_t i = 0; i < td_metric_count(); i++)
        assert_true(value_of(td_metric_name(i), logits, labels, mask, 4) ==
                    value_of(td_metric_name(i), kept_logits, kept_labels, NULL, 3));
}

static void test_large_logits_do_not_overflow(void **state)
{
    (void)state;
    const float logits[] = {3e38f, -3e38f, 1000}, labels[] = {1, 0, 0};
    assert_true(fabs(value_of("logloss", logits, labels, NULL, 3) - 1000.0 / 3) < 1e-12);
    assert_true(value_of("auc", logits, labels, NULL, 3) == 1);
}

static void test_what_is_not_defined_is_refused(void **state)
{
    (void)state;
    const float logits[] = {1, 2, NAN}, ones[] = {1, 1, 1};
    double value;
    td_metric *metric = NULL;
    for (int32_t i = 0; i < td_metric_count(); i++) {
        assert_null(td_metric_create(td_metric_name(i), &metric));
        refused(td_metric_finish(metric, &value), TD_DATA_ERROR);
        refused(td_metric_add(metric, logits, ones, NULL, 3), TD_DATA_ERROR);
        td_metric_destroy(metric);
    }
    assert_null(td_metric_create("auc", &metric));
    assert_null(td_metric_add(metric, logits, ones, NULL, 2));
    refused(td_metric_finish(metric, &value), TD_DATA_ERROR);
    td_metric_reset(metric);
    refused(td_metric_finish(metric, &value), TD_DATA_ERROR);
    td_metric_destroy(metric);
    refused(td_metric_create("ouc", &metric), TD_INVALID_ARGUMENT);
    assert_null(metric);
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    const float logits[] = {1, 2, 3}, labels[] = {0, 1, 1};
    uint64_t before = td_memory_read().bytes_now;
    for (uint64_t n = 1;; n++) {
        td_metric *metric = NULL;
        double value = 0;
        td_memory_fail_after(n);
        td_status *status = td_metric_create("auc", &metric);
        if (!status)
            status = td_metric_add(metric, logits, labels, NULL, 3);
        if (!status)
            status = td_metric_finish(metric, &value);
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        assert_true(failed == (td_status_code(status) == TD_OUT_OF_MEMORY));
        td_status_destroy(status);
        td_metric_destroy(metric);
        assert_int_equal(td_memory_read().bytes_now, before);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties_count_one_half_and_zeros_of_either_sign_tie),
        cmocka_unit_test(test_five_thousand_samples_with_many_ties),
        cmocka_unit_test(test_auc_keeps_its_value_when_more_is_added_later),
        cmocka_unit_test(test_a_mask_leaves_samples_out),
        cmocka_unit_test(test_large_logits_do_not_overflow),
        cmocka_unit_test(test_what_is_not_defined_is_refused),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
