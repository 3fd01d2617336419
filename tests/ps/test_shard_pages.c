/* Stretches of a table's memory: counted as rows begin, held once they are full, and never more of them apart than is allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/large_pages.h"
#include "base/memory.h"
#include "ps/shard_pages.h"

enum { ROW = 64, ROWS = TD_LARGE_PAGE_BYTES / ROW };

static char *reserve(int64_t stretches, td_shard_pages *pages)
{
    const int64_t bytes = (stretches + 1) * TD_LARGE_PAGE_BYTES; /* wherever the first whole one begins */
    char *base = td_reserve((size_t)bytes);
    assert_non_null(base);
    assert_null(td_shard_pages_init(pages, base, bytes, ROW));
    assert_true(pages->n >= stretches);
    return base;
}

static void fill(td_shard_pages *pages, int64_t stretch, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        char *row = pages->first + stretch * TD_LARGE_PAGE_BYTES + i * ROW;
        *row = (char)(i + 1);
        td_shard_pages_count(pages, row);
    }
}

static void test_a_stretch_is_held_once_three_in_four_rows_have_begun(void **state)
{
    (void)state;
    td_shard_pages pages;
    char *base = reserve(2, &pages);
    fill(&pages, 1, ROWS * 3 / 4 - 1);
    assert_int_equal(pages.held, 0);
    fill(&pages, 1, 1);
    assert_int_equal(pages.held, 1);
    fill(&pages, 1, ROWS / 8); /* later ones change nothing */
    assert_int_equal(pages.held, 1);
    for (int64_t i = 0; i < ROWS * 3 / 4 - 1; i++) /* what was written stays */
        assert_int_equal(pages.first[TD_LARGE_PAGE_BYTES + i * ROW], (char)(i + 1));
    td_shard_pages_clear(&pages);
    assert_int_equal(pages.held, 0);
    fill(&pages, 1, ROWS / 2);
    assert_int_equal(pages.held, 0);
    td_shard_pages_deinit(&pages);
    td_unreserve(base, 3 * (size_t)TD_LARGE_PAGE_BYTES);
}

static void test_rows_outside_whole_stretches_are_not_counted(void **state)
{
    (void)state;
    td_shard_pages pages;
    char *base = reserve(1, &pages);
    td_shard_pages_count(&pages, pages.first - ROW);
    td_shard_pages_count(&pages, pages.first + pages.n * TD_LARGE_PAGE_BYTES);
    assert_int_equal(pages.filled[0], 0);
    td_shard_pages_deinit(&pages);
    td_unreserve(base, 2 * (size_t)TD_LARGE_PAGE_BYTES);
    char small[4096];
    assert_null(td_shard_pages_init(&pages, small, sizeof small, ROW)); /* no whole one at all */
    td_shard_pages_count(&pages, small);
    assert_int_equal(pages.n, 0);
    td_shard_pages_deinit(&pages);
}

/* Every other stretch, by counting alone: more than 256 of them apart are not held until those between join them. */
static void test_there_is_a_bound_on_stretches_apart(void **state)
{
    (void)state;
    enum { STRETCHES = 600, LEAST = 256 };
    td_shard_pages pages;
    char *base = reserve(STRETCHES, &pages);
    pages.enough = 1; /* a row is enough here: memory for all of them is not asked for */
    pages.filled[0] = 0;
    for (int64_t s = 0; s < STRETCHES; s += 2)
        td_shard_pages_count(&pages, pages.first + s * TD_LARGE_PAGE_BYTES);
    assert_int_equal(pages.islands, LEAST);
    assert_int_equal(pages.held, LEAST);
    td_shard_pages_count(&pages, pages.first + TD_LARGE_PAGE_BYTES); /* joins two */
    assert_int_equal(pages.islands, LEAST - 1);
    assert_int_equal(pages.held, LEAST + 1);
    td_shard_pages_deinit(&pages);
    td_unreserve(base, (STRETCHES + 1) * (size_t)TD_LARGE_PAGE_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stretch_is_held_once_three_in_four_rows_have_begun),
        cmocka_unit_test(test_rows_outside_whole_stretches_are_not_counted),
        cmocka_unit_test(test_there_is_a_bound_on_stretches_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
