/* Files without a row, in every format: the message names the file, says so, and what to do. */
#include "tests/data/files.h"

static void expect_no_rows(td_dataset_options options, const char *part, const char *help)
{
    td_dataset *dataset = NULL;
    td_status *status = td_dataset_open(&options, &dataset);
    if (td_status_code(status) != TD_DATA_ERROR || !strstr(td_status_message(status), part) ||
        !strstr(td_status_message(status), help))
        fail_msg("%s: \"%s\" and \"%s\" are not in: %s", options.format, part, help, td_status_message(status));
    td_status_destroy(status);
}

static td_dataset_options csv(const char *train, const char *test)
{
    static const char *numeric[] = {"size"};
    td_dataset_options options = td_dataset_defaults("csv");
    options.train = train;
    options.test = test;
    options.numeric = numeric;
    options.n_numeric = 1;
    options.label = "good";
    options.positive = "yes";
    return options;
}

static void test_a_csv_file_with_its_header_line_alone(void **state)
{
    (void)state;
    const char *header = write_text("header.csv", "size,good\n"),
               *rows = write_text("rows.csv", "size,good\n1,yes\n2,no\n");
    expect_no_rows(csv(header, NULL), "header.csv: it has no rows after its header line",
                   "\n  data.train: name a file that has some");
    expect_no_rows(csv(header, rows), "header.csv: it has no rows", "data.train: name");
    expect_no_rows(csv(rows, header), "header.csv: it has no rows",
                   "data.test: name a file that has some, or leave it out");
    expect_no_rows(csv(write_text("empty.csv", ""), NULL), "empty.csv: empty; a CSV file begins with a header line",
                   "rows");
    td_dataset_options bad = csv(write_text("bad.csv", "size,good\n1\n"), NULL);
    bad.bad_rows = 1;
    expect_no_rows(bad, "bad.csv: it has no rows after its header line but bad ones: 1 bad row", "data.train: name");
}

static void test_empty_files_of_the_other_formats(void **state)
{
    (void)state;
    static const char *const formats[] = {"criteo", "ratings"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        td_dataset_options options = td_dataset_defaults(formats[i]);
        options.train = write_text("empty.tsv", "");
        expect_no_rows(options, "empty.tsv: it has no rows\n", "data.train: name a file that has some");
    }
    td_dataset_options text = td_dataset_defaults("text");
    text.train = write_text("empty.txt", "");
    expect_no_rows(text, "empty.txt: it is empty", "data.train: name a file that has some");
}

static void test_files_of_images_without_one(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("idx");
    options.train = write_text("none-images-idx3-ubyte", "");
    expect_no_rows(options, "none-images-idx3-ubyte: it is empty",
                   "data.train and data.test: name files that have some");
    options.train = write_bytes("zero-images-idx3-ubyte", "\0\0\010\003\0\0\0\0\0\0\0\034\0\0\0\034", 16);
    (void)write_bytes("zero-labels-idx1-ubyte", "\0\0\010\001\0\0\0\0", 8);
    expect_no_rows(options, "zero-images-idx3-ubyte: it has no rows", "data.train: name a file that has some");
}

/* Of the rows that there are, none may be left to train on; that is seen where there is training. */
static void test_a_file_whose_rows_are_all_for_testing_opens(void **state)
{
    (void)state;
    td_dataset_options options = csv(write_text("one.csv", "size,good\n1,yes\n"), NULL);
    td_dataset *dataset = NULL;
    td_status *status = td_dataset_open(&options, &dataset);
    assert_null(status);
    assert_int_equal(td_dataset_schema(dataset)->train_rows, 0);
    assert_int_equal(td_dataset_schema(dataset)->test_rows, 1);
    td_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_csv_file_with_its_header_line_alone),
        cmocka_unit_test(test_empty_files_of_the_other_formats),
        cmocka_unit_test(test_files_of_images_without_one),
        cmocka_unit_test(test_a_file_whose_rows_are_all_for_testing_opens),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
