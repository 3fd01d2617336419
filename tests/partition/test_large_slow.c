/* Graphs of thousands of ops: planning grows with their size, memory is shared, lanes get few subgraphs, steps overlap, and no
 * bit changes. What is asserted are counts (of allocations, subgraphs, bytes), never times; bench has the times. */
#include <stdio.h>

#include "graph/op.h"
#include "tandem/session.h"
#include "tests/partition/models.h"

typedef enum shape { CHAIN, WIDE, BAND, RANDOM, SHAPES } shape;

enum { WIDTH = 4, ROWS = 8, BAND_WIDTH = 50 };

/* The value that op i reads: the last one; the first; one of the last few; any. */
static int64_t pick(shape kind, int64_t i, uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    uint32_t r = *state >> 8;
    if (kind == CHAIN)
        return i;
    if (kind == WIDE)
        return 0;
    return kind == BAND ? i - (int64_t)(r % (uint32_t)(i < BAND_WIDTH ? i + 1 : BAND_WIDTH)) : r % (uint32_t)(i + 1);
}

/* `n` elementwise ops, then a sum over all that nobody reads, so that each is needed. Every 40 ops the device changes when
 * `cut`. Each op's value is an output of its own when `outputs`. */
static td_value build(td_graph *graph, shape kind, int64_t n, bool cut, bool outputs)
{
    td_value *v = td_calloc((size_t)n + 1, sizeof *v), x = td_input(graph, "x", TD_F32, TD_SHAPE(ROWS, WIDTH));
    bool *read = td_calloc((size_t)n + 1, 1);
    uint32_t state = 1;
    int32_t ends = 0;
    char name[24];
    assert_true(v && read);
    v[0] = td_mul(x, td_parameter(graph, "w", TD_F32, TD_SHAPE(WIDTH), td_init_uniform(0.9)));
    for (int64_t i = 0; i < n; i++) {
        int64_t a = pick(kind, i, &state), b = pick(kind, i, &state);
        snprintf(name, sizeof name, "n%d", (int)i);
        td_value y = i % 4 == 0   ? td_add(v[a], v[b])
                     : i % 4 == 1 ? td_tanh(v[a])
                     : i % 4 == 2 ? td_sub(v[a], v[b])
                                  : td_sigmoid(v[a]);
        v[i + 1] = td_name(y, name);
        read[a] = true;
        read[b] = read[b] || i % 2 == 0;
        if (cut)
            td_target(v[i + 1], i / 40 % 2 ? "cpu" : "accel");
        if (outputs)
            td_output(v[i + 1]);
    }
    for (int64_t i = 0; i <= n; i++)
        if (!read[i])
            v[ends++] = v[i];
    td_value sum = ends > 1 ? td_graph_add1(graph, "add_n", "sum", v, ends, NULL, 0) : v[0];
    td_free(v);
    td_free(read);
    return sum;
}

typedef struct large {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
} large;

static large plan_large(shape kind, int64_t n, const char *cpu, bool cut, bool outputs, td_jit_level level)
{
    large l = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&l.graph));
    l.options.jit_level = level;
    td_add_device(&l.options, "cpu", cpu);
    if (cut)
        td_add_device(&l.options, "accel", "emulated:memory=64MiB");
    td_group(&l.options, "*", td_sgd(0.1));
    td_value y = td_input(l.graph, "y", TD_F32, TD_SHAPE(ROWS, WIDTH));
    td_value loss = td_mse(build(l.graph, kind, n, cut, outputs), y);
    assert_ok(td_plan_train(l.graph, loss, &l.options, &l.plan));
    return l;
}

static void large_end(large *l)
{
    td_plan_release(l->plan);
    td_train_options_deinit(&l->options);
    td_graph_destroy(l->graph);
}

/* ---- counts ---------------------------------------------------------------------------------------------------------------- */

static uint64_t allocations_of(shape kind, int64_t n, const char *cpu, bool cut)
{
    uint64_t before = td_memory_read().allocations;
    large l = plan_large(kind, n, cpu, cut, false, TD_O1);
    uint64_t made = td_memory_read().allocations - before;
    large_end(&l);
    return made;
}

static void test_planning_allocates_in_proportion_to_the_ops(void **state)
{
    (void)state;
    for (int kind = CHAIN; kind < SHAPES; kind++)
        for (int how = 0; how < 3; how++) {
            const char *cpu = how == 1 ? "cpu:cores=2,lanes=2" : "cpu:cores=1,lanes=1";
            uint64_t once = allocations_of((shape)kind, 2500, cpu, how == 2);
            uint64_t twice = allocations_of((shape)kind, 5000, cpu, how == 2);
            if (twice > 2 * once + once / 5)
                fail_msg("shape %d: %llu allocations for 2,500 ops, %llu for 5,000", kind, (unsigned long long)once,
                         (unsigned long long)twice);
        }
}

static int64_t arena_of(const large *l)
{
    return l->plan->arenas[l->plan->host].bytes - l->plan->arenas[l->plan->host].scratch_bytes;
}

static void test_a_long_chain_needs_no_more_memory_than_a_short_one(void **state)
{
    (void)state;
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        large l = {.options = td_train_defaults()};
        assert_ok(td_graph_create(&l.graph));
        l.options.jit_level = TD_O0; /* nothing in place: every value has a block */
        td_value y = td_relu(td_input(l.graph, "x", TD_F32, TD_SHAPE(ROWS, WIDTH)));
        char name[24];
        for (int k = 0; k < (i ? 5000 : 50); k++) {
            snprintf(name, sizeof name, "n%d", k);
            y = td_name(td_tanh(y), name);
        }
        assert_ok(td_plan_evaluate(l.graph, &y, 1, &l.options, NULL, &l.plan));
        bytes[i] = arena_of(&l);
        large_end(&l);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

static void test_thousands_of_chains_become_few_subgraphs_per_lane(void **state)
{
    (void)state;
    for (int kind = CHAIN; kind < SHAPES; kind++) {
        large l = plan_large((shape)kind, 4000, "cpu:cores=2,lanes=2", false, false, TD_O1);
        assert_true(l.plan->n_clusters <= 3 * 1024);
        large_end(&l);
    }
}

static void test_bundles_of_chains_keep_the_promises_of_subgraphs(void **state)
{
    (void)state;
    char problem[PLAN_PROBLEM_BYTES], name[24];
    model m = model_begin(4);
    m.options.jit_level = TD_O1;
    td_add_device(&m.options, "cpu", "cpu:cores=2,lanes=2");
    enum { CHAINS = 1100 };
    td_value *ends = td_calloc(CHAINS, sizeof *ends);
    assert_non_null(ends);
    for (int i = 0; i < CHAINS; i++) {
        snprintf(name, sizeof name, "a%d", i);
        td_value a = td_name(td_scale(m.x, 2 + i), name);
        snprintf(name, sizeof name, "b%d", i);
        if (i && i % 10 == 0) { /* some are longer, and meet */
            a = td_add(a, ends[i - 1]);
            td_name(a, name);
            snprintf(name, sizeof name, "c%d", i);
        }
        ends[i] = td_name(td_tanh(a), name);
    }
    td_value y = td_graph_add1(m.graph, "add_n", "sum", ends, CHAINS, NULL, 0);
    td_free(ends);
    assert_ok(td_plan_evaluate(m.graph, &y, 1, &m.options, NULL, &m.plan));
    assert_true(m.plan->n_clusters > 1 && m.plan->n_clusters <= 1024);
    if (!plan_check(m.plan, problem))
        fail_msg("%s", problem);
    model_end(&m);
}

static void test_steps_overlap_however_many_subgraphs_there_are(void **state)
{
    (void)state;
    large l = plan_large(CHAIN, 10000, "cpu:cores=1", true, false, TD_O1);
    assert_true(l.plan->pipelined);
    int64_t waits = 0;
    for (int32_t c = 0; c < l.plan->n_clusters; c++)
        waits += l.plan->clusters[c].n_across;
    assert_true(waits >= l.plan->n_clusters && waits < 10 * l.plan->graph->n_nodes);
    large_end(&l);
}

/* ---- bits ------------------------------------------------------------------------------------------------------------------- */

static uint64_t train(const large *l)
{
    float x[ROWS * WIDTH], y[ROWS * WIDTH];
    uint64_t checksum = 0;
    td_store *store = NULL;
    td_session *session = NULL;
    assert_ok(td_store_create(l->plan, &store));
    assert_ok(td_session_create(l->plan, store, &session));
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < ROWS * WIDTH; i++) {
            x[i] = (float)((i * 7 + step) % 13) / 6.5f - 1;
            y[i] = (float)((i * 5 + step) % 11) / 11;
        }
        const td_field fields[2] = {
            {"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, WIDTH}, .data = x}},
            {"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, WIDTH}, .data = y}}};
        td_batch batch = {.samples = ROWS, .n_fields = 2, .fields = fields};
        td_step_report report;
        assert_ok(td_session_step(session, &batch, &report));
    }
    assert_ok(td_store_checksum(store, &checksum));
    td_session_destroy(session);
    td_store_release(store);
    return checksum;
}

/* The reference shares no byte: every value is an output, which nobody may overwrite. */
static void test_large_plans_share_memory_without_changing_a_bit(void **state)
{
    (void)state;
    for (int kind = CHAIN; kind < SHAPES; kind++) {
        large l = plan_large((shape)kind, 2200, "cpu:cores=1,lanes=1", false, true, TD_O0);
        uint64_t expected = train(&l);
        int64_t unshared = arena_of(&l);
        large_end(&l);
        for (int how = 0; how < 4; how++) {
            bool cut = how == 3;
            const char *cpu = how == 2 ? "cpu:cores=2,lanes=2" : "cpu:cores=1,lanes=1";
            l = plan_large((shape)kind, 2200, cpu, cut, false, how == 0 ? TD_O0 : how == 1 ? TD_O2 : TD_O1);
            if (train(&l) != expected)
                fail_msg("shape %d, variant %d: other bits", kind, how);
            assert_true(arena_of(&l) < unshared);
            large_end(&l);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planning_allocates_in_proportion_to_the_ops),
        cmocka_unit_test(test_a_long_chain_needs_no_more_memory_than_a_short_one),
        cmocka_unit_test(test_thousands_of_chains_become_few_subgraphs_per_lane),
        cmocka_unit_test(test_bundles_of_chains_keep_the_promises_of_subgraphs),
        cmocka_unit_test(test_steps_overlap_however_many_subgraphs_there_are),
        cmocka_unit_test(test_large_plans_share_memory_without_changing_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
