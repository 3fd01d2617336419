/* The order of an epoch: a permutation for any size, another one for each seed and epoch, and no position favours a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "data/order.h"

enum { LARGEST = 5000 };

static void check_permutation(int64_t n, uint64_t seed, int64_t epoch)
{
    static unsigned char seen[LARGEST];
    td_order order;
    td_order_init(&order, n, seed, epoch);
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = td_order_at(&order, i);
        assert_in_range(row, 0, n - 1);
        assert_int_equal(seen[row]++, 0);
    }
}

static void test_every_size_is_permuted(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 300; n++)
        check_permutation(n, (uint64_t)n * 77, n % 5);
    check_permutation(4095, 1, 0);
    check_permutation(4096, 1, 0);
    check_permutation(4097, UINT64_MAX, 3);
}

static void test_positions_of_a_huge_order_stay_inside(void **state)
{
    (void)state;
    const int64_t n = ((int64_t)1 << 40) + 12345;
    td_order order;
    td_order_init(&order, n, 9, 1);
    for (int64_t i = 0; i < 1000; i++)
        assert_in_range(td_order_at(&order, n - 1 - i * 1000003), 0, n - 1);
}

static void test_seed_and_epoch_change_the_order(void **state)
{
    (void)state;
    td_order a, b, c, again;
    td_order_init(&a, 1000, 1, 0);
    td_order_init(&b, 1000, 1, 1);
    td_order_init(&c, 1000, 2, 0);
    td_order_init(&again, 1000, 1, 0);
    int32_t same_epoch = 0, same_seed = 0, in_place = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t row = td_order_at(&a, i);
        assert_int_equal(row, td_order_at(&again, i));
        in_place += row == i;
        same_epoch += row == td_order_at(&b, i);
        same_seed += row == td_order_at(&c, i);
    }
    /* a random pair of permutations agrees in 1 place on average; 10 would be one in ten million */
    assert_true(same_epoch < 10 && same_seed < 10 && in_place < 10);
}

/* Over many seeds each row is first about equally often, for sizes small enough to be hard for a network. */
static void test_every_row_may_come_first(void **state)
{
    (void)state;
    enum { SEEDS = 16000 };
    for (int64_t n = 2; n <= 16; n++) {
        int32_t first[16] = {0};
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            td_order order;
            td_order_init(&order, n, seed, 0);
            first[td_order_at(&order, 0)]++;
        }
        double chi = 0, expected = (double)SEEDS / (double)n;
        for (int64_t row = 0; row < n; row++)
            chi += (first[row] - expected) * (first[row] - expected) / expected;
        assert_true(chi < (double)n - 1 + 6 * 5.5); /* six deviations at 15 degrees of freedom */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_is_permuted),
        cmocka_unit_test(test_positions_of_a_huge_order_stay_inside),
        cmocka_unit_test(test_seed_and_epoch_change_the_order),
        cmocka_unit_test(test_every_row_may_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
