/* Every single allocation of building, planning, storing and running a model fails once: each failure comes out as out of
 * memory, nothing stays allocated, nothing crashes, and the next attempt without a failure works.
 *
 * Device memory of the emulated accelerator counts too. Failures that other threads' allocations meet (kernels cache what
 * depends on actual extents) come out of the step that they strike. */
#include "runtime/machine.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 6, SHORT = 4, ROWS = 11, DIM = 4, BAGS = 2 * BATCH };

/* ---- a model that has a little of everything ------------------------------------------------------------------------------------ */

typedef struct model {
    td_graph *graph;
    td_value loss;
    td_train_options options;
    td_plan *plan;
} model;

typedef struct batch_data {
    float x[BATCH * DIM], y[BATCH];
    int64_t ids[BATCH], bag[BAGS], offsets[BATCH + 1];
    td_field fields[4];
    td_batch batch;
} batch_data;

static void fill(batch_data *d, int64_t samples)
{
    for (int i = 0; i < BATCH * DIM; i++)
        d->x[i] = 0.25f * (float)(i % 5) - 0.5f;
    for (int i = 0; i < BATCH; i++) {
        d->y[i] = (float)(i % 2);
        d->ids[i] = (i * 3) % ROWS;
        d->offsets[i + 1] = d->offsets[i] + i % 3;
    }
    for (int i = 0; i < BAGS; i++)
        d->bag[i] = (i * 5) % ROWS;
    d->fields[0] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, DIM}, .data = d->x}};
    d->fields[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = d->y}};
    d->fields[2] = (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {samples}, .data = d->ids}};
    d->fields[3] = (td_field){"bag",
                              {.kind = TD_RAGGED,
                               .dtype = TD_I64,
                               .rank = 1,
                               .dims = {samples},
                               .data = d->bag,
                               .index = d->offsets,
                               .entries = d->offsets[samples]}};
    d->batch = (td_batch){.samples = samples, .n_fields = 4, .fields = d->fields};
}

static td_status *build(model *m)
{
    TD_TRY(td_graph_create(&m->graph));
    td_dim batch = td_extent(m->graph, "B", BATCH);
    td_value x = td_input(m->graph, "x", TD_F32, TD_SHAPE(batch, DIM)),
             y = td_input(m->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value ids = td_input(m->graph, "ids", TD_I64, TD_SHAPE(batch));
    td_value bag = td_input_ragged(m->graph, "bag", TD_I64, batch, td_extent(m->graph, "N", BAGS));
    td_value table = td_parameter(m->graph, "table.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_uniform(0.1));
    td_value rows = td_embedding(table, ids, (td_embedding_options){0}), bags = td_embedding_bag(table, bag, TD_MEAN);
    td_scope_push(m->graph, "bottom");
    td_value hidden = td_target(td_name(td_relu(td_linear(x, DIM, "fc")), "hidden"), "cpu"), parts[2];
    td_scope_pop(m->graph);
    td_split(td_dropout(hidden, 0.25), 1, 2, parts);
    td_value pairs = td_dot_interaction(3, (td_value[]){rows, bags, hidden});
    td_value flat = td_reshape(td_concat(3, (td_value[]){parts[1], parts[0], pairs}, 1), TD_SHAPE(batch, -1));
    td_value norm = td_layer_norm(flat, 1e-5, "norm");
    td_output(norm);
    m->loss = td_bce_with_logits(td_linear(td_softmax(norm), 1, "top"), y);
    return td_graph_check(m->graph);
}

static void describe(model *m, const char *accelerator)
{
    if (accelerator)
        td_add_device(&m->options, "accel", accelerator);
    td_place(&m->options, "table*", "cpu");
    td_group(&m->options, "table*", td_adagrad(0.1));
    td_group(&m->options, "*", td_adamw(0.01, .weight_decay = 0.1));
    m->options.early_lookup = TD_ON;
}

static void end(model *m)
{
    td_plan_release(m->plan);
    td_train_options_deinit(&m->options);
    td_graph_destroy(m->graph);
    *m = (model){.options = td_train_defaults()};
}

static model begin(const char *accelerator)
{
    model m = {.options = td_train_defaults()};
    assert_ok(build(&m));
    describe(&m, accelerator);
    return m;
}

/* ---- what is tried: each leaves nothing behind when it fails, nor when it succeeds and is undone ---------------------------------- */

static td_status *build_alone(void *context)
{
    model *m = context;
    *m = (model){.options = td_train_defaults()};
    td_status *status = build(m);
    if (status)
        end(m);
    return status;
}

static void undo_build(void *context)
{
    end(context);
}

/* Options and opened devices, for a graph that is there. */
static td_status *open_devices(void *context)
{
    model *m = context;
    describe(m, "emulated:memory=4MiB");
    td_status *status = td_plan_train(m->graph, m->loss, &m->options, &m->plan);
    if (status)
        td_train_options_deinit(&m->options);
    return status;
}

static void close_devices(void *context)
{
    model *m = context;
    td_plan_release(m->plan);
    m->plan = NULL;
    td_train_options_deinit(&m->options);
}

/* A plan for a graph and devices that are there, and all that can be asked of it. */
static td_status *plan_and_ask(void *context)
{
    model *m = context;
    td_status *status = td_plan_train(m->graph, m->loss, &m->options, &m->plan);
    for (int i = 0; i < 4 && !status; i++) {
        char *text = NULL;
        status = i == 0   ? td_plan_json(m->plan, &text)
                 : i == 1 ? td_plan_dot(m->plan, &text)
                 : i == 2 ? td_plan_explain(m->plan, "top/linear", &text)
                          : td_plan_dump(m->plan, "memory", &text);
        td_text_free(text);
    }
    if (status) {
        td_plan_release(m->plan);
        m->plan = NULL;
        td_machine_forget_plans(m->options.machine);
    }
    return status;
}

static void forget_plan(void *context)
{
    model *m = context;
    td_plan_release(m->plan);
    m->plan = NULL;
    td_machine_forget_plans(m->options.machine);
}

/* A store, a session and three steps on a plan that is there. */
static td_status *run(void *context)
{
    const model *m = context;
    td_store *store = NULL;
    td_session *session = NULL;
    uint64_t checksum = 0;
    td_status *status = td_store_create(m->plan, &store);
    if (!status)
        status = td_session_create(m->plan, store, &session);
    for (int step = 0; step < 3 && !status; step++) {
        td_step_report report;
        batch_data data = {0};
        fill(&data, step == 1 ? SHORT : BATCH);
        status = td_session_step(session, &data.batch, &report);
    }
    if (!status)
        status = td_store_checksum(store, &checksum);
    td_session_destroy(session);
    td_store_release(store);
    return status;
}

static void undo_nothing(void *context)
{
    (void)context;
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------------ */

static void try_all(const char *what, td_status *(*call)(void *), void (*undo)(void *), model *m, int least)
{
    assert_ok(call(m)); /* what is found once per process, the backends and the processor's facts, is found now */
    undo(m);
    int tried = assert_survives_allocation_failures(call, undo, m);
    print_message("%s: %d allocations\n", what, tried);
    assert_true(tried >= least);
}

static void test_building_a_graph_survives_every_failed_allocation(void **state)
{
    (void)state;
    model m = {0};
    try_all("building", build_alone, undo_build, &m, 100);
}

static void test_opening_devices_survives_every_failed_allocation(void **state)
{
    (void)state;
    model m = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&m.graph));
    td_value x = td_input(m.graph, "x", TD_F32, TD_SHAPE(td_extent(m.graph, "B", BATCH), DIM));
    m.loss = td_mse(td_linear(x, DIM, "fc"), x);
    try_all("opening", open_devices, close_devices, &m, 100);
    end(&m);
}

static void test_planning_survives_every_failed_allocation(void **state)
{
    (void)state;
    model m = begin("emulated:memory=4MiB,gemm=reference");
    m.options.keep_dumps = true;
    try_all("planning", plan_and_ask, forget_plan, &m, 500);
    end(&m);
}

static void run_on(const char *what, const char *accelerator, int least)
{
    model m = begin(accelerator);
    assert_ok(td_plan_train(m.graph, m.loss, &m.options, &m.plan));
    try_all(what, run, undo_nothing, &m, least);
    end(&m);
}

static void test_running_on_one_device_survives_every_failed_allocation(void **state)
{
    (void)state;
    run_on("running on one device", NULL, 100);
}

static void test_running_on_two_devices_survives_every_failed_allocation(void **state)
{
    (void)state;
    run_on("running on two devices", "emulated:memory=4MiB", 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_building_a_graph_survives_every_failed_allocation),
        cmocka_unit_test(test_opening_devices_survives_every_failed_allocation),
        cmocka_unit_test(test_planning_survives_every_failed_allocation),
        cmocka_unit_test(test_running_on_one_device_survives_every_failed_allocation),
        cmocka_unit_test(test_running_on_two_devices_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
