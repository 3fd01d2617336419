/* What leaves a plan in 16 bit is f32, whatever op makes it. */
#include "tests/base/check.h"

#include "partition/plan.h"
#include "tandem/ops.h"

static void test_a_loss_made_by_an_op_in_16_bit_is_f32(void **state)
{
    (void)state;
    for (int precision = TD_FP32; precision <= TD_MIXED_FP16; precision++) {
        td_graph *graph = NULL;
        td_plan *plan = NULL;
        td_train_options options = td_train_defaults();
        options.precision = (td_precision)precision;
        assert_ok(td_graph_create(&graph));
        td_value w = td_parameter(graph, "w", TD_F32, TD_SHAPE(1, 4), td_init_normal(0, 1));
        td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(4, 1));
        td_value loss = td_matmul(w, x, false, false);
        td_group(&options, "*", td_adam(0.1));
        assert_ok(td_plan_train(graph, loss, &options, &plan));
        assert_int_equal(plan->graph->values[plan->loss].dtype, TD_F32);
        td_plan_release(plan);
        td_train_options_deinit(&options);
        td_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_loss_made_by_an_op_in_16_bit_is_f32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
