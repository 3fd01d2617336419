/* The keys of a hash table over more windows, and more uses, than their marks tell apart, against a model that says what is left of
 * them: random windows that are far apart, use, removal, and moves into another set as checkpoints make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/key.h"
#include "ps/key_set.h"
#include "tests/base/check.h"

enum { KEYS = 400, SLOTS = 1 << 16 };

static uint64_t random_state = 1;

static int64_t below(int64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

typedef struct model {
    td_key_policy policy;
    uint32_t unit; /* windows that are not told apart */
    bool there[KEYS];
    uint32_t used[KEYS], count[KEYS], now;
} model;

static int64_t key_of(int64_t i)
{
    return td_key_of_id(i * 7919);
}

/* Windows before this one are no longer told apart. */
static uint32_t oldest_known(const model *m, uint32_t half)
{
    return m->now < 2 * half ? 0 : m->now / half * half - half;
}

static void forget_long_ago(model *m, uint32_t half)
{
    const uint32_t oldest = oldest_known(m, half);
    for (int64_t i = 0; i < KEYS; i++)
        m->used[i] = m->used[i] < oldest ? oldest : m->used[i];
}

static bool goes_before(const model *m, int64_t a, int64_t b)
{
    if (m->policy.by_count && m->count[a] != m->count[b])
        return m->count[a] < m->count[b];
    return m->used[a] != m->used[b] ? m->used[a] < m->used[b] : key_of(a) < key_of(b);
}

static void end_window(model *m)
{
    const td_key_policy *policy = &m->policy;
    for (int64_t i = 0; i < KEYS && policy->live; i++)
        m->there[i] = m->there[i] && m->used[i] + m->unit - 1 + policy->live > m->now;
    for (int32_t p = 0; p < policy->parts && policy->capacity; p++)
        for (;;) {
            int64_t n = 0, first = -1;
            for (int64_t i = 0; i < KEYS; i++) {
                if (!m->there[i] || td_key_part(key_of(i), policy->parts) != p)
                    continue;
                n++;
                first = first < 0 || goes_before(m, i, first) ? i : first;
            }
            if (n <= policy->capacity / policy->parts)
                break;
            m->there[first] = false;
        }
}

static void name_some(model *m, td_key_set *set)
{
    int64_t slot;
    bool is_new, named[KEYS] = {false};
    for (int64_t n = below(20); n > 0; n--) {
        const int64_t i = below(3) ? below(8) : below(KEYS); /* some very often */
        if (named[i])
            continue;
        named[i] = true;
        assert_ok(td_key_set_name(set, key_of(i), m->now, &slot, &is_new));
        assert_int_equal(is_new, !m->there[i]);
        m->count[i] = m->there[i] ? m->count[i] + (m->count[i] < TD_MOST_OFTEN) : 1;
        m->used[i] = m->now / m->unit * m->unit;
        m->there[i] = true;
    }
}

static void remove_leaving(const model *m, td_key_set *set)
{
    for (;;) {
        int64_t slot;
        assert_ok(td_key_set_leaving(set, m->now, &slot));
        if (slot < 0)
            return;
        assert_true(td_key_set_remove(set, set->index.keys[slot]));
    }
}

/* As a checkpoint does: by last window and count. */
static void move(const model *m, td_key_set *set)
{
    td_key_set to;
    int64_t out;
    bool is_new;
    assert_ok(td_key_set_init(&to, &m->policy, SLOTS));
    for (int64_t slot = td_key_index_next(&set->index, 0); slot >= 0; slot = td_key_index_next(&set->index, slot + 1))
        assert_ok(td_key_set_put(&to, set->index.keys[slot], td_key_marks_used(&set->marks, slot),
                                 td_key_marks_count(&set->marks, slot), &out, &is_new));
    td_key_set_deinit(set);
    *set = to;
}

static void check(const model *m, const td_key_set *set)
{
    int64_t n = 0;
    for (int64_t i = 0; i < KEYS; i++) {
        const int64_t slot = td_key_index_find(&set->index, key_of(i));
        assert_int_equal(slot >= 0, m->there[i]);
        n += m->there[i];
        if (slot < 0)
            continue;
        assert_int_equal(td_key_marks_used(&set->marks, slot), m->used[i]);
        if (m->policy.most_count)
            assert_int_equal(td_key_marks_count(&set->marks, slot), m->count[i]);
    }
    assert_int_equal(set->index.n, n);
}

/* Of so many windows back at least, units are told apart. */
static void run_units(td_key_policy policy, uint32_t half, uint32_t unit, int64_t windows)
{
    static model m;
    td_key_set set;
    m = (model){.policy = policy, .unit = unit};
    assert_ok(td_key_set_init(&set, &policy, SLOTS));
    for (int64_t w = 0; w < windows; w++) {
        m.now += 1 + (uint32_t)(below(10) ? 0 : below((int64_t)half / 8));
        forget_long_ago(&m, half);
        name_some(&m, &set);
        end_window(&m);
        remove_leaving(&m, &set);
        if (w % 16 == 0)
            check(&m, &set);
        if (w % 100 == 99)
            move(&m, &set);
    }
    assert_true(m.now > 4 * half); /* the base has moved some times */
    check(&m, &set);
    td_key_set_deinit(&set);
}

static void run(td_key_policy policy, uint32_t half, int64_t windows)
{
    run_units(policy, half, 1, windows);
}

static void test_what_was_named_very_long_ago_counts_as_equally_long_ago(void **state)
{
    (void)state;
    run((td_key_policy){.capacity = 160, .parts = 2}, 1 << 23, 1000);
}

static void test_counts_stop_and_windows_are_told_apart_more_coarsely_where_both_are_kept(void **state)
{
    (void)state;
    run((td_key_policy){.capacity = 160, .parts = 2, .most_count = TD_MOST_OFTEN, .by_count = true}, 1 << 15, 2000);
}

static void test_time_to_live_is_exact_however_many_windows_there_were(void **state)
{
    (void)state;
    run((td_key_policy){.live = TD_FINE_WINDOWS, .parts = 1}, 1 << 23, 1000);
    run(
        (td_key_policy){
            .capacity = 300, .live = TD_COARSE_WINDOWS, .parts = 1, .most_count = TD_MOST_OFTEN, .by_count = true},
        1 << 15, 1000);
    run(
        (td_key_policy){
            .capacity = 300, .live = TD_COARSE_WINDOWS + 1, .parts = 1, .most_count = TD_MOST_OFTEN, .by_count = true},
        1 << 23, 1000);
}

static void test_keys_of_narrow_rows_stay_less_than_a_16_000th_longer_than_they_may(void **state)
{
    (void)state;
    td_key_policy policy = {.capacity = 300, .parts = 1, .most_count = TD_MOST_OFTEN, .by_count = true, .narrow = true};
    policy.live = TD_COARSE_WINDOWS;
    run_units(policy, 1 << 15, 1, 1000);
    policy.live = TD_COARSE_WINDOWS + 1;
    run_units(policy, 1 << 16, 2, 2000);
    policy.live = TD_FINE_WINDOWS;
    run_units(policy, 1 << 24, 512, 2000);
}

/* Keys whose places are the same, in an index that grows, shrinks and wraps around: none is lost, none is found that is not there. */
static void test_an_index_that_is_nearly_full_finds_what_is_there_and_nothing_else(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    static int64_t slots[MANY];
    td_key_index index;
    bool is_new;
    assert_ok(td_key_index_init(&index, SLOTS));
    for (int64_t i = 0; i < MANY; i++)
        slots[i] = TD_NO_SLOT;
    for (int64_t n = 0; n < 6 * MANY; n++) {
        const int64_t i = below(MANY);
        if (n > 3 * MANY && below(2)) {
            assert_int_equal(td_key_index_remove(&index, key_of(i)), slots[i]);
            slots[i] = TD_NO_SLOT;
            continue;
        }
        int64_t slot;
        assert_ok(td_key_index_take(&index, key_of(i), &slot, &is_new));
        assert_int_equal(is_new, slots[i] < 0);
        if (!is_new)
            assert_int_equal(slot, slots[i]);
        slots[i] = slot;
        if (n % 4096 == 0)
            assert_true(index.n * 14 <= index.n_places * 13);
    }
    for (int64_t i = 0; i < MANY; i++) {
        assert_int_equal(td_key_index_find(&index, key_of(i)), slots[i]);
        assert_int_equal(td_key_index_find(&index, key_of(MANY + i)), TD_NO_SLOT);
    }
    td_key_index_deinit(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_named_very_long_ago_counts_as_equally_long_ago),
        cmocka_unit_test(test_counts_stop_and_windows_are_told_apart_more_coarsely_where_both_are_kept),
        cmocka_unit_test(test_time_to_live_is_exact_however_many_windows_there_were),
        cmocka_unit_test(test_keys_of_narrow_rows_stay_less_than_a_16_000th_longer_than_they_may),
        cmocka_unit_test(test_an_index_that_is_nearly_full_finds_what_is_there_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
