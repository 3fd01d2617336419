/* Weights from another program's safetensors file: by name map, transposed, from any float; what does not fit is named, all of it,
 * and nothing has changed then. */
#include <stdio.h>

#include "base/convert.h"
#include "base/half.h"
#include "base/safetensors.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"
#include "tests/base/folder.h"

enum { IN = 3, WIDTH = 5, ROWS = 7 };

typedef struct model {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
} model;

/* Parameters: h.0.up.weight [5, 3], h.0.up.bias [5], h.1.up.weight [5, 5], h.1.up.bias [5], head.weight [1, 5], head.bias [1]. */
static model open_model(td_table_storage storage, const char *device)
{
    model m = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&m.graph));
    td_dim batch = td_extent(m.graph, "B", 4);
    td_value x = td_input(m.graph, "x", TD_F32, TD_SHAPE(batch, IN)),
             ids = td_input(m.graph, "ids", TD_I64, TD_SHAPE(batch)),
             y = td_input(m.graph, "y", TD_F32, TD_SHAPE(batch, 1)),
             table = td_parameter(m.graph, "table", TD_BF16, TD_SHAPE(ROWS, WIDTH), td_init_normal(0, 1));
    td_value hidden = td_relu(td_linear(td_relu(td_linear(x, WIDTH, "h.0.up")), WIDTH, "h.1.up"));
    hidden = td_add(hidden, td_embedding(table, ids, (td_embedding_options){0}));
    if (device)
        td_add_device(&m.options, "accel", device);
    td_tables(&m.options, (td_table_options){.storage = storage});
    td_group(&m.options, "table", td_rowwise_adagrad(0.1));
    td_group(&m.options, "*", td_adam(0.1));
    assert_ok(td_plan_train(m.graph, td_mse(td_linear(hidden, 1, "head"), y), &m.options, &m.plan));
    assert_ok(td_store_create(m.plan, &m.store));
    return m;
}

static void close_model(model *m)
{
    td_store_release(m->store);
    td_plan_release(m->plan);
    td_train_options_deinit(&m->options);
    td_graph_destroy(m->graph);
}

/* ---- a file, as PyTorch would write it ---------------------------------------------------------------------------------------------- */

typedef struct tensor {
    const char *name;
    td_dtype dtype;
    int32_t rank;
    int64_t dims[4];
    float first; /* its numbers: first, first + 1, ... */
} tensor;

static int64_t count(const tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static void write_tensor(td_safetensors_writer *writer, const tensor *t)
{
    float numbers[64];
    uint64_t converted[64];
    int64_t n = count(t);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = t->first + (float)i;
    memset(converted, 0, sizeof converted);
    if (td_dtype_converts(t->dtype))
        (void)td_floats_convert(numbers, TD_F32, n, converted, t->dtype);
    assert_ok(td_safetensors_write(writer, t->name, 0, n * (int64_t)td_dtype_bytes(t->dtype), converted));
}

static const char *write_file(folder *place, const tensor *tensors, int32_t n)
{
    const char *path = in_folder(place, "model.safetensors");
    td_safetensors_writer *writer = NULL;
    assert_ok(td_safetensors_create(path, &writer));
    assert_ok(td_safetensors_annotate(writer, "format", "pt"));
    for (int32_t i = 0; i < n; i++)
        assert_ok(td_safetensors_declare(writer, tensors[i].name, tensors[i].dtype, tensors[i].rank, tensors[i].dims));
    for (int32_t i = 0; i < n; i++)
        write_tensor(writer, &tensors[i]);
    assert_ok(td_safetensors_commit(writer));
    return path;
}

static const tensor whole[] = {{"net.block.0.fc.weight", TD_F32, 2, {WIDTH, IN}, 1},
                               {"net.block.0.fc.bias", TD_F16, 1, {WIDTH}, 20},
                               {"net.block.1.fc.weight", TD_BF16, 2, {WIDTH, WIDTH}, 30},
                               {"net.block.1.fc.bias", TD_F32, 1, {WIDTH}, 60},
                               {"out.weight", TD_F32, 2, {WIDTH, 1}, 70},
                               {"head.bias", TD_F32, 1, {1}, 80},
                               {"table", TD_F32, 2, {ROWS, WIDTH}, 90}};
enum { WHOLE = sizeof whole / sizeof *whole };

static const td_weight_name map[] = {{"h.*.up.*", "net.block.*.fc.*", false}, {"head.weight", "out.weight", true}};

static td_weights weights_of(const char *file)
{
    return (td_weights){.file = file, .map = map, .n_map = 2};
}

/* Element i of a parameter is first + i, rounded to its dtype. */
static void assert_counts_from(const model *m, const char *name, float first, int64_t n)
{
    float numbers[64];
    int32_t index = td_store_find(m->store, name);
    td_tensor shape;
    bool is_parameter;
    const char *device;
    uint32_t raw[64];
    assert_ok(td_store_describe(m->store, index, &shape, &is_parameter, &device));
    assert_ok(td_store_read(m->store, index, 0, n, raw));
    (void)td_floats_convert(raw, shape.dtype, n, numbers, TD_F32);
    for (int64_t i = 0; i < n; i++) {
        float wanted = first + (float)i;
        assert_true(numbers[i] == (shape.dtype == TD_BF16 ? td_bf16_to_f32(td_f32_to_bf16(wanted)) : wanted));
    }
}

static uint64_t checksum(const model *m)
{
    uint64_t sum = 0;
    assert_ok(td_store_checksum(m->store, &sum));
    return sum;
}

/* ---- what is promised --------------------------------------------------------------------------------------------------------------- */

static void test_parameters_get_the_tensors_that_the_map_names(void **state)
{
    (void)state;
    folder place = make_folder();
    td_weights weights = weights_of(write_file(&place, whole, WHOLE));
    const td_table_storage storages[] = {TD_TABLE_MEMORY, TD_TABLE_SPARSE};
    for (int i = 0; i < 4; i++) {
        model m = open_model(storages[i % 2], i / 2 ? "emulated:memory=16MiB,cores=1" : NULL);
        assert_ok(td_store_import(m.store, &weights));
        assert_counts_from(&m, "h.0.up.weight", 1, WIDTH * IN);
        assert_counts_from(&m, "h.0.up.bias", 20, WIDTH);
        assert_counts_from(&m, "h.1.up.weight", 30, WIDTH * WIDTH);
        assert_counts_from(&m, "h.1.up.bias", 60, WIDTH);
        assert_counts_from(&m, "head.weight", 70, WIDTH); /* a column is its own transpose in memory */
        assert_counts_from(&m, "head.bias", 80, 1);
        assert_counts_from(&m, "table", 90, ROWS * WIDTH);
        close_model(&m);
    }
    remove_folder(&place);
}

static void test_a_matrix_that_lies_the_other_way_is_turned(void **state)
{
    (void)state;
    folder place = make_folder();
    tensor turned[WHOLE];
    memcpy(turned, whole, sizeof whole);
    turned[0] = (tensor){"net.block.0.fc.weight", TD_F16, 2, {IN, WIDTH}, 0};
    const td_weight_name names[] = {{"h.0.up.weight", "net.block.0.fc.weight", true}, map[0], map[1]};
    td_weights weights = {.file = write_file(&place, turned, WHOLE), .map = names, .n_map = 3};
    model m = open_model(TD_TABLE_MEMORY, NULL);
    float numbers[WIDTH][IN];
    assert_ok(td_store_import(m.store, &weights));
    assert_ok(td_store_read(m.store, td_store_find(m.store, "h.0.up.weight"), 0, WIDTH * IN, numbers));
    for (int o = 0; o < WIDTH; o++)
        for (int i = 0; i < IN; i++)
            assert_true(numbers[o][i] == (float)(i * WIDTH + o));
    close_model(&m);
    remove_folder(&place);
}

static void test_kept_parameters_and_ignored_tensors_are_left_alone(void **state)
{
    (void)state;
    folder place = make_folder();
    tensor other[WHOLE + 1];
    memcpy(other, whole, sizeof whole);
    other[6] = (tensor){"bn.num_batches_tracked", TD_I64, 0, {0}, 0};
    const char *const keep[] = {"table", "head.*"}, *const ignore[] = {"*.num_batches_tracked", "out.*", "head*"};
    td_weights weights = weights_of(write_file(&place, other, WHOLE));
    weights.keep = keep;
    weights.ignore = ignore;
    weights.n_keep = 2;
    weights.n_ignore = 3;
    model m = open_model(TD_TABLE_MEMORY, NULL), fresh = open_model(TD_TABLE_MEMORY, NULL);
    float a[WIDTH], b[WIDTH];
    assert_ok(td_store_import(m.store, &weights));
    assert_counts_from(&m, "h.0.up.weight", 1, WIDTH * IN);
    assert_ok(td_store_read(m.store, td_store_find(m.store, "head.weight"), 0, WIDTH, a));
    assert_ok(td_store_read(fresh.store, td_store_find(fresh.store, "head.weight"), 0, WIDTH, b));
    assert_memory_equal(a, b, sizeof a);
    close_model(&m);
    close_model(&fresh);
    remove_folder(&place);
}

static void expect_refusal(const td_weights *weights, const char *const *words, int n)
{
    model m = open_model(TD_TABLE_MEMORY, NULL);
    uint64_t before = checksum(&m);
    td_status *status = td_store_import(m.store, weights);
    assert_non_null(status);
    for (int i = 0; i < n; i++)
        if (!strstr(td_status_message(status), words[i]))
            fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words[i]);
    td_status_destroy(status);
    assert_true(checksum(&m) == before);
    close_model(&m);
}

static void test_every_tensor_that_does_not_fit_is_named_and_nothing_changes(void **state)
{
    (void)state;
    folder place = make_folder();
    tensor bad[WHOLE];
    memcpy(bad, whole, sizeof whole);
    bad[0].dims[1] = IN + 1;
    bad[1].name = "net.block.0.fc.biass";
    bad[3].dtype = TD_I64;
    bad[4].dims[0] = 1;
    bad[4].dims[1] = WIDTH;
    td_weights weights = weights_of(write_file(&place, bad, WHOLE));
    static const char *const words[] = {
        "does not fit the model: 5 tensors",
        "another shape: \"net.block.0.fc.weight\" is f32[5, 4], parameter \"h.0.up.weight\" is f32[5, 3]",
        "missing: \"net.block.0.fc.bias\" for parameter \"h.0.up.bias\"; the nearest of 7 names is \"net.block.",
        "no float: \"net.block.1.fc.bias\" is i64[5], parameter \"h.1.up.bias\" is f32[5]",
        "another shape: \"out.weight\" is f32[1, 5] before transposing, parameter \"head.weight\" is f32[1, 5]",
        "extra: no parameter gets \"net.block.0.fc.biass\""};
    expect_refusal(&weights, words, 6);
    remove_folder(&place);
}

static void test_numbers_that_do_not_fit_a_16_bit_table_are_refused(void **state)
{
    (void)state;
    folder place = make_folder();
    tensor large[WHOLE];
    memcpy(large, whole, sizeof whole);
    large[6].first = 3.4e38f; /* beyond the largest of bf16 */
    td_weights weights = weights_of(write_file(&place, large, WHOLE));
    expect_refusal(&weights, (const char *const[]){"\"table\": element 0 is beyond what bf16 can hold"}, 1);
    remove_folder(&place);
}

static void test_maps_that_say_nothing_sensible_are_refused(void **state)
{
    (void)state;
    folder place = make_folder();
    td_weights weights = weights_of(write_file(&place, whole, WHOLE));
    const td_weight_name more[] = {{"h.0.*", "net.*.fc.*", false}};
    weights.map = more;
    weights.n_map = 1;
    expect_refusal(&weights, (const char *const[]){"\"net.*.fc.*\" has more * than \"h.0.*\""}, 1);
    weights.file = "no/such.safetensors";
    weights.n_map = 0;
    expect_refusal(&weights, (const char *const[]){"no/such.safetensors: "}, 1);
    remove_folder(&place);
}

static void test_numbers_that_are_none_are_laid_to_the_file_and_idle_patterns_named(void **state)
{
    (void)state;
    folder place = make_folder();
    tensor bad[WHOLE];
    memcpy(bad, whole, sizeof whole);
    bad[0].first = NAN;
    td_weights weights = weights_of(write_file(&place, bad, WHOLE));
    expect_refusal(&weights, (const char *const[]){"element 0 is nan"}, 1);
    const char *keep[] = {"tabel*"};
    weights = weights_of(write_file(&place, whole, WHOLE));
    weights.keep = keep;
    weights.n_keep = 1;
    expect_refusal(&weights, (const char *const[]){"model.weights.keep: \"tabel*\" matches no parameter", "\"table\""},
                   2);
    keep[0] = "bias"; /* fewer edits away from "table" */
    expect_refusal(&weights, (const char *const[]){"\"bias\" matches no parameter; did you mean \"h.0.up.bias\"?"}, 1);
    remove_folder(&place);
}

/* No allocation that fails leaves anything behind, or goes unsaid. */
typedef struct importing {
    td_store *store;
    td_weights weights;
} importing;

static td_status *import(void *context)
{
    const importing *im = context;
    return td_store_import(im->store, &im->weights);
}

static void nothing(void *context)
{
    (void)context;
}

static void test_importing_survives_failing_allocations(void **state)
{
    (void)state;
    folder place = make_folder();
    model m = open_model(TD_TABLE_MEMORY, NULL);
    importing im = {m.store, weights_of(write_file(&place, whole, WHOLE))};
    assert_true(assert_survives_allocation_failures(import, nothing, &im) > 10);
    close_model(&m);
    remove_folder(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_get_the_tensors_that_the_map_names),
        cmocka_unit_test(test_a_matrix_that_lies_the_other_way_is_turned),
        cmocka_unit_test(test_kept_parameters_and_ignored_tensors_are_left_alone),
        cmocka_unit_test(test_every_tensor_that_does_not_fit_is_named_and_nothing_changes),
        cmocka_unit_test(test_numbers_that_do_not_fit_a_16_bit_table_are_refused),
        cmocka_unit_test(test_numbers_that_are_none_are_laid_to_the_file_and_idle_patterns_named),
        cmocka_unit_test(test_maps_that_say_nothing_sensible_are_refused),
        cmocka_unit_test(test_importing_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
