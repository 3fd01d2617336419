/* Counted memory: zeroed, aligned, overflow-checked, lazily mapped, able to fail on demand. */
#include "tests/base/check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static void test_counters_follow_every_call(void **state)
{
    (void)state;
    td_memory_counters before = td_memory_read();
    td_memory_reset_peak();
    char *a = td_calloc(10, 100);
    char *b = td_calloc_aligned(5000);
    td_memory_counters during = td_memory_read();
    assert_int_equal(during.bytes_now - before.bytes_now, 6000);
    assert_int_equal(during.allocations - before.allocations, 2);
    assert_true(during.bytes_peak >= before.bytes_now + 6000);
    td_free(b);
    a = td_realloc(a, 20, 100); /* a new block and the old one freed */
    assert_int_equal(td_memory_read().bytes_now - before.bytes_now, 2000);
    td_free(a);
    td_free(NULL);
    td_memory_counters after = td_memory_read();
    assert_int_equal(after.bytes_now, before.bytes_now);
    assert_int_equal(after.allocations - before.allocations, after.frees - before.frees);
    assert_true(after.bytes_peak >= before.bytes_now + 6000);
    td_memory_reset_peak();
    assert_int_equal(td_memory_read().bytes_peak, before.bytes_now);
}

static void test_memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4095, 100000, (size_t)5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *blocks[3] = {td_calloc(sizes[i], 1), td_calloc_aligned(sizes[i]), td_calloc(1, sizes[i])};
        for (int b = 0; b < 3; b++) {
            assert_non_null(blocks[b]);
            assert_int_equal((uintptr_t)blocks[b] % 64, 0);
            for (size_t byte = 0; byte < sizes[i]; byte++)
                assert_int_equal(blocks[b][byte], 0);
            memset(blocks[b], 0xff, sizes[i]); /* all of it may be written */
            td_free(blocks[b]);
        }
    }
}

static void test_sizes_that_overflow_give_null(void **state)
{
    (void)state;
    uint64_t before = td_memory_read().allocations;
    assert_null(td_calloc(SIZE_MAX / 2, 3));
    assert_null(td_calloc(SIZE_MAX, SIZE_MAX));
    assert_null(td_calloc(SIZE_MAX, 1));
    assert_null(td_calloc_aligned(SIZE_MAX - 10));
    char *kept = td_strdup("kept");
    assert_null(td_realloc(kept, SIZE_MAX / 2, 3));
    assert_null(td_realloc(kept, SIZE_MAX, 1));
    assert_string_equal(kept, "kept");
    td_free(kept);
    int *items = NULL;
    assert_error(TD_NEW(items, (int64_t)-1), TD_OUT_OF_MEMORY, "out of memory");
    assert_null(items);
    assert_int_equal(td_memory_read().allocations - before, 1 + 3); /* the string, and the status's parts */
}

static void test_realloc_keeps_content(void **state)
{
    (void)state;
    int32_t *items = td_realloc(NULL, 4, sizeof *items);
    for (int32_t i = 0; i < 4; i++)
        items[i] = i + 1;
    items = td_realloc(items, 1000, sizeof *items);
    assert_memory_equal(items, ((const int32_t[]){1, 2, 3, 4}), 16);
    items = td_realloc(items, 2, sizeof *items);
    assert_memory_equal(items, ((const int32_t[]){1, 2}), 8);
    td_memory_fail_after(1);
    assert_null(td_realloc(items, 8, sizeof *items));
    td_memory_fail_after(0);
    assert_memory_equal(items, ((const int32_t[]){1, 2}), 8);
    td_free(items);
}

static void test_exactly_the_chosen_allocation_fails(void **state)
{
    (void)state;
    td_memory_fail_after(3);
    void *first = td_calloc(1, 1), *second = td_strdup("x");
    assert_non_null(first);
    assert_non_null(second);
    assert_false(td_memory_failed());
    assert_null(td_calloc_aligned(8));
    assert_true(td_memory_failed());
    void *fourth = td_format("%d", 4);
    assert_non_null(fourth);
    td_memory_fail_after(1);
    assert_false(td_memory_failed()); /* starts anew */
    assert_null(td_format("%d", 5));
    td_memory_fail_after(0);
    td_free(first);
    td_free(second);
    td_free(fourth);
}

static void test_format(void **state)
{
    (void)state;
    char *text = td_format("%s-%0500d", "a", 7);
    assert_int_equal(strlen(text), 502);
    assert_string_equal(text + 500, "07");
    td_free(text);
}

static void test_grow_makes_room_for_one_more(void **state)
{
    (void)state;
    int64_t *items = NULL, capacity = 0;
    uint64_t before = td_memory_read().allocations;
    for (int64_t i = 0; i < 1000; i++) {
        assert_ok(td_grow(&items, &capacity, i, sizeof *items));
        assert_true(capacity > i);
        items[i] = i * i;
    }
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i * i);
    assert_true(td_memory_read().allocations - before < 12); /* doubles */
    td_memory_fail_after(1);
    int64_t kept = capacity;
    assert_error(td_grow(&items, &capacity, capacity, sizeof *items), TD_OUT_OF_MEMORY, "out of memory");
    td_memory_fail_after(0);
    assert_int_equal(capacity, kept);
    assert_int_equal(items[999], 999 * 999);
    td_free(items);
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    int64_t out = 0;
    assert_true(td_multiply_checked((int64_t)1 << 31, (int64_t)1 << 31, &out));
    assert_int_equal(out, (int64_t)1 << 62);
    assert_false(td_multiply_checked((int64_t)1 << 32, (int64_t)1 << 31, &out));
    assert_false(td_multiply_checked(-1, 2, &out));
    assert_false(td_multiply_checked(2, -1, &out));
    assert_true(td_multiply_checked(0, INT64_MAX, &out) && out == 0);
    assert_true(td_add_checked(INT64_MAX - 1, 1, &out) && out == INT64_MAX);
    assert_false(td_add_checked(INT64_MAX, 1, &out));
    assert_false(td_add_checked(-1, 1, &out));
}

#if !TD_HAS_ASAN && !TD_HAS_TSAN
static int64_t resident_bytes(void)
{
    long long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &size, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* A table of gibibytes costs memory only where it is touched: rows materialise one by one. */
static void test_large_memory_is_mapped_when_touched(void **state)
{
    (void)state;
    const size_t bytes = (size_t)2 << 30;
    for (int aligned = 0; aligned < 2; aligned++) {
        int64_t before = resident_bytes();
        char *table = aligned ? td_calloc_aligned(bytes) : td_calloc(bytes / 64, 64);
        if (!table)
            skip(); /* a machine that refuses to promise this much */
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(table[i * (bytes / 4)], 0);
            table[i * (bytes / 4)] = 1;
        }
        assert_true(resident_bytes() - before < (int64_t)64 << 20);
        td_free(table);
        assert_true(resident_bytes() - before < (int64_t)1 << 20);
    }
}
#endif

static void *churn(void *unused)
{
    (void)unused;
    for (int i = 0; i < 2000; i++) {
        char *text = td_format("%d", i);
        td_free(td_realloc(text, 100, 1));
    }
    return NULL;
}

static void test_counters_hold_with_several_threads(void **state)
{
    (void)state;
    td_memory_counters before = td_memory_read();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    td_memory_counters after = td_memory_read();
    assert_int_equal(after.bytes_now, before.bytes_now);
    assert_int_equal(after.allocations - before.allocations, 3 * 2 * 2000);
    assert_int_equal(after.frees - before.frees, 3 * 2 * 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_follow_every_call),
        cmocka_unit_test(test_memory_is_zeroed_and_aligned),
        cmocka_unit_test(test_sizes_that_overflow_give_null),
        cmocka_unit_test(test_realloc_keeps_content),
        cmocka_unit_test(test_exactly_the_chosen_allocation_fails),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_grow_makes_room_for_one_more),
        cmocka_unit_test(test_checked_arithmetic),
#if !TD_HAS_ASAN && !TD_HAS_TSAN
        cmocka_unit_test(test_large_memory_is_mapped_when_touched),
#endif
        cmocka_unit_test(test_counters_hold_with_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
