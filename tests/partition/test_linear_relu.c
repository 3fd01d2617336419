/* Relu and its gradient become part of the products before them, unless somebody sees what lies between. Bits: the golden
 * cases and the random models hold fused plans to what separate ops give. */
#include "tests/partition/models.h"

static bool has_node(const model *m, const char *name)
{
    return td_name_map_get(&m->plan->graph->node_names, name) >= 0;
}

/* The inputs of a node that are there. */
static int32_t inputs_of(const model *m, const char *name)
{
    const td_node *node = &m->plan->graph->nodes[td_name_map_get(&m->plan->graph->node_names, name)];
    int32_t n = 0;
    for (int32_t i = 0; i < node->n_inputs; i++)
        n += node->inputs[i] >= 0;
    return n;
}

static void test_relu_and_its_gradient_are_fused_into_the_products_before_them(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value hidden = td_relu(td_linear(m.x, 5, "a"));
    assert_ok(model_plan(&m, td_linear(hidden, 1, "b")));
    assert_false(has_node(&m, "a/relu"));
    assert_false(has_node(&m, "a/relu/relu_gradient"));
    assert_int_equal(inputs_of(&m, "b/linear/linear_input_gradient"), 3);
    assert_false(has_node(&m, "a/linear/linear_input_gradient")); /* nobody needs the gradient of x */
    model_end(&m);
}

static void test_what_is_read_between_product_and_relu_is_kept(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value before = td_linear(m.x, 5, "a"), hidden = td_relu(before);
    td_output(before);
    assert_ok(model_plan(&m, td_linear(hidden, 1, "b")));
    assert_true(has_node(&m, "a/relu"));
    assert_false(has_node(&m, "a/relu/relu_gradient"));
    model_end(&m);

    m = model_begin(4); /* two readers: the gradient is a sum, and its relu_gradient stays */
    before = td_linear(m.x, 5, "a");
    hidden = td_relu(before);
    assert_ok(model_plan(&m, td_add(td_linear(hidden, 1, "b"), td_linear(hidden, 1, "c"))));
    assert_false(has_node(&m, "a/relu"));
    assert_true(has_node(&m, "a/relu/relu_gradient"));
    model_end(&m);
}

static void test_ops_of_two_devices_are_not_fused(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_value hidden = td_target(td_relu(td_linear(m.x, 5, "a")), "cpu");
    assert_ok(model_plan(&m, td_linear(hidden, 1, "b")));
    assert_string_equal(device_of(m.plan, "a/relu"), "cpu");
    assert_string_equal(device_of(m.plan, "a/relu/relu_gradient"), "cpu");
    assert_string_equal(device_of(m.plan, "a/linear"), "accel");
    model_end(&m);

    m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_place(&m.options, "*/relu", "cpu");
    hidden = td_relu(td_linear(m.x, 5, "a"));
    assert_ok(model_plan(&m, td_linear(hidden, 1, "b")));
    assert_string_equal(device_of(m.plan, "a/relu"), "cpu");
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu_and_its_gradient_are_fused_into_the_products_before_them),
        cmocka_unit_test(test_what_is_read_between_product_and_relu_is_kept),
        cmocka_unit_test(test_ops_of_two_devices_are_not_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
