/* The loader: every row once per epoch, the same batches for any number of workers, resuming in the middle, errors in
 * their turn, and stopping at any time. */
#include "tests/data/files.h"

#include "base/memory.h"
#include "base/record.h"
#include "data/dataset.h"
#include "data/fill.h"

enum { ROWS = 103, TEST_ROWS = 20 };

/* A data set of two fields, "ids_t0" = row and "label" = row / 2, built by hand. */
static td_dataset *numbered_rows(void)
{
    td_dataset *dataset = td_calloc(1, sizeof *dataset);
    dataset->fill = td_fill_rows;
    dataset->columns = td_calloc(1, sizeof *dataset->columns);
    dataset->columns[0].table_rows = ROWS + TEST_ROWS;
    dataset->n_columns = 1;
    td_rows_init(&dataset->rows, 1, 1, ROWS);
    for (int32_t i = 0; i < ROWS + TEST_ROWS; i++) {
        unsigned char *record;
        expect_ok(td_rows_append(&dataset->rows, &record));
        td_record_set_id(&dataset->rows, record, 0, i);
        td_record_numbers(&dataset->rows, record)[0] = (float)i / 2;
    }
    dataset->schema.format = "test";
    dataset->schema.train_rows = ROWS;
    dataset->schema.test_rows = TEST_ROWS;
    expect_ok(td_dataset_add_table(dataset, 0, 0));
    expect_ok(td_dataset_add_field(
        dataset, (td_field_form){.name = "label", .role = TD_FIELD_LABEL, .rank = 2, .width = 1, .first_column = -1}));
    dataset->schema.fields = dataset->fields;
    return dataset;
}

static td_loader *load(const td_dataset *dataset, td_loader_options options)
{
    td_loader *loader = NULL;
    expect_ok(td_loader_create(dataset, &options, &loader));
    return loader;
}

/* Takes a batch, checks what it says of itself, appends its ids to `ids`; false at the end. */
static bool take(td_loader *loader, int64_t epoch, int64_t index, int64_t samples, int64_t **ids)
{
    td_source source = td_loader_source(loader);
    td_batch batch;
    bool end;
    expect_ok(source.next(source.self, &batch, &end));
    if (end)
        return false;
    assert_int_equal(batch.epoch, epoch);
    assert_int_equal(batch.index, index);
    assert_int_equal(batch.samples, samples);
    assert_int_equal(batch.n_fields, 2);
    const td_tensor *id = &batch.fields[0].tensor, *label = &batch.fields[1].tensor;
    assert_string_equal(batch.fields[0].name, "ids_t0");
    assert_int_equal(id->rank, 1);
    assert_int_equal(id->dims[0], samples);
    assert_int_equal(label->rank, 2);
    assert_int_equal(label->dims[0], samples);
    assert_int_equal(label->dims[1], 1);
    for (int64_t i = 0; i < samples; i++) {
        int64_t row = ((int64_t *)id->data)[i];
        assert_true(((float *)label->data)[i] == (float)row / 2);
        *(*ids)++ = row;
    }
    source.release(source.self, &batch);
    return true;
}

static void test_an_epoch_has_every_row_once_and_each_epoch_its_own_order(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 10;
    options.epochs = 3;
    td_loader *loader = load(dataset, options);
    assert_int_equal(td_loader_batches(loader), 11);
    int64_t ids[3 * ROWS], *next = ids;
    for (int32_t epoch = 0; epoch < 3; epoch++)
        for (int32_t index = 0; index < 11; index++)
            assert_true(take(loader, epoch, index, index < 10 ? 10 : 3, &next));
    assert_false(take(loader, 0, 0, 0, &next));
    assert_false(take(loader, 0, 0, 0, &next));
    for (int32_t epoch = 0; epoch < 3; epoch++) {
        bool seen[ROWS] = {false};
        for (int32_t i = 0; i < ROWS; i++) {
            assert_in_range(ids[epoch * ROWS + i], 0, ROWS - 1);
            assert_false(seen[ids[epoch * ROWS + i]]);
            seen[ids[epoch * ROWS + i]] = true;
        }
    }
    assert_memory_not_equal(ids, ids + ROWS, sizeof(int64_t) * ROWS);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_in_order_and_without_the_remainder(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 8;
    options.shuffle = false;
    options.drop_remainder = true;
    options.part = TD_PART_TEST;
    td_loader *loader = load(dataset, options);
    assert_int_equal(td_loader_batches(loader), 2);
    int64_t ids[TEST_ROWS], *next = ids;
    assert_true(take(loader, 0, 0, 8, &next));
    assert_true(take(loader, 0, 1, 8, &next));
    assert_false(take(loader, 0, 0, 0, &next));
    for (int32_t i = 0; i < 16; i++)
        assert_int_equal(ids[i], ROWS + i);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

/* Reads batches first .. first + count - 1 of an endless run; returns how many ids they have. */
static int64_t read_all(const td_dataset *dataset, td_loader_options options, int64_t first, int64_t count,
                        int64_t *ids)
{
    const int64_t *begin = ids;
    td_loader *loader = load(dataset, options);
    for (int64_t k = first; k < first + count; k++)
        assert_true(take(loader, k / 15, k % 15, k % 15 < 14 ? 7 : 5, &ids));
    td_loader_destroy(loader);
    return ids - begin;
}

static void test_batches_do_not_depend_on_workers_or_where_a_run_began(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 7;
    options.epochs = 0;
    options.seed = 5;
    int64_t one[4 * ROWS], other[4 * ROWS];
    read_all(dataset, options, 0, 60, one);
    options.workers = 3;
    options.depth = 4;
    read_all(dataset, options, 0, 60, other);
    assert_memory_equal(one, other, sizeof one);
    for (int64_t begin = 0; begin <= 30; begin += 5) {
        options.start_epoch = begin / 15;
        options.start_batch = begin % 15;
        int64_t n = read_all(dataset, options, begin, 10, other);
        assert_memory_equal(other, one + begin / 15 * ROWS + begin % 15 * 7, sizeof(int64_t) * (size_t)n);
        if (begin % 15 == 0)
            continue;
        options.start_batch = 15; /* "one after the last" is the next epoch's first */
        n = read_all(dataset, options, begin / 15 * 15 + 15, 10, other);
        assert_memory_equal(other, one + (begin / 15 + 1) * ROWS, sizeof(int64_t) * (size_t)n);
    }
    td_dataset_destroy(dataset);
}

/* Which batches are asked about, and that they come in order. */
typedef struct asked {
    int64_t n, batches;
} asked;

static bool wants_every_third(void *context, int64_t epoch, int64_t index)
{
    asked *a = context;
    assert_int_equal(epoch * a->batches + index, a->n);
    return a->n++ % 3 == 0;
}

static void test_batches_that_are_not_wanted_come_in_their_turn_without_data(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    asked a = {0};
    td_loader_options options = td_loader_defaults();
    options.batch = 10;
    options.epochs = 2;
    td_loader *all = load(dataset, options);
    a.batches = td_loader_batches(all);
    options.workers = 3;
    options.wants = wants_every_third;
    options.wants_context = &a;
    td_loader *some = load(dataset, options);
    const td_source from = td_loader_source(all), of = td_loader_source(some);
    for (int64_t n = 0; n < 2 * a.batches; n++) {
        td_batch whole, batch;
        bool end;
        expect_ok(from.next(from.self, &whole, &end));
        expect_ok(of.next(of.self, &batch, &end));
        assert_int_equal(batch.samples, whole.samples);
        assert_int_equal(batch.epoch, whole.epoch);
        assert_int_equal(batch.index, whole.index);
        const td_tensor *ids = &batch.fields[0].tensor;
        assert_int_equal(ids->data != NULL, n % 3 == 0);
        if (ids->data)
            assert_memory_equal(ids->data, whole.fields[0].tensor.data, (size_t)whole.samples * sizeof(int64_t));
        from.release(from.self, &whole);
        of.release(of.self, &batch);
    }
    td_loader_destroy(some);
    td_loader_destroy(all);
    td_dataset_destroy(dataset);
}

/* How many batches recordings say were made. */
static int64_t take_fetches(void)
{
    int64_t fetches = 0;
    for (int32_t r = 0; r < TD_RECORD_RINGS; r++)
        for (td_record_span span; td_record_peek(r, &span); td_record_consume(r, &span))
            for (uint32_t i = 0; i < span.n; i++)
                fetches += td_record_kind_of(&span.records[i]) == TD_RECORD_DATA_FETCH;
    return fetches;
}

static void test_only_batches_that_are_made_are_recorded_as_made(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    asked a = {0};
    td_loader_options options = td_loader_defaults();
    options.batch = 10;
    options.wants = wants_every_third;
    options.wants_context = &a;
    assert_true(td_record_open(1 << 10));
    td_record_switch(true);
    td_loader *loader = load(dataset, options);
    const td_source source = td_loader_source(loader);
    bool end = false;
    while (!end) {
        td_batch batch;
        expect_ok(source.next(source.self, &batch, &end));
        if (!end)
            source.release(source.self, &batch);
    }
    td_loader_destroy(loader);
    td_record_switch(false);
    assert_int_equal(take_fetches(), (a.n + 2) / 3);
    td_dataset_destroy(dataset);
}

static void test_three_batches_may_be_out_and_come_back_in_any_order(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 2;
    options.depth = 4;
    options.epochs = 2;
    td_loader *loader = load(dataset, options);
    td_source source = td_loader_source(loader);
    td_batch out[3];
    int64_t seen = 0;
    bool end = false;
    while (!end) {
        int32_t n = 0;
        while (n < 3 && !end) {
            expect_ok(source.next(source.self, &out[n], &end));
            n += !end;
        }
        for (int32_t i = n - 1; i >= 0; i--) { /* still what it was, with two more taken since */
            const int64_t *ids = out[i].fields[0].tensor.data;
            const float *labels = out[i].fields[1].tensor.data;
            for (int64_t k = 0; k < out[i].samples; k++)
                assert_true(labels[k] == (float)ids[k] / 2);
            seen += out[i].samples;
            source.release(source.self, &out[i]);
        }
    }
    assert_int_equal(seen, 2 * ROWS);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_asking_for_more_than_there_is_room_for_is_an_error_and_not_a_wait(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 2;
    options.depth = 4;
    td_loader *loader = load(dataset, options);
    td_source source = td_loader_source(loader);
    td_batch out[4], more;
    bool end;
    for (int32_t i = 0; i < 4; i++)
        expect_ok(source.next(source.self, &out[i], &end));
    expect_error(source.next(source.self, &more, &end), TD_INVALID_ARGUMENT, "all 4 batches are out");
    source.release(source.self, &out[2]);
    expect_error(source.next(source.self, &more, &end), TD_INVALID_ARGUMENT, "all 4 batches are out");
    source.release(source.self, &out[0]);
    expect_ok(source.next(source.self, &more, &end));
    assert_int_equal(more.index, 4);
    td_loader_destroy(loader); /* with batches still out */
    td_dataset_destroy(dataset);
}

/* Fails for the batch that holds row 51. */
static td_status *failing_fill(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                               const int32_t *which, td_tensor *tensors)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] == 51)
            return TD_ERROR(TD_DATA_ERROR, "row 51 is bad");
    return td_fill_rows(dataset, rows, n, n_fields, which, tensors);
}

static void test_an_error_comes_out_in_its_turn_and_again(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    dataset->fill = failing_fill;
    td_loader_options options = td_loader_defaults();
    options.batch = 10;
    options.shuffle = false;
    for (options.workers = 1; options.workers <= 3; options.workers++) {
        td_loader *loader = load(dataset, options);
        td_source source = td_loader_source(loader);
        int64_t ids[ROWS], *next = ids;
        for (int32_t index = 0; index < 5; index++)
            assert_true(take(loader, 0, index, 10, &next));
        td_batch batch;
        bool end;
        expect_error(source.next(source.self, &batch, &end), TD_DATA_ERROR, "row 51 is bad");
        expect_error(source.next(source.self, &batch, &end), TD_DATA_ERROR, "row 51 is bad");
        assert_null(batch.owner);
        td_loader_destroy(loader);
    }
    td_dataset_destroy(dataset);
}

static void test_destroying_stops_workers_wherever_they_are(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 3;
    options.epochs = 0;
    options.workers = 2;
    for (int32_t taken = 0; taken < 20; taken++) {
        td_loader *loader = load(dataset, options);
        td_source source = td_loader_source(loader);
        for (int32_t i = 0; i < taken; i++) {
            td_batch batch;
            bool end;
            expect_ok(source.next(source.self, &batch, &end));
            source.release(source.self, &batch);
        }
        td_loader_destroy(loader);
    }
    td_dataset_destroy(dataset);
}

static void test_fields_are_chosen_by_name(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    td_loader_options options = td_loader_defaults();
    options.batch = 500; /* more than there are: one short batch */
    options.fields = (const char *const[]){"label"};
    options.n_fields = 1;
    td_loader *loader = load(dataset, options);
    td_source source = td_loader_source(loader);
    td_batch batch;
    bool end;
    expect_ok(source.next(source.self, &batch, &end));
    assert_int_equal(batch.n_fields, 1);
    assert_string_equal(batch.fields[0].name, "label");
    assert_int_equal(batch.samples, ROWS);
    td_loader_destroy(loader);
    options.fields = (const char *const[]){"lable"};
    expect_error(td_loader_create(dataset, &options, &loader), TD_NOT_FOUND, "no field \"lable\"");
    td_dataset_destroy(dataset);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    const td_loader_options good = td_loader_defaults();
    const struct {
        td_loader_options options;
        const char *part;
    } cases[] = {
        {{.batch = 0, .depth = 4, .workers = 1}, "data.batch is 0"},
        {{.batch = 1, .depth = 3, .workers = 1}, "depth is 3"},
        {{.batch = 1, .depth = 4, .workers = 0}, "0 workers"},
        {{.batch = 1, .depth = 4, .workers = 1, .epochs = -1}, "epochs is -1"},
        {{.batch = 200, .depth = 4, .workers = 1, .drop_remainder = true}, "no batch of 200"},
        {{.batch = 10, .depth = 4, .workers = 1, .start_batch = 12}, "no epoch 0, batch 12"},
        {{.batch = 10, .depth = 4, .workers = 1, .start_epoch = INT64_MAX}, "more than 2^63"},
    };
    td_loader *loader = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_error(td_loader_create(dataset, &cases[i].options, &loader), TD_INVALID_ARGUMENT, cases[i].part);
    expect_ok(td_loader_create(dataset, &good, &loader));
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_running_out_of_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    td_dataset *dataset = numbered_rows();
    const td_loader_options options = td_loader_defaults();
    uint64_t before = td_memory_read().bytes_now;
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        td_loader *loader = NULL;
        td_memory_fail_after(n);
        td_status *status = td_loader_create(dataset, &options, &loader);
        failed = td_memory_failed();
        td_memory_fail_after(0);
        assert_int_equal(td_status_code(status), failed ? TD_OUT_OF_MEMORY : TD_OK);
        td_status_destroy(status);
        td_loader_destroy(loader);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
    td_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_epoch_has_every_row_once_and_each_epoch_its_own_order),
        cmocka_unit_test(test_in_order_and_without_the_remainder),
        cmocka_unit_test(test_batches_do_not_depend_on_workers_or_where_a_run_began),
        cmocka_unit_test(test_batches_that_are_not_wanted_come_in_their_turn_without_data),
        cmocka_unit_test(test_only_batches_that_are_made_are_recorded_as_made),
        cmocka_unit_test(test_three_batches_may_be_out_and_come_back_in_any_order),
        cmocka_unit_test(test_asking_for_more_than_there_is_room_for_is_an_error_and_not_a_wait),
        cmocka_unit_test(test_an_error_comes_out_in_its_turn_and_again),
        cmocka_unit_test(test_destroying_stops_workers_wherever_they_are),
        cmocka_unit_test(test_fields_are_chosen_by_name),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_running_out_of_memory_is_an_error_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
