/* Plans of thousands of random graphs: what partition/plan.h promises holds for each, found out independently, and the order
 * in which a graph was built changes nothing.
 *
 * TANDEM_PROPERTY_GRAPHS: how many graphs (3000; fewer in sanitizer builds); TANDEM_PROPERTY_SEED: the first seed (1). A failure names its seed; run it
 * alone with TANDEM_PROPERTY_GRAPHS=1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "tests/support/plan_check.h"
#include "tests/support/random_machine.h"

static random_machine machines[] = {
    {.n_devices = 1, .devices = {{"cpu", "cpu:cores=1,lanes=1,gemm=reference"}}},
    {.n_devices = 1, .devices = {{"cpu", "cpu:cores=2,lanes=2,gemm=reference"}}},
    {.n_devices = 2, .devices = {{"cpu", "cpu:cores=1,gemm=reference"}, {"d1", "emulated:memory=4MiB,gemm=reference"}}},
    {.n_devices = 3,
     .devices = {{"cpu", "cpu:cores=1,gemm=reference"},
                 {"d1", "emulated:memory=3MiB,link=1GB/s,gemm=reference"},
                 {"d2", "emulated:memory=5MiB,link=20GB/s,lanes=2,gemm=reference"}}},
    {.n_devices = 5,
     .devices = {{"cpu", "cpu:cores=2,lanes=2,gemm=reference"},
                 {"d1", "emulated:memory=2MiB,link=1GB/s,gemm=reference"},
                 {"d2", "emulated:memory=3MiB,link=2GB/s,gemm=reference"},
                 {"d3", "emulated:memory=5MiB,link=12GB/s,gemm=reference"},
                 {"d4", "emulated:memory=8MiB,link=500MB/s,latency=50us,gemm=reference"}}},
    {.n_devices = 4,
     .devices = {{"cpu", "cpu:cores=1,gemm=reference"},
                 {"d1", "emulated:memory=12KiB,gemm=reference"},
                 {"d2", "emulated:memory=48KiB,gemm=reference"},
                 {"d3", "emulated:memory=2MiB,gemm=reference"}}},
};
enum { N_MACHINES = sizeof machines / sizeof *machines };

#if TD_HAS_ASAN || TD_HAS_TSAN || !defined(NDEBUG)
enum { GRAPHS = 300 };
#else
enum { GRAPHS = 3000 };
#endif

static int64_t number_from(const char *variable, int64_t fallback)
{
    const char *text = getenv(variable);
    return text && *text ? strtoll(text, NULL, 10) : fallback;
}

static int open_machines(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_MACHINES; i++) {
        td_status *status = random_machine_open(&machines[i]);
        if (status) {
            print_error("%s\n", td_status_message(status));
            td_status_destroy(status);
            return -1;
        }
    }
    return 0;
}

static int close_machines(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_MACHINES; i++)
        random_machine_close(&machines[i]);
    return 0;
}

/* ---- one graph ------------------------------------------------------------------------------------------------------------- */

typedef struct tally {
    int64_t plans, refused, nodes, copies, clusters, early, pipelined, several_devices;
} tally;

/* A plan of the recipe, or the refusal. */
static td_status *make_plan(const random_recipe *recipe, const random_machine *machine, uint64_t order,
                            td_plan **out_plan)
{
    td_value loss;
    td_train_options options = random_options(machine, recipe->seed, true, recipe->seed);
    options.keep_dumps = true;
    td_graph *graph = random_graph_build(recipe, (random_build){.order = order, .devices = machine->n_devices}, &loss);
    td_status *status = td_plan_train(graph, loss, &options, out_plan);
    td_graph_destroy(graph);
    td_train_options_deinit(&options);
    return status;
}

static void count(tally *t, const td_plan *plan)
{
    t->plans++;
    t->nodes += plan->graph->n_nodes;
    t->clusters += plan->n_clusters;
    t->early += plan->early_lookup;
    t->pipelined += plan->pipelined;
    bool used[RANDOM_DEVICES] = {false};
    int32_t devices = 0;
    for (int64_t n = 0; n < plan->graph->n_nodes; n++) {
        t->copies += plan->nodes[n].lane != TD_QUEUE_COMPUTE;
        devices += !used[plan->nodes[n].device];
        used[plan->nodes[n].device] = true;
    }
    t->several_devices += devices > 1;
}

static void fail_at(uint64_t seed, const char *what, const char *more)
{
    fail_msg("seed %llu: %s%s%s", (unsigned long long)seed, what, more ? ": " : "", more ? more : "");
}

/* Cuts "plan_ms": NUMBER out, the one thing that two equal plans differ in. */
static void blank_plan_ms(char *json)
{
    char *at = strstr(json, "\"plan_ms\"");
    assert_non_null(at);
    const char *rest = at + strcspn(at, "\n");
    memmove(at, rest, strlen(rest) + 1);
}

static char *first_difference(char *a, char *b)
{
    char *line = a;
    for (; *a && *a == *b; a++, b++)
        if (*a == '\n')
            line = a + 1;
    char *end = strchr(line, '\n');
    if (end)
        *end = '\0';
    return line;
}

static void compare_text(uint64_t seed, const char *what, td_status *status, char *a, char *b)
{
    assert_null(status);
    if (strcmp(a, b) != 0)
        fail_at(seed, what, first_difference(a, b));
    td_text_free(a);
    td_text_free(b);
}

static void compare_plans(uint64_t seed, const td_plan *a, const td_plan *b)
{
    const char *const *passes = NULL;
    int32_t n = td_plan_passes(&passes);
    char *x = NULL, *y = NULL;
    for (int32_t i = 0; i < n; i++) {
        td_status *status = td_plan_dump(a, passes[i], &x);
        if (!status)
            status = td_plan_dump(b, passes[i], &y);
        compare_text(seed, passes[i], status, x, y);
    }
    td_status *status = td_plan_json(a, &x);
    if (!status)
        status = td_plan_json(b, &y);
    assert_null(status);
    blank_plan_ms(x);
    blank_plan_ms(y);
    compare_text(seed, "JSON", status, x, y);
}

static void check_refusal(uint64_t seed, td_status *status, td_status *other)
{
    if (td_status_code(status) != TD_DOES_NOT_FIT)
        fail_at(seed, "refused", td_status_message(status));
    if (strcmp(td_status_message(status), td_status_message(other)) != 0)
        fail_at(seed, "another order of building is refused otherwise", td_status_message(other));
    td_status_destroy(status);
    td_status_destroy(other);
}

static void check_seed(uint64_t seed, random_recipe *recipe, tally *t)
{
    char problem[PLAN_PROBLEM_BYTES];
    const random_machine *machine = &machines[seed % N_MACHINES];
    td_plan *plan = NULL, *shuffled = NULL;
    random_recipe_draw(recipe, seed, false);
    td_status *status = make_plan(recipe, machine, 0, &plan);
    td_status *other = make_plan(recipe, machine, seed * 7919 + 1, &shuffled);
    if (status) {
        check_refusal(seed, status, other);
        t->refused++;
        return;
    }
    if (other)
        fail_at(seed, "another order of building is refused", td_status_message(other));
    if (!plan_check(plan, problem) || !plan_check(shuffled, problem))
        fail_at(seed, problem, NULL);
    compare_plans(seed, plan, shuffled);
    count(t, plan);
    td_plan_release(plan);
    td_plan_release(shuffled);
}

/* ---- many ---------------------------------------------------------------------------------------------------------------------- */

static void test_every_plan_keeps_its_promises_whatever_order_the_graph_was_built_in(void **state)
{
    (void)state;
    tally t = {0};
    uint64_t first = (uint64_t)number_from("TANDEM_PROPERTY_SEED", 1);
    int64_t graphs = number_from("TANDEM_PROPERTY_GRAPHS", GRAPHS);
    random_recipe *recipe = td_calloc(1, sizeof *recipe);
    assert_non_null(recipe);
    print_message("plans of random graphs, seeds %llu to %llu\n", (unsigned long long)first,
                  (unsigned long long)first + (unsigned long long)graphs - 1);
    for (int64_t i = 0; i < graphs; i++)
        check_seed(first + (uint64_t)i, recipe, &t);
    print_message("%lld plans, %lld refused for want of memory; %lld nodes, %lld copies, %lld subgraphs, %lld on "
                  "several devices, "
                  "%lld pipelined, %lld with early lookups\n",
                  (long long)t.plans, (long long)t.refused, (long long)t.nodes, (long long)t.copies,
                  (long long)t.clusters, (long long)t.several_devices, (long long)t.pipelined, (long long)t.early);
    if (graphs >= 600) { /* else chance decides; these say that the graphs are worth checking */
        assert_true(t.refused < graphs / 5 && t.refused > 0);
        assert_true(t.several_devices > graphs / 3 && t.pipelined > graphs / 3);
        assert_true(t.copies > graphs && t.early > 0);
    }
    td_free(recipe);
}

static td_graph *parse_again(uint64_t seed, const td_graph *graph)
{
    char *text = NULL, *again = NULL;
    td_graph *parsed = NULL;
    td_status *status = td_graph_print(graph, &text);
    if (!status)
        status = td_graph_parse(text, strlen(text), "random.tdg", &parsed);
    if (!status)
        status = td_graph_print(parsed, &again);
    if (status)
        fail_at(seed, "text form", td_status_message(status));
    compare_text(seed, "text form", status, text, again);
    return parsed;
}

static void test_every_graph_survives_its_text_form_and_is_planned_alike(void **state)
{
    (void)state;
    uint64_t first = (uint64_t)number_from("TANDEM_PROPERTY_SEED", 1);
    int64_t graphs = number_from("TANDEM_PROPERTY_GRAPHS", GRAPHS) / 10 + 1;
    random_recipe *recipe = td_calloc(1, sizeof *recipe);
    assert_non_null(recipe);
    print_message("text form of random graphs, seeds %llu to %llu\n", (unsigned long long)first,
                  (unsigned long long)first + (unsigned long long)graphs - 1);
    for (uint64_t seed = first; seed < first + (uint64_t)graphs; seed++) {
        const random_machine *machine = &machines[seed % (N_MACHINES - 1)]; /* those with room */
        td_value loss;
        td_plan *plan = NULL, *again = NULL;
        random_recipe_draw(recipe, seed, false);
        td_train_options options = random_options(machine, seed, true, seed);
        options.keep_dumps = true;
        td_graph *graph = random_graph_build(recipe, (random_build){.devices = machine->n_devices}, &loss);
        td_graph *parsed = parse_again(seed, graph);
        td_status *status = td_plan_train(graph, loss, &options, &plan);
        td_machine_forget_plans(options.machine); /* so that the second is made, not found */
        if (!status)
            status = td_plan_train(parsed, td_graph_find(parsed, td_value_name(loss)), &options, &again);
        if (status)
            fail_at(seed, "refused", td_status_message(status));
        compare_plans(seed, plan, again);
        td_plan_release(plan);
        td_plan_release(again);
        td_graph_destroy(graph);
        td_graph_destroy(parsed);
        td_train_options_deinit(&options);
    }
    td_free(recipe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_keeps_its_promises_whatever_order_the_graph_was_built_in),
        cmocka_unit_test(test_every_graph_survives_its_text_form_and_is_planned_alike),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
