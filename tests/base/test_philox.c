/* Random numbers: the published answers, the promised independence of order and pieces, the right distributions, and
 * pinned values that hold on every machine. */
#include "tests/base/check.h"

#include <math.h>

#include "base/hash.h"
#include "base/math.h"
#include "base/philox.h"

/* From the Random123 distribution (kat_vectors, philox 4x32 10). */
static void test_published_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t index, update;
        uint32_t key[2], answer[4];
    } known[] = {
        {0, 0, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t bits[4];
        td_philox_block((td_philox_key){{known[i].key[0], known[i].key[1]}}, known[i].index, known[i].update, bits);
        assert_memory_equal(bits, known[i].answer, sizeof bits);
    }
}

static void test_keys_depend_on_every_part(void **state)
{
    (void)state;
    const td_philox_key keys[] = {
        td_philox_key_of(1, "initial", "table.0"), td_philox_key_of(2, "initial", "table.0"),
        td_philox_key_of(1, "dropout", "table.0"), td_philox_key_of(1, "initial", "table.1"),
        td_philox_key_of(1, "initialt", "able.0"), td_philox_key_of((uint64_t)1 << 32, "initial", "table.0"),
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&keys[i], &keys[j], sizeof *keys);
    td_philox_key again = td_philox_key_of(1, "initial", "table.0");
    assert_memory_equal(&keys[0], &again, sizeof again);
}

static void test_uniform_bounds(void **state)
{
    (void)state;
    assert_true(td_philox_uniform(0) == 0.0f && td_philox_uniform(UINT32_MAX) < 1.0f);
    assert_true(td_philox_uniform_double(0, 0) == 0.0 && td_philox_uniform_double(UINT32_MAX, UINT32_MAX) < 1.0);
    assert_true(td_philox_uniform(0x80000000u) == 0.5f && td_philox_uniform_double(0x80000000u, 0) == 0.5);
    assert_int_equal(td_philox_below(UINT32_MAX, UINT32_MAX, 7), 6);
    assert_int_equal(td_philox_below(0, UINT32_MAX, 7), 0);
    assert_int_equal(td_philox_below(0x80000000u, 0, 10), 5);
}

enum { N = 4099 };

static void test_pieces_and_order_do_not_matter(void **state)
{
    (void)state;
    td_philox_key key = td_philox_key_of(7, "initial", "w");
    const int64_t start = ((int64_t)1 << 33) + 3; /* beyond 32 bits, inside a block */
    for (int kind = TD_RANDOM_CONSTANT; kind <= TD_RANDOM_NORMAL; kind++) {
        static float whole[N], pieces[N];
        td_random_fill(whole, start, N, key, (td_random_kind)kind, -0.5, 2.0);
        for (int64_t end = N, size = 1; end > 0; size = size % 37 + 1) { /* from the back, in odd sizes */
            int64_t begin = end > size ? end - size : 0;
            td_random_fill(pieces + begin, start + begin, end - begin, key, (td_random_kind)kind, -0.5, 2.0);
            end = begin;
        }
        assert_memory_equal(whole, pieces, sizeof whole);
    }
}

typedef struct moments {
    double mean, variance, third, fourth, least, most;
} moments;

static moments measure(td_random_kind kind, double a, double b)
{
    enum { BLOCK = 1024, BLOCKS = 500 };
    moments m = {.least = INFINITY, .most = -INFINITY};
    static float x[BLOCK];
    td_philox_key key = td_philox_key_of(3, "test", "moments");
    for (int64_t block = 0; block < BLOCKS; block++) {
        td_random_fill(x, block * BLOCK, BLOCK, key, kind, a, b);
        for (int i = 0; i < BLOCK; i++) {
            double v = (double)x[i];
            m.mean += v, m.variance += v * v, m.third += v * v * v, m.fourth += v * v * v * v;
            m.least = fmin(m.least, v), m.most = fmax(m.most, v);
        }
    }
    const double n = (double)BLOCK * BLOCKS;
    m.mean /= n, m.variance /= n, m.third /= n, m.fourth /= n;
    return m;
}

/* Half a million draws of a fixed key: the tolerances are five standard errors. */
static void test_distributions(void **state)
{
    (void)state;
    moments normal = measure(TD_RANDOM_NORMAL, 0, 1);
    assert_true(fabs(normal.mean) < 0.007 && fabs(normal.variance - 1) < 0.01);
    assert_true(fabs(normal.third) < 0.03 && fabs(normal.fourth - 3) < 0.07);
    assert_true(normal.most > 4.3 && normal.least < -4.3 && normal.most < 7);
    moments uniform = measure(TD_RANDOM_UNIFORM, -1, 1);
    assert_true(fabs(uniform.mean) < 0.0041 && fabs(uniform.variance - 1.0 / 3) < 0.0021);
    assert_true(uniform.least >= -1 && uniform.most < 1 && uniform.least < -0.9999 && uniform.most > 0.9999);
    moments shifted = measure(TD_RANDOM_NORMAL, 10, 0.5);
    assert_true(fabs(shifted.mean - 10) < 0.0036 && fabs(shifted.variance - 100.25) < 0.08);
}

/* Rounding to float would reach the open end of a narrow range: of the 3 floats in it, all are drawn and no other. */
static void test_uniform_never_reaches_its_end(void **state)
{
    (void)state;
    static float x[N];
    const double a = 1.0, b = 1.0 + 3 * 0x1p-23;
    td_random_fill(x, 0, N, td_philox_key_of(5, "test", "narrow"), TD_RANDOM_UNIFORM, a, b);
    int seen[3] = {0};
    for (int i = 0; i < N; i++) {
        int step = (int)(((double)x[i] - a) * 0x1p23);
        assert_in_range(step, 0, 2);
        seen[step]++;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

static void test_normal_matches_the_library(void **state)
{
    (void)state;
    td_philox_key key = td_philox_key_of(11, "test", "normal");
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t bits[4];
        double own[2];
        td_philox_block(key, i, 9, bits);
        td_philox_normal(bits, own);
        double u = td_philox_uniform_double(bits[0], bits[1]) + 0x1p-53, v = td_philox_uniform_double(bits[2], bits[3]);
        double radius = sqrt(-2 * log(u));
        assert_true(fabs(own[0] - radius * cos(6.283185307179586 * v)) < 1e-14);
        assert_true(fabs(own[1] - radius * sin(6.283185307179586 * v)) < 1e-14);
    }
    const uint32_t extreme[4] = {0, 0, 0, 0}; /* the smallest u: the farthest number, and it is finite */
    double own[2];
    td_philox_normal(extreme, own);
    assert_true(own[0] > 8.5 && own[0] < 8.6 && own[1] == 0);
}

/* Initial values are part of the file format in all but name: a checkpoint leaves out rows never written. */
static void test_pinned_values(void **state)
{
    (void)state;
    float x[4];
    td_philox_key key = td_philox_key_of(1, "initial", "table.0.weight");
    td_random_fill(x, 0, 4, key, TD_RANDOM_UNIFORM, -0.05, 0.05);
    uint32_t uniform[4];
    memcpy(uniform, x, sizeof x);
    td_random_fill(x, 0, 4, key, TD_RANDOM_NORMAL, 0, 0.01);
    uint32_t normal[4];
    memcpy(normal, x, sizeof x);
    static const uint32_t uniform_pinned[4] = {0xbd3a321e, 0x3ce7572d, 0xbd2edf43, 0x3a508b33};
    static const uint32_t normal_pinned[4] = {0x3cb69dc4, 0x3c348a14, 0xbba6d922, 0xbc228ac4};
    assert_memory_equal(uniform, uniform_pinned, sizeof uniform);
    assert_memory_equal(normal, normal_pinned, sizeof normal);
}

/* XXH64 of "" and "abc" with seed 0, from its specification. */
static void test_hash_is_the_published_one(void **state)
{
    (void)state;
    assert_true(td_hash_string("", 0) == 0xef46db3751d8e999u);
    assert_true(td_hash_string("abc", 0) == 0x44bc2cf5ad770999u);
    assert_true(td_hash_bytes("abcd", 3, 0) == td_hash_string("abc", 0));
    assert_true(td_hash_number(0x6867666564636261u, 9) == td_hash_string("abcdefgh", 9));
    assert_true(td_hash_string("abc", 1) != td_hash_string("abc", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_answers),
        cmocka_unit_test(test_keys_depend_on_every_part),
        cmocka_unit_test(test_uniform_bounds),
        cmocka_unit_test(test_pieces_and_order_do_not_matter),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_uniform_never_reaches_its_end),
        cmocka_unit_test(test_normal_matches_the_library),
        cmocka_unit_test(test_pinned_values),
        cmocka_unit_test(test_hash_is_the_published_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
