/* Memory that several processes map: made, found by process and file number, refused where it cannot be mapped. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/large_pages.h"
#include "base/shared_memory.h"
#include "tests/base/check.h"

static void test_what_one_writes_the_other_reads(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, TD_LARGE_PAGE_BYTES, TD_LARGE_PAGE_BYTES + 1};
    const uint64_t before = td_memory_read().bytes_now;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        td_shared_memory mine, theirs;
        assert_ok(td_shared_memory_create(sizes[i], &mine));
        assert_true(mine.bytes >= sizes[i]);
        assert_ok(td_shared_memory_map(getpid(), mine.file, sizes[i], &theirs));
        assert_ptr_not_equal(mine.base, theirs.base);
        ((char *)mine.base)[sizes[i] - 1] = 7;
        assert_int_equal(((char *)theirs.base)[sizes[i] - 1], 7);
        td_shared_memory_close(&mine); /* the other keeps it */
        assert_int_equal(((char *)theirs.base)[sizes[i] - 1], 7);
        td_shared_memory_close(&theirs);
        td_shared_memory_close(&theirs);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
}

static void test_a_file_that_is_shorter_or_not_there_is_refused(void **state)
{
    (void)state;
    td_shared_memory mine, theirs;
    assert_ok(td_shared_memory_create(100, &mine));
    assert_error(td_shared_memory_map(getpid(), mine.file, 101, &theirs), TD_IO, "less than 101 bytes");
    assert_null(theirs.base);
    const int file = mine.file;
    td_shared_memory_close(&mine);
    assert_error(td_shared_memory_map(getpid(), file, 100, &theirs), TD_IO, "cannot map memory of process");
    assert_null(theirs.base);
}

static long address_space_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    (void)fclose(file);
    return pages;
}

/* A sealed file may be opened, but not mapped to write. */
static void test_a_refused_mapping_takes_no_address_space(void **state)
{
    (void)state;
    enum { TRIES = 8 };
    const size_t bytes = (size_t)1 << 30;
    const int file = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    td_shared_memory theirs;
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)bytes), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0);
    const long before = address_space_pages();
    for (int i = 0; i < TRIES; i++) {
        assert_error(td_shared_memory_map(getpid(), file, bytes, &theirs), TD_OUT_OF_MEMORY, "processes share");
        assert_null(theirs.base);
    }
    assert_true(address_space_pages() - before < (long)(bytes / td_page_bytes()));
    (void)close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_writes_the_other_reads),
        cmocka_unit_test(test_a_file_that_is_shorter_or_not_there_is_refused),
        cmocka_unit_test(test_a_refused_mapping_takes_no_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
