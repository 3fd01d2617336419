/* See dense_run.h. */
#include "tests/support/dense_run.h"

#include <math.h>

#include "tandem/ops.h"
#include "tests/base/check.h"

dense_run dense_run_inputs(td_value *out_x, td_value *out_y)
{
    dense_run r = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&r.graph));
    const td_dim batch = td_extent(r.graph, "B", DENSE_BATCH);
    *out_x = td_input(r.graph, "x", TD_F32, TD_SHAPE(batch, DENSE_WIDTH));
    *out_y = td_input(r.graph, "y", TD_F32, TD_SHAPE(batch, 1));
    return r;
}

dense_run dense_run_begin(int64_t hidden)
{
    td_value x, y;
    dense_run r = dense_run_inputs(&x, &y);
    r.loss = td_mse(td_linear(td_tanh(td_linear(x, hidden, "hidden")), 1, "top"), y);
    td_add_device(&r.options, "accel", "emulated:memory=64MiB,cores=1");
    return r;
}

void dense_run_start(dense_run *r)
{
    assert_ok(td_plan_train(r->graph, r->loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
}

void dense_run_end(dense_run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

/* ---- batches ---------------------------------------------------------------------------------------------------------------- */

/* In [0, 2^24). */
static float next_number(uint32_t *state)
{
    return (float)((*state = *state * 1664525u + 1013904223u) >> 8);
}

void dense_batches_fill(dense_batches *b, int64_t bad)
{
    uint32_t state = 1;
    *b = (dense_batches){.at = 0};
    for (int s = 0; s < DENSE_BATCHES; s++) {
        for (int i = 0; i < DENSE_BATCH * DENSE_WIDTH; i++)
            b->x[s][i] = next_number(&state) / (float)(1 << 23) - 1;
        for (int i = 0; i < DENSE_BATCH; i++)
            b->y[s][i] = next_number(&state) / (float)(1 << 22) - 2;
    }
    if (bad >= 0)
        b->y[bad][1] = NAN;
}

td_batch dense_batches_at(dense_batches *b, int64_t i)
{
    const int64_t n = i == 2 ? 3 : DENSE_BATCH;
    td_field *f = b->fields[i];
    f[0] = (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {n, DENSE_WIDTH}, .data = b->x[i]}};
    f[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {n, 1}, .data = b->y[i]}};
    return (td_batch){.samples = n, .n_fields = 2, .fields = f};
}

static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    dense_batches *b = self;
    *out_end = b->at == b->end;
    if (!*out_end)
        *out_batch = dense_batches_at(b, b->at++);
    return NULL;
}

static void keep_batch(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

/* ---- training --------------------------------------------------------------------------------------------------------------- */

static bool note_loss(void *context, const td_step_report *report)
{
    dense_losses *l = context;
    l->skipped += report->skipped;
    l->loss[l->n++] = report->skipped ? 0 : report->loss;
    return true;
}

void dense_run_train(dense_run *r, dense_batches *b, int64_t from, int64_t to, dense_losses *out)
{
    td_source source = {.self = b, .next = next_batch, .release = keep_batch};
    b->at = from;
    b->end = to;
    assert_ok(td_session_run(r->session, &source, 0, note_loss, out));
}

void dense_run_check_same(const dense_run *a, const dense_losses *x, const dense_run *b, const dense_losses *y)
{
    assert_int_equal(x->n, y->n);
    assert_int_equal(x->skipped, y->skipped);
    assert_memory_equal(x->loss, y->loss, sizeof x->loss);
    check_same_stores(a->store, b->store);
}
