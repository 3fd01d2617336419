/* Row-level early lookup changes when rows are read, never what is read: equal bits with and without it, whether consecutive
 * batches share all rows, some or none; the share that ran early is what the ids say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/philox.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 16, BAG = 3, DIM = 8, ROWS = 4096, STEPS = 30, SHORT = 5 };

typedef enum sharing { NONE, SOME, ALL } sharing;

typedef struct id_source {
    sharing how;
    int64_t at;
    int64_t ids[3][BATCH], bags[3][BATCH * BAG], offsets[3][BATCH + 1];
    float y[3][BATCH];
    td_field fields[3][3];
} id_source;

/* Rows of the batch: disjoint from the batch before (even and odd rows), drawn from few, or always the same. */
static int64_t draw(const id_source *source, int64_t i)
{
    uint32_t bits[4];
    td_philox_block(td_philox_key_of(1, "test", "ids"), (uint64_t)i, (uint64_t)source->at, bits);
    if (source->how == NONE)
        return 2 * (int64_t)(bits[0] % (ROWS / 2)) + source->at % 2;
    return source->how == SOME ? bits[0] % 60 : i % 3;
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    id_source *source = self;
    int64_t slot = source->at % 3, samples = source->at == STEPS - 1 ? SHORT : BATCH;
    *out_end = source->at == STEPS;
    if (*out_end)
        return NULL;
    for (int64_t i = 0; i < samples; i++) {
        source->ids[slot][i] = draw(source, i);
        source->offsets[slot][i + 1] = source->offsets[slot][i] + (i + source->at) % (BAG + 1);
        source->y[slot][i] = (float)(source->ids[slot][i] % 2);
    }
    for (int64_t i = 0; i < source->offsets[slot][samples]; i++)
        source->bags[slot][i] = draw(source, 100 + i);
    td_field *fields = source->fields[slot];
    fields[0] =
        (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {samples}, .data = source->ids[slot]}};
    fields[1] = (td_field){"bags",
                           {.kind = TD_RAGGED,
                            .dtype = TD_I64,
                            .rank = 1,
                            .dims = {samples},
                            .entries = source->offsets[slot][samples],
                            .data = source->bags[slot],
                            .index = source->offsets[slot]}};
    fields[2] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = source->y[slot]}};
    *out_batch = (td_batch){.samples = samples, .index = source->at, .n_fields = 3, .fields = fields};
    source->at++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

typedef struct result {
    float losses[STEPS];
    int64_t n;
    uint64_t checksum;
    td_session_counters counters;
} result;

static bool keep_loss(void *context, const td_step_report *report)
{
    result *r = context;
    r->losses[r->n++] = report->loss;
    return true;
}

static td_graph *build(td_value *out_loss)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", BATCH), n_ids = td_extent(graph, "n", BATCH * BAG);
    td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(batch)),
             y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value bags = td_input_ragged(graph, "bags", TD_I64, batch, n_ids);
    td_value a = td_parameter(graph, "table.0.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 0.3));
    td_value b = td_parameter(graph, "table.1.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 0.3));
    td_value vectors[2] = {td_embedding(a, ids, (td_embedding_options){0}), td_embedding_bag(b, bags, TD_MEAN)};
    td_value hidden = td_relu(td_linear(td_name(td_concat(2, vectors, 1), "top/concat"), 16, "top.0"));
    *out_loss = td_bce_with_logits(td_linear(hidden, 1, "top.1"), y);
    return graph;
}

static void train(sharing how, td_switch early, bool pipelined, result *out)
{
    td_value loss;
    td_graph *graph = build(&loss);
    td_train_options options = td_train_defaults();
    options.early_lookup = early;
    options.no_pipeline = !pipelined;
    td_add_device(&options, "accel", "emulated:memory=64MiB,cores=1");
    td_place(&options, "table.*", "cpu");
    td_group(&options, "table.*", td_lazy_adam(1e-2));
    td_group(&options, "*", td_adam(1e-2));
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    assert_ok(td_plan_train(graph, loss, &options, &plan));
    assert_true(td_plan_summarize(plan).early_lookup == (early == TD_ON && pipelined));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    id_source *source = td_calloc(1, sizeof *source);
    source->how = how;
    td_source s = {source, next, release};
    *out = (result){0};
    assert_ok(td_session_run(session, &s, 0, keep_loss, out));
    out->counters = td_session_read_counters(session);
    assert_ok(td_store_checksum(store, &out->checksum));
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    td_free(source);
}

static void check(sharing how)
{
    result plain, piped, early;
    train(how, TD_OFF, false, &plain);
    train(how, TD_OFF, true, &piped);
    train(how, TD_ON, true, &early);
    assert_int_equal(early.n, STEPS);
    assert_memory_equal(plain.losses, piped.losses, sizeof plain.losses);
    assert_memory_equal(plain.losses, early.losses, sizeof plain.losses);
    assert_true(plain.checksum == piped.checksum && plain.checksum == early.checksum);
    int64_t all = early.counters.bags_looked_up, first = early.counters.bags_looked_up_early;
    assert_int_equal(all, 2 * ((STEPS - 1) * BATCH + SHORT));
    if (how == NONE)
        assert_int_equal(first, all);
    else
        assert_true(first >= 2 * BATCH &&
                    first < all); /* the first step has none before it; empty bags share nothing */
    if (how ==
        ALL) /* only the first step's bags, and empty ones of the ragged input, share no row with the batch before */
        assert_true(first <= 2 * BATCH + (STEPS - 1) * (BATCH + BAG) / (BAG + 1));
}

static void test_batches_that_share_no_row(void **state)
{
    (void)state;
    check(NONE);
}

static void test_batches_that_share_some_rows(void **state)
{
    (void)state;
    check(SOME);
}

static void test_batches_that_share_all_rows(void **state)
{
    (void)state;
    check(ALL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_that_share_no_row),
        cmocka_unit_test(test_batches_that_share_some_rows),
        cmocka_unit_test(test_batches_that_share_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
