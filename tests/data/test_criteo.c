/* The Criteo reader: what a row becomes, what is refused and where, and the published counts of 1,200 real rows. */
#include "tests/data/files.h"

#include "base/hash.h"
#include "base/math.h"
#include "base/memory.h"
#include "where.h"

/* 40 columns of which those given differ from "1\t" numbers and "68fd1e64" categories. */
static void put_row(char *to, size_t room, const char *label, int32_t column, const char *value)
{
    size_t used = (size_t)snprintf(to, room, "%s", column == 1 ? value : label);
    for (int32_t c = 2; c <= 40; c++)
        used += (size_t)snprintf(to + used, room - used, "\t%s", c == column ? value : c <= 14 ? "7" : "68fd1e64");
    (void)snprintf(to + used, room - used, "\n");
}

static void put(char *file, size_t room, const char *label, int32_t column, const char *value)
{
    size_t used = strlen(file);
    put_row(file + used, room - used, label, column, value);
}

static td_dataset *open_hashed(const char *path, double share)
{
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = path;
    options.train_share = share;
    options.table_rows = (const int64_t[]){1000};
    options.n_table_rows = 1;
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    return dataset;
}

/* Reads the whole part in order, in one batch. The loader must outlive the batch. */
static td_batch whole(const td_dataset *dataset, td_part part, td_loader **out_loader)
{
    td_loader_options options = td_loader_defaults();
    options.part = part;
    options.batch = 100000;
    options.shuffle = false;
    expect_ok(td_loader_create(dataset, &options, out_loader));
    td_source source = td_loader_source(*out_loader);
    td_batch batch;
    bool end;
    expect_ok(source.next(source.self, &batch, &end));
    return batch;
}

static const void *field(const td_batch *batch, const char *name)
{
    for (int32_t i = 0; i < batch->n_fields; i++)
        if (strcmp(batch->fields[i].name, name) == 0)
            return batch->fields[i].tensor.data;
    fail_msg("no field %s", name);
    return NULL;
}

static void test_numbers_categories_and_labels_of_a_row(void **state)
{
    (void)state;
    char file[8192] = "";
    put(file, sizeof file, "1", 2, "-3");
    put(file, sizeof file, "0", 4, "");
    put(file, sizeof file, "0", 15, "");
    put(file, sizeof file, "0", 15, "deadbeef");
    td_dataset *dataset = open_hashed(write_text("row.tsv", file), 1);
    td_loader *loader;
    td_batch batch = whole(dataset, TD_PART_TRAIN, &loader);
    assert_int_equal(batch.samples, 4);
    const float *dense = field(&batch, "dense"), *label = field(&batch, "label");
    const int64_t *first = field(&batch, "ids_t0"), *last = field(&batch, "ids_t25");
    for (int32_t i = 0; i < 4 * 13; i++)
        assert_true(dense[i] == (i == 0 || i == 13 + 2 ? 0.0f : (float)td_log(8)));
    assert_true(label[0] == 1 && label[1] == 0 && label[2] == 0 && label[3] == 0);
    int64_t usual = 1 + (int64_t)(td_hash_string("68fd1e64", 0) % 999);
    assert_int_equal(first[0], usual);
    assert_int_equal(first[2], 0);
    assert_int_equal(first[3], 1 + (int64_t)(td_hash_string("deadbeef", 0) % 999));
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(last[i], usual);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_raw_numbers_on_request(void **state)
{
    (void)state;
    char file[4096] = "";
    put(file, sizeof file, "1", 2, "-3");
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = write_text("raw.tsv", file);
    options.train_share = 1;
    options.transforms = (const td_transform[]){TD_TRANSFORM_NONE};
    options.n_transforms = 1;
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    td_loader *loader;
    td_batch batch = whole(dataset, TD_PART_TRAIN, &loader);
    const float *dense = field(&batch, "dense");
    assert_true(dense[0] == -3 && dense[12] == 7);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_a_vocabulary_is_of_the_training_part_in_byte_order(void **state)
{
    (void)state;
    char file[65536] = "";
    const char *values[] = {"ff", "0a", "ff", "", "0b", "0a", "ff", "ff", /* test part: */ "0b", "77"};
    for (int32_t i = 0; i < 10; i++)
        put(file, sizeof file, "0", 15, values[i]);
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = write_text("vocabulary.tsv", file);
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    const td_schema *schema = td_dataset_schema(dataset);
    assert_int_equal(schema->train_rows, 8);
    assert_int_equal(schema->test_rows, 2);
    assert_int_equal(td_schema_find(schema, "ids_t0")->table_rows, 5); /* unknown, "", 0a, 0b, ff */
    assert_int_equal(td_schema_find(schema, "ids_t1")->table_rows, 2);
    td_loader *train, *test;
    td_batch batch = whole(dataset, TD_PART_TRAIN, &train);
    const int64_t expected[] = {4, 2, 4, 1, 3, 2, 4, 4};
    assert_memory_equal(field(&batch, "ids_t0"), expected, sizeof expected);
    batch = whole(dataset, TD_PART_TEST, &test);
    assert_int_equal(((const int64_t *)field(&batch, "ids_t0"))[0], 3);
    assert_int_equal(((const int64_t *)field(&batch, "ids_t0"))[1], 0);
    td_loader_destroy(train);
    td_loader_destroy(test);
    td_dataset_destroy(dataset);

    options.min_count = 2;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids_t0")->table_rows, 3); /* unknown, 0a, ff */
    td_dataset_destroy(dataset);
}

static void test_a_test_file_of_its_own(void **state)
{
    (void)state;
    char train[8192] = "", test[8192] = "";
    put(train, sizeof train, "1", 0, "");
    put(train, sizeof train, "1", 0, "");
    put(test, sizeof test, "0", 0, "");
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = write_text("one.tsv", train);
    options.test = write_text("two.tsv", test);
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_int_equal(td_dataset_schema(dataset)->train_rows, 2);
    assert_int_equal(td_dataset_schema(dataset)->test_rows, 1);
    assert_int_equal(td_dataset_count(dataset).positive_rows, 2);
    td_dataset_destroy(dataset);
}

static void test_a_malformed_row_is_named_with_line_and_column(void **state)
{
    (void)state;
    const struct {
        int32_t column;
        const char *value, *part;
    } cases[] = {
        {7, "12a", ":3:7: \"12a\" is not an integer in column I6; 1 bad row of 3 so far, data.bad_rows allows 0"},
        {7, "1.5", ":3:7: \"1.5\" is not an integer in column I6"},
        {7, "99999999999999999999", ":3:7: \"99999999999999999999\" is not an integer"},
        {1, "2", ":3:1: label \"2\" is neither 0 nor 1"},
        {1, "", ":3:1: label \"\" is neither"},
        {15, "xyz", ":3:15: \"xyz\" is not a hex number in column C1"},
        {40, "\x01\xff", ":3:40: \"\?\?\" is not a hex number in column C26"},
        {40, "a\tb", ":3: 41 columns where a Criteo row has 40"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[8192] = "";
        put(file, sizeof file, "1", 0, "");
        put(file, sizeof file, "1", 0, "");
        put(file, sizeof file, "1", cases[i].column, cases[i].value);
        td_dataset_options options = td_dataset_defaults("criteo");
        options.train = write_text("bad.tsv", file);
        td_dataset *dataset = NULL;
        expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, cases[i].part);
        assert_null(dataset);
    }
}

static void test_bad_rows_are_left_out_and_counted_up_to_the_share(void **state)
{
    (void)state;
    static char file[1 << 20];
    file[0] = '\0';
    for (int32_t i = 0; i < 200; i++)
        put(file, sizeof file, "1", i % 20 == 0 ? 3 : 0, "x");
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = write_text("some.tsv", file);
    options.bad_rows = 0.05; /* 10 of 200: just allowed */
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_int_equal(td_dataset_count(dataset).bad_rows, 10);
    assert_int_equal(td_dataset_count(dataset).rows, 190);
    int32_t n;
    assert_int_equal(td_dataset_describe(dataset, &n)[0].present, 190); /* nothing of a bad row is counted */
    assert_non_null(strstr(td_dataset_note(dataset, 1), "some.tsv:21:3: \"x\" is not an integer in column I2"));
    assert_non_null(td_dataset_note(dataset, 4));
    assert_string_equal(td_dataset_note(dataset, 5), "5 bad rows left out besides (data.bad_rows)"); /* five are kept */
    assert_null(td_dataset_note(dataset, 6));
    td_dataset_destroy(dataset);
    options.bad_rows = 0.049;
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "10 bad rows of 200, data.bad_rows allows 0.049");
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("criteo");
    td_dataset *dataset = NULL;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "needs a file (data.train)");
    options.train = own_path("absent.tsv");
    expect_error(td_dataset_open(&options, &dataset), TD_NOT_FOUND, "absent.tsv: cannot open: No such file");
    options.train = TD_SOURCE_DIR;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "cannot read: Is a directory");
    options.train = write_bytes("cut.gz", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b", 11);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "damaged or cut off");
    options.format = "critio";
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "no format \"critio\"");
    options = td_dataset_defaults("criteo");
    options.train = write_text("empty.tsv", "");
    options.table_rows = (const int64_t[]){1};
    options.n_table_rows = 1;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "a table of 1 row;");
    options.n_table_rows = 2;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "2 table sizes for 26 categorical columns");
}

/* Counts of the 1,200 published rows, found by another parser: missing, sum, min, max; missing, distinct. */
static const int64_t numbers[13][4] = {{550, 2549, 0, 88},  {0, 149391, -2, 3472},     {276, 34338, 0, 8457},
                                       {255, 7525, 0, 87},  {53, 16872031, 0, 893008}, {294, 137848, 0, 4638},
                                       {53, 15822, 0, 825}, {1, 16390, 0, 450},        {53, 147693, 0, 5637},
                                       {550, 369, 0, 3},    {53, 2512, 0, 32},         {924, 351, 0, 98},
                                       {255, 10069, 0, 150}};
static const int64_t categories[26][2] = {{0, 62},  {0, 207},  {46, 793}, {46, 662}, {0, 24},    {147, 6}, {0, 804},
                                          {0, 29},  {0, 2},    {0, 608},  {0, 686},  {46, 763},  {0, 619}, {0, 15},
                                          {0, 588}, {46, 728}, {0, 9},    {0, 404},  {594, 147}, {594, 3}, {46, 746},
                                          {976, 5}, {0, 12},   {46, 480}, {594, 29}, {594, 371}};

static void check_counts(const td_dataset *dataset)
{
    int32_t n;
    const td_column_counts *counts = td_dataset_describe(dataset, &n);
    assert_int_equal(n, 39);
    for (int32_t i = 0; i < 13; i++) {
        assert_int_equal(counts[i].missing, numbers[i][0]);
        assert_int_equal(counts[i].present, 1200 - numbers[i][0]);
        assert_true(counts[i].sum == (double)numbers[i][1]);
        assert_true(counts[i].least == (double)numbers[i][2] && counts[i].most == (double)numbers[i][3]);
    }
    for (int32_t j = 0; j < 26; j++) {
        assert_int_equal(counts[13 + j].missing, categories[j][0]);
        assert_int_equal(counts[13 + j].distinct, categories[j][1]);
    }
    assert_string_equal(counts[12].name, "I13");
    assert_string_equal(counts[38].name, "C26");
}

static void test_published_rows_parse_to_their_counts(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = shared_data("criteo/train.tsv");
    if (!options.train)
        skip();
    td_dataset *dataset = NULL;
    for (int32_t hashed = 0; hashed < 2; hashed++) {
        options.table_rows = (const int64_t[]){hashed ? 1000 : 0};
        options.n_table_rows = 1;
        options.count_distinct = hashed;
        expect_ok(td_dataset_open(&options, &dataset));
        assert_int_equal(td_dataset_count(dataset).rows, 1200);
        assert_int_equal(td_dataset_count(dataset).positive_rows, 254);
        assert_int_equal(td_dataset_count(dataset).bad_rows, 0);
        check_counts(dataset);
        td_dataset_destroy(dataset);
    }
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    char file[8192] = "";
    put(file, sizeof file, "1", 3, "x");
    put(file, sizeof file, "1", 0, "");
    td_dataset_options options = td_dataset_defaults("criteo");
    options.train = write_text("memory.tsv", file);
    options.bad_rows = 0.5;
    uint64_t before = td_memory_read().bytes_now;
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        td_dataset *dataset = NULL;
        td_memory_fail_after(n);
        td_status *status = td_dataset_open(&options, &dataset);
        failed = td_memory_failed();
        td_memory_fail_after(0);
        assert_int_equal(td_status_code(status), failed ? TD_OUT_OF_MEMORY : TD_OK);
        td_status_destroy(status);
        td_dataset_destroy(dataset);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_categories_and_labels_of_a_row),
        cmocka_unit_test(test_raw_numbers_on_request),
        cmocka_unit_test(test_a_vocabulary_is_of_the_training_part_in_byte_order),
        cmocka_unit_test(test_a_test_file_of_its_own),
        cmocka_unit_test(test_a_malformed_row_is_named_with_line_and_column),
        cmocka_unit_test(test_bad_rows_are_left_out_and_counted_up_to_the_share),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_published_rows_parse_to_their_counts),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
