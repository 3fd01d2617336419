/* Interactions of lookups: their vectors lie side by side in the plan, where that changes nothing for anybody else. */
#include <stdio.h>

#include "tests/partition/models.h"

enum { TABLES = 4, DIM = 8 };

static int32_t count_ops(const td_plan *plan, const char *op)
{
    int32_t n = 0;
    for (int64_t i = 0; i < plan->graph->n_nodes; i++)
        n += strcmp(plan->graph->nodes[i].op->name, op) == 0;
    return n;
}

static const td_node *only(const td_plan *plan, const char *op)
{
    assert_int_equal(count_ops(plan, op), 1);
    for (int64_t i = 0; i < plan->graph->n_nodes; i++)
        if (strcmp(plan->graph->nodes[i].op->name, op) == 0)
            return &plan->graph->nodes[i];
    return NULL;
}

/* Bags of `tables` tables, after a dense vector. */
static void look_up(model *m, int tables, td_value *vectors)
{
    vectors[0] = td_relu(td_linear(m->x, DIM, "bottom"));
    for (int i = 0; i < tables; i++) {
        char ids[16], table[24];
        (void)snprintf(ids, sizeof ids, "ids.%d", i);
        (void)snprintf(table, sizeof table, "table.%d.weight", i);
        vectors[i + 1] =
            td_embedding_bag(td_parameter(m->graph, table, TD_F32, TD_SHAPE(10, DIM), td_init_uniform(0.1)),
                             td_input(m->graph, ids, TD_I64, TD_SHAPE(td_extent(m->graph, "B", 8))), TD_SUM);
    }
}

static void test_vectors_that_lookups_make_lie_side_by_side(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value vectors[TABLES + 1];
    look_up(&m, TABLES, vectors);
    td_value pairs = td_name(td_dot_interaction(TABLES + 1, vectors), "pairs");
    assert_ok(model_plan(&m, td_linear(td_concat(2, (td_value[]){vectors[0], pairs}, 1), 1, "top")));
    const td_node *forward = only(m.plan, "dot_interaction"), *backward = only(m.plan, "dot_interaction_gradient");
    assert_string_equal(forward->name, "pairs");
    assert_int_equal(forward->n_inputs, 1);
    assert_int_equal(backward->n_outputs, 1);
    const td_node *lookups = only(m.plan, "embedding_lookups"), *updates = only(m.plan, "embedding_updates");
    assert_int_equal(lookups->outputs[0], forward->inputs[0]);
    int32_t reads = 0;
    for (int32_t i = 0; i < updates->n_inputs; i++)
        reads += updates->inputs[i] == backward->outputs[0];
    assert_int_equal(reads, TABLES);
    assert_int_equal(count_ops(m.plan, "concat"), 1); /* that of the model */
    model_end(&m);
}

static void test_a_lookup_that_others_read_too_stays_where_it_is(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value vectors[TABLES + 1];
    look_up(&m, TABLES, vectors);
    td_value pairs = td_dot_interaction(TABLES + 1, vectors), sum = td_add(vectors[1], vectors[0]);
    assert_ok(model_plan(&m, td_linear(td_concat(2, (td_value[]){sum, pairs}, 1), 1, "top")));
    assert_int_equal(only(m.plan, "dot_interaction")->n_inputs,
                     TABLES + 1); /* it comes of a lookup: nothing is moved */
    model_end(&m);
}

static void test_few_lookups_among_many_vectors_stay_apart(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value vectors[5];
    look_up(&m, 1, vectors);
    vectors[2] = td_tanh(vectors[0]);
    vectors[3] = td_sigmoid(vectors[0]);
    vectors[4] = td_gelu(vectors[0], false);
    assert_ok(model_plan(&m, td_linear(td_dot_interaction(5, vectors), 1, "top")));
    assert_int_equal(only(m.plan, "dot_interaction")->n_inputs, 5);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_that_lookups_make_lie_side_by_side),
        cmocka_unit_test(test_a_lookup_that_others_read_too_stays_where_it_is),
        cmocka_unit_test(test_few_lookups_among_many_vectors_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
