/* Progress lines and step statistics, with time given by the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/progress.h"
#include "cli/reading.h"
#include "cli/statistics.h"

enum { MS = 1000000 };

static char shown[65536];

/* 40 steps of 10 ms each. */
static void run_steps(bool terminal, int64_t every)
{
    memset(shown, 0, sizeof shown);
    FILE *stream = fmemopen(shown, sizeof shown, "w");
    td_progress progress = {
        .stream = stream, .terminal = terminal, .epochs = 2, .steps_per_epoch = 20, .steps = 40, .every = every};
    td_progress_start(&progress, 0, 0);
    for (int64_t i = 0; i < 40; i++)
        td_progress_step(&progress, i / 20, i % 20, 50, 0.5f, (i + 1) * 10 * MS);
    td_progress_end(&progress);
    fclose(stream);
}

static int count_of(const char *text, char c)
{
    int n = 0;
    for (; *text; text++)
        n += *text == c;
    return n;
}

static void test_elsewhere_a_line_comes_every_interval(void **state)
{
    (void)state;
    run_steps(false, 15);
    assert_string_equal(shown, "epoch 1/2  15/20 steps  38 %  loss 0.5000  5.00 k samples/s  0:00 left\n"
                               "epoch 2/2  10/20 steps  75 %  loss 0.5000  5.00 k samples/s  0:00 left\n"
                               "epoch 2/2  20/20 steps  100 %  loss 0.5000  5.00 k samples/s  0:00 left\n");
}

static void test_a_terminal_is_rewritten_ten_times_a_second_at_most(void **state)
{
    (void)state;
    run_steps(true, 1);
    assert_int_equal(count_of(shown, '\r'), 4); /* 400 ms */
    assert_int_equal(count_of(shown, '\n'), 1); /* when it ends */
}

static void work_through(bool terminal)
{
    memset(shown, 0, sizeof shown);
    FILE *stream = fmemopen(shown, sizeof shown, "w");
    td_work_progress work = {.stream = stream, .terminal = terminal, .what = "landscape", .unit = "points", .all = 50};
    td_work_start(&work, 0);
    for (int64_t i = 0; i < 50; i++)
        td_work_step(&work, (i + 1) * 20 * MS);
    td_work_end(&work);
    fclose(stream);
}

static void test_long_work_says_its_rate_and_what_is_left(void **state)
{
    (void)state;
    static const char first[] = "landscape  5/50 points  10 %  50 points/s  0:01 left\n";
    work_through(false);
    assert_int_equal(strncmp(shown, first, sizeof first - 1), 0);
    assert_int_equal(count_of(shown, '\n'), 10);
    work_through(true);
    assert_int_equal(count_of(shown, '\r'), 10); /* a second */
    assert_int_equal(count_of(shown, '\n'), 1);
}

static void test_the_first_steps_of_an_epoch_do_not_count(void **state)
{
    (void)state;
    td_step_statistics statistics = {0};
    static const double seconds[] = {9, 9, 1, 2, 3, 4, 5};
    for (int64_t i = 0; i < 7; i++)
        assert_null(td_statistics_add(&statistics, i, 30, seconds[i]));
    assert_int_equal(statistics.n, 5);
    assert_true(td_statistics_quantile(&statistics, 0.5) == 3);
    assert_true(td_statistics_quantile(&statistics, 0.875) == 4.5);
    assert_true(td_statistics_quantile(&statistics, 1) == 5);
    assert_true(td_statistics_rate(&statistics) == 10);
    td_statistics_deinit(&statistics);
    assert_true(td_statistics_quantile(&statistics, 0.5) == 0);
}

static void test_clocks_read_as_clocks(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(td_clock_text(29.4, text), "0:29");
    assert_string_equal(td_clock_text(3753, text), "1:02:33");
    assert_string_equal(td_clock_text(-1, text), "0:00");
}

static void test_parsing_shows_share_rate_and_time_left_after_a_second(void **state)
{
    (void)state;
    static const char path[] = "data/rows.tsv";
    memset(shown, 0, sizeof shown);
    FILE *stream = fmemopen(shown, sizeof shown, "w");
    td_reading reading = {.stream = stream};
    for (int64_t i = 1; i <= 50; i++) /* 50 parts of 2 % and 40 ms each */
        td_reading_show(&reading, path, i * 2, 100, i * 1000, i * 40 * MS);
    td_reading_end(&reading);
    fclose(stream);
    assert_int_equal(
        strncmp(shown, "\rreading rows.tsv  52 %  26.0 k rows/s  0:01 left\033[K\rreading rows.tsv  58 %", 60), 0);
    assert_string_equal(shown + strlen(shown) - 4, "\r\033[K");
    td_reading silent = {0};
    td_reading_show(&silent, path, 1, 2, 3, 4000 * (int64_t)MS);
    td_reading_end(&silent);
}

/* train.steps: 12 of two epochs of 20. */
static void test_steps_that_end_within_an_epoch_are_counted_themselves(void **state)
{
    (void)state;
    FILE *stream = tmpfile();
    assert_non_null(stream);
    td_progress progress = {.stream = stream, .epochs = 2, .steps_per_epoch = 20, .steps = 12, .every = 6};
    td_progress_start(&progress, 0, 0);
    for (int64_t step = 0; step < 12; step++)
        td_progress_step(&progress, 0, step, 50, 0.5f, (step + 1) * 10000000);
    td_progress_end(&progress);
    char text[512] = {0};
    rewind(stream);
    assert_true(fread(text, 1, sizeof text - 1, stream) > 0);
    assert_string_equal(text, "epoch 1/2  6/12 steps  50 %  loss 0.5000  5.00 k samples/s  0:00 left\n"
                              "epoch 1/2  12/12 steps  100 %  loss 0.5000  5.00 k samples/s  0:00 left\n");
    (void)fclose(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elsewhere_a_line_comes_every_interval),
        cmocka_unit_test(test_a_terminal_is_rewritten_ten_times_a_second_at_most),
        cmocka_unit_test(test_long_work_says_its_rate_and_what_is_left),
        cmocka_unit_test(test_steps_that_end_within_an_epoch_are_counted_themselves),
        cmocka_unit_test(test_the_first_steps_of_an_epoch_do_not_count),
        cmocka_unit_test(test_clocks_read_as_clocks),
        cmocka_unit_test(test_parsing_shows_share_rate_and_time_left_after_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
