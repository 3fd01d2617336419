/* Keys of hash tables: a bijection that spreads any ids, and the grouping of equal keys. */
#include "tests/base/check.h"

#include <stdlib.h>

#include "base/dedup.h"
#include "base/key.h"

enum { MOST = 4000 };

static uint64_t random_state = 7;

static int64_t below(int64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

static void test_every_id_has_a_key_of_its_own_and_comes_back(void **state)
{
    (void)state;
    static const int64_t ids[] = {0, 1, -1, INT64_MAX, INT64_MIN, INT64_C(1) << 33, 12345678901234};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_int_equal(td_id_of_key(td_key_of_id(ids[i])), ids[i]);
        for (size_t j = 0; j < i; j++)
            assert_true(td_key_of_id(ids[i]) != td_key_of_id(ids[j]));
    }
    for (int64_t id = -100000; id < 100000; id++)
        assert_int_equal(td_id_of_key(td_key_of_id(id * 977)), id * 977);
}

static void test_parts_are_stretches_of_keys_and_hold_about_as_many_ids_each(void **state)
{
    (void)state;
    enum { PARTS = 16, IDS = 64000 };
    int64_t counts[PARTS] = {0};
    for (int64_t id = 0; id < IDS; id++)
        counts[td_key_part(td_key_of_id(id), PARTS)]++;
    for (int32_t p = 0; p < PARTS; p++) {
        const int64_t first = td_key_part_begin(p, PARTS);
        assert_int_equal(td_key_part(first, PARTS), p);
        if (p > 0)
            assert_int_equal(td_key_part(first - 1, PARTS), p - 1);
        assert_true(counts[p] > IDS / PARTS * 9 / 10 && counts[p] < IDS / PARTS * 11 / 10);
    }
    assert_int_equal(td_key_part_begin(0, PARTS), INT64_MIN);
    assert_int_equal(td_key_part(INT64_MAX, PARTS), PARTS - 1);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Against sorting; some keys are next to each other, and at both ends of all numbers. */
static void test_equal_keys_share_a_place_and_distinct_ones_ascend(void **state)
{
    (void)state;
    static int64_t keys[MOST], sorted[MOST], out[MOST], places[MOST];
    static int64_t scratch[5 * (MOST + 1)];
    for (int64_t round = 0; round < 300; round++) {
        const int64_t n = round ? below(round < 150 ? 12 : MOST) : 0, range = 1 + below(2 * MOST);
        for (int64_t i = 0; i < n; i++) {
            keys[i] = td_key_of_id(below(range) - range / 2);
            if (below(8) == 0)
                keys[i] = (below(2) ? INT64_MAX - 3 : INT64_MIN) + below(4);
            sorted[i] = keys[i];
        }
        assert_true(td_dedup_scratch_bytes(n) <= sizeof scratch);
        const int64_t found = td_dedup_keys(keys, n, scratch, out, places);
        qsort(sorted, (size_t)n, sizeof *sorted, compare);
        int64_t distinct = 0;
        for (int64_t i = 0; i < n; i++)
            if (i == 0 || sorted[i] != sorted[i - 1])
                assert_int_equal(out[distinct++], sorted[i]);
        assert_int_equal(found, distinct);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(out[places[i]], keys[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_id_has_a_key_of_its_own_and_comes_back),
        cmocka_unit_test(test_parts_are_stretches_of_keys_and_hold_about_as_many_ids_each),
        cmocka_unit_test(test_equal_keys_share_a_place_and_distinct_ones_ascend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
