/* Promises of base/dedup.h, checked against a quadratic definition on random ids of several shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/dedup.h"
#include "base/memory.h"

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

typedef enum shape { EQUAL, DISTINCT, UNIFORM, SKEWED, SHAPES } shape;

static int64_t draw(shape kind, int64_t position, int64_t rows)
{
    if (kind == EQUAL)
        return rows - 1;
    if (kind == DISTINCT)
        return (position * 7919) % rows; /* 7919 is prime, so distinct while rows is no multiple of it */
    int64_t row = (int64_t)(random_next() % (uint64_t)rows);
    if (kind == SKEWED) /* log-uniform: a few rows get most ids, as in click logs */
        row = (int64_t)((uint64_t)row >> (random_next() % 24)) % rows;
    return row;
}

/* Every position belongs to exactly one group, of its own row; groups and their positions ascend. */
static void check(const int64_t *ids, int64_t n, int64_t offset, const td_dedup *dedup)
{
    assert_int_equal(dedup->starts[0], 0);
    assert_int_equal(dedup->starts[dedup->n_rows], n);
    for (int64_t r = 0; r < dedup->n_rows; r++) {
        assert_true(r == 0 || dedup->rows[r - 1] < dedup->rows[r]);
        assert_true(dedup->starts[r] < dedup->starts[r + 1]);
        for (int64_t k = dedup->starts[r]; k < dedup->starts[r + 1]; k++) {
            assert_true(dedup->positions[k] >= 0 && dedup->positions[k] < n);
            assert_true(k == dedup->starts[r] || dedup->positions[k - 1] < dedup->positions[k]);
            assert_int_equal(ids[dedup->positions[k]] + offset, dedup->rows[r]);
        }
    }
}

static void check_case(shape kind, int64_t n, int64_t rows, int64_t offset)
{
    int64_t *ids = td_calloc((size_t)n + 1, sizeof *ids);
    int32_t *narrow = td_calloc((size_t)n + 1, sizeof *narrow);
    void *scratch = td_calloc(1, td_dedup_scratch_bytes(n));
    assert_true(ids && narrow && scratch);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = draw(kind, i, rows) - offset;
        narrow[i] = (int32_t)ids[i];
    }
    td_dedup dedup;
    assert_null(td_dedup_group(ids, TD_I64, n, offset, rows, scratch, &dedup));
    check(ids, n, offset, &dedup);
    if (n > 0 && kind == EQUAL)
        assert_int_equal(dedup.n_rows, 1);
    if (kind == DISTINCT && n <= rows)
        assert_int_equal(dedup.n_rows, n);
    if (rows < INT32_MAX) {
        assert_null(td_dedup_group(narrow, TD_I32, n, offset, rows, scratch, &dedup));
        check(ids, n, offset, &dedup);
    }
    td_free(ids);
    td_free(narrow);
    td_free(scratch);
}

static void test_groups_are_complete_and_ordered(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 511, 512, 513, 4000};
    static const int64_t tables[] = {1, 2, 63, 64, 65, 2048, 2049, 5000011, INT64_C(1) << 40};
    random_state = 20240601;
    printf("seed %llu\n", (unsigned long long)random_state);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
            for (int kind = 0; kind < SHAPES; kind++)
                check_case((shape)kind, sizes[s], tables[t], t % 2 ? 0 : 3);
}

static void test_refuses_ids_outside_the_table(void **state)
{
    (void)state;
    static const struct {
        int64_t ids[3], offset;
        const char *says;
    } cases[] = {{{0, 10, 3}, 0, "id 10 at position 1 is outside its table of 10 rows"},
                 {{9, 0, -1}, 0, "id -1 at position 2 is outside its table of 10 rows"},
                 {{4, 5, 6}, 4, "id 6 (+ offset 4) at position 2 is outside its table of 10 rows"},
                 {{1, INT64_MAX, 2}, 4, "id 9223372036854775807 (+ offset 4) at position 1"}};
    _Alignas(8) static char scratch[1 << 15];
    assert_true(td_dedup_scratch_bytes(3) <= sizeof scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_dedup dedup;
        td_status *status = td_dedup_group(cases[i].ids, TD_I64, 3, cases[i].offset, 10, scratch, &dedup);
        assert_int_equal(td_status_code(status), TD_DATA_ERROR);
        assert_non_null(strstr(td_status_message(status), cases[i].says));
        td_status_destroy(status);
    }
}

static void test_scratch_bytes_report_overflow(void **state)
{
    (void)state;
    assert_int_equal(td_dedup_scratch_bytes(INT64_MAX), 0);
    assert_int_equal(td_dedup_scratch_bytes(INT64_MAX / 16), 0);
    assert_true(td_dedup_scratch_bytes(0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups_are_complete_and_ordered),
                                       cmocka_unit_test(test_refuses_ids_outside_the_table),
                                       cmocka_unit_test(test_scratch_bytes_report_overflow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
