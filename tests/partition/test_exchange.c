/* The pass `exchange`: which gradients a job's workers sum up together, and when they leave. */
#include <stdio.h>
#include <stdlib.h>

#include "partition/cluster.h"
#include "runtime/remote.h"
#include "tandem/ops.h"
#include "tests/partition/models.h"

enum { LAYERS = 6, WIDTH = 256 };

static const td_remote nobody = {.own = 1, .replicas = 2}; /* a plan asks it nothing */

/* Six layers of 256 KiB each after `at`, and one of a number. */
static void plan_layers(model *m, td_value at)
{
    char name[32];
    for (int i = 0; i <= LAYERS; i++) {
        (void)snprintf(name, sizeof name, "layer.%d", i);
        at = td_linear(at, i < LAYERS ? WIDTH : 1, name);
    }
    m->options.remote = &nobody;
    assert_ok(model_plan(m, at));
}

/* With a table that every worker has. */
static model plan_with_table(void)
{
    model m = model_begin(WIDTH);
    td_add_device(&m.options, "cpu", "cpu:cores=1,lanes=1");
    plan_layers(&m, td_add(m.x, model_lookup(&m, 100, WIDTH, false)));
    return m;
}

static int32_t find(const td_plan *plan, const char *op, int32_t bucket)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (!strcmp(node->op->name, op) && td_attr_int(node->attrs, node->n_attrs, "bucket", -1) == bucket)
            return n;
    }
    return -1;
}

static int32_t count_buckets(const td_plan *plan)
{
    int32_t n = 0;
    while (find(plan, "rank_send", n) >= 0)
        n++;
    return n;
}

/* The node that makes a value, on whatever device: before views and copies. */
static int32_t made_by(const td_plan *plan, int32_t value)
{
    int32_t node = plan->graph->values[value].producer;
    while (node >= 0 && (plan->nodes[node].lane != TD_QUEUE_COMPUTE || plan->graph->nodes[node].op->flags & TD_OP_VIEW))
        node = plan->graph->values[plan->graph->nodes[node].inputs[0]].producer;
    return node;
}

/* Within a device's only lane. */
static int64_t place(const td_plan *plan, int32_t node)
{
    return plan->clusters[plan->nodes[node].cluster].first + plan->nodes[node].position;
}

static void test_each_gradient_is_in_one_bucket_in_the_order_in_which_backward_makes_them(void **state)
{
    (void)state;
    model m = plan_with_table();
    int32_t summed = 0;
    const int32_t buckets = count_buckets(m.plan);
    assert_true(buckets >= 4 && buckets <= 10);
    for (int32_t b = 0; b < buckets; b++) {
        const td_node *send = &m.plan->graph->nodes[find(m.plan, "rank_send", b)];
        const td_node *sum = &m.plan->graph->nodes[find(m.plan, "rank_sum", b)];
        assert_int_equal(send->n_inputs - 1, sum->n_outputs);
        assert_int_equal(send->inputs[0] < 0, b == 0);
        for (int32_t i = 0; i < sum->n_outputs; i++) {
            const td_value_info *value = &m.plan->graph->values[sum->outputs[i]];
            assert_int_equal(send->inputs[1 + i], sum->inputs[2 + i]);
            assert_int_equal(value->parameter < 0, b == 0); /* the loss is alone, and first */
            summed += b > 0;
            if (b == 1 && i == 0)
                assert_contains(m.plan->graph->values[value->parameter].name, "layer.6.");
            if (b == buckets - 1)
                assert_string_equal(m.plan->graph->values[value->parameter].name, "table.weight");
        }
        /* room for the table's rows: eight of an id and 256 numbers, and their count */
        const int64_t room = td_attr_int(send->attrs, send->n_attrs, "rows_bytes", -1);
        assert_int_equal(room, b == buckets - 1 ? 8 * (8 + WIDTH * 4) + 8 : 0);
    }
    assert_int_equal(summed, 2 * (LAYERS + 1) + 1); /* weights and biases, and the table */
    model_end(&m);
}

static void test_buckets_leave_while_backward_goes_on_and_nobody_waits_before(void **state)
{
    (void)state;
    model m = plan_with_table();
    const td_plan *plan = m.plan;
    const int32_t buckets = count_buckets(plan), last = find(plan, "rank_send", buckets - 1);
    for (int32_t b = 0; b < buckets; b++) {
        assert_true(place(plan, find(plan, "rank_sum", b)) > place(plan, last));
        if (b + 1 == buckets)
            continue;
        const td_node *next = &plan->graph->nodes[find(plan, "rank_send", b + 1)];
        const int64_t leaves = place(plan, find(plan, "rank_send", b));
        assert_true(leaves < place(plan, made_by(plan, next->inputs[next->n_inputs - 1])));
    }
    model_end(&m);
}

/* The accelerator's backward is cut where a bucket is full, so the first leave before it ends. */
static void test_an_accelerators_gradients_leave_while_it_goes_on(void **state)
{
    (void)state;
    model m = model_begin(WIDTH);
    td_add_device(&m.options, "cpu", "cpu");
    td_add_device(&m.options, "accel", "emulated:memory=64MiB,cores=1");
    td_default_device(&m.options, "accel");
    plan_layers(&m, m.x);
    const td_plan *plan = m.plan;
    const int32_t buckets = count_buckets(plan);
    const td_node *last = &plan->graph->nodes[find(plan, "rank_send", buckets - 1)];
    const int32_t makes_last = plan->nodes[made_by(plan, last->inputs[1])].cluster;
    assert_true(buckets >= 4);
    for (int32_t b = 0; b + 1 < buckets; b++)
        assert_false(td_cluster_reaches(plan, makes_last, plan->nodes[find(plan, "rank_send", b)].cluster));
    assert_true(td_cluster_reaches(plan, makes_last, plan->nodes[find(plan, "rank_sum", 0)].cluster));
    model_end(&m);
}

/* A worker has several replicas, one after another: no bucket of the next one overtakes any of this one. */
static void test_buckets_of_replicas_leave_in_turn(void **state)
{
    (void)state;
    model m = model_begin(WIDTH);
    td_add_device(&m.options, "cpu", "cpu:cores=2,lanes=2");
    td_add_device(&m.options, "accel", "emulated:memory=64MiB,cores=1");
    td_default_device(&m.options, "accel");
    m.options.accumulate = 2;
    plan_layers(&m, m.x);
    const td_plan *plan = m.plan;
    const int32_t last = plan->nodes[find(plan, "rank_send", count_buckets(plan) - 1)].cluster;
    const int32_t first = plan->nodes[find(plan, "rank_send", 0)].cluster;
    bool waits = false;
    for (int32_t i = 0; i < plan->clusters[last].n_within; i++)
        waits = waits || plan->clusters[last].within[i] == first;
    assert_true(count_buckets(plan) > 1 && first != last && waits);
    model_end(&m);
}

/* ---- workers that share optimizer state ---------------------------------------------------------------------------------------- */

enum { WORKERS = 3 };

/* The plan of one of three workers, on the host or on an accelerator in 16 bit beside it. */
static model plan_shared(int32_t worker, td_optimizer rule, bool beside)
{
    static td_remote jobs[WORKERS];
    jobs[worker] = (td_remote){.own = 1, .replicas = WORKERS, .workers = WORKERS, .worker = worker};
    model m = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&m.graph));
    m.x = td_input(m.graph, "x", TD_F32, TD_SHAPE(td_extent(m.graph, "B", 8), WIDTH));
    m.y = td_input(m.graph, "y", TD_F32, TD_SHAPE(td_extent(m.graph, "B", 8), 1));
    td_group(&m.options, "*", rule);
    td_add_device(&m.options, "cpu", "cpu:cores=1,lanes=1");
    if (beside) {
        td_add_device(&m.options, "accel", "emulated:memory=64MiB,cores=1");
        td_default_device(&m.options, "accel");
        m.options.precision = TD_MIXED_BF16;
    }
    m.options.shard_optimizer = true;
    m.options.clip_norm = 0.5;
    td_value at = m.x;
    char name[32];
    for (int i = 0; i <= LAYERS; i++) {
        (void)snprintf(name, sizeof name, "layer.%d", i);
        at = td_linear(at, i < LAYERS ? WIDTH : 1, name);
    }
    m.options.remote = &jobs[worker];
    assert_ok(model_plan(&m, at));
    return m;
}

static int64_t elements_of(const td_plan *plan, int32_t value)
{
    td_tensor t;
    td_value_tensor(plan->graph, value, NULL, &t);
    return td_tensor_elements(&t);
}

/* Of one worker: what it updates of each parameter, whole blocks, or whole parameters. */
static void count_updates(const td_plan *plan, bool whole, int64_t *elements, int64_t *all)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (!td_rule_find(node->op->name))
            continue;
        const int64_t size = elements_of(plan, node->inputs[0]);
        const int64_t n_all = elements_of(plan, td_plan_updated(plan, node));
        const int32_t maker = plan->graph->values[node->inputs[0]].producer;
        const td_node *part = maker < 0 ? NULL : &plan->graph->nodes[maker];
        const int64_t begin = part ? td_attr_int(part->attrs, part->n_attrs, "begin", -1) : 0;
        assert_int_equal(begin % TD_BLOCK, 0);
        assert_true(begin + size == n_all || size % TD_BLOCK == 0);
        assert_true(!whole || size == n_all);
        assert_int_equal(plan->nodes[n].device, plan->host);
        *elements += size;
    }
    *all = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (plan->graph->values[v].class == TD_CLASS_PARAMETER)
            *all += elements_of(plan, v);
}

/* Each element is updated by one worker, which has its state; shares are even but for blocks. */
static void check_shares(td_optimizer rule, bool whole, bool beside)
{
    int64_t elements[WORKERS] = {0}, all = 0, sum = 0, state = 0, one = 0, total = 0;
    for (int32_t w = 0; w < WORKERS; w++) {
        model m = plan_shared(w, rule, beside);
        count_updates(m.plan, whole, &elements[w], &all);
        assert_true(td_plan_shared_state(m.plan, w, &one, &total));
        const int64_t held = (int64_t)td_plan_device(m.plan, m.plan->host).state_bytes;
        assert_true(held >= one && held - one < 64 * 2 * 2 * (LAYERS + 1)); /* of each value up to a cache line */
        state += one;
        sum += elements[w];
        model_end(&m);
    }
    assert_int_equal(sum, all);
    assert_int_equal(state, total);
    for (int32_t w = 0; w < WORKERS; w++)
        assert_true(whole || llabs(elements[w] - all / WORKERS) < 10 * TD_BLOCK);
}

static void test_each_element_is_updated_by_the_one_worker_that_has_its_state(void **state)
{
    (void)state;
    check_shares(td_adam(0.1), false, false);
}

static void test_what_workers_share_is_the_hosts_beside_an_accelerator(void **state)
{
    (void)state;
    check_shares(td_adam(0.1), false, true);
}

static void test_an_update_that_looks_at_a_whole_parameter_is_one_workers(void **state)
{
    (void)state;
    check_shares(td_lamb(0.1), true, false);
}

static void test_shares_are_refused_where_workers_may_be_ahead_of_each_other(void **state)
{
    (void)state;
    static const td_remote job = {.own = 1, .replicas = 2, .workers = 2, .may_be_stale = true};
    model m = model_begin(4);
    td_add_device(&m.options, "cpu", "cpu:cores=1,lanes=1");
    m.options.remote = &job;
    m.options.shard_optimizer = true;
    assert_error(model_plan(&m, td_linear(m.x, 1, "layer")), TD_UNSUPPORTED, "ps.consistency: sync");
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_gradient_is_in_one_bucket_in_the_order_in_which_backward_makes_them),
        cmocka_unit_test(test_buckets_leave_while_backward_goes_on_and_nobody_waits_before),
        cmocka_unit_test(test_an_accelerators_gradients_leave_while_it_goes_on),
        cmocka_unit_test(test_buckets_of_replicas_leave_in_turn),
        cmocka_unit_test(test_each_element_is_updated_by_the_one_worker_that_has_its_state),
        cmocka_unit_test(test_what_workers_share_is_the_hosts_beside_an_accelerator),
        cmocka_unit_test(test_an_update_that_looks_at_a_whole_parameter_is_one_workers),
        cmocka_unit_test(test_shares_are_refused_where_workers_may_be_ahead_of_each_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
