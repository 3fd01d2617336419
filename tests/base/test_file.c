/* Files appear whole or not at all: every single operation fails once. */
#include "tests/base/check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "tests/base/folder.h"

static void check_content(const char *path, const char *wanted)
{
    char *data = NULL;
    size_t bytes = 0;
    assert_ok(td_file_read(path, &data, &bytes));
    assert_int_equal(bytes, strlen(wanted));
    assert_string_equal(data, wanted);
    td_free(data);
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    folder f = make_folder();
    const char *path = in_folder(&f, "a.txt");
    assert_false(td_file_exists(path));
    assert_ok(td_file_write(path, "first", 5));
    check_content(path, "first");
    assert_ok(td_file_write(path, "", 0));
    check_content(path, "");
    assert_ok(td_file_write(path, "second, and longer", 18));
    check_content(path, "second, and longer");
    assert_true(td_file_exists(path));
    assert_int_equal(count_in_folder(&f), 1); /* no temporary file is left */
    struct stat info;
    mode_t mask = umask(0);
    (void)umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask); /* the mode of any new file */
    remove_folder(&f);
}

static void test_pieces_in_any_order(void **state)
{
    (void)state;
    folder f = make_folder();
    td_file_writer *writer = NULL;
    const char *path = in_folder(&f, "a.bin");
    assert_ok(td_file_writer_open(path, &writer));
    assert_ok(td_file_writer_write_at(writer, 6, "ghi", 3));
    assert_ok(td_file_writer_append(writer, "j", 1));
    assert_ok(td_file_writer_write_at(writer, 0, "abcdef", 6));
    assert_ok(td_file_writer_append(writer, "k", 1));
    assert_false(td_file_exists(path)); /* not before it is complete */
    assert_ok(td_file_writer_commit(writer));
    check_content(path, "abcdefghijk");
    remove_folder(&f);
}

static void test_discard_leaves_nothing(void **state)
{
    (void)state;
    folder f = make_folder();
    td_file_writer *writer = NULL;
    assert_ok(td_file_writer_open(in_folder(&f, "a.bin"), &writer));
    assert_ok(td_file_writer_append(writer, "abc", 3));
    td_file_writer_discard(writer);
    td_file_writer_discard(NULL);
    assert_int_equal(count_in_folder(&f), 0);
    remove_folder(&f);
}

/* With the n-th operation failing, for all n: an error, the old content (or the new, whole, when only making the rename
 * durable failed), and no temporary file. */
static void test_every_single_failure_leaves_old_or_new(void **state)
{
    (void)state;
    folder f = make_folder();
    const char *path = in_folder(&f, "a.txt");
    assert_ok(td_file_write(path, "old", 3));
    int failures = 0, still_old = 0;
    for (uint64_t n = 1;; n++) {
        td_file_fail_after(n);
        td_status *status = td_file_write(path, "new!", 4);
        bool failed = td_file_failed();
        td_file_fail_after(0);
        if (!failed) {
            assert_ok(status);
            break;
        }
        failures++;
        assert_error(status, TD_IO, "No space left on device");
        assert_int_equal(count_in_folder(&f), 1);
        char *data = NULL;
        size_t bytes = 0;
        assert_ok(td_file_read(path, &data, &bytes));
        assert_true(strcmp(data, "old") == 0 || strcmp(data, "new!") == 0);
        still_old += strcmp(data, "old") == 0;
        td_free(data);
        assert_ok(td_file_write(path, "old", 3));
    }
    assert_int_equal(failures, 7); /* create, write, sync, close, rename, open directory, sync directory */
    assert_int_equal(still_old, 5);
    remove_folder(&f);
}

typedef struct job {
    const char *path;
    char *data;
} job;

static td_status *write_and_read(void *context)
{
    job *j = context;
    size_t bytes;
    TD_TRY(td_file_write(j->path, "x", 1));
    return td_file_read(j->path, &j->data, &bytes);
}
static void drop(void *context)
{
    td_free(((job *)context)->data);
}

static void test_survives_allocation_failures(void **state)
{
    (void)state;
    folder f = make_folder();
    job j = {.path = in_folder(&f, "a.txt")};
    assert_true(assert_survives_allocation_failures(write_and_read, drop, &j) >= 5);
    assert_int_equal(count_in_folder(&f), 1);
    remove_folder(&f);
}

static void test_errors_name_the_file(void **state)
{
    (void)state;
    folder f = make_folder();
    char *data = NULL;
    size_t bytes = 1;
    assert_error(td_file_read(in_folder(&f, "missing"), &data, &bytes), TD_NOT_FOUND,
                 "/missing: cannot open: No such file");
    assert_null(data);
    assert_error(td_file_read(f.path, &data, &bytes), TD_INVALID_ARGUMENT, "cannot read: Is a directory");
    assert_error(td_file_write(in_folder(&f, "no/a"), "x", 1), TD_NOT_FOUND, "no/a: cannot create");
    uint64_t hash;
    assert_error(td_file_hash(in_folder(&f, "missing"), &hash), TD_NOT_FOUND, "missing");
    remove_folder(&f);
}

/* Files of /proc claim a size of zero. */
static void test_reads_files_without_a_size(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    assert_ok(td_file_read("/proc/self/status", &data, &bytes));
    assert_true(bytes > 100 && strlen(data) == bytes);
    assert_non_null(strstr(data, "Name:"));
    td_free(data);
}

static void test_hash_is_that_of_the_bytes(void **state)
{
    (void)state;
    folder f = make_folder();
    const size_t bytes = (size_t)3 << 20; /* more than one chunk */
    unsigned char *data = td_calloc(bytes, 1);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 1000);
    assert_ok(td_file_write(in_folder(&f, "big"), data, bytes));
    uint64_t hash = 0;
    assert_ok(td_file_hash(in_folder(&f, "big"), &hash));
    assert_true(hash == td_hash_bytes(data, bytes, 0));
    char *read = NULL;
    size_t length = 0;
    assert_ok(td_file_read(in_folder(&f, "big"), &read, &length));
    assert_int_equal(length, bytes);
    assert_memory_equal(read, data, bytes);
    td_free(read);
    td_free(data);
    remove_folder(&f);
}

static void test_directories_are_made_with_those_above(void **state)
{
    (void)state;
    folder f = make_folder();
    assert_ok(td_directory_create(in_folder(&f, "a/b/c")));
    assert_ok(td_directory_create(in_folder(&f, "a/b/c/")));
    assert_ok(td_directory_create("/"));
    assert_ok(td_file_write(in_folder(&f, "a/b/c/file"), "x", 1));
    assert_error(td_directory_create(in_folder(&f, "a/b/c/file/d")), TD_INVALID_ARGUMENT,
                 "file: cannot make directory: Not a directory");
    td_file_fail_after(1);
    assert_error(td_directory_create(in_folder(&f, "z")), TD_IO, "z: cannot make directory");
    td_file_fail_after(0);
    assert_false(td_file_exists(in_folder(&f, "z")));
    remove_folder(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_pieces_in_any_order),
        cmocka_unit_test(test_discard_leaves_nothing),
        cmocka_unit_test(test_every_single_failure_leaves_old_or_new),
        cmocka_unit_test(test_survives_allocation_failures),
        cmocka_unit_test(test_errors_name_the_file),
        cmocka_unit_test(test_reads_files_without_a_size),
        cmocka_unit_test(test_hash_is_that_of_the_bytes),
        cmocka_unit_test(test_directories_are_made_with_those_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
