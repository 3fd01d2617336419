/* Where ops and parameters go, and why: the precedence of DESIGN section 4, rule by rule, and what is refused. */
#include <jansson.h>

#include "tests/partition/models.h"
#include "where.h"

#define ACCELERATOR "emulated:memory=8MiB"

/* A model with a lookup: "table/embedding" -> "top/linear" -> loss. */
static model lookup_model(td_value *out_logit, td_value *out_rows)
{
    model m = model_begin(4);
    *out_rows = model_lookup(&m, 10, 4, false);
    *out_logit = td_linear(td_add(*out_rows, m.x), 1, "top");
    td_add_device(&m.options, "accel", ACCELERATOR);
    td_add_device(&m.options, "second", ACCELERATOR);
    return m;
}

static void test_without_a_cause_an_op_goes_to_the_default_device_which_is_the_first_accelerator(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "top/linear"), "accel");
    assert_string_equal(device_of(m.plan, "table/embedding"), "accel");
    assert_string_equal(node_of(m.plan, "top/linear")->cause, "default device");
    model_end(&m);
}

static void test_the_default_device_may_be_any_and_its_name_ignores_case(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    td_default_device(&m.options, "Second");
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "top/linear"), "second");
    model_end(&m);
}

static void test_a_rule_of_the_table_beats_the_default_and_takes_lookup_state_and_update_along(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    td_place_because(&m.options, "table.*", "second", "rule \"table.*\" (a.yaml:3)");
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "table/embedding"), "second");
    assert_string_equal(home_of(m.plan, "table.weight"), "second");
    assert_string_equal(home_of(m.plan, "table.weight/acc"), "second");
    assert_string_equal(device_of(m.plan, "table.weight/update_rows"), "second");
    assert_contains(node_of(m.plan, "table/embedding")->cause, "rule \"table.*\" (a.yaml:3)");
    assert_string_equal(device_of(m.plan, "top/linear"), "accel");
    model_end(&m);
}

static void test_offload_beats_the_rule_of_a_table(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    td_place(&m.options, "table.*", "second");
    m.options.offload_embedding = true;
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "table/embedding"), "cpu");
    assert_string_equal(home_of(m.plan, "table.weight"), "cpu");
    assert_contains(node_of(m.plan, "table/embedding")->cause, "offload.embedding");
    model_end(&m);
}

static void test_a_rule_of_the_op_beats_offload(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    td_place(&m.options, "table/*", "second");
    m.options.offload_embedding = true;
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "table/embedding"), "second");
    model_end(&m);
}

static void test_the_target_of_an_op_beats_every_rule(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    (void)td_target(rows, "accel");
    td_place(&m.options, "*", "second");
    m.options.offload_embedding = true;
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "table/embedding"), "accel");
    assert_string_equal(home_of(m.plan, "table.weight"), "accel");
    assert_string_equal(device_of(m.plan, "top/linear"), "second");
    assert_contains(node_of(m.plan, "table/embedding")->cause, "primitive_target is \"accel\"");
    model_end(&m);
}

static void test_the_first_rule_that_matches_counts(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    td_place(&m.options, "top/*", "second");
    td_place(&m.options, "*", "cpu");
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "top/linear"), "second");
    assert_string_equal(device_of(m.plan, "table/embedding"), "cpu");
    model_end(&m);
}

static void test_target_names_ignore_case_and_cpu_and_device_are_always_known(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "Host", "cpu");
    td_add_device(&m.options, "accel", ACCELERATOR);
    td_value a = td_target(td_name(td_relu(m.x), "a"), "AcCeL"), b = td_target(td_name(td_tanh(m.x), "b"), "CPU");
    td_value c = td_target(td_name(td_sigmoid(m.x), "c"), "Device"),
             d = td_target(td_name(td_gelu(m.x, false), "d"), "hOST");
    assert_ok(model_plan(&m, td_linear(td_concat(4, (td_value[]){a, b, c, d}, 1), 1, "top")));
    assert_string_equal(device_of(m.plan, "a"), "accel");
    assert_string_equal(device_of(m.plan, "b"), "Host");
    assert_string_equal(device_of(m.plan, "c"), "accel");
    assert_string_equal(device_of(m.plan, "d"), "Host");
    model_end(&m);
}

static void test_device_is_the_host_where_there_is_no_accelerator(void **state)
{
    (void)state;
    model m = model_begin(4);
    assert_ok(model_plan(&m, td_linear(td_target(td_name(td_relu(m.x), "a"), "DEVICE"), 1, "top")));
    assert_string_equal(device_of(m.plan, "a"), "cpu");
    model_end(&m);
}

static void test_an_unknown_target_is_refused_with_op_name_and_what_there_is(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    (void)td_target(logit, "acel");
    assert_error(model_plan(&m, logit), TD_INVALID_ARGUMENT,
                 "op \"top/linear\" asks for device \"acel\"; there is: cpu, accel, second");
    model_end(&m);
}

static void test_a_rule_for_an_unknown_device_is_refused_even_where_it_matches_no_op(void **state)
{
    (void)state;
    static const char *const matches[] = {"top/*", "top.weight", "nothing"};
    for (int i = 0; i < 3; i++) {
        td_value logit, rows;
        model m = lookup_model(&logit, &rows);
        td_place(&m.options, matches[i], "third");
        assert_error(model_plan(&m, logit), TD_INVALID_ARGUMENT,
                     "\" asks for device \"third\"; there is: cpu, accel, second");
        model_end(&m);
    }
}

static void test_a_default_device_that_is_not_there_is_refused(void **state)
{
    (void)state;
    td_value logit, rows;
    model m = lookup_model(&logit, &rows);
    td_default_device(&m.options, "third");
    assert_error(model_plan(&m, logit), TD_INVALID_ARGUMENT,
                 "placement.default asks for device \"third\"; there is: cpu, accel, second");
    model_end(&m);
}

/* ---- what a device cannot run ------------------------------------------------------------------------------------------------ */

static model softmax_model(td_value *out_softmax, td_value *out_logit)
{
    model m = model_begin(4);
    *out_softmax = td_name(td_softmax(m.x), "soft");
    *out_logit = td_linear(*out_softmax, 1, "top");
    td_add_device(&m.options, "accel", TD_PARTNER_PLUGIN ":without=softmax");
    return m;
}

static void test_an_unmarked_op_that_the_default_device_cannot_run_moves_to_the_host_and_is_listed(void **state)
{
    (void)state;
    td_value soft, logit;
    char *text = NULL;
    model m = softmax_model(&soft, &logit);
    assert_ok(model_plan(&m, logit));
    assert_string_equal(device_of(m.plan, "soft"), "cpu");
    assert_string_equal(device_of(m.plan, "top/linear"), "accel");
    assert_ok(td_plan_json(m.plan, &text));
    json_t *json = json_loads(text, 0, NULL), *moved = json_object_get(json, "moved");
    assert_int_equal(json_array_size(moved), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(moved, 0), "op")), "soft");
    assert_contains(json_string_value(json_object_get(json_array_get(moved, 0), "why")),
                    "partner was told to do without softmax");
    json_decref(json);
    td_text_free(text);
    model_end(&m);
}

static void test_a_marked_op_that_its_device_cannot_run_is_refused_with_op_target_and_reason(void **state)
{
    (void)state;
    for (int by_rule = 0; by_rule < 2; by_rule++) {
        td_value soft, logit;
        model m = softmax_model(&soft, &logit);
        if (by_rule)
            td_place(&m.options, "soft", "accel");
        else
            (void)td_target(soft, "accel");
        td_status *status = model_plan(&m, logit);
        assert_int_equal(td_status_code(status), TD_UNSUPPORTED);
        assert_contains(td_status_message(status),
                        "softmax \"soft\" cannot run on accel: partner was told to do without softmax");
        assert_contains(td_status_message(status), by_rule ? "the rule \"soft\"" : "its primitive_target is \"accel\"");
        td_status_destroy(status);
        model_end(&m);
    }
}

static void test_a_dense_gradient_of_a_table_on_the_host_is_refused(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", ACCELERATOR);
    td_place(&m.options, "table.*", "cpu");
    td_value logit = td_linear(model_lookup(&m, 10, 4, true), 1, "top");
    assert_error(model_plan(&m, logit), TD_UNSUPPORTED,
                 "embedding \"table/embedding\" runs on the host and asks for a dense gradient");
    model_end(&m);
}

static void test_a_dense_gradient_of_a_table_on_an_accelerator_is_fine(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", ACCELERATOR);
    assert_ok(model_plan(&m, td_linear(model_lookup(&m, 10, 4, true), 1, "top")));
    assert_string_equal(home_of(m.plan, "table.weight"), "accel");
    model_end(&m);
}

static td_status *count_nothing(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    (void)context;
    (void)inputs;
    (void)n_inputs;
    *(float *)output->data = 0;
    return NULL;
}

static void add_host_function(model *m)
{
    td_output(td_host_call(m->graph, count_nothing, NULL, 1, &m->x, TD_F32, TD_SHAPE(1), "count"));
}

static void test_a_pattern_that_happens_to_match_a_host_function_does_not_move_it_but_its_name_is_refused(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", ACCELERATOR);
    td_place(&m.options, "*", "accel");
    add_host_function(&m);
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    assert_string_equal(device_of(m.plan, "count"), "cpu");
    assert_string_equal(device_of(m.plan, "top/linear"), "accel");
    model_end(&m);
    m = model_begin(4);
    td_add_device(&m.options, "accel", ACCELERATOR);
    td_place(&m.options, "count", "accel");
    add_host_function(&m);
    td_status *status = model_plan(&m, td_linear(m.x, 1, "top"));
    assert_contains(td_status_message(status), "host_call \"count\" cannot run on accel: it runs on the host only");
    assert_contains(td_status_message(status), "try: a target or rule \"cpu\"");
    td_status_destroy(status);
    model_end(&m);
}

static void test_a_rule_that_matches_nothing_is_remarked_on_with_the_nearest_name(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_place(&m.options, "top/linaer", "cpu");
    td_place(&m.options, "top.*", "cpu");
    td_place(&m.options, "linear", "cpu");
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    assert_int_equal(m.plan->n_idle_rules, 2);
    assert_string_equal(m.plan->idle_rules[1], "the rule \"linear\" matches no op and no parameter; did you mean "
                                               "\"top/linear\"?");
    assert_string_equal(m.plan->idle_rules[0], "the rule \"top/linaer\" matches no op and no parameter; did you mean "
                                               "\"top/linear\"?");
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_cause_an_op_goes_to_the_default_device_which_is_the_first_accelerator),
        cmocka_unit_test(test_the_default_device_may_be_any_and_its_name_ignores_case),
        cmocka_unit_test(test_a_rule_of_the_table_beats_the_default_and_takes_lookup_state_and_update_along),
        cmocka_unit_test(test_offload_beats_the_rule_of_a_table),
        cmocka_unit_test(test_a_rule_of_the_op_beats_offload),
        cmocka_unit_test(test_the_target_of_an_op_beats_every_rule),
        cmocka_unit_test(test_the_first_rule_that_matches_counts),
        cmocka_unit_test(test_target_names_ignore_case_and_cpu_and_device_are_always_known),
        cmocka_unit_test(test_device_is_the_host_where_there_is_no_accelerator),
        cmocka_unit_test(test_an_unknown_target_is_refused_with_op_name_and_what_there_is),
        cmocka_unit_test(test_a_rule_for_an_unknown_device_is_refused_even_where_it_matches_no_op),
        cmocka_unit_test(test_a_default_device_that_is_not_there_is_refused),
        cmocka_unit_test(test_an_unmarked_op_that_the_default_device_cannot_run_moves_to_the_host_and_is_listed),
        cmocka_unit_test(test_a_marked_op_that_its_device_cannot_run_is_refused_with_op_target_and_reason),
        cmocka_unit_test(test_a_dense_gradient_of_a_table_on_the_host_is_refused),
        cmocka_unit_test(test_a_dense_gradient_of_a_table_on_an_accelerator_is_fine),
        cmocka_unit_test(test_a_pattern_that_happens_to_match_a_host_function_does_not_move_it_but_its_name_is_refused),
        cmocka_unit_test(test_a_rule_that_matches_nothing_is_remarked_on_with_the_nearest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
