/* Embeddings, interaction, normalisation, dropout and losses on numbers worked out by hand. */
#include "tests/base/check.h"

#include <math.h>

#include "graph/op.h"
#include "tests/support/interpreter.h"

static td_graph *graph;
static interpreter *run;

static int set_up(void **state)
{
    (void)state;
    assert_ok(td_graph_create(&graph));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    interpreter_destroy(run);
    td_graph_destroy(graph);
    run = NULL;
    return 0;
}

static void start(const int64_t *extents)
{
    assert_ok(interpreter_create(graph, extents, &run));
}

static void assert_numbers(td_value value, int n, const double *expected)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(interpreter_get(run, value, i) - expected[i]) <= 1e-6 * (1 + fabs(expected[i]))))
            fail_msg("%s[%d] is %.9g, expected %.9g", td_value_name(value), i, interpreter_get(run, value, i),
                     expected[i]);
}
#define NUMBERS(...)                                                                                                   \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (const double[])                                          \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void set(td_value value, int n, const double *numbers)
{
    assert_int_equal(interpreter_elements(run, value), n);
    interpreter_set(run, value, numbers);
}

static void set_offsets(td_value ids, int n, const double *offsets)
{
    for (int i = 0; i < n; i++)
        ((int64_t *)interpreter_tensor(run, ids)->index)[i] = (int64_t)offsets[i];
}

static td_value table_of(const char *name, int64_t rows, int64_t dim)
{
    return td_parameter(graph, name, TD_F32, TD_SHAPE(rows, dim), td_init_constant(0));
}

static const double three_rows[] = {1, 2, 10, 20, 100, 200};

/* ---- bags ---------------------------------------------------------------------------------------------------------------------- */

static void test_bags_are_summed_and_an_empty_bag_is_zeros(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2);
    const td_dim bags = td_extent(graph, "B", 4), entries = td_extent(graph, "N", 9);
    const td_value ids = td_input_ragged(graph, "ids", TD_I64, bags, entries);
    const td_value sum = td_embedding_bag(table, ids, TD_SUM),
                   mean = td_name(td_embedding_bag(table, ids, TD_MEAN), "mean");
    start((int64_t[]){3, 4});
    set(table, 6, three_rows);
    set(ids, NUMBERS(2, 0, 0, 1));
    set_offsets(ids, NUMBERS(0, 3, 3, 4));
    assert_ok(interpreter_run(run));
    assert_numbers(sum, NUMBERS(102, 204, 0, 0, 10, 20));
    assert_numbers(mean, NUMBERS(34, 68, 0, 0, 10, 20));
}

static void test_weights_multiply_rows_and_an_offset_moves_ids(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2);
    const td_value ids = td_input(graph, "ids", TD_I32, TD_SHAPE(2, 2)),
                   weights = td_input(graph, "w", TD_F32, TD_SHAPE(2, 2));
    const td_value bags =
        td_embedding_bag_with(table, ids, (td_embedding_options){.pooling = TD_SUM, .offset = -5, .weights = weights});
    start(NULL);
    set(table, 6, three_rows);
    set(ids, NUMBERS(5, 7, 6, 6));
    set(weights, NUMBERS(2, 0.5, 0, 3));
    assert_ok(interpreter_run(run));
    assert_numbers(bags, NUMBERS(52, 104, 30, 60));
}

static void test_an_id_outside_the_table_is_named(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2), ids = td_input(graph, "ids", TD_I64, TD_SHAPE(4));
    td_embedding(table, ids, (td_embedding_options){.offset = 1});
    start(NULL);
    set(ids, NUMBERS(0, 1, -1, 2));
    assert_error(interpreter_run(run), TD_DATA_ERROR,
                 "embedding t/embedding: id 2 (+ offset 1) at position 3 is outside its table of 3 rows");
    set(ids, NUMBERS(0, 1, -2, 2));
    assert_error(interpreter_run(run), TD_DATA_ERROR, "id -2 (+ offset 1) at position 2");
}

static void test_offsets_that_fall_or_do_not_end_at_the_ids_are_refused(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2);
    const td_value ids = td_input_ragged(graph, "ids", TD_I64, td_dim_constant(3), td_dim_constant(4));
    td_embedding_bag(table, ids, TD_SUM);
    start(NULL);
    set(ids, NUMBERS(0, 0, 0, 0));
    set_offsets(ids, NUMBERS(0, 3, 2, 4));
    assert_error(interpreter_run(run), TD_DATA_ERROR, "bag 1 runs from offset 3 to 2");
    set_offsets(ids, NUMBERS(0, 1, 2, 3));
    assert_error(interpreter_run(run), TD_DATA_ERROR, "the last offset is 3, it must be the number of ids, 4");
    set_offsets(ids, NUMBERS(1, 1, 2, 4));
    assert_error(interpreter_run(run), TD_DATA_ERROR, "the first bag's offset is 1");
}

/* ---- row-sparse gradients ------------------------------------------------------------------------------------------------------ */

static td_value gradient_node(const char *op, const char *name, td_value ids, td_value gradient, int64_t rows)
{
    const td_value inputs[2] = {ids, gradient};
    const td_attr attrs[1] = {TD_INT("rows", rows)};
    return td_graph_add1(graph, op, name, inputs, 2, attrs, 1);
}

static void assert_rows(td_value value, int n, const double *rows)
{
    const td_tensor *t = interpreter_tensor(run, value);
    assert_int_equal(*(int64_t *)t->count, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(((int64_t *)t->index)[i], (int64_t)rows[i]);
}

static void test_duplicates_are_summed_in_position_order(void **state)
{
    (void)state;
    const td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(5)), g = td_input(graph, "g", TD_F32, TD_SHAPE(5, 1));
    const td_value sparse = gradient_node("embedding_gradient", "sparse", ids, g, 100);
    start(NULL);
    set(ids, NUMBERS(40, 7, 40, 99, 40));
    set(g, NUMBERS(1e8, 5, 1, -0.0, -1e8)); /* (1e8 + 1) - 1e8 is 0 in FP32, 1e8 - 1e8 + 1 is not */
    assert_ok(interpreter_run(run));
    assert_rows(sparse, NUMBERS(7, 40, 99));
    assert_numbers(sparse, NUMBERS(5, 0, 0));
    assert_true(signbit(interpreter_get(run, sparse, 2))); /* taken as it is, not added to 0 */
}

static void test_row_sparse_gradients_add_up(void **state)
{
    (void)state;
    const td_value a_ids = td_input(graph, "a.ids", TD_I64, TD_SHAPE(td_extent(graph, "A", 5)));
    const td_value b_ids = td_input(graph, "b.ids", TD_I64, TD_SHAPE(td_extent(graph, "B", 3)));
    const td_value a_g = td_input(graph, "a.g", TD_F32, TD_SHAPE(td_extent(graph, "A", 5), 1));
    const td_value b_g = td_input(graph, "b.g", TD_F32, TD_SHAPE(td_extent(graph, "B", 3), 1));
    const td_value dense = td_input(graph, "dense", TD_F32, TD_SHAPE(6, 1));
    td_value pair[2] = {gradient_node("embedding_gradient", "a", a_ids, a_g, 6),
                        gradient_node("embedding_gradient", "b", b_ids, b_g, 6)};
    const td_value sum = td_graph_add1(graph, "row_sparse_add", "sum", pair, 2, NULL, 0);
    pair[0] = dense;
    pair[1] = sum;
    const td_value all = td_graph_add1(graph, "row_sparse_add_dense", "all", pair, 2, NULL, 0);
    assert_ok(td_graph_check(graph));
    assert_int_equal(td_graph_extent_capacity(graph, graph->values[sum.id].entries), 8); /* room for both */
    start((int64_t[]){3, 2});
    set(a_ids, NUMBERS(4, 0, 2));
    set(a_g, NUMBERS(1, 2, 3));
    set(b_ids, NUMBERS(2, 5));
    set(b_g, NUMBERS(10, 20));
    set(dense, NUMBERS(100, 200, 300, 400, 500, 600));
    assert_ok(interpreter_run(run));
    assert_rows(sum, NUMBERS(0, 2, 4, 5));
    assert_numbers(sum, NUMBERS(2, 13, 1, 20));
    assert_numbers(all, NUMBERS(102, 200, 313, 400, 501, 620));
}

/* A table in two lookups and a matrix product: one gradient, dense. */
static void test_a_tied_table_gets_one_gradient(void **state)
{
    (void)state;
    int32_t *gradients = NULL;
    const td_value table = table_of("t.weight", 3, 2);
    const td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(2)),
                   target = td_input(graph, "target", TD_F32, TD_SHAPE(2, 3));
    const td_value first = td_embedding(table, ids, (td_embedding_options){0});
    const td_value second = td_name(td_embedding(table, ids, (td_embedding_options){0}), "second");
    const td_value logits = td_matmul(td_add(first, second), table, false, true);
    const td_value loss = td_mse(logits, target);
    const double one = 1;
    const td_value seed = td_scalar(graph, "seed", TD_F64, 1, &one);
    assert_ok(td_graph_differentiate(graph, loss, seed, &gradients));
    const td_value gradient = {graph, gradients[table.id]};
    td_free(gradients);
    assert_int_equal(td_value_kind(gradient), TD_DENSE);
    start(NULL);
    set(table, NUMBERS(1, 0, 0, 1, 1, 1));
    set(ids, NUMBERS(0, 1));
    set(target, NUMBERS(0, 0, 0, 0, 0, 0));
    assert_ok(interpreter_run(run));
    /* x = 2 table[ids] = [2 0; 0 2]; y = x table^T = [2 0 2; 0 2 2]; dy = y / 3; dtable = dy^T x + 2 scatter(dy table) */
    const double third = 1.0 / 3;
    assert_numbers(gradient, NUMBERS(12 * third, 4 * third, 4 * third, 12 * third, 4 * third, 4 * third));
}

/* ---- interaction, normalisation -------------------------------------------------------------------------------------------------- */

static void test_pairs_come_row_by_row_below_the_diagonal(void **state)
{
    (void)state;
    td_value vectors[4];
    for (int i = 0; i < 4; i++) {
        const char name[2] = {(char)('a' + i), 0};
        vectors[i] = td_input(graph, name, TD_F32, TD_SHAPE(1, 2));
    }
    const td_value out = td_dot_interaction(4, vectors);
    start(NULL);
    set(vectors[0], NUMBERS(1, 0));
    set(vectors[1], NUMBERS(2, 1));
    set(vectors[2], NUMBERS(3, 10));
    set(vectors[3], NUMBERS(5, 100));
    assert_ok(interpreter_run(run));
    assert_numbers(out, NUMBERS(2, 3, 16, 5, 110, 1015)); /* (1,0) (2,0) (2,1) (3,0) (3,1) (3,2) */
}

static void test_cross_layer_is_a_linear_op_and_a_crossing(void **state)
{
    (void)state;
    const td_value x0 = td_input(graph, "x0", TD_F32, TD_SHAPE(1, 2)), x = td_input(graph, "x", TD_F32, TD_SHAPE(1, 2));
    const td_value out = td_cross_layer(x0, x, "cross.0");
    assert_string_equal(td_value_name(out), "cross.0/cross_layer");
    start(NULL);
    set(x0, NUMBERS(10, 100));
    set(x, NUMBERS(1, 2));
    set(td_graph_find(graph, "cross.0.weight"), NUMBERS(1, 2, 3, 4));
    set(td_graph_find(graph, "cross.0.bias"), NUMBERS(0.5, 0.25));
    assert_ok(interpreter_run(run));
    assert_numbers(out, NUMBERS(10 * 5.5 + 1, 100 * 11.25 + 2));
}

static void test_layer_norm_has_mean_zero_and_variance_one(void **state)
{
    (void)state;
    const td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(1, 4)), y = td_layer_norm(x, 1e-5, "ln");
    start(NULL);
    set(x, NUMBERS(1, 2, 3, 6));
    set(td_graph_find(graph, "ln.weight"), NUMBERS(1, 1, 1, 10));
    set(td_graph_find(graph, "ln.bias"), NUMBERS(0, 0, 0, 7));
    assert_ok(interpreter_run(run));
    const double r = 1 / sqrt(3.5 + 1e-5);
    assert_numbers(y, NUMBERS(-2 * r, -r, 0, 30 * r + 7));
}

/* ---- losses ------------------------------------------------------------------------------------------------------------------------ */

static void test_losses_are_means_over_the_samples_that_are_there(void **state)
{
    (void)state;
    const td_dim batch = td_extent(graph, "B", 8);
    const td_value logit = td_input(graph, "logit", TD_F32, TD_SHAPE(batch, 1)),
                   label = td_input(graph, "label", TD_F32, TD_SHAPE(batch, 1));
    const td_value classes = td_input(graph, "classes", TD_F32, TD_SHAPE(batch, 3)),
                   class = td_input(graph, "class", TD_I64, TD_SHAPE(batch));
    const td_value bce = td_bce_with_logits(logit, label), entropy = td_softmax_cross_entropy(classes, class),
                   mse = td_mse(logit, label);
    start((int64_t[]){2});
    set(logit, NUMBERS(0, 200));
    set(label, NUMBERS(0.25, 0));
    set(classes, NUMBERS(5, 5, 5, 1000, 0, -1000));
    set(class, NUMBERS(2, 1));
    assert_ok(interpreter_run(run));
    assert_numbers(bce, NUMBERS((log(2) + 200) / 2));
    assert_numbers(entropy, NUMBERS((log(3) + 1000) / 2));
    assert_numbers(mse, NUMBERS((0.0625 + 40000) / 2));
    interpreter_destroy(run);
    start((int64_t[]){0});
    assert_ok(interpreter_run(run));
    assert_numbers(bce, NUMBERS(0));
    assert_numbers(entropy, NUMBERS(0));
    assert_numbers(mse, NUMBERS(0));
}

static void test_a_loss_gradient_starts_from_the_seed_over_the_samples(void **state)
{
    (void)state;
    const double six = 6;
    const td_dim batch = td_extent(graph, "B", 8);
    const td_value logit = td_input(graph, "logit", TD_F32, TD_SHAPE(batch, 1)),
                   label = td_input(graph, "label", TD_F32, TD_SHAPE(batch, 1));
    const td_value inputs[3] = {logit, label, td_scalar(graph, "seed", TD_F64, 1, &six)};
    const td_value bce = td_graph_add1(graph, "bce_with_logits_gradient", "bce", inputs, 3, NULL, 0);
    const td_value mse = td_graph_add1(graph, "mse_gradient", "mse", inputs, 3, NULL, 0);
    start((int64_t[]){2});
    set(logit, NUMBERS(0, 100));
    set(label, NUMBERS(1, 1));
    assert_ok(interpreter_run(run));
    assert_numbers(bce, NUMBERS(-1.5, 0));
    assert_numbers(mse, NUMBERS(-6, 594));
}

static void test_a_label_outside_its_classes_is_named(void **state)
{
    (void)state;
    const td_value logit = td_input(graph, "logit", TD_F32, TD_SHAPE(3, 4)),
                   label = td_input(graph, "label", TD_I32, TD_SHAPE(3));
    td_softmax_cross_entropy(logit, label);
    start(NULL);
    set(label, NUMBERS(0, 3, 4));
    assert_error(interpreter_run(run), TD_DATA_ERROR, "label 4 at position 2 is outside its 4 classes");
}

/* ---- dropout ----------------------------------------------------------------------------------------------------------------------- */

static void set_random(int64_t seed, int64_t update, int64_t first)
{
    const double numbers[3] = {(double)seed, (double)update, (double)first};
    const td_value random = td_graph_find(graph, "step.random");
    for (int i = 0; i < 3; i++)
        interpreter_put(run, random, i, numbers[i]);
}

enum { SAMPLES = 40, WIDTH = 25, ELEMENTS = SAMPLES * WIDTH };

static int kept(td_value y, bool out[ELEMENTS])
{
    int n = 0;
    for (int i = 0; i < ELEMENTS; i++)
        n += out[i] = interpreter_get(run, y, i) > 0;
    return n;
}

static td_value dropout_of_ones(td_value *out_x)
{
    *out_x = td_input(graph, "x", TD_F32, TD_SHAPE(td_extent(graph, "B", SAMPLES), WIDTH));
    return td_dropout(*out_x, 0.25);
}

static void fill_ones(td_value x)
{
    for (int64_t i = 0; i < interpreter_elements(run, x); i++)
        interpreter_put(run, x, i, 1);
}

static void test_dropout_keeps_its_share_and_is_off_in_evaluation(void **state)
{
    (void)state;
    td_value x;
    bool first[ELEMENTS], again[ELEMENTS], other[ELEMENTS];
    const td_value y = dropout_of_ones(&x);
    start(NULL);
    fill_ones(x);
    assert_ok(interpreter_run(run));
    assert_int_equal(kept(y, first), ELEMENTS); /* the scalar starts as evaluation */
    assert_true(interpreter_get(run, y, 0) == 1);
    set_random(7, 1, 0);
    assert_ok(interpreter_run(run));
    const int n = kept(y, first);
    assert_in_range(n, 700, 800); /* 750 on average, deviation 14 */
    for (int i = 0; i < ELEMENTS; i++)
        assert_true(!first[i] || fabs(interpreter_get(run, y, i) - 4.0 / 3) < 1e-6);
    assert_ok(interpreter_run(run));
    kept(y, again);
    assert_memory_equal(first, again, sizeof first);
    set_random(7, 2, 0);
    assert_ok(interpreter_run(run));
    kept(y, other);
    assert_memory_not_equal(first, other, sizeof first);
    set_random(8, 1, 0);
    assert_ok(interpreter_run(run));
    kept(y, other);
    assert_memory_not_equal(first, other, sizeof first);
}

static void test_a_mask_does_not_depend_on_how_the_window_is_cut(void **state)
{
    (void)state;
    td_value x;
    bool whole[ELEMENTS], part[ELEMENTS] = {0};
    enum { CUT = 17 };
    const td_value y = dropout_of_ones(&x);
    start(NULL);
    fill_ones(x);
    set_random(7, 1, 0);
    assert_ok(interpreter_run(run));
    kept(y, whole);
    interpreter_destroy(run);
    start((int64_t[]){SAMPLES - CUT});
    fill_ones(x);
    set_random(7, 1, CUT);
    assert_ok(interpreter_run(run));
    for (int i = 0; i < ELEMENTS - CUT * WIDTH; i++)
        part[i] = interpreter_get(run, y, i) > 0;
    assert_memory_equal(whole + CUT * WIDTH, part, (SAMPLES - CUT) * WIDTH);
}

/* Rows that are tokens of a sample are told apart by the sample that they belong to. */
static void test_a_flattened_value_still_counts_samples(void **state)
{
    (void)state;
    const td_dim batch = td_extent(graph, "B", 8);
    td_dim rows = batch;
    rows.multiple = 5;
    const td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(rows, 3));
    td_dropout(x, 0.5);
    const td_node *node = &graph->nodes[0];
    assert_int_equal(td_attr_int(node->attrs, node->n_attrs, "rows_per_sample", 0), 5);
    const td_value y = td_name(td_dropout(td_input(graph, "z", TD_F32, TD_SHAPE(batch, 5, 3)), 0.5), "y");
    assert_int_equal(td_attr_int(graph->nodes[graph->values[y.id].producer].attrs, 2, "rows_per_sample", 0), 1);
}

/* ---- refusals ----------------------------------------------------------------------------------------------------------------------- */

static void test_shapes_are_checked_while_building(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2), ids = td_input(graph, "ids", TD_F32, TD_SHAPE(4));
    td_embedding(table, ids, (td_embedding_options){0});
    assert_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "ids must be i64 or i32, not f32");
}

static void test_weights_must_be_one_per_id(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2), ids = td_input(graph, "ids", TD_I64, TD_SHAPE(4, 2));
    const td_value weights = td_input(graph, "w", TD_F32, TD_SHAPE(4));
    td_embedding_bag_with(table, ids, (td_embedding_options){.weights = weights});
    assert_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "weights are [4], ids need one each: [4, 2]");
}

static void test_embedding_refuses_weights(void **state)
{
    (void)state;
    const td_value table = table_of("t.weight", 3, 2), ids = td_input(graph, "ids", TD_I64, TD_SHAPE(4));
    const td_value weights = td_input(graph, "w", TD_F32, TD_SHAPE(4));
    td_embedding(table, ids, (td_embedding_options){.weights = weights});
    assert_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "per-id weights need embedding_bag");
}

static void test_a_dropout_rate_of_one_is_refused(void **state)
{
    (void)state;
    td_dropout(td_input(graph, "x", TD_F32, TD_SHAPE(4)), 1);
    assert_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "rate 1 must be at least 0 and below 1");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_bags_are_summed_and_an_empty_bag_is_zeros),
        TEST(test_weights_multiply_rows_and_an_offset_moves_ids),
        TEST(test_an_id_outside_the_table_is_named),
        TEST(test_offsets_that_fall_or_do_not_end_at_the_ids_are_refused),
        TEST(test_duplicates_are_summed_in_position_order),
        TEST(test_row_sparse_gradients_add_up),
        TEST(test_a_tied_table_gets_one_gradient),
        TEST(test_pairs_come_row_by_row_below_the_diagonal),
        TEST(test_cross_layer_is_a_linear_op_and_a_crossing),
        TEST(test_layer_norm_has_mean_zero_and_variance_one),
        TEST(test_losses_are_means_over_the_samples_that_are_there),
        TEST(test_a_loss_gradient_starts_from_the_seed_over_the_samples),
        TEST(test_a_label_outside_its_classes_is_named),
        TEST(test_dropout_keeps_its_share_and_is_off_in_evaluation),
        TEST(test_a_mask_does_not_depend_on_how_the_window_is_cut),
        TEST(test_a_flattened_value_still_counts_samples),
        TEST(test_shapes_are_checked_while_building),
        TEST(test_weights_must_be_one_per_id),
        TEST(test_embedding_refuses_weights),
        TEST(test_a_dropout_rate_of_one_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
