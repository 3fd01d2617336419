/* A training that is killed again and again, and goes on each time from its newest checkpoint on other devices, has the losses of one
 * that was left alone: every step's, bit for bit, and the same parameters at the end.
 *
 *     build/release/tests/cli_test_soak [STEPS [SEED]]          100 steps in `make test`; 2000 is the long form
 *
 * Each life of the training is a process of its own, which reports every step through a pipe and is killed after a number of them
 * that is drawn from the seed. */
#include "base/memory.h"
#include "base/philox.h"
#include "cli/run_directory.h"
#include "tandem/ops.h"
#include "tests/cli/runs.h"

enum { BATCH = 16, TABLES = 3, ROWS = 200, DIM = 8, DENSE = 5, PER_EPOCH = 37, EVERY = 7, RING = 8 };

static int64_t steps_wanted = 100;
static uint64_t seed = 1;
static int32_t window = 1; /* micro-batches of a step */

/* ---- the model ------------------------------------------------------------------------------------------------------------------ */

typedef struct model {
    td_graph *graph;
    td_value loss;
} model;

static td_status *build(model *m)
{
    td_value parts[TABLES + 1];
    TD_TRY(td_graph_create(&m->graph));
    td_dim batch = td_extent(m->graph, "B", BATCH);
    td_value x = td_input(m->graph, "x", TD_F32, TD_SHAPE(batch, DENSE)),
             y = td_input(m->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    for (int t = 0; t < TABLES; t++) {
        char name[2][16];
        (void)snprintf(name[0], sizeof name[0], "ids%d", t);
        (void)snprintf(name[1], sizeof name[1], "table.%d", t);
        td_value ids = td_input(m->graph, name[0], TD_I64, TD_SHAPE(batch));
        td_value table = td_parameter(m->graph, name[1], TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 0.1));
        parts[t] = td_embedding(table, ids, (td_embedding_options){0});
    }
    parts[TABLES] = td_dropout(td_relu(td_linear(x, DIM, "bottom")), 0.1);
    td_value hidden = td_gelu(td_linear(td_concat(TABLES + 1, parts, 1), 48, "top.0"), false);
    hidden = td_layer_norm(hidden, 1e-5, "top.1");
    m->loss = td_bce_with_logits(td_linear(hidden, 1, "top.2"), y);
    return td_graph_check(m->graph);
}

/* ---- data: a function of the step ------------------------------------------------------------------------------------------------ */

typedef struct source {
    int64_t at, end;
    float x[RING][BATCH * DENSE], y[RING][BATCH];
    int64_t ids[RING][TABLES][BATCH];
    td_field fields[RING][TABLES + 2];
} source;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    static const char *const names[TABLES] = {"ids0", "ids1", "ids2"};
    source *s = self;
    *out_end = s->at == s->end;
    if (*out_end)
        return NULL;
    int64_t slot = s->at % RING, n = s->at % PER_EPOCH == PER_EPOCH - 1 ? BATCH - 5 : BATCH;
    td_random_fill(s->x[slot], s->at * BATCH * DENSE, BATCH * DENSE, td_philox_key_of(5, "soak", "x"), TD_RANDOM_NORMAL,
                   0, 1);
    td_field *fields = s->fields[slot];
    for (int t = 0; t < TABLES; t++) {
        for (int i = 0; i < BATCH; i++) {
            uint32_t bits[4];
            td_philox_block(td_philox_key_of(5, "soak", names[t]), (uint64_t)i, (uint64_t)s->at, bits);
            s->ids[slot][t][i] = bits[0] % (bits[1] % 4 ? 20 : ROWS); /* some rows in nearly every batch */
        }
        fields[t] =
            (td_field){names[t], {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {n}, .data = s->ids[slot][t]}};
    }
    for (int i = 0; i < BATCH; i++)
        s->y[slot][i] = s->x[slot][i * DENSE] + (float)(s->ids[slot][0][i] % 3) > 1;
    fields[TABLES] =
        (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {n, DENSE}, .data = s->x[slot]}};
    fields[TABLES + 1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {n, 1}, .data = s->y[slot]}};
    *out_batch = (td_batch){.samples = n, .index = s->at, .n_fields = TABLES + 2, .fields = fields};
    s->at++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

/* ---- one life ------------------------------------------------------------------------------------------------------------------- */

enum { PLACEMENTS = 9 };

/* Nine ways to train the same model. */
static void place(td_train_options *options, int way)
{
    if (way != 0)
        td_add_device(options, "accel", "emulated:memory=32MiB,cores=1");
    if (way == 2 || way == 4 || way == 5 || way == 7 || way == 8)
        td_place(options, "table*", "cpu");
    if (way == 3 || way == 5)
        td_place(options, "top.0*", "cpu");
    if (way == 4 || way == 5 || way == 8)
        options->offload_optimizer = TD_OFFLOAD_CPU;
    if (way == 8)
        options->offload_ratio = 0.5; /* ends within top.0.weight */
    if (way == 6)
        td_recompute(options, "top*");
    if (way == 7) {
        td_tables(options, (td_table_options){.storage = TD_TABLE_SPARSE});
        options->early_lookup = window == 1 ? TD_ON : TD_AUTO;
    }
    options->no_pipeline = way == 3;
}

/* What a life tells, in pieces that a pipe takes whole. */
typedef struct record {
    int64_t step; /* 0: the end, and `bits` the checksum of the parameters */
    uint64_t bits;
} record;

static bool tell(void *context, const td_step_report *report)
{
    const int *pipe_end = context;
    record r = {.step = report->step};
    memcpy(&r.bits, &report->loss, sizeof report->loss);
    return write(*pipe_end, &r, sizeof r) == (ssize_t)sizeof r;
}

static td_status *train(td_session *session, td_store *store, const char *checkpoints, int pipe_end)
{
    source s = {.at = td_store_steps(store) * window};
    td_checkpoint_series series = {.keep = 2};
    for (int64_t done = s.at / window; done < steps_wanted; done = td_store_steps(store)) {
        s.end = window * (done + EVERY - done % EVERY < steps_wanted ? done + EVERY - done % EVERY : steps_wanted);
        TD_TRY(td_session_run(session, &(td_source){&s, next, release}, 0, tell, &pipe_end));
        if (checkpoints)
            TD_TRY(td_checkpoint_save(store, checkpoints, (td_data_position){0, s.end}, &series, NULL));
    }
    record last = {0};
    TD_TRY(td_store_checksum(store, &last.bits));
    return write(pipe_end, &last, sizeof last) == (ssize_t)sizeof last ? NULL : TD_ERROR(TD_IO, "nobody listens");
}

static td_status *live(int way, const char *checkpoints, int pipe_end)
{
    model m = {0};
    td_train_options options = td_train_defaults();
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    char *newest = NULL;
    td_data_position position = {0};
    TD_TRY(build(&m));
    place(&options, way);
    options.clip_norm = 0.5;
    options.accumulate = window;
    td_group(&options, "table*", td_lazy_adam(1e-2));
    td_group(&options, "*", td_adamw(1e-2, .weight_decay = 0.01));
    TD_TRY(td_plan_train(m.graph, m.loss, &options, &plan));
    TD_TRY(td_store_create(plan, &store));
    TD_TRY(td_session_create(plan, store, &session));
    if (checkpoints) {
        TD_TRY(td_checkpoint_prepare(checkpoints));
        TD_TRY(td_checkpoint_newest(checkpoints, &newest));
    }
    if (newest)
        TD_TRY(td_store_load(store, newest, &position));
    if (newest && position.batch != td_store_steps(store) * window)
        return TD_ERROR(TD_INTERNAL, "%s says that it is at batch %lld", newest, (long long)position.batch);
    return train(session, store, checkpoints, pipe_end);
}

/* Starts a life; *out_listen: what it tells. It is not cleaned up after: it ends with its process. */
static pid_t begin(int way, const char *checkpoints, int *out_listen)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        td_status *status = live(way, checkpoints, ends[1]);
        if (status)
            (void)fprintf(stderr, "%s\n", td_status_message(status));
        _exit(status != NULL);
    }
    close(ends[1]);
    *out_listen = ends[0];
    return child;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------ */

typedef struct curve {
    uint64_t *losses; /* bits of each step's, from step 1 on */
    uint64_t checksum;
    bool ended;
} curve;

/* Listens to a life and kills it after `records` (0: never). With `against`, each record must be as there. */
static int listen_to(pid_t child, int from, int64_t records, curve *c, const curve *against)
{
    record r;
    for (int64_t n = 1; read(from, &r, sizeof r) == (ssize_t)sizeof r; n++) {
        c->ended = r.step == 0;
        if (c->ended)
            c->checksum = r.bits;
        else
            c->losses[r.step] = r.bits;
        if (against && !c->ended && against->losses[r.step] != r.bits)
            fail_msg("seed %llu: step %lld has another loss", (unsigned long long)seed, (long long)r.step);
        if (n == records)
            kill(child, SIGKILL);
    }
    close(from);
    return wait_for(child);
}

static void soak_and_compare(void)
{
    enum { LONGEST = 40 };
    curve alone = {0}, soak = {0};
    int listen = -1, lives = 0, killed = 0;
    assert_non_null(alone.losses = td_calloc((size_t)steps_wanted + 2, sizeof *alone.losses));
    assert_non_null(soak.losses = td_calloc((size_t)steps_wanted + 2, sizeof *soak.losses));
    pid_t child = begin(0, NULL, &listen);
    assert_int_equal(listen_to(child, listen, 0, &alone, NULL), 0);
    assert_true(alone.ended);
    for (uint32_t way = 0; !soak.ended; lives++) {
        uint32_t bits[4];
        td_philox_block(td_philox_key_of(seed, "soak", "lives"), (uint64_t)lives, 0, bits);
        way = (way + 1 + bits[1] % (PLACEMENTS - 1)) % PLACEMENTS; /* always another one */
        child = begin((int)way, "points", &listen);
        int ended = listen_to(child, listen, 1 + bits[0] % LONGEST, &soak, &alone);
        assert_true(ended == -SIGKILL || ended == 0);
        killed += ended == -SIGKILL;
    }
    for (int64_t step = 1; step <= steps_wanted; step++)
        assert_int_equal(soak.losses[step], alone.losses[step]);
    assert_int_equal(soak.checksum, alone.checksum);
    print_message("%lld steps in %d lives, %d of them killed\n", (long long)steps_wanted, lives, killed);
    assert_true(killed > 0);
    td_free(alone.losses);
    td_free(soak.losses);
    assert_int_equal(system("rm -r points"), 0);
}

static void test_killed_and_moved_it_has_the_losses_of_one_that_was_left_alone(void **state)
{
    (void)state;
    window = 1;
    soak_and_compare();
}

static void test_so_it_has_with_steps_of_several_micro_batches(void **state)
{
    (void)state;
    window = 3;
    soak_and_compare();
}

int main(int argc, char **argv)
{
    steps_wanted = argc > 1 ? strtoll(argv[1], NULL, 10) : steps_wanted;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    if (steps_wanted < 1)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_and_moved_it_has_the_losses_of_one_that_was_left_alone),
        cmocka_unit_test(test_so_it_has_with_steps_of_several_micro_batches),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
