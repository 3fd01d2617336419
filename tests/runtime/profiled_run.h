/* A small training to be recorded: a table on the host, layers on an accelerator, with a source, a link or an op as slow as a test
 * wants. Programs that include it record into `folder`, which enter makes and leave removes. */
#ifndef TANDEM_TESTS_RUNTIME_PROFILED_RUN_H
#define TANDEM_TESTS_RUNTIME_PROFILED_RUN_H

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
    int32_t accumulate; /* before it is opened; 0: 1 */
    int64_t handed_out;
    int64_t slow_ns;  /* what the source takes for a batch, at least */
    int64_t taken_ns; /* what it took, all batches but the first */
    int64_t op_ns;    /* what an op of the model takes, at least; 0: there is none */
    int64_t op_taken_ns[8], op_calls;
} run;

static char folder[128];

static inline td_status *next(void *self, td_batch *out_batch, bool *out_end)
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

static inline void release(void *self, td_batch *batch)
{
    (void)self;
    *batch = (td_batch){0};
}

static inline void fill(run *r)
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
static inline td_status *work(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
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
static inline td_value slow_down(run *r, td_value x, int64_t ops, int64_t op_ns)
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

static inline void open_slowed(run *r, const char *device, bool pipelined, int64_t ops, int64_t op_ns)
{
    *r = (run){.accumulate = r->accumulate};
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
    r->options.accumulate = r->accumulate ? r->accumulate : 1;
    td_add_device(&r->options, "accel", device);
    td_place(&r->options, "table*", "cpu");
    td_group(&r->options, "*", td_adagrad(0.01));
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
    fill(r);
}

static inline void open_run_on(run *r, const char *device, bool pipelined)
{
    open_slowed(r, device, pipelined, 0, 0);
}

static inline void open_run(run *r)
{
    open_run_on(r, "emulated:memory=16MiB,cores=1", true);
}

static inline void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

static inline void train(run *r, int64_t steps)
{
    td_source source = {r, next, release};
    assert_ok(td_session_run(r->session, &source, steps, NULL, NULL));
}

static inline td_profiler *profiler_of(int64_t skip, int64_t warm_up, int64_t active, int64_t repeat, bool start)
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

static inline int enter(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/tandem_profiler_XXXXXX",
                   access("/dev/shm", W_OK) ? TD_BINARY_DIR : "/dev/shm");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int leave(void **state)
{
    (void)state;
    char command[160];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
