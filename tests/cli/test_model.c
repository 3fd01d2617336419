/* The built-in models: their names and shapes for the schemas of the data formats, and what they refuse. */
#include "tests/cli/config_helpers.h"

#include "base/memory.h"
#include "cli/setup.h"
#include "tandem/graph.h"

typedef struct built {
    td_config *config;
    td_dataset *dataset;
    td_graph *graph;
    td_model model;
    td_status *status;
} built;

static built build(const char *text)
{
    built b = {.config = good_config(text, NULL)};
    td_section root = td_config_root(b.config);
    td_status *status = td_setup_dataset(root, &b.dataset);
    if (status)
        print_message("%s\n", td_status_message(status));
    assert_null(status);
    td_model_options options = {root, td_dataset_schema(b.dataset), td_section_int(root, "data.batch")};
    b.status = td_model_build(&options, &b.graph, &b.model);
    return b;
}

static void drop(built *b)
{
    td_status_destroy(b->status);
    td_graph_destroy(b->graph);
    td_dataset_destroy(b->dataset);
    td_config_destroy(b->config);
}

static void expect_shape(const built *b, const char *name, int64_t rows, int64_t columns)
{
    td_value value = td_graph_find(b->graph, name);
    if (value.id < 0)
        print_message("no value %s\n", name);
    assert_true(value.id >= 0);
    assert_int_equal(td_value_dim(value, 0), rows);
    assert_int_equal(td_value_dim(value, -1), columns);
}

static const char *const clicks = "data: {format: synthetic, batch: 32, train_rows: 100, test_rows: 10, dense: 5,\n"
                                  "       table_rows: [40, 30, 20]}\n";

static built build_with(const char *model, const char *data)
{
    char text[1024];
    snprintf(text, sizeof text, "%s\n%s", model, data);
    return build(text);
}

static void test_dlrm_has_the_layers_of_its_paper(void **state)
{
    (void)state;
    built b = build_with("model: {name: dlrm, dim: 8, bottom: [16], top: [12, 6]}", clicks);
    assert_null(b.status);
    expect_shape(&b, "bottom.0.weight", 16, 5);
    expect_shape(&b, "bottom.1.weight", 8, 16);
    expect_shape(&b, "table.2.weight", 20, 8);
    expect_shape(&b, "table.0/bag", 32, 8);
    expect_shape(&b, "top.0.weight", 12, 8 + 4 * 3 / 2);
    expect_shape(&b, "top.2.weight", 1, 6);
    assert_int_equal(td_value_dim(b.model.logit, 0), 32);
    assert_string_equal(td_value_name(b.model.loss), "loss");
    drop(&b);
}

static void test_dlrm_interactions_have_their_widths(void **state)
{
    (void)state;
    built b = build_with("model: {name: dlrm, dim: 8, bottom: [], top: [12], interaction: concat_dot}", clicks);
    assert_null(b.status);
    expect_shape(&b, "top.0.weight", 12, 4 * 8 + 6);
    drop(&b);
    b = build_with("model: {name: dlrm, dim: 8, top: [12], interaction: concat}", clicks);
    expect_shape(&b, "top.0.weight", 12, 4 * 8);
    drop(&b);
}

static void test_dlrm_without_dense_features_has_no_bottom(void **state)
{
    (void)state;
    static const char *const data = "data: {format: synthetic, batch: 32, dense: 0, table_rows: [943, 1682]}\n";
    built b = build_with("model: {name: dlrm, dim: 16, top: [64, 32], interaction: concat_dot}", data);
    assert_null(b.status);
    expect_shape(&b, "top.0.weight", 64, 33);
    assert_true(td_graph_find(b.graph, "bottom.0.weight").id < 0);
    assert_true(td_graph_find(b.graph, "dense").id < 0);
    drop(&b);
}

static void test_bags_of_many_ids_come_ragged(void **state)
{
    (void)state;
    static const char *const data = "data: {format: synthetic, batch: 32, bag: 4, table_rows: [40, 30]}\n";
    built b = build_with("model: {name: dlrm, dim: 8}", data);
    assert_null(b.status);
    assert_int_equal(td_value_kind(td_graph_find(b.graph, "ids_t1")), TD_RAGGED);
    expect_shape(&b, "table.1/bag", 32, 8);
    drop(&b);
}

static void test_wide_deep_without_wide_ids_has_wide_weights_per_table(void **state)
{
    (void)state;
    built b = build_with("model: {name: wide_deep, dim: 4, hidden: [10]}", clicks);
    assert_null(b.status);
    expect_shape(&b, "wide.2.weight", 20, 1);
    expect_shape(&b, "deep.0.weight", 40, 4);
    expect_shape(&b, "mlp.0.weight", 10, 3 * 4 + 5);
    drop(&b);
}

static void test_deepfm_shares_its_tables(void **state)
{
    (void)state;
    built b = build_with("model: {name: deepfm, dim: 4, hidden: [10]}", clicks);
    assert_null(b.status);
    expect_shape(&b, "first.1.weight", 30, 1);
    expect_shape(&b, "numbers.weight", 5, 4);
    expect_shape(&b, "fm/second_order", 32, 1);
    expect_shape(&b, "mlp.0.weight", 10, 3 * 4 + 5);
    drop(&b);
}

static void expect_message(built *b, const char *message)
{
    assert_non_null(b->status);
    char first[512];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(td_status_message(b->status), "\n"),
             td_status_message(b->status));
    assert_string_equal(first, message);
    drop(b);
}

static void test_models_that_cannot_be_are_refused_with_their_place(void **state)
{
    (void)state;
    built b = build_with("model: {name: dlmr}", clicks);
    expect_message(&b, "x.yaml:1:9: there is no model \"dlmr\"; did you mean \"dlrm\"?");
    b = build_with("", clicks);
    expect_message(&b, "x.yaml:2:1: no model: give model.name (dlrm, ...) or graph, a .tdg file");
    b = build_with("model: {name: dlrm}\ngraph: a.tdg", clicks);
    expect_message(&b, "x.yaml:2:1: graph and model.name are both given; keep one");
    b = build_with("model: {name: dlrm}", "data: {format: synthetic, dense: 0, table_rows: [10]}\n");
    expect_message(
        &b, "x.yaml:1:9: dlrm needs two or more features to interact; the data has 1 table and no dense features");
}

/* Every allocation on the way from a configuration to a plan's inputs fails once; the sanitizers look for leaks. */
static void test_running_out_of_memory_while_setting_up_is_an_error(void **state)
{
    (void)state;
    char text[1024];
    snprintf(text, sizeof text,
             "model: {name: dlrm, dim: 4, bottom: [], top: []}\n%s"
             "devices: [cpu, {name: accel, backend: emulated, memory: 1MiB}]\n"
             "placement: {rules: [{match: \"table.*\", target: cpu}]}\n",
             clicks);
    td_config *config = good_config(text, NULL);
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        td_setup setup;
        td_memory_fail_after(n);
        td_status *status = td_setup_open(config, &setup);
        failed = td_memory_failed();
        td_memory_fail_after(0);
        if (!status)
            td_setup_close(&setup);
        else
            assert_int_equal(td_status_code(status), TD_OUT_OF_MEMORY);
        td_status_destroy(status);
    }
    td_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dlrm_has_the_layers_of_its_paper),
        cmocka_unit_test(test_dlrm_interactions_have_their_widths),
        cmocka_unit_test(test_dlrm_without_dense_features_has_no_bottom),
        cmocka_unit_test(test_bags_of_many_ids_come_ragged),
        cmocka_unit_test(test_wide_deep_without_wide_ids_has_wide_weights_per_table),
        cmocka_unit_test(test_deepfm_shares_its_tables),
        cmocka_unit_test(test_models_that_cannot_be_are_refused_with_their_place),
        cmocka_unit_test(test_running_out_of_memory_while_setting_up_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
