/* Data files larger than memory: with a cache folder, parsed rows lie in a file, so parsing takes little memory whatever the
 * number of rows, and gives the rows that parsing in memory gives. */
#include "tests/data/files.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "tests/base/check.h"

enum { ROWS = 150000, NUMBERS = 60, RECORD_BYTES = 4 * (NUMBERS + 1) + 4 };

/* Short numbers, so that the records are larger than the text. */
static const char *write_csv(const char *name, int rows)
{
    const char *path = own_path(name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    (void)fputs("label,kind", file);
    for (int i = 0; i < NUMBERS; i++)
        (void)fprintf(file, ",n%d", i);
    for (int row = 0; row < rows; row++) {
        (void)fprintf(file, "\n%d,k%d", row % 2, row % 97);
        for (int i = 0; i < NUMBERS; i++)
            (void)fprintf(file, ",%d", (row * 7 + i * 3) % 10);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

static char names[NUMBERS][16];

static td_dataset *open_csv(const char *path, const char *cache)
{
    static const char *numeric[NUMBERS], *categorical[] = {"kind"};
    for (int i = 0; i < NUMBERS; i++) {
        (void)snprintf(names[i], sizeof names[i], "n%d", i);
        numeric[i] = names[i];
    }
    td_dataset_options options = td_dataset_defaults("csv");
    options.train = path;
    options.cache = cache;
    options.label = "label";
    options.positive = "1";
    options.numeric = numeric;
    options.n_numeric = NUMBERS;
    options.categorical = categorical;
    options.n_categorical = 1;
    td_dataset *dataset = NULL;
    assert_ok(td_dataset_open(&options, &dataset));
    return dataset;
}

static uint64_t peak_bytes(void)
{
    return td_memory_read().bytes_peak;
}

static void assert_same_rows(const td_dataset *a, const td_dataset *b)
{
    assert_int_equal(a->rows.count, b->rows.count);
    assert_int_equal(a->rows.stride, b->rows.stride);
    for (int64_t row = 0; row < a->rows.count; row++)
        assert_memory_equal(td_rows_at(&a->rows, row), td_rows_at(&b->rows, row), (size_t)a->rows.stride);
}

static void test_parsing_into_a_cache_takes_memory_for_a_chunk(void **state)
{
    (void)state;
    const char *path = write_csv("large.csv", ROWS), *cache = own_path("cache");
    td_memory_reset_peak();
    uint64_t before = peak_bytes();
    td_dataset *streamed = open_csv(path, cache);
    assert_true(peak_bytes() - before < (uint64_t)ROWS * RECORD_BYTES / 8);
    assert_non_null(streamed->rows.spill);
    td_dataset *plain = open_csv(path, NULL);
    assert_null(plain->rows.spill);
    assert_same_rows(plain, streamed);
    td_dataset_destroy(streamed);
    td_dataset *cached = open_csv(path, cache); /* and the cache that came of it is whole */
    assert_non_null(cached->rows.map);
    assert_same_rows(plain, cached);
    td_dataset_destroy(cached);
    td_dataset_destroy(plain);
}

/* Every operation on a file fails once, as on a full disk: the rows are there all the same, and a note says what was not done. */
static void test_a_full_disk_is_a_note(void **state)
{
    (void)state;
    char path[512]; /* own_path's answers do not stay */
    (void)snprintf(path, sizeof path, "%s", write_csv("small.csv", 500));
    td_dataset *plain = open_csv(path, NULL);
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        char name[32];
        (void)snprintf(name, sizeof name, "cache-%d", (int)n);
        td_dataset_options options = td_dataset_defaults("csv");
        static const char *categorical[] = {"kind"};
        options.train = path;
        options.cache = own_path(name);
        options.label = "label";
        options.positive = "1";
        options.categorical = categorical;
        options.n_categorical = 1;
        td_dataset *dataset = NULL;
        td_file_fail_after(n);
        td_status *status = td_dataset_open(&options, &dataset);
        failed = td_file_failed();
        td_file_fail_after(0);
        assert_ok(status);
        assert_int_equal(td_dataset_schema(dataset)->train_rows, td_dataset_schema(plain)->train_rows);
        const char *note = td_dataset_note(dataset, 0);
        assert_true(failed == (note && strstr(note, "cache")));
        td_dataset_destroy(dataset);
    }
    td_dataset_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsing_into_a_cache_takes_memory_for_a_chunk),
        cmocka_unit_test(test_a_full_disk_is_a_note),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
