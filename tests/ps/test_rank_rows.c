/* What a worker tells of a replica's rows is taken only as it was packed: no count or key of it reaches beyond what came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ps/rank_rows.h"

/* One loss; two rows of three numbers and one row of one, with a dense gradient in between. */
typedef struct message {
    int64_t losses;
    td_micro_loss loss;
    int64_t n, keys[2];
    float rows[6];
    int64_t more, key;
    float row, unused;
} message;

static const td_tensor gradients[] = {{.kind = TD_ROW_SPARSE, .rank = 2, .dims = {10, 3}},
                                      {.kind = TD_DENSE, .rank = 1, .dims = {7}},
                                      {.kind = TD_ROW_SPARSE, .rank = 2, .dims = {4, 1}}};

static message packed(void)
{
    return (message){1, {0.5, 24}, 2, {4, 9}, {1, 2, 3, 4, 5, 6}, 1, 3, 7, 0};
}

static td_status *check(const message *m, int64_t bytes, int64_t losses)
{
    return td_rank_rows_check((const char *)m, bytes, losses, gradients, 3);
}

static void assert_refused(td_status *status)
{
    assert_int_equal(td_status_code(status), TD_INTERNAL);
    td_status_destroy(status);
}

static void test_rows_are_read_as_packed(void **state)
{
    (void)state;
    const message m = packed();
    assert_null(check(&m, sizeof m, 1));
    const char *at = td_rank_rows_begin((const char *)&m);
    td_fold_rows rows = td_rank_rows_next(&at, &gradients[0]);
    assert_true(rows.n == 2 && rows.dim == 3 && rows.keys[1] == 9 && rows.rows[5] == 6);
    rows = td_rank_rows_next(&at, &gradients[2]);
    assert_true(rows.n == 1 && rows.dim == 1 && rows.keys[0] == 3 && rows.rows[0] == 7);
    assert_ptr_equal(at, &m + 1);
}

/* Rows come in any order, and leave ascending. */
static void test_rows_are_written_as_they_are_read(void **state)
{
    (void)state;
    int64_t count = 2, keys[] = {9, 4}, more = 1, key = 3, bytes = 0;
    float rows[] = {4, 5, 6, 1, 2, 3}, row = 7;
    const td_micro_loss loss = {0.5, 24};
    td_tensor filled[] = {gradients[0], gradients[1], gradients[2]};
    td_row_order order = {0};
    message m = {0};
    const message expected = packed();
    filled[0].count = &count;
    filled[0].index = keys;
    filled[0].data = rows;
    filled[0].entries = 2;
    filled[2].count = &more;
    filled[2].index = &key;
    filled[2].data = &row;
    filled[2].entries = 1;
    assert_int_equal(td_rank_rows_room(1, sizeof m - 24), sizeof m);
    assert_null(td_rank_rows_write((char *)&m, &loss, 1, filled, 3, &order, &bytes));
    assert_int_equal(bytes, sizeof m);
    assert_memory_equal(&m, &expected, sizeof m);
    assert_null(td_rank_rows_write((char *)&m, NULL, 0, filled, 3, &order, &bytes)); /* no samples: no rows */
    assert_int_equal(bytes, 3 * sizeof(int64_t));
    assert_null(check(&m, bytes, 0));
    td_row_order_deinit(&order);
}

static void test_others_are_refused(void **state)
{
    (void)state;
    const int64_t wrong[] = {-1, 0, 3, INT64_MAX, INT64_C(1) << 60};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        message m = packed();
        m.n = wrong[i];
        assert_refused(check(&m, sizeof m, 1));
        m = packed();
        m.losses = wrong[i];
        assert_refused(check(&m, sizeof m, wrong[i]));
    }
    for (int64_t bytes = 0; bytes < (int64_t)sizeof(message); bytes++) {
        const message m = packed();
        assert_refused(check(&m, bytes, 1));
    }
    const int64_t keys[][2] = {{9, 4}, {4, 4}, {-1, 4}, {4, 10}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        message m = packed();
        m.keys[0] = keys[i][0];
        m.keys[1] = keys[i][1];
        assert_refused(check(&m, sizeof m, 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_read_as_packed),
        cmocka_unit_test(test_rows_are_written_as_they_are_read),
        cmocka_unit_test(test_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
