/* Errors as values: message, help, trace; and errors about having no memory, which cannot fail themselves. */
#include "tests/base/check.h"

static void test_null_is_success(void **state)
{
    (void)state;
    assert_int_equal(td_status_code(NULL), TD_OK);
    assert_string_equal(td_status_message(NULL), "");
    assert_string_equal(td_status_trace(NULL), "");
    assert_null(td_status_help(NULL, "try: %d", 1));
    assert_null(td_status_prefix(NULL, "file"));
    assert_null(td_status_pass(NULL, "a.c", 1));
    td_status_destroy(NULL);
}

static void test_message_grows_in_both_directions(void **state)
{
    (void)state;
    td_status *status = td_status_create(TD_NOT_FOUND, "/long/way/to/file.c", 12, "no key \"%s\"", "x");
    status = td_status_prefix(status, "%s:%d", "a.yaml", 3);
    status = td_status_help(status, "try: %s", "y");
    status = td_status_help(status, "or: z");
    assert_int_equal(td_status_code(status), TD_NOT_FOUND);
    assert_string_equal(td_status_message(status), "a.yaml:3: no key \"x\"\n  try: y\n  or: z");
    assert_string_equal(td_status_trace(status), "file.c:12"); /* without the folders of the machine it was built on */
    td_status_destroy(status);
}

static td_status *inner(int fail)
{
    return fail ? TD_ERROR(TD_IO, "inner") : NULL;
}
static td_status *middle(int fail, int *passed)
{
    TD_TRY(inner(fail));
    ++*passed;
    return NULL;
}
static td_status *outer(int fail, int *passed, int *cleaned)
{
    td_status *status = NULL;
    TD_TRY_OR(status, done, middle(fail, passed));
    ++*passed;
done:
    ++*cleaned;
    return status;
}

static void test_try_stops_at_the_first_error(void **state)
{
    (void)state;
    int passed = 0, cleaned = 0;
    assert_ok(outer(0, &passed, &cleaned));
    assert_int_equal(passed, 2);
    td_status *status = outer(1, &passed, &cleaned);
    assert_int_equal(passed, 2);
    assert_int_equal(cleaned, 2);
    const char *trace = td_status_trace(status);
    int arrows = 0;
    for (const char *at = trace; (at = strstr(at, " < test_status.c:")); at++)
        arrows++;
    assert_int_equal(arrows, 2);
    assert_error(status, TD_IO, "inner");
}

static void test_a_trace_does_not_grow_without_end(void **state)
{
    (void)state;
    td_status *status = TD_ERROR(TD_INTERNAL, "deep");
    for (int i = 0; i < 10000; i++)
        status = td_status_pass(status, "recursion.c", i);
    assert_true(strlen(td_status_trace(status)) < 2100);
    td_status_destroy(status);
}

static td_status *make_with_everything(void)
{
    td_status *status = TD_ERROR(TD_DATA_ERROR, "row %d", 7);
    status = td_status_prefix(status, "a.tsv");
    status = td_status_help(status, "try: another");
    return td_status_pass(status, "b.c", 2);
}

/* Whichever allocation fails, there is an error with a message, and nothing leaks. */
static void test_creating_an_error_cannot_fail(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        uint64_t before = td_memory_read().bytes_now;
        td_memory_fail_after(n);
        td_status *status = make_with_everything();
        int failed = td_memory_failed();
        td_memory_fail_after(0);
        assert_non_null(status);
        td_code code = td_status_code(status);
        const char *message = td_status_message(status);
        if (n <= 3) /* creation itself */
            assert_true(code == TD_OUT_OF_MEMORY && strcmp(message, "out of memory") == 0);
        else /* what was lost is an addition */
            assert_true(code == TD_DATA_ERROR && strstr(message, "row 7"));
        td_status_destroy(status);
        assert_int_equal(td_memory_read().bytes_now, before);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_is_success),
        cmocka_unit_test(test_message_grows_in_both_directions),
        cmocka_unit_test(test_try_stops_at_the_first_error),
        cmocka_unit_test(test_a_trace_does_not_grow_without_end),
        cmocka_unit_test(test_creating_an_error_cannot_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
