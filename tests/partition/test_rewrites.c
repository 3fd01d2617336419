/* The optimizer's rules, each alone: what it takes away, what it must leave, and that names survive. That no rule changes a
 * bit is shown on random models by tests/property/test_runs.c. */
#include <stdio.h>

#include "graph/op.h"
#include "tests/partition/models.h"

/* The plan of `y` alone, an evaluation on the host; also released by model_end. */
static td_plan *plan_of(model *m, td_value y, td_jit_level level)
{
    char problem[PLAN_PROBLEM_BYTES];
    m->options.jit_level = level;
    td_plan_release(m->plan);
    m->plan = NULL;
    assert_ok(td_plan_evaluate(m->graph, &y, 1, &m->options, NULL, &m->plan));
    if (!plan_check(m->plan, problem))
        fail_msg("%s", problem);
    return m->plan;
}

static int64_t count_ops(const td_plan *plan, const char *op)
{
    int64_t n = 0;
    for (int64_t i = 0; i < plan->graph->n_nodes; i++)
        n += strcmp(plan->graph->nodes[i].op->name, op) == 0;
    return n;
}

/* `y` needs `before` ops as written and `after` at O1. */
static void assert_shrinks(model *m, td_value y, int64_t before, int64_t after)
{
    assert_int_equal(plan_of(m, y, TD_O0)->graph->n_nodes, before);
    assert_int_equal(plan_of(m, y, TD_O1)->graph->n_nodes, after);
}

static td_value constant(model *m, double number)
{
    int64_t shape[3] = {-1, 0, 4};
    const td_attr attrs[] = {TD_INTS("shape", shape, 3), TD_FLOAT("value", number)};
    return td_graph_add1(m->graph, "constant", number == 0 && 1 / number < 0 ? "minus_zero" : "number", NULL, 0, attrs,
                         2);
}

static void test_ops_that_hand_their_input_on_are_left_out(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value y = td_relu(m.x);
    y = td_name(td_scale(y, 1.0), "one");
    y = td_name(td_cast(y, TD_F32), "same");
    y = td_name(td_copy(y), "again");
    y = td_name(td_slice(y, 1, 0, 4), "whole");
    y = td_name(td_concat(1, &y, 1), "alone");
    y = td_name(td_dropout(y, 0.5), "evaluated");
    y = td_name(td_sigmoid(y), "end");
    assert_shrinks(&m, y, 8, 2);
    model_end(&m);
}

static void test_an_op_with_a_target_of_its_own_stays(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value y = td_target(td_name(td_scale(td_relu(m.x), 1.0), "one"), "cpu");
    assert_shrinks(&m, y, 2, 2);
    model_end(&m);
}

static void test_only_exact_neutral_elements_are_left_out(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value x = td_relu(m.x), one = constant(&m, 1);
    assert_shrinks(&m, td_name(td_mul(one, x), "a"), 3, 1);
    assert_shrinks(&m, td_name(td_div(x, one), "b"), 3, 1);
    assert_shrinks(&m, td_name(td_div(one, x), "c"), 3, 3);
    assert_shrinks(&m, td_name(td_add(x, constant(&m, -0.0)), "d"), 3, 1);
    model_end(&m);
    m = model_begin(4);
    td_value zero = constant(&m, 0);
    x = td_relu(m.x);
    assert_shrinks(&m, td_name(td_sub(x, zero), "e"), 3, 1);
    assert_shrinks(&m, td_name(td_add(x, zero), "f"), 3, 3); /* -0 + 0 is 0 */
    model_end(&m);
}

static void test_views_and_transposes_in_a_row_are_one_or_none(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_dim batch = td_extent(m.graph, "B", 8);
    td_value x = td_relu(m.x), y = td_name(td_reshape(x, TD_SHAPE(batch, 2, 2)), "square");
    assert_shrinks(&m, td_name(td_sigmoid(td_name(td_reshape(y, TD_SHAPE(batch, 1, 4)), "row")), "p"), 4, 3);
    assert_shrinks(&m, td_name(td_sigmoid(td_name(td_reshape(y, TD_SHAPE(batch, 4)), "back")), "q"), 4, 2);
    td_value turned = td_name(td_transpose(y, 3, (int32_t[]){0, 2, 1}), "turned");
    assert_shrinks(&m, td_name(td_tanh(td_name(td_transpose(turned, 3, (int32_t[]){0, 2, 1}), "there")), "r"), 5, 3);
    td_value rotated = td_name(td_transpose(turned, 3, (int32_t[]){2, 0, 1}), "rotated");
    assert_shrinks(&m, td_name(td_tanh(rotated), "s"), 5, 4);
    int32_t id = td_name_map_get(&m.plan->graph->node_names, "rotated");
    const td_attr *axes = td_attr_find(m.plan->graph->nodes[id].attrs, m.plan->graph->nodes[id].n_attrs, "permutation");
    assert_true(axes->ints[0] == 1 && axes->ints[1] == 0 && axes->ints[2] == 2); /* (0 2 1) picked by (2 0 1) */
    model_end(&m);
}

static void test_only_casts_that_lose_nothing_are_undone(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value x = td_relu(m.x), half = td_name(td_cast(x, TD_BF16), "half");
    td_value wide = td_name(td_cast(half, TD_F32), "wide");
    assert_shrinks(&m, wide, 3, 3); /* the first cast rounded */
    assert_shrinks(&m, td_name(td_cast(wide, TD_BF16), "half_again"), 4, 2);
    model_end(&m);
}

static void test_what_the_graph_fixes_is_computed_once(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value two = td_name(td_add(constant(&m, 1), td_name(td_sigmoid(constant(&m, -0.0)), "half")), "sum");
    td_value y = td_name(td_mul(td_relu(m.x), td_name(td_scale(two, 3.0), "factor")), "product");
    assert_shrinks(&m, y, 7, 3);
    int32_t id = td_name_map_get(&m.plan->graph->node_names, "factor");
    const td_node *factor = &m.plan->graph->nodes[id];
    assert_string_equal(factor->op->name, "constant");
    assert_true(td_attr_float(factor->attrs, factor->n_attrs, "value", 0) == 4.5);
    model_end(&m);
}

static void test_equal_ops_are_one_but_not_across_the_users_placements(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value a = td_name(td_sigmoid(m.x), "a"), b = td_name(td_sigmoid(m.x), "b");
    td_value y = td_name(td_mul(a, b), "product");
    assert_shrinks(&m, y, 3, 2);
    assert_non_null(node_of(m.plan, "a")); /* the first by name */
    td_target(b, "cpu");
    assert_shrinks(&m, y, 3, 3);
    model_end(&m);
    m = model_begin(4);
    td_place(&m.options, "b", "cpu");
    a = td_name(td_sigmoid(m.x), "a");
    b = td_name(td_sigmoid(m.x), "b");
    assert_shrinks(&m, td_name(td_mul(a, b), "product"), 3, 3);
    model_end(&m);
}

static void test_two_dropouts_are_not_one(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value a = td_name(td_dropout(m.x, 0.5), "a"), b = td_name(td_dropout(m.x, 0.5), "b");
    td_value weight = td_parameter(m.graph, "w", TD_F32, TD_SHAPE(4), td_init_uniform(1));
    assert_ok(model_plan(&m, td_linear(td_mul(td_add(a, b), weight), 1, "out")));
    assert_int_equal(count_ops(m.plan, "dropout"), 2);
    model_end(&m);
}

static void test_an_embeddings_gradient_and_update_are_fused_at_O2(void **state)
{
    (void)state;
    for (int level = TD_O1; level <= TD_O2; level++) {
        model m = model_begin(4);
        m.options.jit_level = (td_jit_level)level;
        assert_ok(model_plan(&m, td_linear(td_add(m.x, model_lookup(&m, 10, 4, false)), 1, "out")));
        assert_int_equal(count_ops(m.plan, "embedding_update"), level == TD_O2);
        assert_int_equal(count_ops(m.plan, "embedding_gradient"), level != TD_O2);
        model_end(&m);
    }
}

static void test_elementwise_ops_that_feed_only_each_other_are_one(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value row = td_parameter(m.graph, "row", TD_F32, TD_SHAPE(4), td_init_uniform(1));
    td_value a = td_name(td_mul(m.x, row), "a"), b = td_name(td_relu(a), "b"), c = td_name(td_tanh(a), "c");
    td_value d = td_name(td_add(b, c), "d");
    td_value y =
        td_name(td_reduce_sum(td_name(td_scale(td_name(td_cast(d, TD_BF16), "half"), 0.3), "e"), 1, false), "end");
    assert_int_equal(plan_of(&m, y, TD_O1)->graph->n_nodes, 7);
    assert_int_equal(plan_of(&m, y, TD_O2)->graph->n_nodes, 2);
    assert_int_equal(count_ops(m.plan, "fused_elementwise"), 1);
    char *text = NULL;
    assert_ok(td_plan_explain(m.plan, "c", &text));
    assert_contains(text, "c (tanh) is \"e\" now; rule elementwise_chain");
    assert_contains(text, "it was written as scale");
    td_text_free(text);
    td_output(b); /* a reader outside: b stays, and what is behind it */
    assert_int_equal(plan_of(&m, y, TD_O2)->graph->n_nodes, 4);
    assert_non_null(node_of(m.plan, "b"));
    model_end(&m);
}

static void test_a_group_never_waits_for_itself(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value a = td_name(td_relu(m.x), "a"), outside = td_name(td_softmax(a), "outside");
    td_value y = td_name(td_mul(td_name(td_tanh(a), "b"), outside), "end");
    assert_int_equal(plan_of(&m, y, TD_O2)->graph->n_nodes, 3); /* b and end; a is read outside */
    model_end(&m);
}

static void test_long_chains_are_cut_into_programs_of_the_largest_size(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value y = m.x;
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        y = td_name(i % 2 ? td_tanh(y) : td_mul(y, m.x), name);
    }
    assert_int_equal(plan_of(&m, y, TD_O2)->graph->n_nodes, 7); /* 6 of 16, one of 4 */
    model_end(&m);
}

static void test_ops_of_two_devices_and_those_that_wait_for_copies_are_not_fused(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=1MiB");
    td_value a = td_name(td_relu(m.x), "a"), b = td_target(td_name(td_tanh(a), "b"), "cpu");
    td_value c = td_name(td_sigmoid(a), "c"), d = td_name(td_mul(c, b), "d"); /* d waits for b: c must not */
    (void)plan_of(&m, td_name(td_relu(td_name(td_tanh(d), "e")), "end"), TD_O2);
    assert_string_equal(device_of(m.plan, "a"), "accel");
    assert_string_equal(device_of(m.plan, "b"), "cpu");
    assert_non_null(node_of(m.plan, "c"));
    assert_non_null(node_of(m.plan, "d"));
    assert_int_equal(count_ops(m.plan, "fused_elementwise"), 1); /* e and end */
    model_end(&m);
}

static void test_names_of_what_was_taken_away_are_explained(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    td_value y = td_name(td_scale(td_name(td_copy(td_name(td_relu(m.x), "first")), "second"), 1.0), "third");
    m.options.keep_dumps = true;
    (void)plan_of(&m, td_name(td_tanh(y), "end"), TD_O1);
    assert_ok(td_plan_explain(m.plan, "third", &text));
    assert_contains(text, "third (scale) is \"first\" now; rule no_op");
    assert_contains(text, "first (relu) runs on cpu");
    assert_contains(text, "it does the work of second (copy), third (scale)");
    td_text_free(text);
    td_status *status = td_plan_explain(m.plan, "thirt", &text);
    assert_contains(td_status_message(status), "did you mean \"third\"");
    td_status_destroy(status);
    assert_ok(td_plan_dump(m.plan, "optimize", &text));
    assert_contains(text, "# no_op: third scale -> first");
    td_text_free(text);
    assert_ok(td_plan_json(m.plan, &text));
    assert_contains(text, "\"level\": \"O1\"");
    assert_contains(text, "\"count\": 2");
    td_text_free(text);
    model_end(&m);
}

static void test_an_output_that_was_folded_is_still_read(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value watched = td_name(td_scale(td_name(td_relu(m.x), "first"), 1.0), "watched");
    td_output(watched);
    (void)plan_of(&m, td_name(td_tanh(watched), "end"), TD_O2);
    assert_int_equal(m.plan->n_outputs, 2);
    assert_string_equal(m.plan->graph->values[m.plan->outputs[1]].name, "first");
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_that_hand_their_input_on_are_left_out),
        cmocka_unit_test(test_an_op_with_a_target_of_its_own_stays),
        cmocka_unit_test(test_only_exact_neutral_elements_are_left_out),
        cmocka_unit_test(test_views_and_transposes_in_a_row_are_one_or_none),
        cmocka_unit_test(test_only_casts_that_lose_nothing_are_undone),
        cmocka_unit_test(test_what_the_graph_fixes_is_computed_once),
        cmocka_unit_test(test_equal_ops_are_one_but_not_across_the_users_placements),
        cmocka_unit_test(test_two_dropouts_are_not_one),
        cmocka_unit_test(test_an_embeddings_gradient_and_update_are_fused_at_O2),
        cmocka_unit_test(test_elementwise_ops_that_feed_only_each_other_are_one),
        cmocka_unit_test(test_a_group_never_waits_for_itself),
        cmocka_unit_test(test_long_chains_are_cut_into_programs_of_the_largest_size),
        cmocka_unit_test(test_ops_of_two_devices_and_those_that_wait_for_copies_are_not_fused),
        cmocka_unit_test(test_names_of_what_was_taken_away_are_explained),
        cmocka_unit_test(test_an_output_that_was_folded_is_still_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
