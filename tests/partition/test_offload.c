/* The planner with the optimizer offloaded: who goes where and why, rules before the key, what is refused; gradients leave while
 * backward still runs, parameters come back bucket by bucket, and the next forward waits for what it reads alone. */
#include <stdio.h>

#include "tests/partition/models.h"

/* Four layers of 256 x 256: a bucket each. */
static model deep_model(void)
{
    model m = model_begin(256);
    td_add_device(&m.options, "accel", "emulated:memory=64MiB");
    m.options.offload_optimizer = TD_OFFLOAD_CPU;
    return m;
}

static td_value deep_logit(model *m)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    td_value x = m->x;
    for (int i = 0; i < 4; i++)
        x = td_tanh(td_linear(x, 256, names[i]));
    return td_linear(x, 1, "top");
}

static int32_t cluster_of(const td_plan *plan, const char *node)
{
    return node_of(plan, node)->cluster;
}

static bool waits_across(const td_plan *plan, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < plan->clusters[from].n_across; i++)
        if (plan->clusters[from].across[i] == to)
            return true;
    return false;
}

static void test_parameters_state_and_updates_go_to_the_host_and_replicas_stay(void **state)
{
    (void)state;
    model m = deep_model();
    assert_ok(model_plan(&m, deep_logit(&m)));
    assert_string_equal(home_of(m.plan, "a.weight"), "cpu");
    assert_string_equal(home_of(m.plan, "a.weight/acc"), "cpu");
    assert_string_equal(home_of(m.plan, "a.weight@accel"), "accel");
    assert_string_equal(device_of(m.plan, "a.weight/update"), "cpu");
    assert_string_equal(node_of(m.plan, "a.weight/update")->cause, "offload.optimizer is cpu");
    assert_int_equal(node_of(m.plan, "a.weight/refresh@accel")->lane, TD_QUEUE_TO_DEVICE);
    model_end(&m);
}

static void test_explain_says_why_a_layer_is_cut_from_the_next(void **state)
{
    (void)state;
    char *text = NULL;
    model m = deep_model();
    assert_ok(model_plan(&m, deep_logit(&m)));
    const char *first = m.plan->clusters[cluster_of(m.plan, "a/linear")].name;
    assert_ok(td_plan_explain(m.plan, first, &text));
    assert_contains(text, " behind it: gradients leave before all are made, and parameters come as they are needed\n");
    td_text_free(text);
    model_end(&m);
}

static void test_a_rule_for_updates_offloads_without_the_key_and_holds_back_with_it(void **state)
{
    (void)state;
    model m = deep_model();
    m.options.offload_optimizer = TD_OFFLOAD_NONE;
    td_place(&m.options, "b.*/update", "cpu");
    assert_ok(model_plan(&m, deep_logit(&m)));
    assert_string_equal(device_of(m.plan, "b.weight/update"), "cpu");
    assert_contains(node_of(m.plan, "b.weight/update")->cause, "rule \"b.*/update\"");
    assert_string_equal(home_of(m.plan, "b.weight@accel"), "accel");
    assert_string_equal(device_of(m.plan, "a.weight/update"), "accel");
    model_end(&m);

    m = deep_model();
    td_place(&m.options, "b.*/update", "accel");
    assert_ok(model_plan(&m, deep_logit(&m)));
    assert_string_equal(device_of(m.plan, "b.weight/update"), "accel");
    assert_string_equal(device_of(m.plan, "a.weight/update"), "cpu");
    model_end(&m);
}

/* Names in another order than layers: what forward reads first stays, whether it reads parameters or their casts. */
static void test_what_forward_reads_first_stays_in_every_precision(void **state)
{
    (void)state;
    for (int precision = TD_FP32; precision <= TD_MIXED_FP16; precision++) {
        model m = deep_model();
        m.options.precision = (td_precision)precision;
        m.options.offload_ratio = 0.5;
        td_value x = td_tanh(td_linear(td_tanh(td_linear(m.x, 256, "d")), 256, "c"));
        x = td_tanh(td_linear(td_tanh(td_linear(x, 256, "b")), 256, "a"));
        assert_ok(model_plan(&m, td_linear(x, 1, "top")));
        assert_string_equal(device_of(m.plan, "d.weight/update"), "accel");
        assert_string_equal(device_of(m.plan, "d.bias/update"), "accel");
        assert_string_equal(device_of(m.plan, "b.weight/update"), "cpu");
        assert_string_equal(device_of(m.plan, "a.weight/update"), "cpu");
        assert_string_equal(device_of(m.plan, "top.bias/update"), "cpu");
        model_end(&m);
    }
}

static void test_a_rule_that_sends_an_update_to_a_third_device_is_refused(void **state)
{
    (void)state;
    model m = deep_model();
    td_add_device(&m.options, "other", "emulated:memory=64MiB");
    td_place(&m.options, "b.weight/update", "other");
    td_status *status = model_plan(&m, deep_logit(&m));
    assert_int_equal(td_status_code(status), TD_UNSUPPORTED);
    assert_contains(td_status_message(status),
                    "puts \"b.weight/update\" on other: an update runs where its parameter is "
                    "read (accel) or on cpu");
    td_status_destroy(status);
    model_end(&m);
}

static void test_a_table_that_is_looked_up_on_the_device_is_refused_with_what_to_do(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=64MiB");
    m.options.offload_optimizer = TD_OFFLOAD_CPU;
    td_status *status = model_plan(&m, td_linear(model_lookup(&m, 100, 4, false), 1, "top"));
    assert_int_equal(td_status_code(status), TD_UNSUPPORTED);
    assert_contains(td_status_message(status), "\"table.weight\" is read by rows on accel");
    assert_contains(td_status_message(status), "\n  try: offload.embedding: cpu");
    td_status_destroy(status);
    m.options.offload_embedding = true; /* what it says helps */
    assert_ok(td_plan_train(m.graph, m.loss, &m.options, &m.plan));
    model_end(&m);
}

static void test_a_gradient_leaves_before_the_rest_of_backward_runs(void **state)
{
    (void)state;
    model m = deep_model();
    assert_ok(model_plan(&m, deep_logit(&m)));
    const td_plan *plan = m.plan;
    int32_t last = cluster_of(plan, "a/linear/linear_weight_gradient");
    int32_t copy = cluster_of(plan, "d/linear/linear_weight_gradient@cpu");
    assert_true(last != cluster_of(plan, "d/linear/linear_weight_gradient"));
    assert_false(td_cluster_reaches(plan, last, copy));
    assert_false(td_cluster_reaches(plan, last, cluster_of(plan, "d.weight/update")));
    assert_false(td_cluster_reaches(plan, last, cluster_of(plan, "d.weight/refresh@accel")));
    model_end(&m);
}

static void check_forward_waits_for_what_it_reads(double clip_norm)
{
    model m = deep_model();
    m.options.clip_norm = clip_norm;
    assert_ok(model_plan(&m, deep_logit(&m)));
    const td_plan *plan = m.plan;
    int32_t first = cluster_of(plan, "a.weight/refresh@accel"), later = cluster_of(plan, "d.weight/refresh@accel");
    assert_true(plan->pipelined && first != later);
    assert_true(waits_across(plan, first, cluster_of(plan, "a/linear")));
    assert_true(waits_across(plan, later, cluster_of(plan, "d/linear")));
    assert_false(waits_across(plan, later, cluster_of(plan, "a/linear")));
    assert_true(node_of(plan, "a.weight/refresh@accel")->rank > node_of(plan, "d.weight/refresh@accel")->rank);
    model_end(&m);
}

static void test_the_next_forward_waits_for_what_it_reads_alone(void **state)
{
    (void)state;
    check_forward_waits_for_what_it_reads(0);
    check_forward_waits_for_what_it_reads(1);
}

/* ---- one pass over memory ------------------------------------------------------------------------------------------------ */

/* The update of a parameter, alone or in an op with others: its part's inputs. */
static const int32_t *update_of(const td_plan *plan, const char *parameter, const td_node **out_node)
{
    enum { PART_INPUTS = 9 };
    int32_t value = td_graph_find(plan->graph, parameter).id;
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        for (int32_t i = 0; strcmp(node->op->name, "update_mixed") == 0 && i < node->n_inputs; i += PART_INPUTS)
            if (node->inputs[i] == value) {
                *out_node = node;
                return node->inputs + i;
            }
    }
    fail_msg("no update_mixed has \"%s\"", parameter);
    return NULL;
}

static int32_t count_ops_on_host(const td_plan *plan, const char *op)
{
    int32_t count = 0;
    for (int32_t n = 0; n < plan->graph->n_nodes; n++)
        count += strcmp(plan->graph->nodes[n].op->name, op) == 0 && plan->nodes[n].device == plan->host;
    return count;
}

static void check_one_pass(td_precision precision, int32_t accumulate, double clip_norm, td_on_nan on_nan)
{
    enum { GRADIENT = 1, SUM, MICRO, FACTOR };
    model m = deep_model();
    m.options.precision = precision;
    m.options.accumulate = accumulate;
    m.options.clip_norm = clip_norm;
    m.options.on_nan = on_nan;
    m.options.no_speculation = true;
    assert_ok(model_plan(&m, deep_logit(&m)));
    const td_dtype narrow = precision == TD_FP32 ? TD_F32 : TD_BF16;
    td_graph *graph = m.plan->graph;
    const td_node *node = NULL;
    const int32_t *part = update_of(m.plan, "b.weight", &node);
    assert_int_equal(graph->values[part[GRADIENT]].dtype, narrow);
    assert_int_equal(graph->values[part[GRADIENT]].class, TD_CLASS_STAGING);
    assert_int_equal(part[SUM] >= 0, accumulate > 1);
    assert_int_equal(part[MICRO] >= 0, accumulate > 1);
    assert_int_equal(part[FACTOR] >= 0, clip_norm > 0);
    assert_int_equal(node->n_outputs > 0, precision != TD_FP32);
    assert_int_equal(graph->values[td_graph_find(graph, "b.weight@accel").id].dtype, narrow);
    assert_int_equal(count_ops_on_host(m.plan, "cast"), precision != TD_FP32); /* of the batch */
    assert_int_equal(count_ops_on_host(m.plan, "clip_gradient"), 0);
    if (accumulate > 1)
        assert_true(node_of(m.plan, "b.weight/accumulate")->before_last);
    if (accumulate > 1 && (clip_norm > 0 || on_nan == TD_NAN_SKIP)) {
        const char *name = clip_norm > 0 ? "b.weight/squares" : "b.weight/nonfinite";
        const td_node *look = &graph->nodes[td_name_map_get(&graph->node_names, name)];
        assert_int_equal(look->n_inputs, 3);
        assert_memory_equal(look->inputs, part + GRADIENT, 3 * sizeof *part); /* what the update sees */
    }
    model_end(&m);
}

static void test_what_the_host_does_with_a_gradient_is_one_pass(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        check_one_pass(i & 1 ? TD_MIXED_BF16 : TD_FP32, i & 2 ? 4 : 1, i & 4 ? 1 : 0,
                       i & 8 ? TD_NAN_SKIP : td_train_defaults().on_nan);
}

/* The weights and biases of layers too small to fill a bucket: one op, found under each one's name. */
static void test_small_parameters_share_a_dispatch(void **state)
{
    (void)state;
    model m = model_begin(5);
    td_add_device(&m.options, "accel", "emulated:memory=64MiB");
    m.options.offload_optimizer = TD_OFFLOAD_CPU;
    m.options.clip_norm = 1;
    m.options.no_speculation = true;
    char *text = NULL;
    assert_ok(model_plan(&m, td_linear(td_tanh(td_linear(m.x, 7, "a")), 1, "top")));
    assert_int_equal(count_ops_on_host(m.plan, "update_mixed"), 1);
    assert_ok(td_plan_explain(m.plan, "top.bias/update", &text));
    assert_contains(text, "top.bias/update is one of the 4 parts of \"a.bias/update+3\": ");
    assert_contains(text, "offload.optimizer is cpu");
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "top.bias/clip", &text)); /* a part of that */
    assert_contains(text, "top.bias/clip (clip_gradient) is \"top.bias/update\" now; rule offloaded_update: ");
    assert_contains(text, "top.bias/update is one of the 4 parts of");
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "top.bias", &text));
    assert_contains(
        text, "lives on cpu\n  because its update runs there (offload.optimizer is cpu)\n  forward is on accel: ");
    assert_contains(text, "  its state, 4 B beside it: top.bias/acc\n");
    assert_contains(text, "  on accel: top.bias@accel (replica f32[1], 4 B)\n    read by top/linear");
    td_text_free(text);
    model_end(&m);
}

/* LAMB needs the norm of a whole parameter: its own op, and a copy in 16 bit after it. */
static void test_a_rule_over_whole_parameters_keeps_its_op_and_is_copied_out_after_it(void **state)
{
    (void)state;
    model m = deep_model();
    td_train_options_deinit(&m.options);
    m.options = td_train_defaults();
    td_group(&m.options, "*", (td_optimizer){.name = "lamb", .lr = 0.1});
    td_add_device(&m.options, "accel", "emulated:memory=64MiB");
    m.options.offload_optimizer = TD_OFFLOAD_CPU;
    m.options.precision = TD_MIXED_BF16;
    assert_ok(model_plan(&m, deep_logit(&m)));
    assert_int_equal(count_ops_on_host(m.plan, "update_mixed"), 0);
    assert_string_equal(device_of(m.plan, "b.weight/copy_out"), "cpu");
    int32_t copy = td_name_map_get(&m.plan->graph->node_names, "b.weight/copy_out"),
            update = td_name_map_get(&m.plan->graph->node_names, "b.weight/update");
    assert_true(m.plan->nodes[copy].cluster != m.plan->nodes[update].cluster ||
                m.plan->nodes[copy].position > m.plan->nodes[update].position);
    assert_int_equal(m.plan->graph->values[td_graph_find(m.plan->graph, "b.weight@accel").id].dtype, TD_BF16);
    model_end(&m);
}

/* A parameter that somebody reads in f32 keeps its replica in f32. */
static void test_a_parameter_that_is_read_in_f32_has_a_replica_in_f32(void **state)
{
    (void)state;
    model m = deep_model();
    m.options.precision = TD_MIXED_BF16;
    td_keep_fp32(&m.options, "b*");
    assert_ok(model_plan(&m, deep_logit(&m)));
    td_graph *graph = m.plan->graph;
    assert_int_equal(graph->values[td_graph_find(graph, "a.weight@accel").id].dtype, TD_BF16);
    assert_int_equal(graph->values[td_graph_find(graph, "b.weight@accel").id].dtype, TD_F32);
    model_end(&m);
}

/* ---- slots ------------------------------------------------------------------------------------------------------------------ */

enum { LAYERS = 12, SLOTS = 4, LAYER = 256 * 256 };

static td_value many_layers(model *m)
{
    td_value x = m->x;
    char name[16];
    for (int i = 0; i < LAYERS; i++) {
        (void)snprintf(name, sizeof name, "l%02d", i);
        x = td_tanh(td_linear(x, 256, name));
    }
    return td_linear(x, 1, "top");
}

static model slot_model(td_precision precision)
{
    model m = deep_model();
    m.options.precision = precision;
    return m;
}

/* Twelve buckets in four slots: on the host they take no more than that, whatever the model's size. */
static void test_gradients_and_parameters_in_flight_lie_in_four_slots(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        model m = slot_model(narrow ? TD_MIXED_BF16 : TD_FP32);
        assert_ok(model_plan(&m, many_layers(&m)));
        td_offload_traffic t = td_plan_offload_traffic(m.plan);
        const int64_t bucket = LAYER * (narrow ? 2 : 4);
        assert_int_equal(t.gradient_slots, SLOTS);
        assert_in_range(t.gradient_slot_bytes, bucket, bucket + 4096); /* the last layer's share one */
        assert_int_equal(t.parameter_slots, narrow ? SLOTS : 0);
        td_ledger host = td_plan_ledger(m.plan, m.plan->host);
        assert_true(host.bytes[TD_LEDGER_STAGING] <= SLOTS * (t.gradient_slot_bytes + t.parameter_slot_bytes) + 4096);
        assert_true(host.bytes[TD_LEDGER_STAGING] < LAYERS * bucket);
        model_end(&m);
    }
}

/* The device's gradients are no more than the buckets that may be in flight. */
static void test_a_device_holds_the_gradients_of_a_few_buckets(void **state)
{
    (void)state;
    model m = slot_model(TD_MIXED_BF16);
    assert_ok(model_plan(&m, many_layers(&m)));
    td_ledger accel = td_plan_ledger(m.plan, 1);
    assert_true(accel.bytes[TD_LEDGER_GRADIENTS] <= (SLOTS + 2) * 2 * LAYER);
    model_end(&m);
}

static td_value branch(model *m, const char *prefix)
{
    td_value x = m->x;
    char name[16];
    for (int i = 0; i < LAYERS; i++) {
        (void)snprintf(name, sizeof name, "%s%02d", prefix, i);
        x = td_tanh(td_linear(x, 256, name));
    }
    return x;
}

/* What has left a device lets that device go on, and no other. */
static void test_each_of_two_devices_waits_for_its_own_buckets(void **state)
{
    (void)state;
    model m = slot_model(TD_MIXED_BF16);
    td_add_device(&m.options, "second", "emulated:memory=64MiB");
    td_place(&m.options, "r*", "second");
    td_value both[2] = {branch(&m, "l"), branch(&m, "r")};
    assert_ok(model_plan(&m, td_linear(td_add(both[0], both[1]), 1, "top")));
    int32_t own = 0;
    for (int32_t c = 0; c < m.plan->n_clusters; c++) {
        const td_cluster *waits = &m.plan->clusters[c];
        for (int32_t k = 0; k < waits->n_before; k++) {
            const td_cluster *before = &m.plan->clusters[waits->before[k]];
            if (before->lane != TD_QUEUE_TO_HOST || waits->lane != TD_QUEUE_COMPUTE || waits->device == m.plan->host)
                continue;
            assert_int_equal(before->device, waits->device);
            own++;
        }
    }
    assert_true(own >= 2 * (LAYERS - SLOTS - 1));
    for (int32_t d = 1; d <= 2; d++)
        assert_true(td_plan_ledger(m.plan, d).bytes[TD_LEDGER_GRADIENTS] <= (SLOTS + 2) * 2 * LAYER);
    model_end(&m);
}

/* An update that is clipped, or made only where all gradients are finite, needs them all: they have no slots, what leaves has. */
static void test_where_updates_need_all_gradients_only_what_leaves_lies_in_slots(void **state)
{
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++) {
        model m = slot_model(TD_MIXED_BF16);
        m.options.clip_norm = clipped;
        m.options.on_nan = TD_NAN_SKIP;
        m.options.no_speculation = true;
        assert_ok(model_plan(&m, many_layers(&m)));
        td_offload_traffic t = td_plan_offload_traffic(m.plan);
        assert_int_equal(t.gradient_slots, 0);
        assert_int_equal(t.parameter_slots, SLOTS);
        assert_in_range(t.parameter_slot_bytes, LAYER * 2, LAYER * 2 + 4096);
        model_end(&m);
    }
}

/* A gradient crosses in each micro-batch of a window, a parameter returns once. */
static void test_the_traffic_of_a_step_is_that_of_its_whole_window(void **state)
{
    (void)state;
    td_offload_traffic t[2];
    for (int several = 0; several < 2; several++) {
        model m = slot_model(TD_FP32);
        m.options.accumulate = several ? 3 : 1;
        assert_ok(model_plan(&m, many_layers(&m)));
        t[several] = td_plan_offload_traffic(m.plan);
        model_end(&m);
    }
    assert_true(t[0].gradient_bytes >= LAYERS * LAYER * 4);
    assert_int_equal(t[1].gradient_bytes, 3 * t[0].gradient_bytes);
    assert_int_equal(t[1].parameter_bytes, t[0].parameter_bytes);
    /* the update reads the sum too; the sums before it read a gradient and a sum, and write that, twice */
    assert_int_equal(t[1].update_bytes, t[0].update_bytes + (1 + 2 * 3) * t[0].gradient_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_state_and_updates_go_to_the_host_and_replicas_stay),
        cmocka_unit_test(test_explain_says_why_a_layer_is_cut_from_the_next),
        cmocka_unit_test(test_a_rule_for_updates_offloads_without_the_key_and_holds_back_with_it),
        cmocka_unit_test(test_what_forward_reads_first_stays_in_every_precision),
        cmocka_unit_test(test_a_rule_that_sends_an_update_to_a_third_device_is_refused),
        cmocka_unit_test(test_a_table_that_is_looked_up_on_the_device_is_refused_with_what_to_do),
        cmocka_unit_test(test_a_gradient_leaves_before_the_rest_of_backward_runs),
        cmocka_unit_test(test_the_next_forward_waits_for_what_it_reads_alone),
        cmocka_unit_test(test_what_the_host_does_with_a_gradient_is_one_pass),
        cmocka_unit_test(test_small_parameters_share_a_dispatch),
        cmocka_unit_test(test_a_rule_over_whole_parameters_keeps_its_op_and_is_copied_out_after_it),
        cmocka_unit_test(test_a_parameter_that_is_read_in_f32_has_a_replica_in_f32),
        cmocka_unit_test(test_gradients_and_parameters_in_flight_lie_in_four_slots),
        cmocka_unit_test(test_a_device_holds_the_gradients_of_a_few_buckets),
        cmocka_unit_test(test_each_of_two_devices_waits_for_its_own_buckets),
        cmocka_unit_test(test_the_traffic_of_a_step_is_that_of_its_whole_window),
        cmocka_unit_test(test_where_updates_need_all_gradients_only_what_leaves_lies_in_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
