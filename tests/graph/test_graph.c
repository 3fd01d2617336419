/* The builder: names, scopes, extents, errors that wait in the graph, orders, and gradients of shared values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "graph/op.h"
#include "tandem/ops.h"

static td_graph *new_graph(void)
{
    td_graph *graph = NULL;
    assert_null(td_graph_create(&graph));
    return graph;
}

static void expect_error(td_status *status, td_code code, const char *words)
{
    assert_non_null(status);
    assert_int_equal(td_status_code(status), code);
    if (!strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
}

static void test_an_op_is_named_after_its_first_inputs_scope(void **state)
{
    (void)state;
    td_graph *graph = new_graph();
    td_dim batch = td_extent(graph, "B", 8);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, 4));
    td_value hidden = td_relu(td_linear(x, 3, "bottom.0"));
    assert_string_equal(td_value_name(hidden), "bottom.0/relu");
    assert_string_equal(td_value_name(td_relu(x)), "x/relu");
    assert_true(td_graph_find(graph, "bottom.0.weight").id >= 0);
    td_scope_push(graph, "tower");
    td_value inner = td_linear(x, 2, "0");
    assert_string_equal(td_value_name(inner), "tower/0/linear");
    assert_true(td_graph_find(graph, "tower/0.weight").id >= 0);
    td_scope_pop(graph);
    assert_string_equal(td_value_name(td_name(td_scale(x, 2), "twice")), "twice");
    assert_null(td_graph_check(graph));
    td_graph_destroy(graph);
}

static void test_a_tie_of_automatic_names_must_be_named(void **state)
{
    (void)state;
    td_graph *graph = new_graph();
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 4));
    (void)td_relu(x);
    td_value again = td_relu(x);
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "x/relu");
    (void)td_name(again, "second");
    assert_null(td_graph_check(graph));
    td_graph_destroy(graph);
}

static void test_given_names_are_unique(void **state)
{
    (void)state;
    td_graph *graph = new_graph();
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 4));
    (void)td_linear(x, 2, "fc");
    td_value y = td_linear(x, 2, "fc");
    assert_true(y.id < 0);
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "fc.weight");
    td_graph_destroy(graph);
}

static void test_the_first_error_waits_and_later_calls_do_nothing(void **state)
{
    (void)state;
    td_graph *graph = new_graph();
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 4)), y = td_input(graph, "y", TD_F32, TD_SHAPE(3, 5));
    td_value sum = td_relu(td_linear(td_add(x, y), 2, "fc"));
    assert_true(sum.id < 0);
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "[4, 4]");
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "earlier error");
    td_graph_destroy(graph);
}

static void test_extents_agree_and_values_of_another_graph_are_refused(void **state)
{
    (void)state;
    td_graph *graph = new_graph(), *other = new_graph();
    td_dim batch = td_extent(graph, "B", 8);
    td_dim same = td_extent(graph, "B", 8);
    assert_int_equal(batch.extent, same.extent);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, 4)), z = td_input(other, "z", TD_F32, TD_SHAPE(8, 4));
    (void)td_add(x, z);
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "another graph");
    (void)td_extent(other, "B", 8);
    (void)td_extent(other, "B", 9);
    expect_error(td_graph_check(other), TD_INVALID_ARGUMENT, "capacity 8");
    td_graph_destroy(graph);
    td_graph_destroy(other);
}

static void test_the_number_of_ids_is_checked_like_a_dimension(void **state)
{
    (void)state;
    td_graph *graph = new_graph(), *other = new_graph();
    td_dim foreign = td_extent(other, "n", 8);
    (void)td_input_ragged(graph, "ids", TD_I64, td_dim_constant(4), foreign);
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "another graph");
    td_graph_destroy(graph);
    graph = new_graph();
    (void)td_input_ragged(graph, "ids", TD_I64, td_dim_constant(4), td_extent(graph, "n", INT64_MAX / 2));
    expect_error(td_graph_check(graph), TD_INVALID_ARGUMENT, "more than 2^59");
    td_graph_destroy(graph);
    td_graph_destroy(other);
}

static void test_dense_values_have_no_entries_whatever_the_shape_rule_left(void **state)
{
    (void)state;
    td_graph *graph = new_graph(); /* no extents: nothing may be looked up in their list */
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 1)), y = td_input(graph, "y", TD_F32, TD_SHAPE(4, 1));
    td_tensor loss;
    td_value_tensor(graph, td_mse(x, y).id, NULL, &loss);
    assert_int_equal(loss.entries, 0);
    td_graph_destroy(graph);
}

static void test_an_unknown_op_names_the_nearest(void **state)
{
    (void)state;
    td_graph *graph = new_graph();
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 4));
    (void)td_graph_add1(graph, "sigmoidd", NULL, &x, 1, NULL, 0);
    expect_error(td_graph_check(graph), TD_NOT_FOUND, "did you mean \"sigmoid\"");
    td_graph_destroy(graph);
}

static void test_parameters_without_a_path_to_the_loss_are_refused_unless_frozen(void **state)
{
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        td_graph *graph = new_graph();
        td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 3)), y = td_input(graph, "y", TD_F32, TD_SHAPE(4, 1));
        td_value lost = td_parameter(graph, "lost", TD_F32, TD_SHAPE(2, 2), td_init_constant(0));
        td_value loss = td_mse(td_linear(x, 1, "fc"), y);
        double one = 1;
        if (frozen)
            (void)td_freeze(lost);
        td_value seed = td_scalar(graph, "seed", TD_F64, 1, &one);
        int32_t *gradients = NULL;
        td_status *status = td_graph_differentiate(graph, loss, seed, &gradients);
        if (frozen)
            assert_null(status);
        else
            expect_error(status, TD_INVALID_ARGUMENT, "\"lost\"");
        td_free(gradients);
        td_graph_destroy(graph);
    }
}

/* Builds a value with three consumers; `order` permutes which is added first. */
static td_graph *fan_out(const int order[3])
{
    static const char *const names[] = {"a", "b", "c"};
    td_graph *graph = new_graph();
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 3)), y = td_input(graph, "y", TD_F32, TD_SHAPE(4, 3));
    td_value shared = td_linear(x, 3, "shared"), parts[3];
    for (int i = 0; i < 3; i++)
        parts[order[i]] = td_name(td_scale(shared, 1 + order[i]), names[order[i]]);
    td_value sum = td_name(td_add(td_name(td_add(parts[0], parts[1]), "sum.0"), parts[2]), "sum.1");
    td_value loss = td_mse(sum, y);
    double one = 1;
    td_value seed = td_scalar(graph, "seed", TD_F64, 1, &one);
    int32_t *gradients = NULL;
    assert_null(td_graph_differentiate(graph, loss, seed, &gradients));
    td_free(gradients);
    return graph;
}

static void test_fan_out_gradients_are_summed_in_consumer_name_order(void **state)
{
    (void)state;
    static const int orders[2][3] = {{0, 1, 2}, {2, 0, 1}};
    for (int k = 0; k < 2; k++) {
        td_graph *graph = fan_out(orders[k]);
        td_value sum = td_graph_find(graph, "shared/linear/gradient_sum");
        assert_true(sum.id >= 0);
        const td_node *node = &graph->nodes[graph->values[sum.id].producer];
        assert_int_equal(node->n_inputs, 3);
        static const char scopes[] = "abc";
        for (int i = 0; i < 3; i++)
            assert_int_equal(graph->values[node->inputs[i]].name[0], scopes[i]);
        td_graph_destroy(graph);
    }
}

static void test_the_order_does_not_depend_on_creation(void **state)
{
    (void)state;
    static const int orders[2][3] = {{0, 1, 2}, {1, 2, 0}};
    td_graph *graphs[2];
    int32_t *order[2];
    for (int k = 0; k < 2; k++) {
        graphs[k] = fan_out(orders[k]);
        assert_null(td_graph_order(graphs[k], &order[k]));
    }
    assert_int_equal(graphs[0]->n_nodes, graphs[1]->n_nodes);
    for (int64_t i = 0; i < graphs[0]->n_nodes; i++)
        assert_string_equal(graphs[0]->nodes[order[0][i]].name, graphs[1]->nodes[order[1][i]].name);
    for (int k = 0; k < 2; k++) {
        td_free(order[k]);
        td_graph_destroy(graphs[k]);
    }
}

/* The builder cannot close a circle: inputs exist before their op. Whoever edits a graph can. */
static void test_a_cycle_is_refused_by_the_names_of_its_ops(void **state)
{
    (void)state;
    td_graph *graph = NULL;
    assert_null(td_graph_create(&graph));
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4)), a = td_name(td_add(x, x), "a");
    td_value b = td_name(td_tanh(a), "b"), c = td_name(td_relu(b), "c");
    (void)td_name(td_sigmoid(c), "after");
    graph->nodes[graph->values[a.id].producer].inputs[1] = c.id;
    td_status *status = td_graph_check(graph);
    const char *message = td_status_message(status);
    if (!strstr(message, "the graph has a cycle: ") || !strstr(message, "\"a\" waits for \"c\"") ||
        !strstr(message, "\"b\" waits for \"a\"") || !strstr(message, "\"c\" waits for \"b\"") ||
        strstr(message, "after"))
        fail_msg("%s", message);
    td_status_destroy(status);
    td_graph_destroy(graph);
}

static void test_only_states_are_written_not_their_views(void **state)
{
    (void)state;
    td_graph *graph = NULL;
    assert_null(td_graph_create(&graph));
    const td_value w = td_parameter(graph, "w", TD_F32, TD_SHAPE(2, 3), td_init_constant(0));
    const td_value inputs[2] = {td_reshape(w, TD_SHAPE(6)), w};
    td_graph_add(graph, "sgd", "step", inputs, 2, NULL, 0, NULL, 0);
    td_status *status = td_graph_check(graph);
    assert_non_null(status);
    assert_non_null(strstr(td_status_message(status), "(parameter) is written, so it must be a parameter or state"));
    td_status_destroy(status);
    td_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cycle_is_refused_by_the_names_of_its_ops),
        cmocka_unit_test(test_an_op_is_named_after_its_first_inputs_scope),
        cmocka_unit_test(test_a_tie_of_automatic_names_must_be_named),
        cmocka_unit_test(test_given_names_are_unique),
        cmocka_unit_test(test_the_first_error_waits_and_later_calls_do_nothing),
        cmocka_unit_test(test_extents_agree_and_values_of_another_graph_are_refused),
        cmocka_unit_test(test_the_number_of_ids_is_checked_like_a_dimension),
        cmocka_unit_test(test_dense_values_have_no_entries_whatever_the_shape_rule_left),
        cmocka_unit_test(test_only_states_are_written_not_their_views),
        cmocka_unit_test(test_an_unknown_op_names_the_nearest),
        cmocka_unit_test(test_parameters_without_a_path_to_the_loss_are_refused_unless_frozen),
        cmocka_unit_test(test_fan_out_gradients_are_summed_in_consumer_name_order),
        cmocka_unit_test(test_the_order_does_not_depend_on_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
