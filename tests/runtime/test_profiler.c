/* Recording a run: as many ops are recorded as were executed, parameters come out the same with and without, the schedule is
 * kept, and a profiler that cannot write turns itself off while training goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "profiler/advice.h"
#include "tandem/ops.h"
#include "tandem/profiler.h"
#include "tandem/session.h"
#include "tests/base/check.h"
#include "where.h"

enum { BATCH = 16, ROWS = 50, DIM = 8 };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
    float x[BATCH * DIM], y[BATCH];
    int64_t ids[BATCH];
    td_field fields[3];
    int64_t handed_out;
    int64_t slow_ns;  /* what the source takes for a batch, at least */
    int64_t taken_ns; /* what it took, all batches but the first */
    int64_t op_ns;    /* what an op of the model takes, at least; 0: there is none */
    int64_t op_taken_ns[8], op_calls;
} run;

static char folder[128];

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    run *r = self;
    int64_t begin_ns = td_clock_ns();
    while (r->slow_ns && td_clock_ns() - begin_ns < r->slow_ns)
        ; /* computing, as far as anybody can tell */
    r->taken_ns += r->handed_out ? td_clock_ns() - begin_ns : 0;
    *out_end = false;
    *out_batch =
        (td_batch){.samples = BATCH, .index = r->handed_out++, .n_fields = 3, .fields = r->fields, .owner = self};
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    *batch = (td_batch){0};
}

static void fill(run *r)
{
    for (int i = 0; i < BATCH; i++) {
        r->y[i] = (float)(i % 2);
        r->ids[i] = (i * 7) % ROWS;
        for (int k = 0; k < DIM; k++)
            r->x[i * DIM + k] = 0.01f * (float)((i * 31 + k * 17) % 100) - 0.5f;
    }
    r->fields[0] = (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, DIM}, .data = r->x}};
    r->fields[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = r->y}};
    r->fields[2] = (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {BATCH}, .data = r->ids}};
}

/* The model's own op, computing for so long. It notes what it took. */
static td_status *work(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    run *r = context;
    int64_t begin_ns = td_clock_ns();
    (void)n_inputs;
    memcpy(output->data, inputs[0].data, sizeof r->x);
    while (td_clock_ns() - begin_ns < r->op_ns)
        ;
    r->op_taken_ns[r->op_calls++ % 8] += td_clock_ns() - begin_ns;
    return NULL;
}

/* So many of them before the model, each of op_ns. */
static td_value slow_down(run *r, td_value x, int64_t ops, int64_t op_ns)
{
    char name[32];
    r->op_ns = op_ns;
    for (int64_t i = 0; i < ops; i++) {
        (void)snprintf(name, sizeof name, "slow.%d", (int)i);
        x = td_host_call(r->graph, work, r, 1, &x, TD_F32, TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(DIM)),
                         name);
    }
    return x;
}

static void open_slowed(run *r, const char *device, bool pipelined, int64_t ops, int64_t op_ns)
{
    *r = (run){0};
    assert_ok(td_graph_create(&r->graph));
    td_value x = td_input(r->graph, "x", TD_F32, TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(DIM)));
    td_value y = td_input(r->graph, "y", TD_F32, TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(1)));
    td_value ids = td_input(r->graph, "ids", TD_I64, TD_SHAPE(td_dim_constant(BATCH)));
    td_value table = td_parameter(r->graph, "table.weight", TD_F32,
                                  TD_SHAPE(td_dim_constant(ROWS), td_dim_constant(DIM)), td_init_normal(0, 1));
    td_value bottom = td_relu(td_linear(slow_down(r, x, ops, op_ns), DIM, "bottom"));
    td_value joined = td_concat(2, (td_value[]){bottom, td_embedding(table, ids, (td_embedding_options){0})}, 1);
    td_value loss = td_bce_with_logits(td_linear(joined, 1, "top"), y);
    r->options = td_train_defaults();
    r->options.no_pipeline = !pipelined;
    td_add_device(&r->options, "accel", device);
    td_place(&r->options, "table*", "cpu");
    td_group(&r->options, "*", td_adagrad(0.01));
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
    fill(r);
}

static void open_run_on(run *r, const char *device, bool pipelined)
{
    open_slowed(r, device, pipelined, 0, 0);
}

static void open_run(run *r)
{
    open_run_on(r, "emulated:memory=16MiB,cores=1", true);
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

static void train(run *r, int64_t steps)
{
    td_source source = {r, next, release};
    assert_ok(td_session_run(r->session, &source, steps, NULL, NULL));
}

static td_profiler *profiler_of(int64_t skip, int64_t warm_up, int64_t active, int64_t repeat, bool start)
{
    td_profiler_options options = td_profiler_defaults();
    td_profiler *profiler = NULL;
    options.directory = folder;
    options.skip = skip;
    options.warm_up = warm_up;
    options.active = active;
    options.repeat = repeat;
    options.start = start;
    assert_ok(td_profiler_create(&options, &profiler));
    return profiler;
}

static int64_t count(const td_trace *trace, int kind, int64_t first, int64_t last)
{
    int64_t n = 0;
    for (int64_t i = 0; i < trace->n_events; i++)
        n += trace->events[i].kind == kind && trace->events[i].step >= first && trace->events[i].step <= last;
    return n;
}

/* What each step runs: ops that compute, by the trace's own plan. */
static int64_t ops_of_a_step(const td_trace_plan *plan)
{
    int64_t n = 0;
    for (int32_t i = 0; i < plan->n_nodes; i++)
        n += !plan->nodes[i].view && plan->subgraphs[plan->nodes[i].subgraph].lane == TD_TRACE_COMPUTE;
    return n;
}

static void test_every_op_is_recorded_once(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(4, 1, 10, 1, true);
    int64_t before = 0;
    train(&r, 30);
    for (int32_t i = 0; i < td_session_devices(r.session); i++)
        before += td_session_device(r.session, i).kernels;
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->n_windows, 1);
    assert_int_equal(trace->windows[0].first_step, 6);
    assert_int_equal(trace->windows[0].last_step, 15);
    assert_int_equal(trace->dropped, 0);
    const td_trace_plan *plan = &trace->plans[0];
    assert_int_equal(before, 30 * ops_of_a_step(plan));
    assert_int_equal(count(trace, TD_RECORD_OP, 6, 15), 10 * ops_of_a_step(plan));
    assert_int_equal(count(trace, TD_RECORD_SUBGRAPH, 6, 15), 10 * plan->n_subgraphs);
    assert_int_equal(count(trace, TD_RECORD_STEP, 6, 15), 10);
    td_view *view = NULL;
    assert_ok(td_view_create(trace, -1, &view));
    assert_int_equal(td_view_count(view), 10);
    td_view_destroy(view);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_parameters_are_the_same_with_and_without(void **state)
{
    (void)state;
    uint64_t checksums[2];
    for (int with = 0; with < 2; with++) {
        run r;
        open_run(&r);
        td_profiler *profiler = with ? profiler_of(0, 0, 1000, 1, true) : NULL;
        train(&r, 25);
        assert_ok(td_store_checksum(r.store, &checksums[with]));
        assert_true(!with || td_profiler_is_recording(profiler));
        td_profiler_destroy(profiler);
        close_run(&r);
    }
    assert_int_equal(checksums[0], checksums[1]);
}

static void test_windows_repeat_by_the_schedule(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler_options options = td_profiler_defaults();
    td_profiler *profiler = NULL;
    options.directory = folder;
    options.skip = 3;
    options.wait = 2;
    options.warm_up = 1;
    options.active = 2;
    options.repeat = 3;
    assert_ok(td_profiler_create(&options, &profiler));
    train(&r, 10);
    train(&r, 15); /* across runs of a session too */
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->n_windows, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(trace->windows[i].first_step, 7 + 5 * i);
        assert_int_equal(trace->windows[i].last_step, 8 + 5 * i);
    }
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_a_request_records_from_the_next_step_on(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(0, 1, 3, 1, false);
    train(&r, 10);
    assert_null(td_profiler_trace(profiler));
    td_profiler_request(profiler);
    train(&r, 10);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->n_windows, 1);
    assert_int_equal(trace->windows[0].first_step, 12);
    assert_int_equal(trace->windows[0].last_step, 14);
    assert_true(trace->cut); /* the profiler may be asked again */
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_a_training_that_ends_first_has_a_shorter_window(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    open_run(&r);
    td_profiler *profiler = profiler_of(4, 1, 10, 1, true);
    train(&r, 9);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    assert_int_equal(trace->windows[0].first_step, 6);
    assert_int_equal(trace->windows[0].last_step, 9);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

/* With room for 64 records a ring, and no look at it in between, most are dropped: that is counted and said. */
static void test_what_is_dropped_is_counted(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    td_profiler_options options = td_profiler_defaults();
    td_profiler *profiler = NULL;
    uint64_t records = 0, dropped = 0;
    open_run(&r);
    options.directory = folder;
    options.ring_records = 16;
    options.skip = options.warm_up = 0;
    options.active = 20;
    assert_ok(td_profiler_create(&options, &profiler));
    train(&r, 20);
    td_profiler_stop(profiler);
    td_profiler_counts(profiler, &records, &dropped);
    assert_true(dropped > 0);
    td_profiler_start(profiler); /* what a ring dropped at last is told with its next record */
    train(&r, 20);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), &trace));
    td_profiler_counts(profiler, &records, &dropped);
    assert_int_equal(trace->n_events, records);
    assert_int_equal(trace->dropped, dropped);
    td_trace_destroy(trace);
    td_profiler_destroy(profiler);
    close_run(&r);
}

static void test_a_profiler_that_cannot_write_turns_itself_off(void **state)
{
    (void)state;
    bool through = false;
    for (uint64_t n = 1; !through; n++) {
        run r;
        open_run(&r);
        td_profiler *profiler = profiler_of(2, 1, 3, 1, true);
        td_file_fail_after(n);
        train(&r, 10);
        through = !td_file_failed();
        td_file_fail_after(0);
        assert_int_equal(td_store_steps(r.store), 10);
        assert_true(through == (td_profiler_error(profiler) == NULL));
        assert_false(td_profiler_is_recording(profiler));
        td_profiler_destroy(profiler);
        close_run(&r);
    }
}

/* ---- runs that are slow for a known reason ------------------------------------------------------------------------------------------ */

static bool advises(const td_analysis *a, const char *rule)
{
    td_advice_list list;
    td_advise(a, &list);
    for (int32_t i = 0; i < list.n; i++)
        if (!strcmp(list.items[i].rule, rule))
            return true;
    return false;
}

enum { SLOW_STEPS = 16 };

static void near(double found_ns, double wanted_ns)
{
    if (found_ns < 0.95 * wanted_ns || found_ns > 1.05 * wanted_ns)
        fail_msg("%g ms were injected, %g ms found", 1e-6 * wanted_ns, 1e-6 * found_ns);
}

/* Some steps of a run that is open, all of them recorded. */
static td_analysis *record_all(run *r, td_trace **out_trace)
{
    td_analysis *a = NULL;
    td_profiler *profiler = profiler_of(0, 0, SLOW_STEPS, 1, true);
    train(r, SLOW_STEPS);
    td_profiler_stop(profiler);
    assert_ok(td_trace_read(td_profiler_trace(profiler), out_trace));
    td_profiler_destroy(profiler);
    assert_ok(td_analysis_create(*out_trace, -1, &a));
    assert_int_equal(a->steps->n_steps, SLOW_STEPS);
    return a;
}

/* One after the other, with a source that takes so long. */
static td_analysis *record_slow(run *r, const char *device, int64_t source_ns, td_trace **out_trace)
{
    open_run_on(r, device, false);
    r->slow_ns = source_ns;
    return record_all(r, out_trace);
}

/* Time is what the source itself took: a loaded machine makes that longer than what it was told. */
static void test_a_slow_source_is_found_with_its_time(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    td_analysis *a = record_slow(&r, "emulated:memory=16MiB,cores=1", 8000000, &trace);
    double found = 0;
    for (int i = 1; i < SLOW_STEPS; i++) /* recording began after the first batch was there */
        found += (double)a->steps->steps[i].path_ns[TD_CAUSE_DATA];
    near(found, (double)r.taken_ns);
    assert_true(advises(a, "data_starvation"));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

/* Through a link of 64 kB/s copies take what their bytes do, at least; the engine's own count says how long they took. */
static void test_a_slow_link_is_found_with_its_time(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    td_analysis *a = record_slow(&r, "emulated:memory=16MiB,cores=1,link=64kB/s", 0, &trace);
    td_session_counters c = td_session_read_counters(r.session);
    double found = (double)a->steps->average.path_ns[TD_CAUSE_COPY] * SLOW_STEPS, copied = 0;
    for (int32_t s = 0; s < a->view->plan->n_subgraphs; s++)
        if (a->view->plan->subgraphs[s].lane != TD_TRACE_COMPUTE)
            copied += (double)a->steps->subgraphs[s].total_ns;
    near(copied, 1e9 * c.copy_s);
    assert_true(found > 0.95 * 1e9 * (double)(c.to_device_bytes + c.to_host_bytes) / 64e3);
    assert_true(found <= 1.05 * copied);
    assert_true(advises(a, "slow_link"));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

static const td_advice *advice_of(const td_analysis *a, const char *rule, td_advice_list *list)
{
    td_advise(a, list);
    for (int32_t i = 0; i < list->n; i++)
        if (!strcmp(list->items[i].rule, rule))
            return &list->items[i];
    fail_msg("%s does not speak", rule);
    return NULL;
}

/* An op that takes 30 ms is the first among the ops, with what it itself says that it took; the step's path has it, and so does the
 * advice. */
static void test_a_slow_op_is_found_with_its_time(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    td_advice_list list;
    open_slowed(&r, "emulated:memory=16MiB,cores=1", false, 1, 30000000);
    td_analysis *a = record_all(&r, &trace);
    double taken = 0;
    for (int i = 0; i < 8; i++)
        taken += (double)r.op_taken_ns[i];
    const td_op_row *first = &a->ops->ops.rows[0];
    assert_string_equal(first->name, "slow.0");
    near((double)first->self_ns, taken);
    int32_t subgraph = a->view->plan->nodes[first->node].subgraph;
    assert_true((double)a->steps->subgraphs[subgraph].path_ns >= 0.95 * taken);
    const td_advice *advice = advice_of(a, "slow_op", &list);
    near(1e6 * advice->gain_ms * SLOW_STEPS, taken);
    assert_non_null(strstr(advice->text, "host_call \"slow.0\" takes"));
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

/* All work on one side: what balance would save is half of the difference, by the engine's own count of busy time. */
static void test_an_unbalanced_cut_is_found_with_what_it_costs(void **state)
{
    (void)state;
    run r;
    td_trace *trace = NULL;
    td_advice_list list;
    open_slowed(&r, "emulated:memory=16MiB,cores=1", false, 4, 10000000);
    td_analysis *a = record_all(&r, &trace);
    double busy[2] = {0};
    for (int32_t i = 0; i < 2; i++)
        busy[i] = 1e9 * td_session_device(r.session, i).busy_s;
    double difference = busy[0] > busy[1] ? busy[0] - busy[1] : busy[1] - busy[0];
    const td_advice *advice = advice_of(a, "unbalanced_cut", &list);
    near(advice->measured * (double)a->steps->average.interval_ns * SLOW_STEPS, difference / 2);
    assert_non_null(strstr(advice->text, "cpu works"));
    assert_non_null(
        strstr(advice->text, "no single op there is small enough and free to move")); /* the caller's own code */
    td_analysis_destroy(a);
    td_trace_destroy(trace);
    close_run(&r);
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    td_profiler_options options = td_profiler_defaults();
    td_profiler *first = profiler_of(0, 0, 1, 1, false), *second = NULL;
    options.directory = folder;
    td_status *status = td_profiler_create(&options, &second);
    assert_non_null(strstr(td_status_message(status), "has a profiler already"));
    td_status_destroy(status);
    td_profiler_destroy(first);
    options.active = 0;
    status = td_profiler_create(&options, &second);
    assert_non_null(strstr(td_status_message(status), "active at least 1"));
    td_status_destroy(status);
}

static int enter(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/tandem_profiler_XXXXXX",
                   access("/dev/shm", W_OK) ? TD_BINARY_DIR : "/dev/shm");
    return mkdtemp(folder) ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    char command[160];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_is_recorded_once),
        cmocka_unit_test(test_parameters_are_the_same_with_and_without),
        cmocka_unit_test(test_windows_repeat_by_the_schedule),
        cmocka_unit_test(test_a_request_records_from_the_next_step_on),
        cmocka_unit_test(test_a_training_that_ends_first_has_a_shorter_window),
        cmocka_unit_test(test_what_is_dropped_is_counted),
        cmocka_unit_test(test_a_profiler_that_cannot_write_turns_itself_off),
        cmocka_unit_test(test_a_slow_source_is_found_with_its_time),
        cmocka_unit_test(test_a_slow_link_is_found_with_its_time),
        cmocka_unit_test(test_a_slow_op_is_found_with_its_time),
        cmocka_unit_test(test_an_unbalanced_cut_is_found_with_what_it_costs),
        cmocka_unit_test(test_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
