/* Readers on bytes that nobody meant: good files with bytes changed, dropped, doubled, cut off. Whatever comes back, no
 * reader crashes, errors are about the data, every row is either good or counted as bad, and ids stay inside their
 * tables. */
#include "tests/data/files.h"

#include "base/philox.h"

enum { ROUNDS = 400, ROOM = 16384 };

static uint32_t draw(uint64_t round, uint64_t index)
{
    uint32_t bits[4];
    td_philox_block(td_philox_key_of(20, "fuzz", ""), round, index, bits);
    return bits[0];
}

/* Changes up to eight places of bytes[0, n); returns the new length. */
static size_t spoil(char *bytes, size_t n, uint64_t round)
{
    static const char likely[] = "\"\",\t\n\r\n0-+.e\xef\xbb\xbf\xff\x1f\x8b";
    for (uint32_t k = 0; k < 1 + draw(round, 0) % 8 && n > 4; k++) {
        uint32_t what = draw(round, 4 * k + 1) % 5;
        size_t at = draw(round, 4 * k + 2) % n, span = 1 + draw(round, 4 * k + 3) % 60;
        span = at + span > n ? n - at : span;
        if (what == 0) {
            bytes[at] = (char)draw(round, 4 * k + 4);
        } else if (what == 1) {
            bytes[at] = likely[draw(round, 4 * k + 4) % (sizeof likely - 1)];
        } else if (what == 2) {
            memmove(bytes + at, bytes + at + span, n - at - span);
            n -= span;
        } else if (what == 3 && n + span < ROOM) {
            memmove(bytes + at + span, bytes + at, n - at);
            n += span;
        } else if (draw(round, 4 * k + 4) % 8 == 0) {
            n = at;
        }
    }
    return n;
}

static void check_ids(const td_field *field, const td_schema *schema)
{
    const td_schema_field *about = td_schema_find(schema, field->name);
    if (about->role != TD_FIELD_IDS)
        return;
    for (int64_t i = 0; i < field->tensor.dims[0] * about->width; i++) {
        int64_t id = ((const int64_t *)field->tensor.data)[i];
        assert_true(id >= 0 && id < about->table_rows);
    }
}

static void read_all(const td_dataset *dataset, td_part part)
{
    const td_schema *schema = td_dataset_schema(dataset);
    td_loader_options options = td_loader_defaults();
    options.part = part;
    td_loader *loader = NULL;
    if ((part == TD_PART_TRAIN ? schema->train_rows : schema->test_rows) == 0)
        return;
    expect_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    for (;;) {
        td_batch batch;
        bool end;
        expect_ok(source.next(source.self, &batch, &end));
        if (end)
            break;
        for (int32_t f = 0; f < batch.n_fields; f++)
            check_ids(&batch.fields[f], schema);
        source.release(source.self, &batch);
    }
    td_loader_destroy(loader);
}

static void try_rounds(td_dataset_options options, const char *good)
{
    static char bytes[ROOM];
    int32_t opened = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t n = strlen(good);
        memcpy(bytes, good, n);
        n = spoil(bytes, n, round);
        options.train = write_bytes("fuzz", bytes, n);
        options.n_table_rows = (int32_t)(round % 2);
        td_dataset *dataset = NULL;
        td_status *status = td_dataset_open(&options, &dataset);
        td_code code = td_status_code(status);
        if (code != TD_OK && code != TD_DATA_ERROR &&
            code != TD_INVALID_ARGUMENT) /* the latter: a header without a column */
            print_error("round %llu: %s\n", (unsigned long long)round, td_status_message(status));
        assert_true(code == TD_OK || code == TD_DATA_ERROR || code == TD_INVALID_ARGUMENT);
        td_status_destroy(status);
        if (!dataset)
            continue;
        opened++;
        read_all(dataset, TD_PART_TRAIN);
        read_all(dataset, TD_PART_TEST);
        td_dataset_destroy(dataset);
    }
    assert_true(opened > ROUNDS / 2); /* most spoilt files are still read */
}

static void test_criteo(void **state)
{
    (void)state;
    static char good[ROOM];
    for (int32_t i = 0; i < 20; i++) {
        size_t used = strlen(good);
        used += (size_t)snprintf(good + used, sizeof good - used, "%d", i % 2);
        for (int32_t c = 1; c < 40; c++)
            used += (size_t)snprintf(good + used, sizeof good - used, c < 14 ? "\t%d" : "\t%08x", (i + 7) * c % 50);
        (void)snprintf(good + used, sizeof good - used, "\n");
    }
    td_dataset_options options = td_dataset_defaults("criteo");
    options.bad_rows = 1;
    options.table_rows = (const int64_t[]){1000};
    try_rounds(options, good);
}

static void test_csv(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("csv");
    options.bad_rows = 1;
    options.numeric = (const char *const[]){"a"};
    options.n_numeric = 1;
    options.categorical = (const char *const[]){"b", "c"};
    options.n_categorical = 2;
    options.crosses = (const td_cross[]){{"b", "c", 10}};
    options.n_crosses = 1;
    options.label = "d";
    options.positive = "1";
    options.table_rows = (const int64_t[]){7};
    try_rounds(options, "\xef\xbb\xbf"
                        "a,b,c,d\r\n1,x,y,1\r\n2.5e1,\"x,\"\"z\"\"\",\"y\ny\",0\r\n,,,1\r\n"
                        "-3,x,z,0\r\n1,x,y,1\r\n2,\"x\",y,0\r\n,q,,1\r\n-3,x,z,0\r\n4,\"\n\",w,1\r\n5,x,x,0\r\n");
}

static void test_ratings(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2000};
    td_dataset_options options = td_dataset_defaults("ratings");
    options.bad_rows = 1;
    options.skip_bad_ids = true;
    options.table_rows = sizes;
    try_rounds(options, "1\t2\t3\t100\n2\t1\t5\t90\n7\t12\t4.5\t80\n1\t9\t1\t70\n30\t2\t4\t60\n4\t5\t2\t100\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_criteo),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_ratings),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
