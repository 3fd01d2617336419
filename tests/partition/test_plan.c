/* Plans as wholes: independent branches, several devices, what does not fit, the cache, and asking a plan about itself. */
#include <stdio.h>

#include "tests/partition/models.h"

/* ---- clusters --------------------------------------------------------------------------------------------------------------- */

static void test_cluster_keeps_independent_branches_apart(void **state)
{
    (void)state;
    model m = model_begin(4);
    m.options.jit_level = TD_O1; /* no fusion: two ops in each branch */
    td_add_device(&m.options, "cpu", "cpu:cores=2,lanes=2");
    td_value a = td_name(td_tanh(td_name(td_relu(m.x), "a.0")), "a.1"),
             b = td_name(td_tanh(td_name(td_sigmoid(m.x), "b.0")), "b.1");
    assert_ok(model_plan(&m, td_linear(td_concat(2, (td_value[]){a, b}, 1), 1, "top")));
    int32_t left = node_of(m.plan, "a.0")->cluster, right = node_of(m.plan, "b.0")->cluster;
    assert_int_equal(node_of(m.plan, "a.1")->cluster, left);
    assert_int_equal(node_of(m.plan, "b.1")->cluster, right);
    assert_int_not_equal(left, right);
    assert_false(td_cluster_reaches(m.plan, left, right));
    assert_false(td_cluster_reaches(m.plan, right, left));
    model_end(&m);
}

static void test_cluster_merges_what_one_lane_runs_anyway(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value a = td_name(td_relu(m.x), "a"), b = td_name(td_tanh(m.x), "b");
    assert_ok(model_plan(&m, td_linear(td_concat(2, (td_value[]){a, b}, 1), 1, "top")));
    assert_int_equal(m.plan->n_clusters, 1);
    model_end(&m);
}

/* a (cpu) -> b (accel) -> c (cpu), and a -> c: one cluster of a and c would wait for itself. */
static void test_cluster_does_not_close_a_cycle_through_another_device(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_value a = td_target(td_name(td_relu(m.x), "a"), "cpu"), b = td_target(td_name(td_tanh(a), "b"), "accel");
    assert_ok(model_plan(&m, td_linear(td_target(td_name(td_add(a, b), "c"), "cpu"), 1, "top")));
    int32_t first = node_of(m.plan, "a")->cluster, last = node_of(m.plan, "c")->cluster;
    assert_int_not_equal(first, last);
    assert_true(td_cluster_reaches(m.plan, first, last));
    assert_false(td_cluster_reaches(m.plan, last, first));
    model_end(&m);
}

/* Layers that are alike, each second one elsewhere: coarse names would be one and the same. */
static void test_subgraphs_have_names_unlike_each_other(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_value x = m.x;
    for (int i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "h.%d.up", i);
        x = td_target(td_linear(td_target(td_relu(x), i % 2 ? "accel" : "cpu"), 4, name), i % 2 ? "accel" : "cpu");
    }
    assert_ok(model_plan(&m, td_target(td_linear(x, 1, "top"), "cpu")));
    assert_string_equal(m.plan->clusters[node_of(m.plan, "h.1.up/linear")->cluster].name,
                        "h.0+h.1"); /* a rectifier with the layer behind it */
    for (int32_t a = 0; a < m.plan->n_clusters; a++)
        for (int32_t b = 0; b < a; b++)
            assert_string_not_equal(m.plan->clusters[a].name, m.plan->clusters[b].name);
    model_end(&m);
}

/* ---- many devices ------------------------------------------------------------------------------------------------------------ */

static void test_a_plan_over_five_devices_copies_each_value_once_per_destination_and_through_the_host(void **state)
{
    (void)state;
    static const char *const names[] = {"d1", "d2", "d3", "d4"};
    model m = model_begin(4);
    for (int i = 0; i < 4; i++)
        td_add_device(&m.options, names[i], "emulated:memory=8MiB");
    td_value shared = td_target(td_name(td_relu(m.x), "shared"), "d1"), parts[8];
    for (int i = 0; i < 8; i++) { /* two readers on every device */
        char name[8] = {'p', (char)('0' + i)};
        parts[i] = td_target(td_name(i % 2 ? td_tanh(shared) : td_sigmoid(shared), name), names[i / 2]);
    }
    assert_ok(model_plan(&m, td_target(td_linear(td_concat(8, parts, 1), 1, "top"), "cpu")));
    assert_int_equal(td_plan_summarize(m.plan).devices, 5);
    static const char *const copies[] = {"shared@cpu", "shared@d2", "shared@d3", "shared@d4"};
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(node_of(m.plan, copies[i])->lane, TD_QUEUE_COMPUTE);
    int32_t of_shared = 0;
    for (int64_t n = 0; n < m.plan->graph->n_nodes; n++)
        of_shared +=
            m.plan->nodes[n].lane != TD_QUEUE_COMPUTE && strncmp(m.plan->graph->nodes[n].name, "shared@", 7) == 0;
    assert_int_equal(of_shared, 4);
    for (int i = 0; i < 4; i++)
        assert_true(td_plan_device(m.plan, 1 + i).peak_bytes > 0);
    model_end(&m);
}

static void test_names_with_an_at_sign_do_not_clash_with_those_of_copies(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_value a = td_target(td_name(td_relu(m.x), "v@1"), "cpu"), b = td_target(td_name(td_tanh(m.x), "v@2"), "cpu");
    assert_ok(model_plan(&m, td_linear(td_add(a, b), 1, "top")));
    assert_int_equal(node_of(m.plan, "v@1@accel")->lane, TD_QUEUE_TO_DEVICE);
    assert_int_equal(node_of(m.plan, "v@2@accel")->lane, TD_QUEUE_TO_DEVICE);
    model_end(&m);
}

/* ---- state ----------------------------------------------------------------------------------------------------------------------- */

/* "w@output" would be the copy of w that the caller reads; a user's op of that name must not be taken for it. */
static void test_a_users_op_is_not_taken_for_the_copy_of_an_output(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value w = td_parameter(m.graph, "w", TD_F32, TD_SHAPE(4), td_init_constant(1));
    td_output(w);
    td_status *status = model_plan(&m, td_linear(td_name(td_add(m.x, w), "w@output"), 1, "top"));
    assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    assert_contains(td_status_message(status), "w@output");
    td_status_destroy(status);
    model_end(&m);
}

static void test_state_with_two_writers_is_refused(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value w = td_parameter(m.graph, "w", TD_F32, TD_SHAPE(4), td_init_constant(1));
    td_value gradient = td_parameter(m.graph, "g", TD_F32, TD_SHAPE(4), td_init_constant(1));
    td_value numbers = td_scalar(m.graph, "c", TD_F32, TD_COEFFICIENTS, NULL);
    const td_value inputs[] = {w, gradient, numbers};
    td_graph_add(m.graph, "sgd", "first", inputs, 3, NULL, 0, NULL, 0);
    td_graph_add(m.graph, "sgd", "second", inputs, 3, NULL, 0, NULL, 0);
    assert_error(td_graph_check(m.graph), TD_INVALID_ARGUMENT,
                 "\"first\" and \"second\" both write \"w\": state has one writer a step");
    model_end(&m);
}

/* A view of a parameter is the parameter's memory: who reads the view must be done before the update writes it. */
static void test_who_reads_a_view_of_a_parameter_runs_before_its_update(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value w = td_parameter(m.graph, "w", TD_F32, TD_SHAPE(4), td_init_constant(1));
    td_value view = td_name(td_reshape(w, TD_SHAPE(1, 4)), "view");
    td_value late = td_name(td_mul(m.x, view), "late");
    td_output(td_name(td_add(late, view), "watched"));
    assert_ok(model_plan(&m, td_linear(late, 1, "top")));
    int32_t watched = td_name_map_get(&m.plan->graph->node_names, "watched");
    int32_t update = td_name_map_get(&m.plan->graph->node_names, "w/update");
    td_edges edges;
    assert_ok(td_graph_edges(m.plan->graph, &edges));
    bool found = false;
    for (int32_t k = edges.first[watched]; k < edges.first[watched + 1]; k++)
        found = found || edges.to[k] == update;
    td_edges_deinit(&edges);
    assert_true(found);
    model_end(&m);
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------------- */

static void test_what_does_not_fit_is_refused_with_device_bytes_tenants_and_what_to_try(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=1MiB");
    td_status *status = model_plan(&m, td_linear(model_lookup(&m, 100000, 4, false), 1, "top"));
    const char *text = td_status_message(status);
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    assert_contains(text, "does not fit: accel has 1.00 MiB and the plan needs 3.05 MiB (2.05 MiB short)");
    assert_contains(text, "\n  largest: table.weight 1.53 MiB + its state 1.53 MiB; ");
    assert_contains(text, "\n  try: offload.embedding: cpu (then accel needs ");
    td_status_destroy(status);
    m.options.offload_embedding = true; /* what it says helps */
    assert_ok(td_plan_train(m.graph, m.loss, &m.options, &m.plan));
    model_end(&m);
}

static void test_what_does_not_fit_for_a_rule_that_matches_nothing_names_that_rule(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=1MiB");
    td_place(&m.options, "tabel.*", "cpu");
    td_status *status = model_plan(&m, td_linear(model_lookup(&m, 100000, 4, false), 1, "top"));
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    assert_contains(td_status_message(status), "\n  the rule \"tabel.*\" matches no op and no parameter; did you mean "
                                               "\"table.weight\"?\n  try: ");
    td_status_destroy(status);
    model_end(&m);
}

static void test_no_advice_is_given_where_it_would_not_help(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=1KiB");
    td_status *status = model_plan(&m, td_linear(td_linear(m.x, 500, "wide"), 1, "top"));
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    assert_null(strstr(td_status_message(status), "try:"));
    td_status_destroy(status);
    model_end(&m);
}

/* A rule outranks offload.embedding: advising the latter would send the user in a circle. */
static void test_no_advice_is_given_where_a_rule_stands_in_its_way(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=1MiB");
    td_place(&m.options, "table*", "accel");
    td_status *status = model_plan(&m, td_linear(model_lookup(&m, 100000, 4, false), 1, "top"));
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    assert_null(strstr(td_status_message(status), "try:"));
    td_status_destroy(status);
    model_end(&m);
}

/* Four tables of 2^60 bytes and their state: 2^63 in all, which as a signed sum is negative and would fit anywhere. */
static void test_sizes_beyond_64_bits_do_not_fit(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_value ids = td_input(m.graph, "ids", TD_I64, TD_SHAPE(td_extent(m.graph, "B", 8))), vectors[4];
    for (int i = 0; i < 4; i++) {
        char name[] = {'t', (char)('0' + i), '\0'};
        td_value table = td_parameter(m.graph, name, TD_F32, TD_SHAPE((int64_t)1 << 56, 4), td_init_uniform(0.1));
        vectors[i] = td_embedding(table, ids, (td_embedding_options){0});
    }
    td_status *status = model_plan(&m, td_linear(td_name(td_concat(4, vectors, 1), "all"), 1, "top"));
    assert_int_equal(td_status_code(status), TD_DOES_NOT_FIT);
    td_status_destroy(status);
    model_end(&m);
}

static void test_memory_is_shared_by_values_that_are_never_in_use_at_once(void **state)
{
    (void)state;
    model m = model_begin(64);
    td_value x = m.x;
    for (int i = 0; i < 20; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "s%d", i);
        x = td_name(td_softmax(x), name);
    }
    td_plan *plan = NULL;
    assert_ok(td_plan_evaluate(m.graph, &x, 1, &m.options, NULL, &plan));
    int64_t one = 8 * 64 * 4;
    assert_true(plan->arenas[0].bytes - plan->arenas[0].scratch_bytes <= 3 * one);
    td_plan_release(plan);
    model_end(&m);
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------------------------ */

/* The caller looks at a step's outputs while the next one may run, so none of them is memory that the next one writes. */
static void test_outputs_of_overlapping_steps_have_memory_of_their_own(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_value made = td_target(td_name(td_relu(m.x), "made"), "cpu");
    td_output(td_name(td_reshape(made, TD_SHAPE(4, td_extent(m.graph, "B", 8))), "view"));
    td_value logit = td_linear(made, 1, "top");
    td_output(td_graph_find(m.graph, "top.weight"));
    td_output(m.x);
    assert_ok(model_plan(&m, logit));
    assert_true(m.plan->pipelined);
    for (int32_t i = 0; i < m.plan->n_outputs; i++) {
        const td_plan_value *root = &m.plan->values[td_plan_root(m.plan, m.plan->outputs[i])];
        assert_int_equal(root->storage, TD_ARENA);
        assert_int_equal(root->device, m.plan->host);
        assert_true(root->doubled);
    }
    model_end(&m);
}

/* ---- the cache -------------------------------------------------------------------------------------------------------------------------- */

static void test_equal_graph_and_options_give_the_same_plan_and_others_another(void **state)
{
    (void)state;
    model m = model_begin(4);
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    td_plan *again = NULL, *other = NULL;
    assert_ok(td_plan_train(m.graph, m.loss, &m.options, &again));
    assert_ptr_equal(again, m.plan);
    m.options.seed = 2;
    assert_ok(td_plan_train(m.graph, m.loss, &m.options, &other));
    assert_ptr_not_equal(other, m.plan);
    td_plan_release(again);
    td_plan_release(other);
    model_end(&m);
}

/* ---- asking ------------------------------------------------------------------------------------------------------------------------------- */

static void test_devices_come_before_the_first_plan(void **state)
{
    (void)state;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=1MiB");
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    td_plan *late = NULL;
    td_default_device(&m.options, "cpu");
    td_status *status = td_plan_train(m.graph, m.loss, &m.options, &late);
    assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    assert_contains(td_status_message(status), "default device \"cpu\" comes too late");
    td_status_destroy(status);
    model_end(&m);
}

/* Weights that the step itself computes: the early part would wait for the cluster that waits for it. */
static void test_a_lookup_with_weights_made_by_an_op_is_not_split(void **state)
{
    (void)state;
    for (int made = 0; made < 2; made++) {
        model m = model_begin(4);
        td_add_device(&m.options, "accel", "emulated:memory=8MiB");
        td_place(&m.options, "table*", "cpu");
        m.options.early_lookup = TD_ON;
        td_dim batch = td_extent(m.graph, "B", 8), n = td_extent(m.graph, "n", 32);
        td_value table = td_parameter(m.graph, "table.weight", TD_F32, TD_SHAPE(100, 4), td_init_uniform(0.1));
        td_value ids = td_input_ragged(m.graph, "ids", TD_I64, batch, n),
                 weights = td_input(m.graph, "w", TD_F32, TD_SHAPE(n));
        if (made)
            weights = td_target(td_name(td_scale(weights, 2), "halves"), "cpu");
        td_value bags =
            td_embedding_bag_with(table, ids, (td_embedding_options){.pooling = TD_SUM, .weights = weights});
        assert_ok(model_plan(&m, td_linear(bags, 1, "top")));
        assert_int_equal(m.plan->early_lookup, !made);
        model_end(&m);
    }
}

static void test_explain_says_where_and_why_and_suggests_the_nearest_name(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    assert_ok(td_plan_explain(m.plan, "top/linear", &text));
    assert_contains(text, "top/linear (linear) runs on accel\n  because default device\n");
    assert_contains(text, "on cpu it would take about");
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "top", &text)); /* the parameters of a layer */
    assert_contains(text, "top.weight (parameter f32[1, 4], 16 B) lives on accel\n"
                          "  because \"top/linear\" reads it there (default device)\n");
    assert_contains(text, "top.bias (parameter f32[1], 4 B) lives on accel");
    assert_contains(text, "  written by top.bias/update\n");
    td_text_free(text);
    assert_error(td_plan_explain(m.plan, "top.weigth", &text), TD_NOT_FOUND, "did you mean \"top.weight\"?");
    assert_error(td_plan_explain(m.plan, "top/liner", &text), TD_NOT_FOUND,
                 "the plan has no op, parameter or subgraph \"top/liner\"; did you mean \"top/linear\"?");
    assert_error(td_plan_explain(m.plan, "linear", &text), TD_NOT_FOUND, "did you mean \"top/linear\"?");
    assert_null(text);
    model_end(&m);
}

/* Early lookups, lookups, the layer before them, the one behind, backward, updates. */
static void test_explain_tells_a_subgraph_what_it_carries_and_why_it_is_cut(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_place(&m.options, "table*", "cpu");
    td_value low = td_linear(m.x, 4, "low");
    assert_ok(model_plan(&m, td_linear(td_add(low, model_lookup(&m, 1000, 4, false)), 1, "top")));
    assert_ok(td_plan_explain(m.plan, "low", &text));
    assert_contains(text, "subgraph \"low\" (1 op, about ");
    assert_contains(text,
                    " runs on accel\n  because default device\n  it holds low/linear\n  it takes 128 B: x@accel 128 B\n"
                    "  it gives 128 B: low/linear 128 B\n"
                    "  it begins behind what comes from another device: x");
    assert_contains(text, " behind it: that one waits for \"table/embedding -> accel\", too\n");
    assert_contains(text, "\nlow.weight (parameter f32[4, 4]"); /* of the layer of that name */
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "lookup", &text));
    assert_contains(text, " runs on cpu\n  because the rule \"table*\" says so\n");
    assert_contains(text, "  it ends before what goes to another device: table/embedding -> accel\n");
    assert_contains(text,
                    "from \"early lookup\" before it: early lookups do not wait for the update of the step before\n");
    td_text_free(text);
    model_end(&m);
}

static void test_explain_tells_what_goes_to_another_device_from_what_comes_from_there(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    assert_ok(td_plan_explain(m.plan, "update", &text));
    assert_contains(text, " runs on accel\n");
    assert_contains(text, "\n  it begins behind what goes to another device: top/bce_with_logits -> cpu\n");
    assert_null(strstr(text, "what comes from another device"));
    td_text_free(text);
    model_end(&m);
}

/* Ops in turn on the host and on the accelerator, the latter of which all read what one before them made there. */
static void test_explain_counts_the_cuts_that_it_does_not_tell(void **state)
{
    (void)state;
    enum { PAIRS = 10 };
    char *text = NULL, names[PAIRS][2][16];
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    const td_value root = td_target(td_linear(m.x, 4, "root"), "accel");
    td_value x = root;
    for (int i = 0; i < PAIRS; i++) {
        snprintf(names[i][0], sizeof names[i][0], "host%d", i);
        snprintf(names[i][1], sizeof names[i][1], "sum%d", i);
        x = td_target(td_name(td_tanh(x), names[i][0]), "cpu");
        x = td_target(td_name(td_add(x, root), names[i][1]), "accel");
    }
    assert_ok(model_plan(&m, td_linear(x, 1, "top")));
    assert_ok(td_plan_explain(m.plan, "root", &text));
    int told = 0;
    for (const char *at = text; (at = strstr(at, "\" behind it: ")); at++)
        told++;
    assert_int_equal(told, 6);
    assert_contains(text, "\n  it is cut from 5 more behind it\n");
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "host0", &text)); /* an op, and the subgraph of it alone */
    assert_contains(text, "host0 (tanh) runs on cpu\n");
    assert_contains(text, "\nsubgraph \"host0\" (1 op, about ");
    td_text_free(text);
    model_end(&m);
}

static void test_explain_counts_optimizer_state_in_what_another_device_would_need(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_place(&m.options, "table*", "cpu");
    assert_ok(model_plan(&m, td_linear(model_lookup(&m, 1000, 64, false), 1, "top")));
    assert_ok(td_plan_explain(m.plan, "table/embedding", &text));
    assert_contains(text, " and need 500 KiB there, of "); /* 250 KiB and adagrad's sums */
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "table.weight/update_rows", &text)); /* it names both itself */
    assert_contains(text, " and need 500 KiB there, of ");
    td_text_free(text);
    model_end(&m);
}

static void test_explain_says_why_a_parameter_is_where_it_is(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    td_add_device(&m.options, "accel", "emulated:memory=8MiB");
    td_place(&m.options, "table*", "cpu");
    td_place(&m.options, "top.bias", "cpu");
    td_value ids = td_input(m.graph, "ids", TD_I64, TD_SHAPE(td_extent(m.graph, "B", 8), 3));
    td_value table = td_parameter(m.graph, "table.weight", TD_F32, TD_SHAPE(100, 4), td_init_uniform(0.1));
    assert_ok(model_plan(&m, td_linear(td_name(td_embedding_bag(table, ids, TD_SUM), "bag"), 1, "top")));
    assert_ok(td_plan_explain(m.plan, "table.weight", &text));
    assert_contains(
        text, "table.weight (parameter f32[100, 4], 1.56 KiB) lives on cpu\n  because \"bag\" reads it there (the rule "
              "\"table*\" of its table says so)\n");
    assert_contains(text, "  read by bag");
    assert_contains(text, "  written by table.weight/update_rows");
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "top.bias", &text));
    assert_contains(text, "lives on cpu\n  because the rule \"top.bias\" says so\n");
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "ids", &text));
    assert_contains(text, "comes with each batch, on the host\n  read by bag");
    td_text_free(text);
    model_end(&m);
}

static void test_the_text_of_passes_is_kept_when_asked(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        char *text = NULL;
        model m = model_begin(4);
        m.options.keep_dumps = asked;
        assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
        if (asked) {
            assert_ok(td_plan_dump(m.plan, "place", &text));
            assert_contains(text, "top/linear linear forward on cpu/compute");
        } else
            assert_error(td_plan_dump(m.plan, "place", &text), TD_INVALID_ARGUMENT, "set keep_dumps");
        td_text_free(text);
        model_end(&m);
    }
}

static void test_an_unknown_pass_is_refused_with_the_list_of_passes(void **state)
{
    (void)state;
    char *text = NULL;
    model m = model_begin(4);
    assert_ok(model_plan(&m, td_linear(m.x, 1, "top")));
    td_status *status = td_plan_dump(m.plan, "clusters", &text);
    assert_int_equal(td_status_code(status), TD_NOT_FOUND);
    assert_contains(td_status_message(status), "there is no pass \"clusters\"");
    assert_contains(td_status_message(status), "\n  cluster: ");
    td_status_destroy(status);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster_keeps_independent_branches_apart),
        cmocka_unit_test(test_cluster_merges_what_one_lane_runs_anyway),
        cmocka_unit_test(test_cluster_does_not_close_a_cycle_through_another_device),
        cmocka_unit_test(test_subgraphs_have_names_unlike_each_other),
        cmocka_unit_test(test_a_plan_over_five_devices_copies_each_value_once_per_destination_and_through_the_host),
        cmocka_unit_test(test_names_with_an_at_sign_do_not_clash_with_those_of_copies),
        cmocka_unit_test(test_a_users_op_is_not_taken_for_the_copy_of_an_output),
        cmocka_unit_test(test_state_with_two_writers_is_refused),
        cmocka_unit_test(test_who_reads_a_view_of_a_parameter_runs_before_its_update),
        cmocka_unit_test(test_what_does_not_fit_is_refused_with_device_bytes_tenants_and_what_to_try),
        cmocka_unit_test(test_what_does_not_fit_for_a_rule_that_matches_nothing_names_that_rule),
        cmocka_unit_test(test_no_advice_is_given_where_it_would_not_help),
        cmocka_unit_test(test_no_advice_is_given_where_a_rule_stands_in_its_way),
        cmocka_unit_test(test_sizes_beyond_64_bits_do_not_fit),
        cmocka_unit_test(test_memory_is_shared_by_values_that_are_never_in_use_at_once),
        cmocka_unit_test(test_outputs_of_overlapping_steps_have_memory_of_their_own),
        cmocka_unit_test(test_equal_graph_and_options_give_the_same_plan_and_others_another),
        cmocka_unit_test(test_devices_come_before_the_first_plan),
        cmocka_unit_test(test_a_lookup_with_weights_made_by_an_op_is_not_split),
        cmocka_unit_test(test_explain_says_where_and_why_and_suggests_the_nearest_name),
        cmocka_unit_test(test_explain_tells_a_subgraph_what_it_carries_and_why_it_is_cut),
        cmocka_unit_test(test_explain_tells_what_goes_to_another_device_from_what_comes_from_there),
        cmocka_unit_test(test_explain_counts_the_cuts_that_it_does_not_tell),
        cmocka_unit_test(test_explain_counts_optimizer_state_in_what_another_device_would_need),
        cmocka_unit_test(test_explain_says_why_a_parameter_is_where_it_is),
        cmocka_unit_test(test_the_text_of_passes_is_kept_when_asked),
        cmocka_unit_test(test_an_unknown_pass_is_refused_with_the_list_of_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
