/* Running hundreds of random models: contracts (a) to (d) of the design on graphs that nobody thought of.
 *
 * Each model trains a few steps on one device with one thread; then over several devices, lanes and thread counts, with and
 * without overlapping steps and early lookups, and on every instruction set. Losses, outputs, what host functions saw, and
 * every parameter and state must have the same bits; copied bytes must equal the plan's formula, device bytes stay below
 * the plan's peak, every op run once per batch, or once per window of micro-batches. Every other model has such windows.
 *
 * TANDEM_PROPERTY_GRAPHS: how many models (200); TANDEM_PROPERTY_SEED: the first seed (1). A failure names its seed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/isa.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/support/random_machine.h"

enum { BATCHES = 5 };
#if TD_HAS_ASAN || TD_HAS_TSAN || !defined(NDEBUG)
enum { MODELS = 25 };
#else
enum { MODELS = 200 };
#endif

static int64_t number_from(const char *variable, int64_t fallback)
{
    const char *text = getenv(variable);
    return text && *text ? strtoll(text, NULL, 10) : fallback;
}

static void fail_at(uint64_t seed, const char *machine, const char *what)
{
    fail_msg("seed %llu on %s: %s", (unsigned long long)seed, machine, what);
}

/* ---- one run ---------------------------------------------------------------------------------------------------------------- */

/* All that a run leaves behind. */
typedef struct trace {
    float losses[BATCHES];     /* of steps; the same as batches where a window is one */
    uint64_t outputs[BATCHES]; /* sum of the hashes of a step's outputs, whose order is that of building */
    int64_t steps, skipped;    /* skipped: their gradients overflowed f16 */
    uint64_t checksum;         /* of the parameters, as the store has it */
    uint64_t entries;          /* hash of every parameter and state */
    random_witness witnesses[RANDOM_STEPS];
    uint64_t planned_peak[RANDOM_DEVICES];
} trace;

typedef struct runner {
    const char *machine;
    uint64_t seed;
    int64_t window; /* micro-batches */
    td_plan *plan;
    td_store *store;
    td_session *session;
    trace *trace;
} runner;

static bool keep(void *context, const td_step_report *report)
{
    trace *t = context;
    t->losses[t->steps] = report->loss;
    for (int32_t i = 0; i < report->n_outputs; i++) {
        const td_tensor *output = &report->outputs[i];
        t->outputs[t->steps] += td_hash_bytes(output->data, (size_t)td_tensor_bytes(output), 0);
    }
    t->steps++;
    return true;
}

static void no_error(const runner *r, td_status *status)
{
    if (!status)
        return;
    print_error("%s\n", td_status_trace(status));
    fail_at(r->seed, r->machine, td_status_message(status));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In order of names: the order of entries follows the order of building. */
static void read_store(const runner *r)
{
    int32_t n = td_store_count(r->store);
    const char **names = td_calloc((size_t)n + 1, sizeof *names);
    assert_non_null(names);
    for (int32_t i = 0; i < n; i++)
        names[i] = td_store_name(r->store, i);
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int32_t i = 0; i < n; i++) {
        td_tensor t;
        bool is_parameter = false;
        const char *device = NULL;
        int32_t index = td_store_find(r->store, names[i]);
        no_error(r, td_store_describe(r->store, index, &t, &is_parameter, &device));
        void *data = td_calloc((size_t)td_tensor_bytes(&t) + 1, 1);
        assert_non_null(data);
        no_error(r, td_store_read(r->store, index, 0, td_tensor_elements(&t), data));
        r->trace->entries = td_hash_string(names[i], r->trace->entries);
        r->trace->entries = td_hash_bytes(data, (size_t)td_tensor_bytes(&t), r->trace->entries);
        td_free(data);
    }
    td_free(names);
    no_error(r, td_store_checksum(r->store, &r->trace->checksum));
}

static bool runs_a_kernel(const td_plan *plan, int32_t n)
{
    const td_node *node = &plan->graph->nodes[n];
    return plan->nodes[n].lane == TD_QUEUE_COMPUTE && !(node->op->flags & TD_OP_VIEW) && !node->host_function;
}

static void check_counters(const runner *r)
{
    td_session_counters c = td_session_read_counters(r->session);
    int64_t steps = (BATCHES + r->window - 1) / r->window;
    r->trace->skipped = c.skipped_steps;
    if (c.steps + c.skipped_steps != steps || r->trace->steps != steps)
        fail_at(r->seed, r->machine, "not all steps were done");
    for (int32_t s = 0; s < td_session_devices(r->session); s++)
        r->trace->planned_peak[s] = td_session_device(r->session, s).planned_peak_bytes;
    if (c.skipped_steps) /* the step after a skipped one is begun twice */
        return;
    if (c.to_device_bytes != c.planned_to_device_bytes || c.to_host_bytes != c.planned_to_host_bytes)
        fail_at(r->seed, r->machine, "copied bytes are not what the plan's formula says");
    for (int32_t s = 0; s < td_session_devices(r->session); s++) {
        td_device_counters d = td_session_device(r->session, s);
        int64_t kernels = 0, early = 0; /* early: only where a step speculates */
        for (int32_t n = 0; n < r->plan->graph->n_nodes; n++) {
            const td_plan_node *node = &r->plan->nodes[n];
            if (node->device != s || !runs_a_kernel(r->plan, n))
                continue;
            if (r->plan->graph->nodes[n].speculates)
                early += steps;
            else
                kernels += node->once ? steps : node->before_last ? BATCHES - steps : BATCHES;
        }
        if (d.kernels < kernels || d.kernels > kernels + early)
            fail_at(r->seed, r->machine, "not every op ran once in every batch, or window");
        if (d.now_bytes > d.planned_peak_bytes)
            fail_at(r->seed, r->machine, "a device holds more than its planned peak");
    }
    for (int32_t i = 0; i < RANDOM_STEPS; i++)
        if (r->trace->witnesses[i].calls != 0 && r->trace->witnesses[i].calls != BATCHES)
            fail_at(r->seed, r->machine, "a host function did not run once in every batch");
}

/* Bytes that the plan's formula gives for the extents of each batch, summed by the test. */
static void check_formula(const runner *r, random_source *source)
{
    int64_t to_device = 0, to_host = 0;
    td_source s = random_source_begin(source);
    const td_graph *graph = r->plan->graph;
    for (int64_t step = 0; step < BATCHES; step++) {
        td_batch batch;
        bool end = false, last = step + 1 == BATCHES || (step + 1) % r->window == 0;
        no_error(r, s.next(s.self, &batch, &end));
        for (int32_t n = 0; n < graph->n_nodes; n++) {
            int64_t bytes[3], extents[RANDOM_STEPS];
            for (int64_t e = 0; e < graph->n_extents; e++) {
                extents[e] = batch.samples;
                for (int32_t f = 0; f < batch.n_fields; f++)
                    if (strcmp(graph->extents[e].name + 2, batch.fields[f].name) == 0 &&
                        graph->extents[e].name[1] == '.')
                        extents[e] = batch.fields[f].tensor.entries;
            }
            if (r->plan->nodes[n].lane == TD_QUEUE_COMPUTE || (r->plan->nodes[n].once && !last))
                continue;
            td_value_bytes(graph, td_copied_to(&graph->nodes[n]), extents, bytes);
            *(r->plan->nodes[n].lane == TD_QUEUE_TO_HOST ? &to_host : &to_device) += bytes[0] + bytes[1] + bytes[2];
        }
        s.release(s.self, &batch);
    }
    td_session_counters c = td_session_read_counters(r->session);
    if (c.to_device_bytes != to_device || c.to_host_bytes != to_host)
        fail_at(r->seed, r->machine, "copied bytes are not what the batches' extents give");
}

typedef struct variant {
    bool placing; /* targets, rules and switches */
    uint64_t placing_seed, order;
    td_switch early;
    bool serial;
    td_jit_level level;
} variant;

/* What holds of devices between sessions: whatever a run took has been given back. */
static void check_given_back(const runner *r, const random_machine *machine, const uint64_t *before)
{
    for (int32_t s = 0; s < machine->machine->n_sites; s++) {
        uint64_t now = 0, peak = 0;
        const td_plan_site *site = &machine->machine->sites[s];
        if (site->api->memory_in_use)
            site->api->memory_in_use(site->device, &now, &peak);
        if (now != before[s])
            fail_at(r->seed, r->machine, "a device was not given all its memory back");
    }
}

/* Of every other pair of seeds, windows of several micro-batches; the last one is short. */
static void choose_window(uint64_t seed, runner *r, td_train_options *options)
{
    static const int32_t windows[][2] = {{1, 1}, {2, 1}, {1, 1}, {3, 1}, {1, 1}, {1, 2}, {1, 1}, {2, 2}};
    options->accumulate = windows[seed / 2 % 8][0];
    options->replicas = windows[seed / 2 % 8][1];
    options->reduction = seed / 2 % 16 == 9 ? TD_REDUCE_SUM : TD_REDUCE_MEAN;
    r->window = (int64_t)options->accumulate * options->replicas;
    if (r->window > 1)
        options->early_lookup = TD_AUTO;
}

static void run(const random_recipe *recipe, random_machine *machine, const char *name, variant v, trace *out)
{
    runner r = {.machine = name, .seed = recipe->seed, .trace = out};
    random_source *source = NULL;
    uint64_t before[RANDOM_DEVICES] = {0}, peak = 0;
    *out = (trace){0};
    for (int32_t s = 0; s < machine->machine->n_sites; s++)
        if (machine->machine->sites[s].api->memory_in_use)
            machine->machine->sites[s].api->memory_in_use(machine->machine->sites[s].device, &before[s], &peak);
    td_value loss;
    td_train_options options = random_options(machine, recipe->seed, v.placing, v.placing_seed);
    if (v.early != TD_AUTO)
        options.early_lookup = v.early;
    options.no_pipeline = options.no_pipeline || v.serial;
    options.jit_level = v.level;
    choose_window(recipe->seed, &r, &options);
    random_build how = {.order = v.order, .devices = v.placing ? machine->n_devices : 0, .witnesses = out->witnesses};
    td_graph *graph = random_graph_build(recipe, how, &loss);
    no_error(&r, td_plan_train(graph, loss, &options, &r.plan));
    no_error(&r, td_store_create(r.plan, &r.store));
    no_error(&r, td_session_create(r.plan, r.store, &r.session));
    no_error(&r, random_source_create(recipe, BATCHES, &source));
    td_source s = random_source_begin(source);
    no_error(&r, td_session_run(r.session, &s, 0, keep, out));
    check_counters(&r);
    if (!out->skipped)
        check_formula(&r, source);
    read_store(&r);
    td_session_destroy(r.session);
    td_store_release(r.store);
    td_plan_release(r.plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    random_source_destroy(source);
    check_given_back(&r, machine, before);
}

static void compare(uint64_t seed, const char *machine, const trace *a, const trace *b)
{
    char what[120];
    for (int32_t i = 0; i < BATCHES; i++)
        if (memcmp(&a->losses[i], &b->losses[i], sizeof(float)) != 0) {
            (void)snprintf(what, sizeof what, "loss %d is %.9g, not %.9g", i, (double)b->losses[i],
                           (double)a->losses[i]);
            fail_at(seed, machine, what);
        }
    if (a->skipped != b->skipped)
        fail_at(seed, machine, "other steps were skipped");
    for (int32_t i = 0; i < RANDOM_STEPS && !a->skipped; i++)
        if (a->witnesses[i].hash != b->witnesses[i].hash || a->witnesses[i].calls != b->witnesses[i].calls)
            fail_at(seed, machine, "a host function saw other bits");
    if (memcmp(a->outputs, b->outputs, sizeof a->outputs) != 0)
        fail_at(seed, machine, "outputs have other bits");
    if (a->checksum != b->checksum || a->entries != b->entries)
        fail_at(seed, machine, "parameters or state have other bits");
}

/* ---- machines -------------------------------------------------------------------------------------------------------------------- */

typedef struct named_machine {
    const char *name;
    random_machine machine;
} named_machine;

static named_machine one = {"one device, one thread", {.n_devices = 1, .devices = {{"cpu", "cpu:cores=1,lanes=1"}}}};

static named_machine others[] = {
    {"two threads", {.n_devices = 1, .devices = {{"cpu", "cpu:cores=2,lanes=1"}}}},
    {"three threads", {.n_devices = 1, .devices = {{"cpu", "cpu:cores=3,lanes=1"}}}},
    {"two lanes", {.n_devices = 1, .devices = {{"cpu", "cpu:cores=2,lanes=2"}}}},
    {"two devices", {.n_devices = 2, .devices = {{"cpu", "cpu:cores=1"}, {"d1", "emulated:memory=16MiB"}}}},
    {"three devices with two lanes",
     {.n_devices = 3,
      .devices = {{"cpu", "cpu:cores=2,lanes=2"},
                  {"d1", "emulated:memory=16MiB,lanes=2"},
                  {"d2", "emulated:memory=9MiB,cores=2"}}}},
    {"five devices",
     {.n_devices = 5,
      .devices = {{"cpu", "cpu:cores=1"},
                  {"d1", "emulated:memory=8MiB,link=2GB/s"},
                  {"d2", "emulated:memory=9MiB,link=50GB/s,latency=1us"},
                  {"d3", "emulated:memory=10MiB"},
                  {"d4", "emulated:memory=11MiB,latency=20us"}}}},
};
enum { N_OTHERS = sizeof others / sizeof *others };

static int open_machines(void **state)
{
    (void)state;
    td_status *status = random_machine_open(&one.machine);
    for (int32_t i = 0; !status && i < N_OTHERS; i++)
        status = random_machine_open(&others[i].machine);
    if (status)
        print_error("%s\n", td_status_message(status));
    bool failed = status != NULL;
    td_status_destroy(status);
    return failed ? -1 : 0;
}

static int close_machines(void **state)
{
    (void)state;
    random_machine_close(&one.machine);
    for (int32_t i = 0; i < N_OTHERS; i++)
        random_machine_close(&others[i].machine);
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------------ */

typedef struct work {
    random_recipe recipe;
    trace expected, found;
} work;

static work *begin(const char *what, uint64_t *out_first, int64_t *out_models)
{
    work *w = td_calloc(1, sizeof *w);
    assert_non_null(w);
    *out_first = (uint64_t)number_from("TANDEM_PROPERTY_SEED", 1);
    *out_models = number_from("TANDEM_PROPERTY_GRAPHS", MODELS);
    print_message("%s, seeds %llu to %llu\n", what, (unsigned long long)*out_first,
                  (unsigned long long)*out_first + (unsigned long long)*out_models - 1);
    return w;
}

static void test_any_devices_lanes_and_threads_give_the_bits_of_one_device(void **state)
{
    (void)state;
    uint64_t first = 0;
    int64_t models = 0;
    work *w = begin("random models over devices", &first, &models);
    int64_t finite = 0, learning = 0;
    for (int64_t i = 0; i < models; i++) {
        uint64_t seed = first + (uint64_t)i;
        random_recipe_draw(&w->recipe, seed, true);
        run(&w->recipe, &one.machine, one.name, (variant){.level = TD_O2}, &w->expected);
        for (uint64_t k = 0; k < 3; k++) { /* every machine comes up with every other seed */
            named_machine *other = &others[(seed + 2 * k) % N_OTHERS];
            variant v = {.placing = true,
                         .placing_seed = seed * 3 + k,
                         .order = k ? seed + k : 0,
                         .early = (td_switch)(seed % 3),
                         .serial = (seed + k) % 4 == 0,
                         .level = TD_O2};
            run(&w->recipe, &other->machine, other->name, v, &w->found);
            compare(seed, other->name, &w->expected, &w->found);
        }
        finite += isfinite(w->expected.losses[w->expected.steps - 1]) != 0;
        learning += memcmp(&w->expected.losses[0], &w->expected.losses[1], sizeof(float)) != 0;
    }
    assert_true(finite >= models - models / 20 &&
                learning >= models - models / 20); /* or equal bits would say little */
    td_free(w);
}

static void test_overlapping_steps_and_early_lookups_give_the_bits_of_one_step_after_another(void **state)
{
    (void)state;
    uint64_t first = 0;
    int64_t models = 0;
    work *w = begin("random models, overlapping or not", &first, &models);
    for (int64_t i = 0; i < models; i += 2) {
        uint64_t seed = first + 100000 + (uint64_t)i;
        named_machine *machine = &others[3 + seed % 3];
        random_recipe_draw(&w->recipe, seed, true);
        variant v = {.placing = true, .placing_seed = seed, .serial = true, .level = TD_O2};
        run(&w->recipe, &machine->machine, machine->name, v, &w->expected);
        v.serial = false;
        v.early = TD_OFF;
        run(&w->recipe, &machine->machine, "overlapping steps", v, &w->found);
        compare(seed, "overlapping steps", &w->expected, &w->found);
        v.early = TD_ON;
        run(&w->recipe, &machine->machine, "early lookups", v, &w->found);
        compare(seed, "early lookups", &w->expected, &w->found);
    }
    td_free(w);
}

/* O0 runs every op as it was written; on one device and cut over several. */
static void test_every_level_of_optimization_gives_the_bits_of_none(void **state)
{
    (void)state;
    uint64_t first = 0;
    int64_t models = 0;
    work *w = begin("random models at every level", &first, &models);
    for (int64_t i = 0; i < models; i += 2) {
        uint64_t seed = first + 400000 + (uint64_t)i;
        named_machine *machine = &others[seed / 2 % N_OTHERS];
        random_recipe_draw(&w->recipe, seed, true);
        run(&w->recipe, &one.machine, one.name, (variant){.level = TD_O0}, &w->expected);
        run(&w->recipe, &one.machine, "O1", (variant){.level = TD_O1}, &w->found);
        compare(seed, "O1", &w->expected, &w->found);
        run(&w->recipe, &one.machine, "O2", (variant){.level = TD_O2}, &w->found);
        compare(seed, "O2", &w->expected, &w->found);
        variant v = {.placing = true, .placing_seed = seed, .level = (td_jit_level)(seed / 2 % 3)};
        run(&w->recipe, &machine->machine, "several devices", v, &w->found);
        compare(seed, "several devices", &w->expected, &w->found);
    }
    td_free(w);
}

/* The peak is of a device's life, so every model gets devices of its own. */
static void test_no_device_ever_holds_more_than_its_planned_peak(void **state)
{
    (void)state;
    uint64_t first = 0;
    int64_t models = 0;
    work *w = begin("random models on fresh devices", &first, &models);
    for (int64_t i = 0; i < models; i += 8) {
        uint64_t seed = first + 300000 + (uint64_t)i;
        random_machine machine = others[3 + seed % 3].machine;
        td_status *status = random_machine_open(&machine);
        assert_null(status);
        random_recipe_draw(&w->recipe, seed, true);
        run(&w->recipe, &machine, "fresh devices", (variant){.placing = true, .placing_seed = seed, .level = TD_O2},
            &w->found);
        for (int32_t s = 0; s < machine.machine->n_sites; s++) {
            uint64_t now = 0, peak = 0;
            const td_plan_site *site = &machine.machine->sites[s];
            site->api->memory_in_use(site->device, &now, &peak);
            if (peak > w->found.planned_peak[s])
                fail_at(seed, site->name, "it held more than its planned peak");
        }
        random_machine_close(&machine);
    }
    td_free(w);
}

/* The instruction set is chosen when a device is opened. */
static void test_every_instruction_set_gives_the_same_bits_with_the_reference_gemm(void **state)
{
    (void)state;
    uint64_t first = 0;
    int64_t models = 0;
    work *w = begin("random models on every instruction set", &first, &models);
    const char *was = getenv("TANDEM_ISA");
    char *saved = was ? td_strdup(was) : NULL;
    random_machine machines[TD_ISA_COUNT];
    bool open[TD_ISA_COUNT] = {false};
    for (int32_t isa = 0; isa < TD_ISA_COUNT; isa++) {
        machines[isa] = (random_machine){
            .n_devices = 2,
            .devices = {{"cpu", "cpu:cores=1,gemm=reference"}, {"d1", "emulated:memory=16MiB,gemm=reference"}}};
        if (!td_isa_available((td_isa)isa))
            continue;
        assert_int_equal(setenv("TANDEM_ISA", td_isa_name((td_isa)isa), 1), 0);
        td_status *status = random_machine_open(&machines[isa]);
        assert_null(status);
        open[isa] = true;
    }
    (void)(saved ? setenv("TANDEM_ISA", saved, 1) : unsetenv("TANDEM_ISA"));
    td_free(saved);
    for (int64_t i = 0; i < models; i++) {
        uint64_t seed = first + 200000 + (uint64_t)i;
        random_recipe_draw(&w->recipe, seed, true);
        variant v = {.placing = true, .placing_seed = seed, .level = TD_O2};
        run(&w->recipe, &machines[0], "baseline", v, &w->expected);
        for (int32_t isa = 1; isa < TD_ISA_COUNT; isa++)
            if (open[isa]) {
                run(&w->recipe, &machines[isa], td_isa_name((td_isa)isa), v, &w->found);
                compare(seed, td_isa_name((td_isa)isa), &w->expected, &w->found);
            }
    }
    for (int32_t isa = 0; isa < TD_ISA_COUNT; isa++)
        if (open[isa])
            random_machine_close(&machines[isa]);
    td_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_devices_lanes_and_threads_give_the_bits_of_one_device),
        cmocka_unit_test(test_overlapping_steps_and_early_lookups_give_the_bits_of_one_step_after_another),
        cmocka_unit_test(test_every_level_of_optimization_gives_the_bits_of_none),
        cmocka_unit_test(test_no_device_ever_holds_more_than_its_planned_peak),
        cmocka_unit_test(test_every_instruction_set_gives_the_same_bits_with_the_reference_gemm),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
