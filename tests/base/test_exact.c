/* Exact sums: the nearest double of the true sum, the same bits in any order and any pieces. */
#include "tests/base/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/exact.h"
#include "base/math.h"

static void check_same(double got, double wanted)
{
    if (td_double_bits(got) != td_double_bits(wanted))
        fail_msg("got %a, wanted %a", got, wanted);
}

static double sum_of(const double *values, int n)
{
    td_exact sum;
    td_exact_clear(&sum);
    for (int i = 0; i < n; i++)
        td_exact_add(&sum, values[i]);
    double rounded = td_exact_round(&sum);
    check_same(td_exact_round(&sum), rounded); /* rounding changes nothing */
    return rounded;
}
#define SUM(...) sum_of((const double[]){__VA_ARGS__}, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

static void test_one_value_comes_back(void **state)
{
    (void)state;
    const double values[] = {1,     -1, 0.1, DBL_MAX, -DBL_MAX, DBL_MIN, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp-1023,
                             3e-310};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        check_same(SUM(values[i]), values[i]);
    srand48(1);
    for (int i = 0; i < 20000; i++) {
        double value = td_bits_double((uint64_t)lrand48() << 42 ^ (uint64_t)lrand48() << 21 ^ (uint64_t)lrand48());
        if (isfinite(value) && value != 0)
            check_same(SUM(value), value);
    }
    check_same(SUM(-0.0), 0.0);
}

static void test_nothing_is_lost_between(void **state)
{
    (void)state;
    check_same(SUM(1e308, 1e308, 1e308, -1e308, -1e308), 1e308); /* beyond the largest on the way */
    check_same(SUM(DBL_MAX, 0x1p-1074, -DBL_MAX), 0x1p-1074);
    check_same(SUM(1e100, 1, -1e100), 1.0);
    check_same(SUM(-1e100, -1, 1e100), -1.0);
    check_same(SUM(DBL_MIN, -0x1p-1074), DBL_MIN - 0x1p-1074);
    check_same(SUM(5, -5), 0.0);
}

static void test_rounding_is_to_nearest_even(void **state)
{
    (void)state;
    check_same(SUM(0x1p53, 1), 0x1p53);                /* a tie goes to the even one below */
    check_same(SUM(0x1p53, 1, 0x1p-1074), 0x1p53 + 2); /* the smallest bit above a tie decides */
    check_same(SUM(0x1p53, 1, -0x1p-1074), 0x1p53);
    check_same(SUM(0x1p53, 2, 1), 0x1p53 + 4); /* a tie goes to the even one above */
    check_same(SUM(-0x1p53, -2, -1), -0x1p53 - 4);
    check_same(SUM(0x1.fffffffffffffp52, 0.5), 0x1p53); /* carries into the next power of two */
    check_same(SUM(DBL_MAX, 0x1p969), DBL_MAX);
    check_same(SUM(DBL_MAX, 0x1p970), INFINITY);
    check_same(SUM(-DBL_MAX, -DBL_MAX), -(double)INFINITY);
}

static void test_infinities_and_nan(void **state)
{
    (void)state;
    const double infinity = (double)INFINITY;
    check_same(SUM(1, infinity, -1e300), infinity);
    check_same(SUM(-infinity, 1, -infinity), -infinity);
    assert_true(isnan(SUM(infinity, 1, -infinity)));
    assert_true(isnan(SUM(1, (double)NAN)));
    td_exact a, b;
    td_exact_clear(&a);
    td_exact_clear(&b);
    td_exact_add(&b, infinity);
    td_exact_add_sum(&a, &b);
    check_same(td_exact_round(&a), infinity);
}

/* Against 128-bit integers, whose conversion to double rounds correctly. */
static void test_random_sums_are_the_nearest_double(void **state)
{
    (void)state;
    srand48(2);
    for (int round = 0; round < 3000; round++) {
        td_exact sum;
        td_exact_clear(&sum);
        __int128 wanted = 0;
        int scale = (int)(lrand48() % 900) - 450;
        for (int i = 0; i < 20; i++) {
            int64_t mantissa = (int64_t)((uint64_t)lrand48() << 21 ^ (uint64_t)lrand48()) * (lrand48() & 1 ? 1 : -1);
            int shift = (int)(lrand48() % 60);
            wanted += (__int128)mantissa * ((__int128)1 << shift);
            td_exact_add(&sum, ldexp((double)mantissa, shift + scale));
        }
        check_same(td_exact_round(&sum), ldexp((double)wanted, scale));
    }
}

enum { N = 3000 };

static double random_double(void)
{
    return ldexp(drand48() - 0.5, (int)(lrand48() % 2000) - 1000);
}

static void test_any_order_and_any_pieces_give_the_same_bits(void **state)
{
    (void)state;
    srand48(3);
    static double values[N];
    for (int i = 0; i < N; i++)
        values[i] = random_double();
    double wanted = sum_of(values, N);
    for (int round = 0; round < 20; round++) {
        for (int i = N - 1; i > 0; i--) {
            int j = (int)(lrand48() % (i + 1));
            double other = values[i];
            values[i] = values[j];
            values[j] = other;
        }
        td_exact parts[4];
        for (int p = 0; p < 4; p++)
            td_exact_clear(&parts[p]);
        for (int i = 0; i < N; i++)
            td_exact_add(&parts[lrand48() % 4], values[i]);
        td_exact_add_sum(&parts[2], &parts[3]);
        td_exact_add_sum(&parts[0], &parts[2]);
        td_exact_add_sum(&parts[0], &parts[1]);
        check_same(td_exact_round(&parts[0]), wanted);
    }
}

/* Doubling a sum by adding it to itself more often than a limb could take without carries. */
static void test_carries_never_overflow(void **state)
{
    (void)state;
    td_exact sum;
    td_exact_clear(&sum);
    td_exact_add(&sum, -0x1.fffffffffffffp-900);
    for (int i = 0; i < 1900; i++)
        td_exact_add_sum(&sum, &sum);
    check_same(td_exact_round(&sum), -0x1.fffffffffffffp1000);
    td_exact_clear(&sum);
    sum.additions = (1u << 30) - 3; /* as after a billion additions: the next ones must carry */
    for (int i = 0; i < 10; i++)
        td_exact_add(&sum, DBL_MAX);
    assert_true(sum.additions < 10);
    for (int i = 0; i < 9; i++)
        td_exact_add(&sum, -DBL_MAX);
    check_same(td_exact_round(&sum), DBL_MAX);
}

static void test_blocks_give_the_same_bits_however_they_are_cut(void **state)
{
    (void)state;
    enum { ELEMENTS = 10 * TD_EXACT_BLOCK + 77 };
    static float x[ELEMENTS];
    srand48(4);
    double plain = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        x[i] = (float)ldexp(drand48() - 0.5, (int)(lrand48() % 40) - 20);
        plain += (double)x[i] * (double)x[i];
    }
    td_exact whole, pieces, last;
    td_exact_clear(&whole);
    td_exact_clear(&pieces);
    td_exact_clear(&last);
    td_sum_squares_blocks(x, ELEMENTS, &whole);
    td_sum_squares_blocks(x + 7 * TD_EXACT_BLOCK, ELEMENTS - 7 * TD_EXACT_BLOCK, &last); /* the end first */
    td_sum_squares_blocks(x + 2 * TD_EXACT_BLOCK, 5 * TD_EXACT_BLOCK, &pieces);
    td_sum_squares_blocks(x, 2 * TD_EXACT_BLOCK, &pieces);
    td_exact_add_sum(&pieces, &last);
    check_same(td_exact_round(&pieces), td_exact_round(&whole));
    assert_true(fabs(td_exact_round(&whole) / plain - 1) < 1e-12);
}

static void test_squares_follow_the_fixed_order(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++) {
        float x[70];
        double lanes[TD_SUM_LANES] = {0};
        srand48(n);
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)(drand48() * 1e4);
            lanes[i % TD_SUM_LANES] += (double)x[i] * (double)x[i];
        }
        check_same(td_sum_squares(x, n), td_fold_lanes_double(lanes));
    }
    const float rows[6] = {1, 2, 3, 4, 5, 6};
    td_exact sum;
    td_exact_clear(&sum);
    td_sum_squares_rows(rows, 3, 2, &sum);
    td_sum_squares_rows(rows, 0, 2, &sum);
    check_same(td_exact_round(&sum), 91.0);
}

static void test_an_overflown_gradient_shows(void **state)
{
    (void)state;
    float x[5] = {1, INFINITY, 2, 3, 4};
    td_exact sum;
    td_exact_clear(&sum);
    td_sum_squares_blocks(x, 5, &sum);
    assert_true(isinf(td_exact_round(&sum)));
    x[3] = NAN;
    td_sum_squares_blocks(x, 5, &sum);
    assert_true(isnan(td_exact_round(&sum)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_value_comes_back),
        cmocka_unit_test(test_nothing_is_lost_between),
        cmocka_unit_test(test_rounding_is_to_nearest_even),
        cmocka_unit_test(test_infinities_and_nan),
        cmocka_unit_test(test_random_sums_are_the_nearest_double),
        cmocka_unit_test(test_any_order_and_any_pieces_give_the_same_bits),
        cmocka_unit_test(test_carries_never_overflow),
        cmocka_unit_test(test_blocks_give_the_same_bits_however_they_are_cut),
        cmocka_unit_test(test_squares_follow_the_fixed_order),
        cmocka_unit_test(test_an_overflown_gradient_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
