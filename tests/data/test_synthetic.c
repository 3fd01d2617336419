/* The synthetic click log: rows are a function of (seed, i), whatever is asked for and by whom; ids stay inside their
 * tables and are skewed; the planted model explains the labels as well as it says. */
#include "tests/data/files.h"

#include <math.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/click_model.h"
#include "data/dataset.h"

static const int64_t tables[] = {1, 7, 1000, 100000, (int64_t)1 << 32};
enum { N_TABLES = 5, N_DENSE = 3 };

static td_dataset_options small(int64_t bag)
{
    td_dataset_options options = td_dataset_defaults("synthetic");
    options.table_rows = tables;
    options.n_table_rows = N_TABLES;
    options.synthetic.train_rows = 2000;
    options.synthetic.test_rows = 1000;
    options.synthetic.n_dense = N_DENSE;
    options.synthetic.bag = bag;
    return options;
}

static td_dataset *open_it(const td_dataset_options *options)
{
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(options, &dataset));
    return dataset;
}

static uint64_t bytes_hash(const td_tensor *tensor, uint64_t seed)
{
    int64_t elements = tensor->dims[0] * (tensor->rank > 1 ? tensor->dims[1] : 1);
    if (tensor->kind != TD_RAGGED)
        return td_hash_bytes(tensor->data, (size_t)elements * (tensor->dtype == TD_I64 ? 8 : 4), seed);
    seed = td_hash_bytes(tensor->index, (size_t)(tensor->dims[0] + 1) * 8, seed);
    return td_hash_bytes(tensor->data, (size_t)tensor->entries * 8, seed);
}

/* A hash over all batches of the training part. */
static uint64_t all_bytes(const td_dataset *dataset, int64_t batch_rows, int32_t workers)
{
    td_loader_options options = td_loader_defaults();
    options.batch = batch_rows;
    options.workers = workers;
    td_loader *loader = NULL;
    expect_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    uint64_t hash = 0;
    for (;;) {
        td_batch batch;
        bool end;
        expect_ok(source.next(source.self, &batch, &end));
        if (end)
            break;
        for (int32_t f = 0; f < batch.n_fields; f++)
            hash = bytes_hash(&batch.fields[f].tensor, hash);
        source.release(source.self, &batch);
    }
    td_loader_destroy(loader);
    return hash;
}

static void test_batches_are_the_same_for_any_number_of_workers_and_differ_by_seed(void **state)
{
    (void)state;
    for (int64_t bag = 1; bag <= 4; bag += 3) {
        td_dataset_options options = small(bag);
        td_dataset *dataset = open_it(&options), *again = open_it(&options);
        uint64_t hash = all_bytes(dataset, 64, 1);
        assert_true(hash == all_bytes(again, 64, 3));
        td_dataset_destroy(again);
        options.synthetic.seed++;
        again = open_it(&options);
        assert_true(hash != all_bytes(again, 64, 1));
        td_dataset_destroy(again);
        td_dataset_destroy(dataset);
    }
}

/* These bits must never change: results that people compare rest on them. */
static void test_the_rows_of_a_seed_are_fixed(void **state)
{
    (void)state;
    const uint64_t expected[2] = {0x1164855afa442abb, 0x4b657d713b479a35};
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        td_dataset_options options = small(ragged ? 4 : 1);
        td_dataset *dataset = open_it(&options);
        uint64_t hash = all_bytes(dataset, 100, 1);
        if (hash != expected[ragged])
            print_error("%s: 0x%016llx\n", ragged ? "bags" : "single ids", (unsigned long long)hash);
        assert_true(hash == expected[ragged]);
        td_dataset_destroy(dataset);
    }
}

static void test_a_row_alone_is_the_row_in_a_batch(void **state)
{
    (void)state;
    td_dataset_options options = small(3);
    td_dataset *dataset = open_it(&options);
    const td_click_model *model = dataset->generator;
    td_loader_options loading = td_loader_defaults();
    loading.shuffle = false;
    loading.part = TD_PART_TEST;
    td_loader *loader = NULL;
    expect_ok(td_loader_create(dataset, &loading, &loader));
    td_source source = td_loader_source(loader);
    td_batch batch;
    bool end;
    expect_ok(source.next(source.self, &batch, &end));
    for (int64_t i = 0; i < batch.samples; i++) {
        float dense[N_DENSE], label;
        int64_t ids[N_TABLES][3], offsets[N_TABLES][2] = {{0}};
        const td_click_sink sink = {.dense = dense,
                                    .ids = (int64_t *[]){ids[0], ids[1], ids[2], ids[3], ids[4]},
                                    .offsets =
                                        (int64_t *[]){offsets[0], offsets[1], offsets[2], offsets[3], offsets[4]}};
        (void)td_click_model_row(model, 2000 + i, 0, &sink, &label);
        assert_memory_equal(dense, (float *)batch.fields[0].tensor.data + i * N_DENSE, sizeof dense);
        assert_true(label == ((float *)batch.fields[N_TABLES + 1].tensor.data)[i]);
        for (int32_t t = 0; t < N_TABLES; t++) {
            const td_tensor *tensor = &batch.fields[1 + t].tensor;
            const int64_t *index = tensor->index;
            assert_int_equal(index[i + 1] - index[i], offsets[t][1]);
            assert_memory_equal(ids[t], (int64_t *)tensor->data + index[i], 8 * (size_t)offsets[t][1]);
        }
    }
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_ids_stay_inside_and_bags_have_every_length(void **state)
{
    (void)state;
    td_dataset_options options = small(3);
    td_dataset *dataset = open_it(&options);
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids_t3")->table_rows, 100000);
    assert_int_equal(td_schema_find(td_dataset_schema(dataset), "ids_t3")->width, 3);
    td_loader_options loading = td_loader_defaults();
    loading.batch = 2000;
    loading.fields = (const char *const[]){"ids_t4", "ids_t0", "ids_t3"};
    loading.n_fields = 3;
    td_loader *loader = NULL;
    expect_ok(td_loader_create(dataset, &loading, &loader));
    td_source source = td_loader_source(loader);
    td_batch batch;
    bool end;
    expect_ok(source.next(source.self, &batch, &end));
    const int64_t rows[] = {(int64_t)1 << 32, 1, 100000};
    for (int32_t f = 0; f < 3; f++) {
        const td_tensor *tensor = &batch.fields[f].tensor;
        const int64_t *index = tensor->index;
        int64_t lengths[4] = {0};
        assert_int_equal(tensor->kind, TD_RAGGED);
        assert_int_equal(index[0], 0);
        assert_int_equal(index[2000], tensor->entries);
        for (int64_t i = 0; i < 2000; i++) {
            assert_in_range(index[i + 1] - index[i], 0, 3);
            lengths[index[i + 1] - index[i]]++;
        }
        for (int32_t length = 0; length <= 3; length++)
            assert_in_range(lengths[length], 400, 600);
        for (int64_t k = 0; k < tensor->entries; k++)
            assert_true(((int64_t *)tensor->data)[k] >= 0 && ((int64_t *)tensor->data)[k] < rows[f]);
    }
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

/* How often the most frequent of 1,000 ids comes in 20,000 rows. */
static int32_t most_frequent(double skew)
{
    static int32_t counts[1000];
    int64_t id = 0, rows = 1000;
    int32_t most = 0;
    td_click_model *model = NULL;
    const td_synthetic_options options = {.n_dense = 0, .bag = 1, .skew = skew, .seed = 3};
    expect_ok(td_click_model_create(&options, 1, &rows, &model));
    memset(counts, 0, sizeof counts);
    for (int64_t row = 0; row < 20000; row++) {
        float label;
        const td_click_sink sink = {.ids = (int64_t *[]){&id}};
        (void)td_click_model_row(model, row, 0, &sink, &label);
        counts[id]++;
        most = counts[id] > most ? counts[id] : most;
    }
    td_click_model_destroy(model);
    return most;
}

static void test_skew_makes_some_ids_frequent(void **state)
{
    (void)state;
    assert_in_range(most_frequent(0), 25, 50);      /* uniform: 20 expected */
    assert_in_range(most_frequent(1), 1700, 2300);  /* an octave holds about a tenth, the first is one id */
    assert_in_range(most_frequent(2), 9500, 10500); /* half of all: the integral of x^-2 from 1 to 2 */
}

static void test_the_true_model_explains_the_labels(void **state)
{
    (void)state;
    enum { ROWS = 30000 };
    td_dataset_options options = small(1);
    options.synthetic.n_dense = 13;
    options.synthetic.train_rows = ROWS;
    td_dataset *dataset = open_it(&options);
    const td_click_model *model = dataset->generator;
    const td_click_sink nowhere = {0};
    double said = 0, clicked = 0;
    static float logits[ROWS], labels[ROWS];
    for (int64_t row = 0; row < ROWS; row++) {
        logits[row] = (float)td_click_model_row(model, row, 0, &nowhere, &labels[row]);
        said += 1 / (1 + exp(-(double)logits[row]));
        clicked += (double)labels[row];
    }
    assert_true(fabs(said - clicked) < 4 * sqrt(0.2 * ROWS)); /* four deviations */
    assert_true(clicked > 0.2 * ROWS && clicked < 0.3 * ROWS);
    td_metric *metric = NULL;
    double expected, found;
    expect_ok(td_metric_create("auc", &metric));
    expect_ok(td_metric_add(metric, logits, labels, NULL, ROWS));
    expect_ok(td_metric_finish(metric, &expected));
    td_metric_destroy(metric);
    expect_ok(td_dataset_true_auc(dataset, TD_PART_TRAIN, &found));
    assert_true(found == expected);
    assert_true(found > 0.7 && found < 0.85);
    td_dataset_destroy(dataset);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    td_dataset *dataset = NULL;
    td_dataset_options options = small(1);
    options.n_table_rows = 0;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "at least one table");
    options = small(1);
    options.table_rows = (const int64_t[]){5, 0};
    options.n_table_rows = 2;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "table 1 of synthetic data has 0 rows");
    options = small(0);
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "bags of 0 ids");
    options = small(1);
    options.synthetic.skew = NAN;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "a skew of nan");
    options = small(1);
    options.synthetic.train_rows = 0;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "0 training and 1000 test rows");
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    td_dataset_options options = small(2);
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
        cmocka_unit_test(test_batches_are_the_same_for_any_number_of_workers_and_differ_by_seed),
        cmocka_unit_test(test_the_rows_of_a_seed_are_fixed),
        cmocka_unit_test(test_a_row_alone_is_the_row_in_a_batch),
        cmocka_unit_test(test_ids_stay_inside_and_bags_have_every_length),
        cmocka_unit_test(test_skew_makes_some_ids_frequent),
        cmocka_unit_test(test_the_true_model_explains_the_labels),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
