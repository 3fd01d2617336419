/* What a checkpoint's files promise: any precision reads any other's, each number rounded once; a file that is cut, changed or of
 * somebody else is refused with what is wrong, and nothing has changed; saving and loading take little memory beside the state. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <jansson.h>

#include "base/convert.h"
#include "base/file.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/philox.h"
#include "runtime/store.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/base/folder.h"

/* ---- a store without a session ------------------------------------------------------------------------------------------------- */

enum { ROWS = 300, DIM = 4 };

typedef struct held {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
} held;

static held open_store(td_dtype dtype, int64_t rows, td_table_storage storage, const char *device)
{
    held h = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&h.graph));
    td_dim batch = td_extent(h.graph, "B", 8);
    td_value ids = td_input(h.graph, "ids", TD_I64, TD_SHAPE(batch)),
             y = td_input(h.graph, "y", TD_F32, TD_SHAPE(batch, 1)),
             table = td_parameter(h.graph, "table", dtype, TD_SHAPE(rows, DIM), td_init_normal(0, 1));
    td_value loss = td_mse(td_linear(td_embedding(table, ids, (td_embedding_options){0}), 1, "top"), y);
    if (device)
        td_add_device(&h.options, "accel", device);
    td_tables(&h.options, (td_table_options){.storage = storage});
    td_group(&h.options, "*", td_adam(0.1));
    assert_ok(td_plan_train(h.graph, loss, &h.options, &h.plan));
    assert_ok(td_store_create(h.plan, &h.store));
    return h;
}

static void close_store(held *h)
{
    td_store_release(h->store);
    td_plan_release(h->plan);
    td_train_options_deinit(&h->options);
    td_graph_destroy(h->graph);
}

/* Every row of the table gets numbers of its own, all of which f16 and bf16 can hold approximately. */
static void put_numbers(held *h, td_dtype dtype, float scale)
{
    float wide[ROWS * DIM];
    uint16_t narrow[2 * ROWS * DIM];
    td_random_fill(wide, 0, ROWS * DIM, td_philox_key_of(3, "test", "numbers"), TD_RANDOM_NORMAL, 0, scale);
    (void)td_floats_convert(wide, TD_F32, ROWS * DIM, narrow, dtype);
    assert_ok(td_store_write(h->store, td_store_find(h->store, "table"), 0, ROWS * DIM, narrow));
}

static uint64_t checksum(const held *h)
{
    uint64_t sum = 0;
    assert_ok(td_store_checksum(h->store, &sum));
    return sum;
}

static void expect_error(td_status *status, const char *words)
{
    assert_non_null(status);
    if (!strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
}

static const td_dtype dtypes[] = {TD_F32, TD_BF16, TD_F16};

/* ---- precisions ---------------------------------------------------------------------------------------------------------------- */

/* What the table of `to` holds is what the one of `from` held, converted once. */
static void check_conversion(td_dtype from, td_table_storage from_storage, td_dtype to, td_table_storage to_storage)
{
    folder place = make_folder();
    float before[ROWS * DIM], expected[ROWS * DIM], after[ROWS * DIM];
    td_data_position position;
    held a = open_store(from, ROWS, from_storage, NULL), b = open_store(to, ROWS, to_storage, NULL);
    put_numbers(&a, from, 1);
    assert_ok(td_store_read(a.store, td_store_find(a.store, "table"), 0, ROWS * DIM, before));
    assert_ok(td_store_save(a.store, place.path, (td_data_position){1, 2}));
    assert_ok(td_store_load(b.store, place.path, &position));
    assert_ok(td_store_read(b.store, td_store_find(b.store, "table"), 0, ROWS * DIM, after));
    assert_int_equal(td_floats_convert(before, from, ROWS * DIM, expected, to), -1);
    assert_memory_equal(after, expected, ROWS * DIM * td_dtype_bytes(to));
    if (from == to)
        assert_true(checksum(&a) == checksum(&b));
    close_store(&a);
    close_store(&b);
    remove_folder(&place);
}

static void test_any_precision_and_storage_reads_any_other(void **state)
{
    (void)state;
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int storages = 0; storages < 4; storages++)
                check_conversion(dtypes[from], storages & 1 ? TD_TABLE_SPARSE : TD_TABLE_MEMORY, dtypes[to],
                                 storages & 2 ? TD_TABLE_SPARSE : TD_TABLE_MEMORY);
}

static void test_conversions_round_to_nearest_even_and_find_what_is_too_large(void **state)
{
    (void)state;
    const float wide[] = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1p-11f, 65519.0f, 65520.0f, 3.4e38f};
    uint16_t narrow[6];
    assert_int_equal(td_floats_convert(wide, TD_F32, 6, narrow, TD_BF16), 5);
    assert_true(td_bf16_to_f32(narrow[0]) == 1.0f && td_bf16_to_f32(narrow[1]) == 1.0f + 0x4p-8f);
    assert_int_equal(td_floats_convert(wide, TD_F32, 6, narrow, TD_F16), 4);
    assert_true(td_f16_to_f32(narrow[2]) == 1.0f && td_f16_to_f32(narrow[3]) == 65504.0f);
    const float infinite = 1.0f / 0.0f;
    assert_int_equal(td_floats_convert(&infinite, TD_F32, 1, narrow, TD_F16), -1); /* it was that before */
}

static void test_numbers_that_do_not_fit_are_refused_before_anything_changes(void **state)
{
    (void)state;
    folder place = make_folder();
    td_data_position position;
    held wide = open_store(TD_F32, ROWS, TD_TABLE_MEMORY, NULL),
         narrow = open_store(TD_F16, ROWS, TD_TABLE_MEMORY, NULL);
    put_numbers(&wide, TD_F32, 1e6f);
    assert_ok(td_store_save(wide.store, place.path, (td_data_position){0}));
    uint64_t before = checksum(&narrow);
    expect_error(td_store_load(narrow.store, place.path, &position), "is beyond what f16 can hold");
    assert_true(checksum(&narrow) == before);
    close_store(&wide);
    close_store(&narrow);
    remove_folder(&place);
}

/* ---- damage -------------------------------------------------------------------------------------------------------------------- */

static char *read_text(const folder *place, const char *file)
{
    char *path = td_format("%s/%s", place->path, file), *text = NULL;
    size_t bytes;
    assert_ok(td_file_read(path, &text, &bytes));
    td_free(path);
    return text;
}

static void write_text(const folder *place, const char *file, const char *text, size_t bytes)
{
    char *path = td_format("%s/%s", place->path, file);
    assert_ok(td_file_write(path, text, bytes));
    td_free(path);
}

static void expect_refusal(held *h, const folder *place, const char *words)
{
    td_data_position position;
    uint64_t before = checksum(h);
    expect_error(td_store_load(h->store, place->path, &position), words);
    assert_true(checksum(h) == before);
    assert_int_equal(td_store_steps(h->store), 7);
}

static void test_a_changed_digit_of_the_manifest_is_found(void **state)
{
    (void)state;
    folder place = make_folder();
    held h = open_store(TD_F32, ROWS, TD_TABLE_MEMORY, NULL);
    h.store->steps = h.store->updates = 7;
    assert_ok(td_store_save(h.store, place.path, (td_data_position){0, 7}));
    char *text = read_text(&place, "manifest.json");
    size_t length = strlen(text);
    int digits = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            continue;
        text[i] ^= 1; /* another digit */
        write_text(&place, "manifest.json", text, length);
        expect_refusal(&h, &place, "manifest.json");
        text[i] ^= 1;
        digits++;
    }
    assert_true(digits > 30);
    write_text(&place, "manifest.json", text, length / 2);
    expect_refusal(&h, &place, "manifest.json:");
    td_free(text);
    close_store(&h);
    remove_folder(&place);
}

static void test_what_is_torn_or_of_somebody_else_is_refused_by_name(void **state)
{
    (void)state;
    folder place = make_folder(), other = make_folder();
    held h = open_store(TD_F32, ROWS, TD_TABLE_MEMORY, NULL);
    h.store->steps = h.store->updates = 7;
    expect_refusal(&h, &place, "no manifest.json in it");
    assert_ok(td_store_save(h.store, place.path, (td_data_position){0, 7}));
    char *shard = td_format("%s/shard-0000.safetensors", place.path);
    assert_int_equal(truncate(shard, 1000), 0);
    expect_refusal(&h, &place, "shard-0000.safetensors has 1000 bytes");
    assert_int_equal(unlink(shard), 0);
    expect_refusal(&h, &place, "shard-0000.safetensors: cannot open");
    td_free(shard);
    write_text(&other, "manifest.json", "{\"format\": \"pt\"}", 16);
    expect_refusal(&h, &other, "\"format\" does not say so");
    close_store(&h);
    remove_folder(&place);
    remove_folder(&other);
}

/* The manifest with the seed and the last table's way of initial values changed, and its checksum put right. */
static void change_initials(const folder *place, int64_t seed, int kind)
{
    char *text = read_text(place, "manifest.json"), *bare, digits[24];
    json_t *root = json_loads(text, 0, NULL), *table, *last = NULL;
    const char *name;
    td_free(text);
    json_object_foreach(json_object_get(root, "tables"), name, table) last = table;
    assert_non_null(last);
    json_object_set_new(last, "kind", json_integer(kind));
    json_object_set_new(root, "seed", json_integer(seed));
    json_object_del(root, "checksum");
    bare = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)td_hash_bytes(bare, strlen(bare), 0));
    json_object_set_new(root, "checksum", json_string(digits));
    free(bare);
    bare = json_dumps(root, JSON_INDENT(2));
    write_text(place, "manifest.json", bare, strlen(bare));
    free(bare);
    json_decref(root);
}

static void test_initial_values_that_are_refused_change_none_before_them(void **state)
{
    (void)state;
    folder place = make_folder();
    held h = open_store(TD_F32, ROWS, TD_TABLE_SPARSE, NULL);
    h.store->steps = h.store->updates = 7;
    put_numbers(&h, TD_F32, 1);
    assert_ok(td_store_save(h.store, place.path, (td_data_position){0, 7}));
    const td_initial before = h.store->entries[td_store_find(h.store, "table")].initial;
    change_initials(&place, 12345, 99);
    expect_refusal(&h, &place, "initial values are of no known kind");
    const td_initial after = h.store->entries[td_store_find(h.store, "table")].initial;
    assert_memory_equal(&after.key, &before.key, sizeof before.key);
    close_store(&h);
    remove_folder(&place);
}

/* ---- memory -------------------------------------------------------------------------------------------------------------------- */

enum { LARGE_ROWS = 2 << 20 }; /* 32 MiB, and as much for each moment */

static void fill_all(held *h)
{
    enum { PIECE = 1 << 18 };
    static float piece[PIECE];
    for (int32_t i = 0; i < h->store->n_entries; i++) {
        int64_t n = td_tensor_elements(&h->store->entries[i].tensor);
        for (int64_t first = 0; first < n; first += PIECE)
            assert_ok(td_store_write(h->store, i, first, n - first < PIECE ? n - first : PIECE, piece));
    }
}

static int64_t resident_bytes(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

static void test_saving_and_loading_take_a_tenth_of_the_state_at_most(void **state)
{
    (void)state;
    folder place = make_folder();
    td_data_position position;
    held h = open_store(TD_F32, LARGE_ROWS, TD_TABLE_MEMORY, NULL);
    fill_all(&h);
    int64_t bytes = td_store_held(h.store, h.store->machine->host);
    assert_true(bytes >= (int64_t)96 << 20);
    td_memory_reset_peak();
    int64_t now = (int64_t)td_memory_read().bytes_now, resident = resident_bytes();
    assert_ok(td_store_save(h.store, place.path, (td_data_position){0}));
    assert_ok(td_store_load(h.store, place.path, &position));
    assert_true((int64_t)td_memory_read().bytes_peak - now < bytes / 10);
    if (!TD_HAS_ASAN && !TD_HAS_TSAN)
        assert_true(resident_bytes() - resident < bytes / 10);
    close_store(&h);
    remove_folder(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_precision_and_storage_reads_any_other),
        cmocka_unit_test(test_conversions_round_to_nearest_even_and_find_what_is_too_large),
        cmocka_unit_test(test_numbers_that_do_not_fit_are_refused_before_anything_changes),
        cmocka_unit_test(test_a_changed_digit_of_the_manifest_is_found),
        cmocka_unit_test(test_initial_values_that_are_refused_change_none_before_them),
        cmocka_unit_test(test_what_is_torn_or_of_somebody_else_is_refused_by_name),
        cmocka_unit_test(test_saving_and_loading_take_a_tenth_of_the_state_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
