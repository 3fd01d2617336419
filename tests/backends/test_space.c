/* Memory spaces: what blocks of every size have in common, and that counters have their bytes and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backends/space.h"
#include "base/memory.h"

enum { N = 40, STEP = 64 };

static const size_t sizes[] = {0,     1,      63,      4096,          65535,   65536,
                               65537, 600000, 2 << 20, (2 << 20) + 1, 4 << 20, (4 << 20) + 1};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void assert_all(const char *memory, size_t bytes, char is)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != is)
            fail_msg("byte %zu of %zu is %d, not %d", i, bytes, memory[i], is);
}

/* Blocks come zeroed and aligned, keep what is theirs while others come and go, and leave nothing behind. */
static void test_blocks_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    td_space space;
    td_space_init(&space, "test", 0);
    const uint64_t before = td_memory_read().bytes_now;
    void *blocks[N];
    for (int i = 0; i < N; i++) {
        const size_t bytes = sizes[i % N_SIZES];
        assert_null(td_space_allocate(&space, bytes, &blocks[i]));
        assert_int_equal((uintptr_t)blocks[i] % STEP, 0);
        assert_all(blocks[i], bytes, 0);
        memset(blocks[i], i + 1, bytes);
    }
    for (int i = 0; i < N; i += 2)
        td_space_release(&space, blocks[i]);
    for (int i = 1; i < N; i += 2)
        assert_all(blocks[i], sizes[i % N_SIZES], (char)(i + 1));
    for (int i = 0; i < N; i += 2) {
        assert_null(td_space_allocate(&space, sizes[i % N_SIZES], &blocks[i]));
        assert_all(blocks[i], sizes[i % N_SIZES], 0);
    }
    for (int i = 0; i < N; i++)
        td_space_release(&space, blocks[i]);
    assert_int_equal(atomic_load(&space.now), 0);
    assert_int_equal(td_memory_read().bytes_now, before);
    td_space_deinit(&space);
}

/* The host counts a block's bytes and its header, wherever it lies: pages that stand ready for the next ones are nobody's. */
static void test_counters_have_the_bytes_of_blocks(void **state)
{
    (void)state;
    td_space space;
    td_space_init(&space, "test", 3 << 20);
    void *first = NULL, *second = NULL, *third = NULL;
    assert_null(td_space_allocate(&space, 1 << 20, &first));
    const uint64_t before = td_memory_read().bytes_now;
    assert_null(td_space_allocate(&space, 1500000, &second));
    assert_int_equal(td_memory_read().bytes_now - before, 1500000 + 64);
    assert_int_equal(atomic_load(&space.now), (1 << 20) + 1500000);
    td_status *status = td_space_allocate(&space, 1 << 20, &third);
    assert_int_equal(td_status_code(status), TD_OUT_OF_MEMORY);
    assert_null(third);
    td_status_destroy(status);
    td_space_release(&space, second);
    assert_int_equal(td_memory_read().bytes_now, before);
    td_space_release(&space, first);
    assert_int_equal(atomic_load(&space.peak), (1 << 20) + 1500000);
    td_space_deinit(&space);
}

/* Whatever fails, a block is whole or refused, and nothing stays counted. */
static void test_a_host_without_memory_refuses(void **state)
{
    (void)state;
    td_space space;
    td_space_init(&space, "test", 0);
    const uint64_t before = td_memory_read().bytes_now;
    int failures = 0;
    for (uint64_t n = 1; n <= 3; n++) {
        void *memory = NULL;
        td_memory_fail_after(n);
        td_status *status = td_space_allocate(&space, 100000, &memory);
        failures += td_memory_failed();
        td_memory_fail_after(0);
        assert_int_equal(status == NULL, memory != NULL);
        td_status_destroy(status);
        td_space_release(&space, memory);
        assert_int_equal(atomic_load(&space.now), 0);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
    assert_true(failures > 0);
    td_space_deinit(&space);
}

/* Layers' weights and moments are of such sizes. */
static void test_blocks_of_middle_size_lie_beside_each_other(void **state)
{
    (void)state;
    td_space space;
    void *first = NULL, *second = NULL;
    td_space_init(&space, "test", 0);
    assert_null(td_space_allocate(&space, 600000, &first));
    assert_null(td_space_allocate(&space, 600000, &second));
    const size_t page = td_page_bytes(), apart = (600000 + 64 + page - 1) / page * page;
    if (!TD_HAS_ASAN)
        assert_ptr_equal((char *)first + apart, second);
    td_space_release(&space, first);
    td_space_release(&space, second);
    td_space_deinit(&space);
}

static long long address_space_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld", &pages), 1);
    fclose(file);
    return pages * (long long)td_page_bytes();
}

/* A block that comes and goes leaves neither address space nor numbers behind, alone in its chunk or beside one that stays. */
static void test_what_comes_and_goes_leaves_nothing_behind(void **state)
{
    (void)state;
    enum { ROUNDS = 100, BYTES = 1 << 20, CHUNKS = 4 * (32 << 20) };
    td_space space;
    void *stays = NULL;
    td_space_init(&space, "test", 0);
    const uint64_t before = td_memory_read().bytes_now;
    const long long reserved = address_space_bytes();
    for (int i = 0; i < 2 * ROUNDS; i++) {
        void *memory = NULL;
        if (i == ROUNDS)
            assert_null(td_space_allocate(&space, BYTES, &stays));
        assert_null(td_space_allocate(&space, BYTES, &memory));
        assert_all(memory, BYTES, 0);
        memset(memory, i + 1, BYTES);
        td_space_release(&space, memory);
    }
    if (!TD_HAS_ASAN && !TD_HAS_TSAN)
        assert_true(address_space_bytes() - reserved < CHUNKS);
    td_space_release(&space, stays);
    assert_int_equal(td_memory_read().bytes_now, before);
    td_space_deinit(&space);
}

static void *come_and_go(void *argument)
{
    td_space *space = argument;
    for (int i = 0; i < 300; i++) {
        void *memory = NULL;
        if (td_space_allocate(space, 70000 + (size_t)i * 100, &memory))
            return "no memory";
        memset(memory, i, 70000);
        td_space_release(space, memory);
    }
    return NULL;
}

static void test_threads_share_a_space(void **state)
{
    (void)state;
    td_space space;
    pthread_t threads[3];
    td_space_init(&space, "test", 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &space), 0);
    for (int i = 0; i < 3; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(atomic_load(&space.now), 0);
    td_space_deinit(&space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_counters_have_the_bytes_of_blocks),
        cmocka_unit_test(test_a_host_without_memory_refuses),
        cmocka_unit_test(test_blocks_of_middle_size_lie_beside_each_other),
        cmocka_unit_test(test_what_comes_and_goes_leaves_nothing_behind),
        cmocka_unit_test(test_threads_share_a_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
