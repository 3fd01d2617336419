/* The cache of parsed rows: it gives what reading gave, it is made again when data or settings change, and no damage to
 * it is ever believed: every single bit flip and every length is tried. */
#include "tests/data/files.h"

#include <fcntl.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/cache.h"

static const char text[] = "size,colour,good\n"
                           "1,red,yes\n2,green,no\n,blue,yes\nbad,red,yes\n4,red,no\n5,green,yes\n";

static td_dataset_options cached(const char *path)
{
    static const char *const numeric[] = {"size"};
    static const char *const categorical[] = {"colour"};
    static const td_cross crosses[] = {{"colour", "good", 50}};
    td_dataset_options options = td_dataset_defaults("csv");
    options.train = path;
    options.numeric = numeric;
    options.n_numeric = 1;
    options.categorical = categorical;
    options.n_categorical = 1;
    options.crosses = crosses;
    options.n_crosses = 1;
    options.label = "good";
    options.positive = "yes";
    options.bad_rows = 0.2;
    options.cache = own_path("cache/deep");
    return options;
}

static uint64_t hash_part(const td_dataset *dataset, td_part part, uint64_t hash)
{
    td_loader_options options = td_loader_defaults();
    options.part = part;
    td_loader *loader = NULL;
    expect_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    td_batch batch;
    bool end;
    expect_ok(source.next(source.self, &batch, &end));
    for (int32_t f = 0; f < batch.n_fields; f++) {
        const td_tensor *tensor = &batch.fields[f].tensor;
        size_t width = tensor->rank > 1 ? (size_t)tensor->dims[1] : 1;
        hash = td_hash_bytes(tensor->data, (size_t)tensor->dims[0] * width * (tensor->dtype == TD_I64 ? 8 : 4), hash);
    }
    td_loader_destroy(loader);
    return hash;
}

/* A hash over everything that can be seen of a data set but its notes. */
static uint64_t contents(const td_dataset *dataset)
{
    int32_t n;
    const td_column_counts *columns = td_dataset_describe(dataset, &n);
    uint64_t hash = hash_part(dataset, TD_PART_TEST, hash_part(dataset, TD_PART_TRAIN, 0));
    for (int32_t i = 0; i < n; i++) {
        hash = td_hash_string(columns[i].name, hash);
        hash = td_hash_bytes(&columns[i].present, sizeof columns[i] - offsetof(td_column_counts, present), hash);
    }
    td_dataset_counts counts = td_dataset_count(dataset);
    hash = td_hash_number((uint64_t)counts.rows, hash);
    hash = td_hash_number((uint64_t)counts.positive_rows, hash);
    return td_hash_number((uint64_t)counts.bad_rows, hash);
}

static td_dataset *open_it(const td_dataset_options *options, bool from_cache)
{
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(options, &dataset));
    assert_int_equal(td_dataset_count(dataset).from_cache, from_cache);
    return dataset;
}

static void test_the_second_opening_gives_what_the_first_gave(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("same.csv", text)), plain = options;
    plain.cache = NULL;
    td_dataset *read = open_it(&plain, false), *first = open_it(&options, false), *second = open_it(&options, true);
    assert_true(contents(read) == contents(first));
    assert_true(contents(read) == contents(second));
    assert_string_equal(td_dataset_note(read, 0), td_dataset_note(second, 0)); /* the malformed row */
    assert_non_null(strstr(td_dataset_note(second, 0), "same.csv:5:1: \"bad\" is not a number"));
    assert_null(td_dataset_note(second, 1));
    td_dataset_destroy(read);
    td_dataset_destroy(first);
    td_dataset_destroy(second);
}

static void test_changed_data_is_read_again_and_said_once(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("changed.csv", text));
    td_dataset_destroy(open_it(&options, false));
    char other[sizeof text];
    memcpy(other, text, sizeof text);
    memcpy(strstr(other, "4,red"), "9,red", 5); /* of the same size */
    (void)write_text("changed.csv", other);
    td_dataset *dataset = open_it(&options, false);
    assert_non_null(strstr(td_dataset_note(dataset, 0), "rebuilt, the data has changed since"));
    assert_non_null(strstr(td_dataset_note(dataset, 1), "is not a number"));
    int32_t n;
    assert_true(td_dataset_describe(dataset, &n)[0].sum == 1 + 2 + 9 + 5);
    td_dataset *again = open_it(&options, true);
    assert_true(contents(dataset) == contents(again));
    assert_null(td_dataset_note(again, 1));
    td_dataset_destroy(dataset);
    td_dataset_destroy(again);
}

static void test_other_settings_have_a_cache_of_their_own(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("settings.csv", text)), other = options;
    td_dataset_destroy(open_it(&options, false));
    other.train_share = 0.5;
    td_dataset_destroy(open_it(&other, false));
    other.min_count = 2;
    td_dataset_destroy(open_it(&other, false));
    other.positive = "no";
    td_dataset_destroy(open_it(&other, false));
    other.crosses = (const td_cross[]){{"colour", "good", 51}};
    td_dataset_destroy(open_it(&other, false));
    td_dataset_destroy(open_it(&other, true));
    td_dataset_destroy(open_it(&options, true));
}

static void test_a_missing_file_is_an_error_though_it_is_cached(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("gone.csv", text));
    td_dataset_destroy(open_it(&options, false));
    assert_int_equal(unlink(options.train), 0);
    td_dataset *dataset = NULL;
    expect_error(td_dataset_open(&options, &dataset), TD_NOT_FOUND, "gone.csv: cannot open: No such file");
}

/* Whether the cache file is taken for good. Nothing is written. */
static bool believed(td_cache *cache)
{
    td_dataset *dataset = td_calloc(1, sizeof *dataset);
    bool found;
    expect_ok(td_cache_load(cache, dataset, &found));
    assert_true(found || dataset->n_notes == 1); /* it says why */
    td_dataset_destroy(dataset);
    return found;
}

static void put_byte(int file, size_t at, char byte)
{
    assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
}

static void test_no_damage_is_believed(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("damage.csv", text));
    td_dataset *dataset = open_it(&options, false);
    uint64_t expected = contents(dataset);
    td_dataset_destroy(dataset);
    td_cache cache;
    char *bytes = NULL;
    size_t n = 0;
    expect_ok(td_cache_init(&cache, &options));
    expect_ok(td_file_read(cache.path, &bytes, &n));
    int file = open(cache.path, O_RDWR);
    assert_true(file >= 0 && believed(&cache));
    put_byte(file, n, 0);
    assert_false(believed(&cache)); /* one byte too many */
    assert_int_equal(ftruncate(file, (off_t)n), 0);
    for (size_t i = 0; i < n; i++) {
        put_byte(file, i, (char)(bytes[i] ^ (1 << i % 8)));
        assert_false(believed(&cache));
        put_byte(file, i, bytes[i]);
    }
    assert_true(believed(&cache));
    for (size_t length = n; length-- > 0;) {
        assert_int_equal(ftruncate(file, (off_t)length), 0);
        assert_false(believed(&cache));
    }
    assert_int_equal(close(file), 0);

    dataset = open_it(&options, false); /* the last damage is still there: read anew */
    assert_non_null(strstr(td_dataset_note(dataset, 0), "rebuilt, it is cut off"));
    assert_true(contents(dataset) == expected);
    td_dataset_destroy(dataset);
    dataset = open_it(&options, true);
    assert_true(contents(dataset) == expected);
    td_dataset_destroy(dataset);
    td_free(bytes);
    td_cache_deinit(&cache);
}

static void test_a_cache_that_cannot_be_written_costs_time_only(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("full.csv", text));
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        (void)remove_own_folder(NULL);
        options = cached(write_text("full.csv", text));
        td_file_fail_after(n);
        td_dataset *dataset = open_it(&options, false);
        failed = td_file_failed();
        td_file_fail_after(0);
        const char *note = td_dataset_note(dataset, 1);
        assert_true(failed == (note && strstr(note, "cache")));
        td_dataset_destroy(dataset);
    }
    options.cache = options.train; /* a file, not a folder */
    td_dataset *dataset = open_it(&options, false);
    assert_non_null(strstr(td_dataset_note(dataset, 1), "cache not written"));
    td_dataset_destroy(dataset);
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    td_dataset_options options = cached(write_text("memory.csv", text));
    uint64_t before = td_memory_read().bytes_now;
    for (int32_t there = 0; there < 2; there++) {
        bool failed = true;
        if (there) /* once: loading writes nothing */
            td_dataset_destroy(open_it(&options, false));
        for (uint64_t n = 1; failed; n++) {
            td_dataset *dataset = NULL;
            if (!there) {
                (void)remove_own_folder(NULL);
                options = cached(write_text("memory.csv", text));
            }
            td_memory_fail_after(n);
            td_status *status = td_dataset_open(&options, &dataset);
            failed = td_memory_failed();
            td_memory_fail_after(0);
            assert_int_equal(td_status_code(status), failed ? TD_OUT_OF_MEMORY : TD_OK);
            td_status_destroy(status);
            td_dataset_destroy(dataset);
            assert_int_equal(td_memory_read().bytes_now, before);
        }
        (void)remove_own_folder(NULL);
        options = cached(write_text("memory.csv", text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_second_opening_gives_what_the_first_gave),
        cmocka_unit_test(test_changed_data_is_read_again_and_said_once),
        cmocka_unit_test(test_other_settings_have_a_cache_of_their_own),
        cmocka_unit_test(test_a_missing_file_is_an_error_though_it_is_cached),
        cmocka_unit_test(test_no_damage_is_believed),
        cmocka_unit_test(test_a_cache_that_cannot_be_written_costs_time_only),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
