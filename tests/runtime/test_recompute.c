/* What backward computes again instead of keeping (td_recompute): the bits are those of a run that keeps it, on any devices, with
 * dropout too; the plan needs fewer bytes; and what cannot run twice is left alone. */
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "partition/plan.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 120, WIDTH = 16, ROWS = 50, BLOCKS = 4, STEPS = 6, RING = 8 };

/* Blocks "h.<i>": x += down(dropout(gelu(up(norm(x))))), between a lookup and a loss. */
static td_value block(td_value x, int index)
{
    char name[3][32];
    static const char *const parts[] = {"norm", "up", "down"};
    for (int i = 0; i < 3; i++)
        (void)snprintf(name[i], sizeof name[i], "h.%d.%s", index, parts[i]);
    td_value hidden = td_dropout(td_gelu(td_linear(td_layer_norm(x, 1e-5, name[0]), 4 * WIDTH, name[1]), false), 0.2);
    return td_add(td_linear(hidden, WIDTH, name[2]), x);
}

typedef struct model {
    td_graph *graph;
    td_value loss;
} model;

static model build(bool images)
{
    model m = {0};
    assert_ok(td_graph_create(&m.graph));
    td_dim batch = td_extent(m.graph, "B", BATCH);
    td_value ids = td_input(m.graph, "ids", TD_I64, TD_SHAPE(batch)),
             y = td_input(m.graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value table = td_parameter(m.graph, "table", TD_F32, TD_SHAPE(ROWS, WIDTH), td_init_normal(0, 1));
    td_value x = td_embedding(table, ids, (td_embedding_options){0});
    if (images)
        x = td_reshape(td_batch_norm(td_reshape(x, TD_SHAPE(batch, 4, 2, 2)), 1e-5, 0.1, "h.bn"),
                       TD_SHAPE(batch, WIDTH));
    for (int i = 0; i < BLOCKS; i++)
        x = block(x, i);
    m.loss = td_mse(td_linear(x, 1, "head"), y);
    return m;
}

typedef struct setup {
    const char *match[2];
    bool cut, clip, images, offload;
    int32_t window;
    td_precision precision;
    td_jit_level level;
} setup;

static td_train_options options_of(setup s)
{
    td_train_options options = td_train_defaults();
    if (s.cut) {
        td_add_device(&options, "accel", "emulated:memory=64MiB,cores=1");
        td_place(&options, "h.2*", "cpu");
        td_place(&options, "table*", "cpu");
    }
    options.precision = s.precision;
    options.jit_level = s.level;
    options.clip_norm = s.clip ? 0.5 : 0;
    options.accumulate = s.window ? s.window : 1;
    options.offload_optimizer = s.offload ? TD_OFFLOAD_CPU : TD_OFFLOAD_NONE;
    td_group(&options, "*", td_adam(1e-2));
    for (int i = 0; i < 2; i++)
        if (s.match[i])
            td_recompute(&options, s.match[i]);
    return options;
}

typedef struct outcome {
    float losses[STEPS];
    uint64_t checksum, activation_bytes;
    int32_t again;
} outcome;

/* Batches, some of them short; the last RING stay as they are. */
typedef struct source {
    int64_t at, end, ids[RING][BATCH];
    float y[RING][BATCH];
    td_field fields[RING][2];
} source;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    source *s = self;
    int64_t slot = s->at % RING, n = s->at % 3 == 2 ? BATCH - 5 : BATCH;
    *out_end = s->at == s->end;
    if (*out_end)
        return NULL;
    td_random_fill(s->y[slot], s->at * BATCH, BATCH, td_philox_key_of(5, "test", "y"), TD_RANDOM_NORMAL, 0, 1);
    for (int i = 0; i < BATCH; i++)
        s->ids[slot][i] = (s->at * 7 + (int64_t)i * i) % ROWS;
    s->fields[slot][0] =
        (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {n}, .data = s->ids[slot]}};
    s->fields[slot][1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {n, 1}, .data = s->y[slot]}};
    *out_batch = (td_batch){.samples = n, .index = s->at++, .n_fields = 2, .fields = s->fields[slot]};
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static bool keep_loss(void *context, const td_step_report *report)
{
    outcome *out = context;
    out->losses[report->step - 1] = report->loss;
    return report->step < STEPS;
}

static outcome train(setup s)
{
    outcome out = {0};
    model m = build(s.images);
    td_train_options options = options_of(s);
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    assert_ok(td_plan_train(m.graph, m.loss, &options, &plan));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    source *batches = td_calloc(1, sizeof *batches);
    batches->end = (int64_t)STEPS * options.accumulate;
    assert_ok(td_session_run(session, &(td_source){batches, next, release}, 0, keep_loss, &out));
    assert_int_equal(td_store_steps(store), STEPS);
    td_free(batches);
    assert_ok(td_store_checksum(store, &out.checksum));
    out.again = td_plan_summarize(plan).recomputed_ops;
    for (int32_t i = 0; i < td_plan_summarize(plan).devices; i++)
        out.activation_bytes += td_plan_device(plan, i).activation_bytes;
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(m.graph);
    return out;
}

static void assert_same_bits(const outcome *a, const outcome *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_true(a->checksum == b->checksum);
}

static void test_bits_are_those_of_a_run_that_keeps_everything(void **state)
{
    (void)state;
    static const setup kinds[] = {{.level = TD_O2},
                                  {.level = TD_O0},
                                  {.level = TD_O2, .clip = true},
                                  {.level = TD_O2, .cut = true},
                                  {.level = TD_O2, .cut = true, .clip = true},
                                  {.level = TD_O2, .precision = TD_MIXED_BF16},
                                  {.level = TD_O2, .precision = TD_MIXED_FP16, .cut = true, .window = 2},
                                  {.level = TD_O2, .cut = true, .offload = true, .clip = true, .window = 3}};
    static const char *const patterns[][2] = {
        {"h.*", NULL}, {"*", NULL}, {"h.*.up*", "*norm*"}, {"h.1*", "h.2.*"}, {"*dropout*", NULL}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        outcome kept = train(kinds[k]);
        assert_int_equal(kept.again, 0);
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            setup s = kinds[k];
            memcpy(s.match, patterns[p], sizeof s.match);
            outcome again = train(s);
            assert_true(again.again > 0);
            assert_same_bits(&kept, &again);
        }
    }
}

static void test_blocks_that_are_computed_again_take_fewer_bytes(void **state)
{
    (void)state;
    outcome kept = train((setup){.level = TD_O2}), again = train((setup){.level = TD_O2, .match = {"h.*"}});
    assert_true(again.activation_bytes < kept.activation_bytes * 7 / 10);
}

static td_plan *plan_of(setup s, model *m, td_train_options *options)
{
    td_plan *plan = NULL;
    *m = build(s.images);
    *options = options_of(s);
    options->keep_dumps = true;
    assert_ok(td_plan_train(m->graph, m->loss, options, &plan));
    return plan;
}

static void drop(td_plan *plan, model *m, td_train_options *options)
{
    td_plan_release(plan);
    td_train_options_deinit(options);
    td_graph_destroy(m->graph);
}

/* The node is there, and begins after backward has. */
static void assert_waits_for_a_gradient(const td_plan *plan, const char *name)
{
    for (int64_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (strcmp(node->name, name) != 0)
            continue;
        assert_true(node->after >= 0);
        assert_int_equal(plan->graph->nodes[plan->graph->values[node->after].producer].phase, TD_BACKWARD);
        return;
    }
    fail_msg("the plan has no \"%s\"", name);
}

static void test_each_block_waits_for_its_own_gradient(void **state)
{
    (void)state;
    model m;
    td_train_options options;
    td_plan *plan = plan_of((setup){.match = {"h.*"}}, &m, &options);
    for (int i = 0; i < BLOCKS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "h.%d.up/linear/again", i);
        assert_waits_for_a_gradient(plan, name);
    }
    char *why = NULL;
    assert_ok(td_plan_explain(plan, "h.1.up/linear/again", &why));
    assert_non_null(strstr(why, "it computes \"h.1.up/linear\" again"));
    td_text_free(why);
    drop(plan, &m, &options);
}

/* A lookup's rows may have moved, and statistics must not be counted twice; the loss and what leaves a block are kept anyway. */
static void test_what_acts_or_leaves_a_segment_is_not_computed_again(void **state)
{
    (void)state;
    static const char *const never[] = {"/again batch_norm ", "/again embedding ", "h.1.down/add/again "};
    model m;
    td_train_options options;
    char *text = NULL;
    td_plan *plan = plan_of((setup){.match = {"*"}, .images = true}, &m, &options);
    assert_ok(td_plan_dump(plan, "recompute", &text));
    assert_non_null(strstr(text, "h.1.up/linear "));
    for (size_t i = 0; i < 2; i++)
        assert_null(strstr(text, never[i]));
    td_text_free(text);
    drop(plan, &m, &options);
    plan = plan_of((setup){.match = {"h.*"}, .images = true}, &m, &options);
    assert_ok(td_plan_dump(plan, "recompute", &text));
    assert_non_null(strstr(text, "h.1.up/linear/again "));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_null(strstr(text, never[i]));
    td_text_free(text);
    drop(plan, &m, &options);
    outcome a = train((setup){.images = true, .level = TD_O2}),
            b = train((setup){.images = true, .level = TD_O2, .match = {"*"}});
    assert_same_bits(&a, &b);
}

static void test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_name(void **state)
{
    (void)state;
    model m = build(false);
    td_train_options options = options_of((setup){.match = {"h.*", "hh.0.upp"}});
    td_plan *plan = NULL;
    assert_error(td_plan_train(m.graph, m.loss, &options, &plan), TD_INVALID_ARGUMENT,
                 "\"hh.0.upp\" matches no op; did you mean \"h.0.");
    td_train_options_deinit(&options);
    td_graph_destroy(m.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_a_run_that_keeps_everything),
        cmocka_unit_test(test_blocks_that_are_computed_again_take_fewer_bytes),
        cmocka_unit_test(test_each_block_waits_for_its_own_gradient),
        cmocka_unit_test(test_what_acts_or_leaves_a_segment_is_not_computed_again),
        cmocka_unit_test(test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
