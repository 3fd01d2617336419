/* Every allocation of a whole run fails once: building a graph, planning it over two devices, the store, the session, steps. Each
 * time the run ends with an error that says so, and everything that was held is given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/memory.h"
#include "tandem/tandem.h"

enum { ROWS = 5, FEATURES = 3, TABLE_ROWS = 7, DIM = 4, IDS = 8, STEPS = 3 };

/* ---- batches that take no memory ------------------------------------------------------------------------------------------------ */

typedef struct batches {
    int64_t at;
    float dense[ROWS * FEATURES], label[ROWS];
    int64_t ids[IDS], offsets[ROWS + 1];
    td_field fields[3];
} batches;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    batches *b = self;
    *out_end = b->at == STEPS;
    *out_batch = (td_batch){.samples = ROWS, .index = b->at, .n_fields = 3, .fields = b->fields};
    b->at++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static void fill(batches *b)
{
    static const int64_t offsets[ROWS + 1] = {0, 3, 3, 4, 7, IDS};
    *b = (batches){0};
    for (int i = 0; i < ROWS * FEATURES; i++)
        b->dense[i] = 0.125f * (float)(i % 5 - 2);
    for (int i = 0; i < ROWS; i++)
        b->label[i] = (float)(i % 2);
    for (int i = 0; i < IDS; i++)
        b->ids[i] = (3 * i + 1) % TABLE_ROWS;
    memcpy(b->offsets, offsets, sizeof offsets);
    b->fields[0] =
        (td_field){"dense", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, FEATURES}, .data = b->dense}};
    b->fields[1] =
        (td_field){"label", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, 1}, .data = b->label}};
    b->fields[2] = (td_field){"ids",
                              {.kind = TD_RAGGED,
                               .dtype = TD_I64,
                               .rank = 1,
                               .dims = {ROWS},
                               .entries = IDS,
                               .data = b->ids,
                               .index = b->offsets}};
}

/* ---- a run ------------------------------------------------------------------------------------------------------------------------ */

typedef struct everything {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} everything;

static td_value build(td_graph *graph)
{
    td_dim batch = td_extent(graph, "B", ROWS);
    td_value dense = td_input(graph, "dense", TD_F32, TD_SHAPE(batch, FEATURES));
    td_value label = td_input(graph, "label", TD_F32, TD_SHAPE(batch, 1));
    td_value ids = td_input_ragged(graph, "ids", TD_I64, batch, td_extent(graph, "ids", IDS));
    td_value table = td_parameter(graph, "table.weight", TD_F32, TD_SHAPE(TABLE_ROWS, DIM), td_init_uniform(0.5));
    td_value vectors[2] = {td_relu(td_linear(dense, DIM, "bottom")), td_embedding_bag(table, ids, TD_SUM)};
    td_value parts[2] = {vectors[0], td_dot_interaction(2, vectors)};
    return td_bce_with_logits(td_linear(td_concat(2, parts, 1), 1, "top"), label);
}

static td_status *run(everything *e, batches *b)
{
    td_source source = {b, next, release};
    TD_TRY(td_graph_create(&e->graph));
    td_value loss = build(e->graph);
    td_add_device(&e->options, "accel", "emulated:memory=16MiB,cores=1");
    td_place(&e->options, "table.*", "cpu");
    td_group(&e->options, "table.*", td_lazy_adam(1e-2));
    td_group(&e->options, "*", td_adamw(1e-2, .weight_decay = 0.01));
    TD_TRY(td_plan_train(e->graph, loss, &e->options, &e->plan));
    TD_TRY(td_store_create(e->plan, &e->store));
    TD_TRY(td_session_create(e->plan, e->store, &e->session));
    return td_session_run(e->session, &source, 0, NULL, NULL);
}

static td_status *run_and_clean_up(void)
{
    everything e = {.options = td_train_defaults()};
    batches b;
    fill(&b);
    td_status *status = run(&e, &b);
    td_session_destroy(e.session);
    td_store_release(e.store);
    td_plan_release(e.plan);
    td_train_options_deinit(&e.options);
    td_graph_destroy(e.graph);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    assert_null(run_and_clean_up()); /* what is made once per process is made */
    uint64_t before = td_memory_read().bytes_now;
    for (uint64_t n = 1;; n++) {
        td_memory_fail_after(n);
        td_status *status = run_and_clean_up();
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        if (!failed) {
            assert_null(status);
            print_message("%llu allocations\n", (unsigned long long)n - 1);
            return;
        }
        if (td_status_code(status) != TD_OUT_OF_MEMORY)
            fail_msg("allocation %llu failed, but the run says: %d \"%s\" [%s]", (unsigned long long)n,
                     (int)td_status_code(status), td_status_message(status), td_status_trace(status));
        td_status_destroy(status);
        if (td_memory_read().bytes_now != before)
            fail_msg("allocation %llu failed, and %lld bytes were not given back", (unsigned long long)n,
                     (long long)(td_memory_read().bytes_now - before));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
