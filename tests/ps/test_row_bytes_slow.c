/* What a row of a hash table takes beyond its numbers and its state: at most 16 bytes and 15 % of these, with every combination of
 * rules and however narrow the rows are. What a shard says of its bytes is held to that after each window, and to what has been
 * allocated: the heap's count, and the pages that are there of what was reserved.
 *
 * Ids that wait for admission have no rows, and a bound of their own. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/key.h"
#include "base/memory.h"
#include "ps/shard.h"
#include "ps/slot_bits.h"
#include "tests/base/check.h"

enum { NAMED = 100, WINDOWS = 160, CAPACITY = 12000, SHORT = 170, LONG = 40000, FEW_ROWS = 4000, MOST_REGIONS = 16 };

typedef struct width {
    const char *rule;
    td_dtype dtype;
    int64_t dim, row_and_state_bytes;
} width;

/* ---- what was allocated ---------------------------------------------------------------------------------------------------------- */

static int64_t resident(const void *base, size_t bytes)
{
    enum { MANY = 1 << 16 };
    static unsigned char there[MANY];
    const size_t page = td_page_bytes();
    int64_t pages = 0;
    for (size_t done = 0; base && done < bytes; done += MANY * page) {
        const size_t left = bytes - done, now = left < MANY * page ? left : MANY * page;
        assert_int_equal(mincore((char *)(uintptr_t)base + done, now, there), 0);
        for (size_t i = 0; i < (now + page - 1) / page; i++)
            pages += there[i] & 1;
    }
    return pages * (int64_t)page;
}

static int64_t resident_of_keys(const td_key_set *set)
{
    const size_t most = (size_t)set->index.most_slots;
    return resident(set->index.keys, most * sizeof *set->index.keys) +
           resident(set->index.taken, td_slot_bits_bytes((int64_t)most)) +
           resident(set->marks.bytes, most * (size_t)(set->marks.used_bytes + set->marks.count_bytes));
}

/* By how much it is more than the shard says, rows of free slots too. */
static int64_t unsaid(const td_shard *shard, uint64_t heap_before)
{
    int64_t rows, overhead, bytes = (int64_t)(td_memory_read().bytes_now - heap_before);
    td_shard_bytes(shard, &rows, &overhead);
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        const td_shard_array *array = &shard->arrays[a];
        bytes += resident(array->base, (size_t)(shard->most_slots * array->row_bytes)) +
                 resident(array->pages.filled, (size_t)array->pages.n * sizeof *array->pages.filled) -
                 shard->keys.index.n_slots * array->row_bytes;
    }
    return bytes + resident_of_keys(&shard->keys) + resident_of_keys(&shard->waiting) - overhead;
}

/* ---- the bounds ------------------------------------------------------------------------------------------------------------------- */

static void check_rows(const td_shard *shard, int64_t row_and_state_bytes)
{
    int64_t raw, overhead;
    td_shard_bytes(shard, &raw, &overhead);
    assert_int_equal(raw, shard->n * row_and_state_bytes);
    overhead -= td_key_set_bytes(&shard->waiting);
    /* What a window adds comes before others go. */
    const int64_t rows = shard->n + (shard->definition.hash.capacity || shard->definition.hash.live ? NAMED : 0);
    if (rows >= FEW_ROWS && (double)overhead > (16 + 0.15 * (double)row_and_state_bytes) * (double)rows)
        fail_msg("%.3f bytes a row of %lld", (double)overhead / (double)rows, (long long)row_and_state_bytes);
}

static void check_waiting(const td_shard *shard)
{
    const td_key_set *waiting = &shard->waiting;
    const bool go_again = waiting->policy.capacity || waiting->policy.live;
    if (waiting->index.n_slots < FEW_ROWS)
        return;
    const double each = (double)td_key_set_bytes(waiting) / (double)waiting->index.n_slots;
    if (each > (go_again ? 17.3 : 14))
        fail_msg("%.3f bytes an id that waits", each);
}

static void push(td_shard *shard, int64_t first)
{
    static int64_t keys[NAMED];
    static float gradients[NAMED * 8], coefficients[TD_COEFFICIENTS];
    for (int64_t i = 0; i < NAMED; i++)
        keys[i] = td_key_of_id((first + i) * INT64_C(1000003));
    assert_ok(td_shard_push(shard, keys, NAMED, gradients, coefficients));
}

static td_shard_definition define(const width *w, const td_hash_options *hash)
{
    td_shard_definition d = {
        .name = "t", .kind = TD_SHARD_HASH, .dtype = (int32_t)w->dtype, .dim = w->dim, .hash = *hash};
    const td_slot *slots = NULL;
    td_optimizer settings;
    strcpy(d.rule, w->rule);
    assert_ok(td_rule_resolve(td_rule_find(w->rule), &(td_optimizer){.name = w->rule, .lr = 0.1}, &settings));
    d.n_states = td_rule_slots(td_rule_find(w->rule), &settings, &slots);
    for (int32_t s = 0; s < d.n_states; s++) {
        strcpy(d.state_names[s], slots[s].name);
        d.state_per_row[s] = slots[s].per_row;
    }
    return d;
}

/* Ids come twice where the first time does not admit them; of those that come by chance every other row begins. */
static void fill(const width *w, const td_hash_options *hash)
{
    const td_shard_definition d = define(w, hash);
    const int64_t windows = hash->admit_probability > 0 ? 2 * WINDOWS : WINDOWS;
    const uint64_t before = td_memory_read().bytes_now;
    int64_t unsaid_at_first = 0;
    td_shard *shard = NULL;
    assert_ok(td_shard_create(&d, &shard));
    for (int64_t window = 0; window < windows; window++) {
        for (int32_t times = hash->admit_count > 1 ? 2 : 1; times > 0; times--)
            push(shard, window * NAMED);
        check_rows(shard, w->row_and_state_bytes);
        check_waiting(shard);
        if (!window)
            unsaid_at_first = unsaid(shard, before);
        else if (window % (WINDOWS / 2) == WINDOWS / 2 - 1)
            assert_true(unsaid(shard, before) <= unsaid_at_first + MOST_REGIONS * (int64_t)td_page_bytes());
    }
    assert_true(shard->n >= FEW_ROWS);
    td_shard_destroy(shard);
}

/* ---- every combination ------------------------------------------------------------------------------------------------------------- */

static const width widths[] = {
    {"sgd", TD_BF16, 1, 2}, {"sgd", TD_F32, 1, 4},   {"rowwise_adagrad", TD_BF16, 1, 6}, {"adagrad", TD_F32, 1, 8},
    {"sgd", TD_F16, 4, 8},  {"sgd", TD_BF16, 5, 10}, {"lazy_adam", TD_F32, 4, 48},
};

static void fill_all_widths(const td_hash_options *hash)
{
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        fill(&widths[w], hash);
}

static void walk_eviction(td_hash_options hash)
{
    static const int64_t lives[] = {0, SHORT, LONG};
    for (size_t l = 0; l < sizeof lives / sizeof *lives; l++) {
        hash.live = lives[l];
        hash.capacity = 0;
        fill_all_widths(&hash);
        hash.capacity = CAPACITY;
        hash.evict = TD_EVICT_LEAST_RECENT;
        fill_all_widths(&hash);
        hash.evict = TD_EVICT_LEAST_OFTEN;
        fill_all_widths(&hash);
    }
}

static void test_rows_that_begin_at_once_take_at_most_16_bytes_and_15_percent(void **state)
{
    (void)state;
    walk_eviction((td_hash_options){0});
}

static void test_rows_that_begin_by_count_take_at_most_16_bytes_and_15_percent(void **state)
{
    (void)state;
    walk_eviction((td_hash_options){.admit_count = 2});
}

static void test_rows_that_begin_by_chance_take_at_most_16_bytes_and_15_percent(void **state)
{
    (void)state;
    walk_eviction((td_hash_options){.admit_probability = 0.5});
}

static void test_rows_that_begin_by_count_and_chance_take_at_most_16_bytes_and_15_percent(void **state)
{
    (void)state;
    walk_eviction((td_hash_options){.admit_count = 2, .admit_probability = 0.5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_begin_at_once_take_at_most_16_bytes_and_15_percent),
        cmocka_unit_test(test_rows_that_begin_by_count_take_at_most_16_bytes_and_15_percent),
        cmocka_unit_test(test_rows_that_begin_by_chance_take_at_most_16_bytes_and_15_percent),
        cmocka_unit_test(test_rows_that_begin_by_count_and_chance_take_at_most_16_bytes_and_15_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
