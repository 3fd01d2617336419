/* Hash tables of a process that is alone, through the whole engine: without rules they are arrays bit for bit; any 64-bit id is one
 * of theirs; checkpoints keep them. */
#include <math.h>
#include <stdlib.h>

#include "runtime/session.h"
#include "tandem/job.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/base/folder.h"

enum { BATCH = 32, BAG = 2, DIM = 6, ROWS = 500, AT_ONCE = 24, WINDOW = 6 };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_own_tables *own;
    td_plan *plan;
    td_store *store;
    td_session *session;
    int64_t step, last;
    /* 0: windows of one batch; else 2 replicas of so many, and steps that are no numbers are left out */
    int32_t accumulate;
    bool any_ids;     /* negative ones, and beyond what rows of a shape can be */
    int64_t poisoned; /* a step whose labels are no numbers; 0: none */
    td_batch window[2 * WINDOW];
    int32_t given, n_window;
    int64_t ids[AT_ONCE][BATCH * BAG];
    float y[BATCH], no_numbers[BATCH];
    td_field fields[AT_ONCE][2];
} run;

static td_value build(run *r)
{
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value ids = td_input(r->graph, "ids", TD_I64, TD_SHAPE(batch, td_dim_constant(BAG))),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1)),
             deep = td_parameter(r->graph, "table.0", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1)),
             wide = td_parameter(r->graph, "table.1", TD_F32, TD_SHAPE(ROWS, DIM), td_init_uniform(1)),
             parts[] = {td_name(td_embedding_bag(deep, ids, TD_SUM), "deep"),
                        td_name(td_embedding_bag(wide, ids, TD_MEAN), "wide")};
    r->options = td_train_defaults();
    return td_bce_with_logits(td_linear(td_concat(2, parts, 1), 1, "top"), y);
}

static void open_run(run *r, bool hashed, const char *accelerator)
{
    for (int64_t i = 0; i < BATCH; i++) {
        r->y[i] = (float)(i % 2);
        r->no_numbers[i] = NAN;
    }
    td_value loss = build(r);
    if (accelerator)
        td_add_device(&r->options, "accel", accelerator);
    if (r->accumulate) {
        r->options.accumulate = r->accumulate;
        r->options.replicas = 2;
        r->options.on_nan = TD_NAN_SKIP;
    }
    td_group(&r->options, "table.0", td_lazy_adam(0.05));
    td_group(&r->options, "*", td_adagrad(0.1));
    if (hashed) {
        assert_ok(td_own_tables_create(&r->own));
        td_hash(&r->options, (td_hash_options){.match = "table.*"});
        r->options.remote = td_own_tables_remote(r->own);
    } else {
        td_place(&r->options, "table*", "cpu");
    }
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
    td_own_tables_destroy(r->own);
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    run *r = self;
    const int parity = (int)(r->step % AT_ONCE);
    *out_end = r->step == r->last;
    if (*out_end)
        return NULL;
    const int64_t samples = r->step % 5 == 4 ? BATCH - 7 : BATCH;
    for (int64_t i = 0; i < samples * BAG; i++) {
        const int64_t id = (r->step * 37 + i * i * 11) % ROWS;
        r->ids[parity][i] = r->any_ids ? (id % 3 - 1) * (INT64_MAX - id) - (id % 3 == 0) : id;
    }
    r->fields[parity][0] = (td_field){
        "ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 2, .dims = {samples, BAG}, .data = r->ids[parity]}};
    r->fields[parity][1] =
        (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = r->y}};
    if (r->poisoned && r->step == r->poisoned)
        r->fields[parity][1].tensor.data = r->no_numbers;
    *out_batch = (td_batch){.samples = samples, .index = r->step, .n_fields = 2, .fields = r->fields[parity]};
    r->step++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static void train(run *r, int64_t until)
{
    td_source source = {r, next, release};
    r->last = until;
    assert_ok(td_session_run(r->session, &source, 0, NULL, NULL));
}

static uint64_t checksum(const run *r)
{
    uint64_t sum = 0;
    assert_ok(td_store_checksum(r->store, &sum));
    return sum;
}

static void assert_same_rows(const run *a, const run *b, const char *table)
{
    static float x[ROWS * DIM], y[ROWS * DIM];
    assert_ok(td_store_read(a->store, td_store_find(a->store, table), 0, ROWS * DIM, x));
    assert_ok(td_store_read(b->store, td_store_find(b->store, table), 0, ROWS * DIM, y));
    assert_memory_equal(x, y, sizeof x);
}

static void test_a_hash_table_is_an_array_bit_for_bit(void **state)
{
    (void)state;
    static const char *const accelerators[] = {NULL, "emulated:memory=64MiB,cores=1"};
    for (int i = 0; i < 2; i++) {
        static run array, hash;
        array = hash = (run){0};
        open_run(&array, false, accelerators[i]);
        open_run(&hash, true, accelerators[i]);
        train(&array, 12);
        train(&hash, 12);
        assert_int_equal(checksum(&array), checksum(&hash));
        assert_same_rows(&array, &hash, "table.0");
        assert_same_rows(&array, &hash, "table.1");
        close_run(&array);
        close_run(&hash);
    }
}

/* Batches that say what window they are of. */
static td_status *next_of_window(void *self, td_batch *out_batch, bool *out_end)
{
    run *r = self;
    *out_end = false;
    if (r->given == r->n_window) {
        bool end = false;
        td_batch *window = r->window + (r->window[0].n_window && r->window[0].window == r->window ? WINDOW : 0);
        memset(r->window, 0, sizeof r->window);
        for (r->given = r->n_window = 0; r->n_window < WINDOW && !end; r->n_window += !end)
            TD_TRY(next(r, &window[r->n_window], &end));
        for (int32_t i = 0; i < r->n_window; i++) {
            window[i].window = window;
            window[i].window_at = i;
            window[i].n_window = r->n_window;
        }
        *out_end = !r->n_window;
        if (*out_end)
            return NULL;
    }
    const bool second = r->window[WINDOW].n_window > 0;
    *out_batch = r->window[(second ? WINDOW : 0) + r->given++];
    return NULL;
}

/* Windows of 2 replicas and 3 micro-batches, the last one short; in one of them a loss is no number. */
static void open_windows(run *r, bool hashed, int64_t poisoned)
{
    *r = (run){.poisoned = poisoned, .accumulate = WINDOW / 2, .last = 40};
    open_run(r, hashed, NULL);
}

static void test_windows_of_a_hash_table_are_those_of_an_array(void **state)
{
    (void)state;
    static const int64_t poisoned[] = {0, 7, 9, 11}; /* none; and a window's second, middle and last micro-batch */
    for (int i = 0; i < 4; i++) {
        static run array, hash;
        open_windows(&array, false, poisoned[i]);
        open_windows(&hash, true, poisoned[i]);
        td_source plain = {&array, next, release}, windows = {&hash, next_of_window, release};
        assert_ok(td_session_run(array.session, &plain, 0, NULL, NULL));
        assert_ok(td_session_run(hash.session, &windows, 0, NULL, NULL));
        assert_int_equal(td_session_read_counters(hash.session).steps, poisoned[i] ? 6 : 7);
        assert_int_equal(td_session_read_counters(hash.session).skipped_steps, poisoned[i] != 0);
        assert_int_equal(checksum(&array), checksum(&hash));
        close_run(&array);
        close_run(&hash);
    }
}

static void test_windows_of_a_hash_table_come_whole(void **state)
{
    (void)state;
    static run array, hash;
    td_step_report report;
    td_batch batches[WINDOW];
    bool end = false;
    open_windows(&array, false, 0);
    open_windows(&hash, true, 0);
    for (int i = 0; i < WINDOW; i++)
        assert_ok(next(&array, &batches[i], &end));
    assert_ok(td_session_step_window(array.session, batches, WINDOW, &report));
    assert_ok(td_session_step_window(hash.session, batches, WINDOW, &report));
    assert_ok(td_session_step_window(array.session, batches, WINDOW - 2, &report));
    assert_ok(td_session_step_window(hash.session, batches, WINDOW - 2, &report));
    assert_int_equal(checksum(&array), checksum(&hash));
    td_source plain = {&hash, next, release};
    assert_error(td_session_run(hash.session, &plain, 0, NULL, NULL), TD_INVALID_ARGUMENT, "what window they are of");
    close_run(&array);
    close_run(&hash);
}

static void test_any_64_bit_id_has_a_row_and_checkpoints_keep_it(void **state)
{
    (void)state;
    static run whole, parted;
    folder place = make_folder();
    const char *path = in_folder(&place, "checkpoint");
    whole = parted = (run){.any_ids = true};
    open_run(&whole, true, NULL);
    train(&whole, 12);
    assert_true(td_own_tables_count(whole.own).rows > ROWS / 2);
    open_run(&parted, true, NULL);
    train(&parted, 7);
    const uint64_t before = checksum(&parted);
    const td_job_served held = td_own_tables_count(parted.own);
    assert_ok(td_store_save(parted.store, path, (td_data_position){0}));
    close_run(&parted);
    parted = (run){.any_ids = true, .step = 7};
    open_run(&parted, true, NULL);
    td_data_position position;
    assert_ok(td_store_load(parted.store, path, &position));
    assert_int_equal(checksum(&parted), before);
    assert_int_equal(td_own_tables_count(parted.own).rows, held.rows);
    train(&parted, 12);
    assert_int_equal(checksum(&parted), checksum(&whole));
    close_run(&whole);
    close_run(&parted);
    remove_folder(&place);
}

static void test_hash_tables_without_an_owner_are_refused(void **state)
{
    (void)state;
    static run r;
    r = (run){0};
    td_value loss = build(&r);
    td_group(&r.options, "*", td_sgd(0.1));
    td_hash(&r.options, (td_hash_options){0});
    assert_error(td_plan_train(r.graph, loss, &r.options, &r.plan), TD_INVALID_ARGUMENT, "td_train_options.remote");
    td_train_options_deinit(&r.options);
    td_graph_destroy(r.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hash_table_is_an_array_bit_for_bit),
        cmocka_unit_test(test_windows_of_a_hash_table_are_those_of_an_array),
        cmocka_unit_test(test_windows_of_a_hash_table_come_whole),
        cmocka_unit_test(test_any_64_bit_id_has_a_row_and_checkpoints_keep_it),
        cmocka_unit_test(test_hash_tables_without_an_owner_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
