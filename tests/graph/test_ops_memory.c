/* Building and differentiating a model of embeddings, interaction, crossing, normalisation and dropout, with every single
 * allocation failing once: each is reported as out of memory and nothing stays allocated. */
#include "tests/base/check.h"

#include "graph/op.h"

static td_value model(td_graph *graph)
{
    const td_dim batch = td_extent(graph, "B", 8), entries = td_extent(graph, "N", 20);
    const td_value ids = td_input_ragged(graph, "ids", TD_I64, batch, entries);
    const td_value item = td_input(graph, "item", TD_I64, TD_SHAPE(batch));
    const td_value label = td_input(graph, "label", TD_F32, TD_SHAPE(batch, 1));
    const td_value table = td_parameter(graph, "t.weight", TD_F32, TD_SHAPE(30, 4), td_init_uniform(0.1));
    const td_value weights = td_parameter(graph, "w.weight", TD_F32, TD_SHAPE(30, 4), td_init_uniform(0.1));
    td_value vectors[3] = {td_embedding_bag(table, ids, TD_MEAN), td_embedding(table, item, (td_embedding_options){0}),
                           td_embedding(weights, item, (td_embedding_options){.dense = true})};
    td_value x = td_concat(2, (td_value[]){vectors[0], td_dot_interaction(3, vectors)}, 1);
    x = td_dropout(td_layer_norm(td_cross_layer(x, x, "cross"), 1e-5, "norm"), 0.1);
    return td_bce_with_logits(td_linear(x, 1, "top"), label);
}

static td_status *build(void *context)
{
    td_graph **graph = context;
    int32_t *gradients = NULL;
    const double one = 1;
    td_status *status = td_graph_create(graph);
    if (!status) {
        const td_value loss = model(*graph);
        const td_value seed = td_scalar(*graph, "seed", TD_F64, 1, &one);
        status = td_graph_check(*graph);
        if (!status)
            status = td_graph_differentiate(*graph, loss, seed, &gradients);
    }
    td_free(gradients);
    if (status)
        td_graph_destroy(*graph);
    if (status)
        *graph = NULL;
    return status;
}

static void undo(void *context)
{
    td_graph **graph = context;
    td_graph_destroy(*graph);
    *graph = NULL;
}

static void test_building_survives_every_allocation_failure(void **state)
{
    (void)state;
    td_graph *graph = NULL;
    assert_true(assert_survives_allocation_failures(build, undo, &graph) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_building_survives_every_allocation_failure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
