/* The ratings reader: order, split, labels, the mask of seen users, ids outside their tables; and MovieLens-100k
 * against numbers found by another program, through a model that needs no learning. */
#include "tests/data/files.h"

#include <math.h>

#include "base/memory.h"

static const char small[] = "3\t1\t5\t100\n"
                            "1\t2\t4\t300\n"
                            "1\t1\t3\t100\n"
                            "2\t4\t4.5\t200\n"
                            "1\t1\t2\t50\n";

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

static void expect_part(const td_dataset *dataset, td_part part, int64_t n, const int64_t *users, const int64_t *movies,
                        const float *labels, const uint8_t *seen)
{
    td_batch batch;
    td_loader *loader = first_batch(dataset, part, &batch);
    assert_int_equal(batch.samples, n);
    assert_int_equal(batch.n_fields, 4);
    assert_memory_equal(batch.fields[0].tensor.data, users, (size_t)n * sizeof *users);
    assert_memory_equal(batch.fields[1].tensor.data, movies, (size_t)n * sizeof *movies);
    assert_memory_equal(batch.fields[2].tensor.data, labels, (size_t)n * sizeof *labels);
    assert_memory_equal(batch.fields[3].tensor.data, seen, (size_t)n);
    td_loader_destroy(loader);
}

static void test_rows_come_in_order_of_time_then_user_then_movie(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("ratings");
    options.train = write_text("small.tsv", small);
    options.train_share = 0.6;
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids_t0")->table_rows, 3);
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids_t1")->table_rows, 4);
    expect_part(dataset, TD_PART_TRAIN, 3, (int64_t[]){0, 0, 2}, (int64_t[]){0, 0, 0}, (float[]){0, 0, 1},
                (uint8_t[]){1, 1, 1});
    expect_part(dataset, TD_PART_TEST, 2, (int64_t[]){1, 0}, (int64_t[]){3, 1}, (float[]){1, 1}, (uint8_t[]){0, 1});
    td_dataset_destroy(dataset);
    options.least_positive = 4.5;
    options.train_share = 1;
    expect_ok(td_dataset_open(&options, &dataset));
    expect_part(dataset, TD_PART_TRAIN, 5, (int64_t[]){0, 0, 2, 1, 0}, (int64_t[]){0, 0, 0, 3, 1},
                (float[]){0, 0, 1, 1, 0}, (uint8_t[]){1, 1, 1, 1, 1});
    td_dataset_destroy(dataset);
}

static void test_ids_outside_their_tables(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("ratings");
    options.train = write_text("outside.tsv", small);
    options.table_rows = (const int64_t[]){2, 10};
    options.n_table_rows = 2;
    td_dataset *dataset = NULL;
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, ":1:1: user 3 is outside its table of 2 rows");
    options.skip_bad_ids = true;
    expect_ok(td_dataset_open(&options, &dataset));
    assert_int_equal(td_dataset_count(dataset).bad_id_rows, 1);
    assert_int_equal(td_dataset_count(dataset).rows, 4);
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids_t1")->table_rows, 10);
    td_dataset_destroy(dataset);
    options.train = write_text("zero.tsv", "0\t1\t5\t100\n");
    options.skip_bad_ids = false;
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, ":1:1: user 0 is outside");
}

static void test_malformed_rows_are_named(void **state)
{
    (void)state;
    const struct {
        const char *text, *part;
    } cases[] = {
        {"1\t2\t3\t4\n1\t2\t3\n", ":2: 3 columns where a rating has 4"},
        {"u\t2\t3\t4\n", ":1:1: user \"u\" is not an integer"},
        {"1\t2.0\t3\t4\n", ":1:2: movie \"2.0\" is not an integer"},
        {"1\t2\t\t4\n", ":1:3: rating \"\" is not a number"},
        {"1\t2\t3\tnow\n", ":1:4: time \"now\" is not an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        td_dataset_options options = td_dataset_defaults("ratings");
        options.train = write_text("bad.tsv", cases[i].text);
        td_dataset *dataset = NULL;
        expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, cases[i].part);
    }
}

/* ---- MovieLens -------------------------------------------------------------------------------------------------------- */

/* Each movie's share of positives in the training part, smoothed by five mean ratings, as a logit. */
static void movie_logits(const td_batch *train, const td_batch *test, float *out)
{
    static double good[1682], count[1682];
    const int64_t *movies = train->fields[1].tensor.data, *test_movies = test->fields[1].tensor.data;
    const float *labels = train->fields[2].tensor.data;
    double all = 0;
    for (int64_t i = 0; i < train->samples; i++) {
        count[movies[i]]++;
        good[movies[i]] += (double)labels[i];
        all += (double)labels[i];
    }
    for (int64_t i = 0; i < test->samples; i++) {
        double share = (good[test_movies[i]] + 5 * all / (double)train->samples) / (count[test_movies[i]] + 5);
        out[i] = (float)log(share / (1 - share));
    }
}

static void expect_metric(const char *name, const float *logits, const td_batch *test, const uint8_t *mask,
                          double expected)
{
    td_metric *metric = NULL;
    double value;
    expect_ok(td_metric_create(name, &metric));
    expect_ok(td_metric_add(metric, logits, test->fields[2].tensor.data, mask, test->samples));
    expect_ok(td_metric_finish(metric, &value));
    if (fabs(value - expected) > 6e-6)
        print_error("%s: %.7f, expected %.5f\n", name, value, expected);
    assert_true(fabs(value - expected) <= 6e-6); /* expected values are rounded to five digits */
    td_metric_destroy(metric);
}

static void test_movielens_has_the_reference_s_split_and_scores(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("ratings");
    options.train = shared_data("movielens-100k/ratings.tsv");
    if (!options.train)
        skip();
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    const td_schema *schema = td_dataset_schema(dataset);
    assert_int_equal(td_schema_find(schema, "ids_t0")->table_rows, 943);
    assert_int_equal(td_schema_find(schema, "ids_t1")->table_rows, 1682);
    td_batch train, test;
    td_loader *loaders[] = {first_batch(dataset, TD_PART_TRAIN, &train), first_batch(dataset, TD_PART_TEST, &test)};
    assert_int_equal(train.samples, 80000);
    assert_int_equal(test.samples, 20000);
    const uint8_t *seen = test.fields[3].tensor.data;
    const float *labels = test.fields[2].tensor.data;
    int64_t unseen = 0, positive = 0;
    for (int64_t i = 0; i < test.samples; i++) {
        unseen += !seen[i];
        positive += labels[i] > 0;
    }
    assert_int_equal(unseen, 17048);
    assert_int_equal(positive, 11303);
    static float logits[20000];
    movie_logits(&train, &test, logits);
    expect_metric("auc", logits, &test, NULL, 0.6974);
    expect_metric("logloss", logits, &test, NULL, 0.62352);
    expect_metric("auc", logits, &test, seen, 0.72161);
    td_loader_destroy(loaders[0]);
    td_loader_destroy(loaders[1]);
    td_dataset_destroy(dataset);
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("ratings");
    options.train = write_text("memory.tsv", small);
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
        cmocka_unit_test(test_rows_come_in_order_of_time_then_user_then_movie),
        cmocka_unit_test(test_ids_outside_their_tables),
        cmocka_unit_test(test_malformed_rows_are_named),
        cmocka_unit_test(test_movielens_has_the_reference_s_split_and_scores),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
