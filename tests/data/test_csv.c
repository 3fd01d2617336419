/* The CSV reader: quotes, line ends and byte-order marks; transforms, vocabularies, crosses; what is refused and where;
 * and the Adult census data against numbers found by another program. */
#include "tests/data/files.h"

#include <math.h>
#include <zlib.h>

#include "base/memory.h"
#include "where.h"

static td_dataset_options two_columns(const char *path)
{
    static const char *const numeric[] = {"size"};
    static const char *const categorical[] = {"colour"};
    static const td_transform none[] = {TD_TRANSFORM_NONE};
    td_dataset_options options = td_dataset_defaults("csv");
    options.train = path;
    options.train_share = 1;
    options.numeric = numeric;
    options.n_numeric = 1;
    options.categorical = categorical;
    options.n_categorical = 1;
    options.label = "good";
    options.positive = "yes";
    options.transforms = none;
    options.n_transforms = 1;
    return options;
}

static td_loader *first_batch(const td_dataset *dataset, td_part part, td_batch *out_batch)
{
    td_loader_options options = td_loader_defaults();
    options.part = part;
    options.batch = 100000;
    options.shuffle = false;
    td_loader *loader = NULL;
    bool end;
    expect_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    expect_ok(source.next(source.self, out_batch, &end));
    return loader;
}

static const td_tensor *field(const td_batch *batch, const char *name)
{
    for (int32_t i = 0; i < batch->n_fields; i++)
        if (strcmp(batch->fields[i].name, name) == 0)
            return &batch->fields[i].tensor;
    fail_msg("no field %s", name);
    return NULL;
}

/* Opens `text` and compares sizes, colours (ids from a vocabulary) and labels of all rows. */
static void expect_rows(const char *text, int64_t n, const float *sizes, const int64_t *colours, const float *labels)
{
    td_dataset_options options = two_columns(write_text("rows.csv", text));
    td_dataset *dataset = NULL;
    td_batch batch;
    expect_ok(td_dataset_open(&options, &dataset));
    td_loader *loader = first_batch(dataset, TD_PART_TRAIN, &batch);
    assert_int_equal(batch.samples, n);
    assert_memory_equal(field(&batch, "numeric")->data, sizes, sizeof *sizes * (size_t)n);
    assert_memory_equal(field(&batch, "ids")->data, colours, sizeof *colours * (size_t)n);
    assert_memory_equal(field(&batch, "ids_t0")->data, colours, sizeof *colours * (size_t)n);
    assert_memory_equal(field(&batch, "wide_ids")->data, colours, sizeof *colours * (size_t)n);
    assert_memory_equal(field(&batch, "label")->data, labels, sizeof *labels * (size_t)n);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_quotes_line_ends_and_blank_lines(void **state)
{
    (void)state;
    const float sizes[] = {1, 2.5f, -3e2f, 0};
    const int64_t colours[] = {3, 1, 2, 1};
    const float labels[] = {1, 0, 0, 1};
    /* values in byte order: "", "a\"b,\nc", red */
    static const char with_mark[] = "\xef\xbb\xbfsize,colour,good\r\n1,\"red\",yes\r\n\r\n\"2.5\",\"\",no\r\n"
                                    "-300,\"a\"\"b,\nc\",\"no\"\r\n,,\"yes\"";
    const char *const forms[] = {
        "size,colour,good\n1,red,yes\n2.5,,no\n-3e2,\"a\"\"b,\nc\",Yes\n,,yes\n",
        with_mark,
        "\xef\xbb\xbf\"size\",\"colour\",\"good\"\n\n1,red,yes\n+2.50,,no\n-300.0,\"a\"\"b,\nc\",0\n,,yes\n\n",
        "good,other,colour,size\nyes,7,red,1\nno,,,2.5\n0,\"x,y\",\"a\"\"b,\nc\",-.3e3\nyes,,,\n",
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        expect_rows(forms[i], 4, sizes, colours, labels);
}

static void test_a_label_that_is_never_positive_is_refused(void **state)
{
    (void)state;
    td_dataset_options options = two_columns(write_text("never.csv", "size,colour,good\n1,a,Yes\n2,b,No\n"));
    td_dataset *dataset = NULL;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT,
                 "no row has \"yes\" in column good, so every label would be 0");
    options.positive = "Yes";
    expect_ok(td_dataset_open(&options, &dataset));
    assert_null(td_dataset_note(dataset, 0));
    td_dataset_destroy(dataset);
}

static void test_other_delimiters_and_gzip(void **state)
{
    (void)state;
    const char *path = own_path("rows.csv.gz");
    gzFile file = gzopen(path, "wb");
    assert_true(gzputs(file, "size;colour;good\n1,5;red;yes\n") > 0);
    assert_int_equal(gzclose(file), Z_OK);
    td_dataset_options options = two_columns(path);
    options.delimiter = ';';
    td_dataset *dataset = NULL;
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, ":2:1: \"1,5\" is not a number in column size");
    options.n_numeric = 0;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_null(td_schema_find(td_dataset_schema(dataset), "numeric"));
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids")->table_rows, 2);
    td_dataset_destroy(dataset);
}

static void test_records_longer_than_the_buffer(void **state)
{
    (void)state;
    enum { LONG = 900000 };
    char *text = malloc(LONG + 200);
    assert_non_null(text);
    strcpy(text, "size,colour,good\n1,\"");
    size_t used = strlen(text);
    memset(text + used, '\n', LONG);
    strcpy(text + used + LONG, "\",yes\n2,red,no\n");
    const float sizes[] = {1, 2}, labels[] = {1, 0};
    const int64_t colours[] = {1, 2};
    expect_rows(text, 2, sizes, colours, labels);
    free(text);
}

static void test_standardised_columns_have_training_mean_0_and_deviation_1(void **state)
{
    (void)state;
    td_dataset_options options =
        two_columns(write_text("numbers.csv", "size,colour,good\n1,a,yes\n3,a,yes\n,a,yes\n5,a,yes\n7,b,no\n"));
    options.train_share = 0.8;
    options.transforms = (const td_transform[]){TD_TRANSFORM_STANDARDISE};
    td_dataset *dataset = NULL;
    td_batch batch;
    expect_ok(td_dataset_open(&options, &dataset));
    td_loader *train = first_batch(dataset, TD_PART_TRAIN, &batch);
    const float *numbers = field(&batch, "numeric")->data;
    const double deviation = sqrt(8.0 / 3); /* of 1, 3, 5 */
    assert_true(numbers[0] == (float)(-2 / deviation) && numbers[1] == 0 && numbers[2] == 0 &&
                numbers[3] == (float)(2 / deviation));
    td_loader *test = first_batch(dataset, TD_PART_TEST, &batch);
    assert_true(((float *)field(&batch, "numeric")->data)[0] == (float)(4 / deviation));
    assert_int_equal(((int64_t *)field(&batch, "ids")->data)[0], 0); /* "b" is not in the training part */
    int32_t n;
    const td_column_counts *counts = td_dataset_describe(dataset, &n);
    assert_int_equal(n, 2);
    assert_true(counts[0].mean == 3 && counts[0].deviation == deviation && counts[0].sum == 16);
    assert_int_equal(counts[0].missing, 1);
    assert_int_equal(counts[1].distinct, 2);
    td_loader_destroy(train);
    td_loader_destroy(test);
    td_dataset_destroy(dataset);
}

static void test_a_constant_column_becomes_zero(void **state)
{
    (void)state;
    td_dataset_options options = two_columns(write_text("constant.csv", "size,colour,good\n4,a,yes\n4,a,no\n"));
    options.transforms = (const td_transform[]){TD_TRANSFORM_LOG1P_STANDARDISE};
    td_dataset *dataset = NULL;
    td_batch batch;
    expect_ok(td_dataset_open(&options, &dataset));
    td_loader *loader = first_batch(dataset, TD_PART_TRAIN, &batch);
    const float *numbers = field(&batch, "numeric")->data;
    assert_true(numbers[0] == 0 && numbers[1] == 0);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_what_is_refused_and_where(void **state)
{
    (void)state;
    const struct {
        const char *text, *part;
        td_code code;
    } cases[] = {
        {"", "empty; a CSV file begins with a header", TD_DATA_ERROR},
        {"size,color,good\n", "there is no column \"colour\" (data.categorical)\n  did you mean \"color\"?",
         TD_INVALID_ARGUMENT},
        {"item.size,colour,good\n", "there is no column \"size\" (data.numeric)\n  did you mean \"item.size\"?",
         TD_INVALID_ARGUMENT},
        {"size,colour,good,size\n", "two columns \"size\" (1 and 4)", TD_DATA_ERROR},
        {"size,\"colour,good\n", ":1: a quote of the header is not closed", TD_DATA_ERROR},
        {"size,colour,good\n1,a,yes\n1,a\n", ":3: 2 columns where the header has 3; 1 bad row of 2", TD_DATA_ERROR},
        {"size,colour,good\n\n1,\"a\nb\",yes\n1,a,b,c\n", ":5: 4 columns where", TD_DATA_ERROR},
        {"size,colour,good\n1,\"a\"b,yes\n", ":2: a quote is not closed or is followed by text", TD_DATA_ERROR},
        {"size,colour,good\n1,\"a,yes\n2,b,no\n", ":2: a quote is not closed", TD_DATA_ERROR},
        {"size,colour,good\nnan,a,yes\n", ":2:1: \"nan\" is not a number in column size", TD_DATA_ERROR},
        {"size,colour,good\n1e999,a,yes\n", ":2:1: \"1e999\" is not a number", TD_DATA_ERROR},
        {"size,colour,good\n0x10,a,yes\n", ":2:1: \"0x10\" is not a number", TD_DATA_ERROR},
        {"size,colour,good\n 1,a,yes\n", ":2:1: \" 1\" is not a number", TD_DATA_ERROR},
        {"size,colour,good\n-,a,yes\n", ":2:1: \"-\" is not a number", TD_DATA_ERROR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        td_dataset_options options = two_columns(write_text("refused.csv", cases[i].text));
        td_dataset *dataset = NULL;
        expect_error(td_dataset_open(&options, &dataset), cases[i].code, cases[i].part);
    }
}

static void test_after_an_open_quote_reading_goes_on_at_the_next_line(void **state)
{
    (void)state;
    td_dataset_options options = two_columns(write_text("open.csv", "size,colour,good\n1,\"a,yes\n2,b,no\n3,c,yes\n"));
    options.bad_rows = 0.4;
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_int_equal(td_dataset_count(dataset).bad_rows, 1);
    assert_int_equal(td_dataset_count(dataset).rows, 2);
    assert_non_null(strstr(td_dataset_note(dataset, 0),
                           "open.csv:2: a quote is not closed or is followed by text; the row is left out"));
    td_dataset_destroy(dataset);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    td_dataset *dataset = NULL;
    td_dataset_options options = two_columns("never read");
    options.positive = NULL;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "data.positive");
    options = two_columns("never read");
    options.n_numeric = options.n_categorical = 0;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "csv needs columns");
    options = two_columns("never read");
    options.delimiter = '"';
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "cannot delimit");
    options = two_columns("never read");
    options.crosses = (const td_cross[]){{"colour", NULL, 5}};
    options.n_crosses = 1;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "cross 0 needs two columns");
    options = two_columns("never read");
    options.train_share = 0;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "data.train_share is 0");
    options.train_share = 1;
    options.bad_rows = -0.1;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "data.bad_rows is -0.1");
}

/* ---- Adult ------------------------------------------------------------------------------------------------------------ */

static td_dataset *open_adult(void)
{
    static const char *const numeric[] = {"age",          "fnlwgt",       "educational-num",
                                          "capital-gain", "capital-loss", "hours-per-week"};
    static const char *const categorical[] = {"workclass",    "education", "marital-status", "occupation",
                                              "relationship", "race",      "gender",         "native-country"};
    static const td_cross crosses[] = {
        {"education", "occupation", 1000}, {"gender", "occupation", 1000}, {"marital-status", "relationship", 1000}};
    td_dataset_options options = td_dataset_defaults("csv");
    options.train = TD_SOURCE_DIR "/samples/wide_deep/adult.csv.gz";
    options.numeric = numeric;
    options.n_numeric = 6;
    options.categorical = categorical;
    options.n_categorical = 8;
    options.crosses = crosses;
    options.n_crosses = 3;
    options.transforms = (const td_transform[]){TD_TRANSFORM_LOG1P_STANDARDISE};
    options.n_transforms = 1;
    options.label = "income";
    options.positive = ">50K";
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    return dataset;
}

static uint64_t hash_ids(const td_tensor *ids)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < ids->dims[0] * ids->dims[1]; i++)
        hash = hash * 1000003 + (uint64_t)((const int64_t *)ids->data)[i];
    return hash;
}

static void test_adult_has_the_reference_s_sizes(void **state)
{
    (void)state;
    td_dataset *dataset = open_adult();
    const td_schema *schema = td_dataset_schema(dataset);
    const int64_t sizes[] = {10, 17, 8, 16, 7, 6, 3, 43};
    assert_int_equal(schema->train_rows, 39073);
    assert_int_equal(schema->test_rows, 9769);
    assert_int_equal(schema->n_tables, 8);
    assert_memory_equal(td_schema_find(schema, "ids")->column_rows, sizes, sizeof sizes);
    assert_int_equal(td_schema_find(schema, "wide_ids")->table_rows, 3110);
    assert_int_equal(td_schema_find(schema, "wide_ids")->width, 11);
    assert_string_equal(td_schema_find(schema, "wide_ids")->columns[8], "education_x_occupation");
    assert_int_equal(td_dataset_count(dataset).positive_rows, 9283 + 2404);
    td_dataset_destroy(dataset);
}

static void test_adult_has_the_reference_s_ids(void **state)
{
    (void)state;
    td_dataset *dataset = open_adult();
    td_batch train, test;
    td_loader *loaders[] = {first_batch(dataset, TD_PART_TRAIN, &train), first_batch(dataset, TD_PART_TEST, &test)};
    assert_true(hash_ids(field(&train, "wide_ids")) == 0x868149f424f41ce5);
    assert_true(hash_ids(field(&test, "wide_ids")) == 0x9c892eb882862b3f);
    assert_true(hash_ids(field(&train, "ids")) == 0x95cdfcf87b291051);
    static bool used[3110];
    int32_t different = 0;
    const int64_t *ids = field(&train, "wide_ids")->data;
    for (int64_t i = 0; i < train.samples * 11; i++) {
        different += !used[ids[i]];
        used[ids[i]] = true;
    }
    assert_int_equal(different, 362);
    for (int32_t j = 0; j < 8; j++) {
        char name[16];
        (void)snprintf(name, sizeof name, "ids_t%d", j);
        for (int64_t i = 0; i < test.samples; i++)
            assert_int_equal(((int64_t *)field(&test, name)->data)[i],
                             ((int64_t *)field(&test, "ids")->data)[8 * i + j]);
    }
    td_loader_destroy(loaders[0]);
    td_loader_destroy(loaders[1]);
    td_dataset_destroy(dataset);
}

static void test_adult_has_the_reference_s_numbers(void **state)
{
    (void)state;
    const double rows[][6] = {{-1.0295818978786728, 0.5537572719464187, -1.0764898412492283, -0.29616046578644933,
                               -0.22116140400977113, 0.12723150071813408},
                              {0.12404308937376038, -0.9165152249279287, -0.25740209315513785, -0.29616046578644933,
                               -0.22116140400977113, 0.6891965789648251},
                              {0.19607704575884236, 1.3413666318366415, 1.2309290747189197, -0.29616046578644933,
                               -0.22116140400977113, 1.1502147205283508}};
    const int64_t at[] = {0, 1, 39072};
    const double test_sums[] = {-68.04955641775976, 0.7842727235393298, -81.4375478994037,
                                160.3255382003959,  13.293085342674692, 45.136778792733395};
    td_dataset *dataset = open_adult();
    td_batch train, test;
    td_loader *loaders[] = {first_batch(dataset, TD_PART_TRAIN, &train), first_batch(dataset, TD_PART_TEST, &test)};
    const float *numbers = field(&train, "numeric")->data, *test_numbers = field(&test, "numeric")->data;
    for (int32_t i = 0; i < 3; i++)
        for (int32_t j = 0; j < 6; j++)
            assert_true(fabs((double)numbers[at[i] * 6 + j] - rows[i][j]) <= 1.2e-7 * fabs(rows[i][j]));
    for (int32_t j = 0; j < 6; j++) {
        double sum = 0;
        for (int64_t i = 0; i < test.samples; i++)
            sum += (double)test_numbers[6 * i + j];
        assert_true(fabs(sum - test_sums[j]) < 1e-4);
    }
    td_loader_destroy(loaders[0]);
    td_loader_destroy(loaders[1]);
    td_dataset_destroy(dataset);
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    td_dataset_options options = two_columns(write_text("memory.csv", "size,colour,good\n1,a,yes\nx,a,yes\n"));
    options.bad_rows = 0.5;
    uint64_t before = td_memory_read().bytes_now;
    for (int32_t known = 0; known < 2; known++) {
        bool failed = true;
        options.label = known ? "good" : "god";
        for (uint64_t n = 1; failed; n++) {
            td_dataset *dataset = NULL;
            td_memory_fail_after(n);
            td_status *status = td_dataset_open(&options, &dataset);
            failed = td_memory_failed();
            td_memory_fail_after(0);
            if (known) /* else the failure may only have cost the message's trace */
                assert_int_equal(td_status_code(status), failed ? TD_OUT_OF_MEMORY : TD_OK);
            assert_true(known || status);
            td_status_destroy(status);
            td_dataset_destroy(dataset);
            assert_int_equal(td_memory_read().bytes_now, before);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quotes_line_ends_and_blank_lines),
        cmocka_unit_test(test_a_label_that_is_never_positive_is_refused),
        cmocka_unit_test(test_other_delimiters_and_gzip),
        cmocka_unit_test(test_records_longer_than_the_buffer),
        cmocka_unit_test(test_standardised_columns_have_training_mean_0_and_deviation_1),
        cmocka_unit_test(test_a_constant_column_becomes_zero),
        cmocka_unit_test(test_what_is_refused_and_where),
        cmocka_unit_test(test_after_an_open_quote_reading_goes_on_at_the_next_line),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_adult_has_the_reference_s_sizes),
        cmocka_unit_test(test_adult_has_the_reference_s_ids),
        cmocka_unit_test(test_adult_has_the_reference_s_numbers),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
