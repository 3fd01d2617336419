/* The optimizer ops and embedding_update by their reference kernels: what sparse means, and what is refused. */
#include "tests/optim/lookup_case.h"

enum { ROWS = 23, DIM = 7 };

static void run_reference(const update_case *c)
{
    assert_ok(td_op_reference(c->call.op)(&c->call));
}

/* A gradient of `count` rows, ascending from `first` by `stride`. */
typedef struct sparse_gradient {
    float data[ROWS * DIM];
    int64_t index[ROWS], count;
} sparse_gradient;

static td_tensor sparse(sparse_gradient *gradient, int64_t first, int64_t stride)
{
    gradient->count = 0;
    for (int64_t row = first; row < ROWS; row += stride)
        gradient->index[gradient->count++] = row;
    return (td_tensor){.kind = TD_ROW_SPARSE,
                       .dtype = TD_F32,
                       .rank = 2,
                       .dims = {ROWS, DIM},
                       .entries = ROWS,
                       .data = gradient->data,
                       .index = gradient->index,
                       .count = &gradient->count};
}

static void test_a_sparse_gradient_of_all_rows_equals_the_dense_one(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATE_SETTINGS; i++) {
        sparse_gradient gradient;
        float *before[1 + TD_MAX_SLOTS] = {NULL}, *dense[1 + TD_MAX_SLOTS] = {NULL};
        update_case c;
        update_case_init(&c, update_settings[i], ROWS, DIM, 0, 3);
        for (int k = 0; k < ROWS * DIM; k++)
            gradient.data[k] = update_random_float();
        update_save(&c, before);
        c.inputs[2] = update_coefficients(&c);
        c.inputs[1] = update_dense(TD_F32, gradient.data, 2, ROWS, DIM);
        run_reference(&c);
        update_save(&c, dense);
        assert_memory_not_equal(dense[0], before[0], ROWS * DIM * sizeof(float));
        update_restore(&c, before);
        c.inputs[1] = sparse(&gradient, 0, 1);
        run_reference(&c);
        update_assert_equal(&c, dense, "sparse");
        update_free(before);
        update_free(dense);
        update_case_deinit(&c);
    }
}

static void test_rows_without_a_gradient_stay_as_they_are(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATE_SETTINGS; i++) {
        sparse_gradient gradient;
        float *before[1 + TD_MAX_SLOTS] = {NULL};
        update_case c;
        update_case_init(&c, update_settings[i], ROWS, DIM, 0, 3);
        for (int k = 0; k < ROWS * DIM; k++)
            gradient.data[k] = update_random_float();
        update_save(&c, before);
        c.inputs[1] = sparse(&gradient, 1, 2);
        c.inputs[2] = update_coefficients(&c);
        run_reference(&c);
        for (int32_t b = 0; b <= c.n_slots; b++) {
            int64_t width = c.elements[b] / ROWS;
            for (int64_t row = 0; row < ROWS; row += 2)
                assert_memory_equal(c.written[b] + row * width, before[b] + UPDATE_GUARD + row * width,
                                    (size_t)width * sizeof(float));
        }
        update_free(before);
        update_case_deinit(&c);
    }
}

/* A row whose gradient is 0 is touched all the same: moments decay, FTRL sets it from z. */
static void test_a_touched_row_with_gradient_zero_is_updated(void **state)
{
    (void)state;
    static const td_optimizer rules[] = {td_lazy_adam(0.01), td_ftrl(0.05, .l1 = 1e9)};
    for (int i = 0; i < 2; i++) {
        sparse_gradient gradient = {0};
        update_case c;
        update_case_init(&c, rules[i], ROWS, DIM, 0, 3);
        c.inputs[1] = sparse(&gradient, 0, 1);
        c.inputs[2] = update_coefficients(&c);
        c.written[0][3] = 2;
        c.written[1][3] = 0.5f;
        c.written[2][3] = 0.25f;
        run_reference(&c);
        if (i == 0)
            assert_true(c.written[1][3] == 0.5f * 0.9f && c.written[2][3] == 0.25f * 0.999f && c.written[0][3] < 2);
        else
            assert_true(c.written[0][3] == 0 && c.written[1][3] == 0.5f && c.written[2][3] == 0.25f);
        update_case_deinit(&c);
    }
}

static void test_embedding_update_equals_gradient_then_rule(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATE_SETTINGS; i++)
        for (int s = 0; s + 1 < LOOKUP_SHAPES; s++) { /* the last one is too large for a quadratic reference */
            float *before[1 + TD_MAX_SLOTS] = {NULL}, *expected[1 + TD_MAX_SLOTS] = {NULL};
            lookup_case c;
            lookup_case_init(&c, update_settings[i], &lookup_shapes[s]);
            update_save(&c.update, before);
            lookup_two_ops(&c);
            update_save(&c.update, expected);
            update_restore(&c.update, before);
            run_reference(&c.update);
            update_assert_equal(&c.update, expected, "embedding_update");
            update_free(before);
            update_free(expected);
            lookup_case_deinit(&c);
        }
}

static void test_embedding_update_with_a_bad_id_writes_nothing(void **state)
{
    (void)state;
    float *before[1 + TD_MAX_SLOTS] = {NULL};
    lookup_case c;
    lookup_case_init(&c, td_adam(0.1), &lookup_shapes[3]);
    c.wide_ids[c.count - 2] = 100;
    update_save(&c.update, before);
    assert_error(td_op_reference("embedding_update")(&c.update.call), TD_DATA_ERROR,
                 "embedding_update test: id 100 (+ offset 7) at position");
    update_assert_equal(&c.update, before, "after a bad id");
    update_free(before);
    lookup_case_deinit(&c);
}

static td_status *update_call(void *context)
{
    return td_op_reference("embedding_update")(context);
}

static void nothing(void *context)
{
    (void)context;
}

static void test_embedding_update_survives_allocation_failures(void **state)
{
    (void)state;
    lookup_case c;
    lookup_case_init(&c, td_adam(0.1), &lookup_shapes[3]);
    assert_true(assert_survives_allocation_failures(update_call, nothing, &c.update.call) > 0);
    lookup_case_deinit(&c);
}

/* ---- shape rules ----------------------------------------------------------------------------------------------------- */

static td_value state_of(td_graph *graph, const char *name, td_shape shape)
{
    return td_graph_add_source(graph, TD_CLASS_STATE, TD_DENSE, name, TD_F32, shape, td_dim_constant(0));
}

/* What the graph says about op(weight [4, 3], gradient, coefficients, states...). */
static void check_update(const char *op, td_kind kind, int n_states, td_shape state_shape, const char *says)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_create(&graph));
    td_value inputs[6] = {
        td_parameter(graph, "weight", TD_F32, TD_SHAPE(4, 3), td_init_constant(0)),
        td_graph_add_source(graph, TD_CLASS_GRADIENT, kind, "gradient", TD_F32, TD_SHAPE(4, 3), td_dim_constant(2)),
        td_scalar(graph, "coefficients", TD_F32, TD_COEFFICIENTS, NULL),
        state_of(graph, "a", state_shape),
        state_of(graph, "b", state_shape),
        state_of(graph, "c", state_shape)};
    td_graph_add(graph, op, "update", inputs, 3 + n_states, NULL, 0, NULL, 0);
    td_status *status = td_graph_check(graph);
    if (says)
        assert_error(status, TD_INVALID_ARGUMENT, says);
    else
        assert_ok(status);
    td_graph_destroy(graph);
}

static void test_shape_rules_of_optimizers(void **state)
{
    (void)state;
    for (int32_t i = 0; i < td_rule_count(); i++) {
        const td_rule *rule = td_rule_at(i);
        int n = 0;
        while (rule->slots[n].name)
            n++;
        td_shape shape = rule->slots[0].per_row ? TD_SHAPE(4) : TD_SHAPE(4, 3);
        check_update(rule->name, TD_DENSE, n, shape, NULL);
        check_update(rule->name, TD_ROW_SPARSE, n, shape, rule->refuses_row_sparse);
    }
    check_update("sgd", TD_DENSE, 0, TD_SHAPE(4, 3), NULL);
    check_update("sgd", TD_DENSE, 2, TD_SHAPE(4, 3), "2 states are given, rule sgd has 1 at most");
    check_update("adam", TD_DENSE, 1, TD_SHAPE(4, 3), "1 states are given, rule adam has 2");
    check_update("adam", TD_DENSE, 2, TD_SHAPE(4), "state m must be [4, 3], not [4]");
    check_update("rowwise_adagrad", TD_DENSE, 1, TD_SHAPE(4, 3), "state acc must be [4], not [4, 3]");
    check_update("adam", TD_RAGGED, 2, TD_SHAPE(4, 3), "the gradient must be dense or row-sparse");
}

/* What the graph says about embedding_update with these attributes on ids [5, 2] and a gradient of this shape. */
static void check_embedding_update(const char *rule, const char *pooling, bool weighted, td_shape gradient,
                                   int n_states, const char *says)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_create(&graph));
    td_value inputs[7] = {td_parameter(graph, "table", TD_F32, TD_SHAPE(9, 3), td_init_constant(0)),
                          td_input(graph, "gradient", TD_F32, gradient),
                          td_input(graph, "ids", TD_I64, TD_SHAPE(5, 2)),
                          weighted ? td_input(graph, "weights", TD_F32, TD_SHAPE(5, 2)) : TD_NO_VALUE,
                          td_scalar(graph, "coefficients", TD_F32, TD_COEFFICIENTS, NULL),
                          state_of(graph, "m", TD_SHAPE(9, 3)),
                          state_of(graph, "v", TD_SHAPE(9, 3))};
    td_attr attrs[2] = {TD_STRING("rule", rule), TD_STRING("pooling", pooling)};
    td_graph_add(graph, "embedding_update", "update", inputs, 5 + n_states, attrs, 2, NULL, 0);
    td_status *status = td_graph_check(graph);
    if (says)
        assert_error(status, TD_INVALID_ARGUMENT, says);
    else
        assert_ok(status);
    td_graph_destroy(graph);
}

static void test_shape_rules_of_embedding_update(void **state)
{
    (void)state;
    check_embedding_update("lazy_adam", "sum", false, TD_SHAPE(5, 3), 2, NULL);
    check_embedding_update("lazy_adam", "mean", true, TD_SHAPE(5, 3), 2, NULL);
    check_embedding_update("sgd", "none", false, TD_SHAPE(5, 2, 3), 0, NULL);
    check_embedding_update("lazyadam", "sum", false, TD_SHAPE(5, 3), 2, "did you mean \"lazy_adam\"?");
    check_embedding_update("lamb", "sum", false, TD_SHAPE(5, 3), 2,
                           "lamb takes no row-sparse gradient: its step depends");
    check_embedding_update("adam", "max", false, TD_SHAPE(5, 3), 2, "pooling must be \"sum\", \"mean\" or \"none\"");
    check_embedding_update("adam", "sum", false, TD_SHAPE(5, 2, 3), 2, "the gradient must be [5, 3], not [5, 2, 3]");
    check_embedding_update("adam", "none", false, TD_SHAPE(5, 3), 2, "the gradient must be [5, 2, 3], not [5, 3]");
    check_embedding_update("adam", "none", true, TD_SHAPE(5, 2, 3), 2, "per-id weights need bags");
    check_embedding_update("adam", "sum", false, TD_SHAPE(5, 3), 1, "1 states are given, rule adam has 2");
}

static void test_costs_count_touched_rows_only(void **state)
{
    (void)state;
    lookup_case c;
    lookup_case_init(&c, td_adam(0.1), &lookup_shapes[6]); /* 600 ids, 500 rows of 8 */
    td_cost cost = td_op_cost(td_op_find("embedding_update"), &c.update.call);
    assert_true(cost.bytes_written == 500.0 * 3 * 8 * 4);
    assert_true(cost.bytes_read == 500.0 * 3 * 8 * 4 + 600 * 8 + 600.0 * 8 * 4);
    lookup_case_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_sparse_gradient_of_all_rows_equals_the_dense_one),
                                       cmocka_unit_test(test_rows_without_a_gradient_stay_as_they_are),
                                       cmocka_unit_test(test_a_touched_row_with_gradient_zero_is_updated),
                                       cmocka_unit_test(test_embedding_update_equals_gradient_then_rule),
                                       cmocka_unit_test(test_embedding_update_with_a_bad_id_writes_nothing),
                                       cmocka_unit_test(test_embedding_update_survives_allocation_failures),
                                       cmocka_unit_test(test_shape_rules_of_optimizers),
                                       cmocka_unit_test(test_shape_rules_of_embedding_update),
                                       cmocka_unit_test(test_costs_count_touched_rows_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
