/* Tables of bf16 and f16: the same bits on any device and in any group, checkpoints that resume bit for bit, and
 * stochastic rounding that keeps what rounding to nearest loses. A table that two lookups share is updated once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/safetensors.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { BATCH = 24, BAG = 3, ROWS = 40, DIM = 5 };

typedef struct setup {
    td_dtype dtype;
    bool stochastic, shared, cut;
    double lr;
    int threads; /* 0: all cores */
} setup;

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} run;

/* Two lookups, of two tables or of one, side by side; the loss is the mean square of their distance from y. */
static void open_run(run *r, setup s)
{
    assert_ok(td_graph_create(&r->graph));
    td_graph *graph = r->graph;
    td_dim batch = td_extent(graph, "B", BATCH);
    td_value a = td_input(graph, "a", TD_I64, TD_SHAPE(batch, BAG)), b = td_input(graph, "b", TD_I64, TD_SHAPE(batch));
    td_value y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 2 * DIM));
    td_value first = td_parameter(graph, "first.weight", s.dtype, TD_SHAPE(ROWS, DIM), td_init_uniform(1));
    td_value second =
        s.shared ? first : td_parameter(graph, "second.weight", s.dtype, TD_SHAPE(ROWS, DIM), td_init_uniform(1));
    td_value parts[2] = {td_name(td_embedding_bag(first, a, TD_MEAN), "bag_a"),
                         td_name(td_embedding(second, b, (td_embedding_options){0}), "row_b")};
    td_value loss = td_mse(td_concat(2, parts, 1), y);
    r->options = td_train_defaults();
    r->options.stochastic_rounding = s.stochastic;
    if (s.threads)
        td_add_device(&r->options, "cpu", "cpu:cores=1");
    if (s.cut) {
        td_add_device(&r->options, "accel", "emulated:memory=64MiB,cores=1");
        td_place(&r->options, "first*", "cpu");
    }
    td_group(&r->options, "*", td_rowwise_adagrad(s.lr));
    assert_ok(td_plan_train(graph, loss, &r->options, &r->plan));
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
    *r = (run){0};
}

static float step(run *r, int64_t at)
{
    int64_t a[BATCH * BAG], b[BATCH];
    float y[BATCH * 2 * DIM];
    td_random_fill(y, at * BATCH * 2 * DIM, BATCH * 2 * DIM, td_philox_key_of(5, "test", "y"), TD_RANDOM_NORMAL, 0, 1);
    for (int i = 0; i < BATCH * BAG; i++)
        a[i] = (at * 7 + (int64_t)i * i) % ROWS;
    for (int i = 0; i < BATCH; i++)
        b[i] = (at + i / 2) % ROWS;
    td_field fields[3] = {{"a", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 2, .dims = {BATCH, BAG}, .data = a}},
                          {"b", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {BATCH}, .data = b}},
                          {"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 2 * DIM}, .data = y}}};
    td_batch batch = {.samples = BATCH, .n_fields = 3, .fields = fields};
    td_step_report report;
    assert_ok(td_session_step(r->session, &batch, &report));
    return report.loss;
}

static uint64_t checksum(const run *r)
{
    uint64_t sum = 0;
    assert_ok(td_store_checksum(r->store, &sum));
    return sum;
}

static uint64_t train(setup s, int steps, float *out_losses)
{
    run r = {0};
    open_run(&r, s);
    for (int i = 0; i < steps; i++)
        out_losses[i] = step(&r, i);
    uint64_t sum = checksum(&r);
    close_run(&r);
    return sum;
}

static const setup setups[] = {{.dtype = TD_BF16, .lr = 0.1},
                               {.dtype = TD_F16, .lr = 0.1},
                               {.dtype = TD_BF16, .lr = 0.1, .stochastic = true},
                               {.dtype = TD_F16, .lr = 0.1, .stochastic = true, .shared = true},
                               {.dtype = TD_BF16, .lr = 0.1, .shared = true},
                               {.dtype = TD_F32, .lr = 0.1, .shared = true}};
enum { SETUPS = sizeof setups / sizeof *setups, STEPS = 12 };

static void test_bits_depend_on_neither_devices_nor_threads(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++) {
        float expected[STEPS], other[STEPS];
        setup s = setups[i];
        uint64_t sum = train(s, STEPS, expected);
        assert_true(expected[STEPS - 1] < expected[0]);
        s.threads = 1;
        assert_int_equal(train(s, STEPS, other), sum);
        assert_memory_equal(expected, other, sizeof expected);
        s.threads = 0;
        s.cut = true;
        assert_int_equal(train(s, STEPS, other), sum);
        assert_memory_equal(expected, other, sizeof expected);
    }
}

/* What a table of 16 bit holds after a step is within its precision of what an f32 one holds. */
static void test_the_losses_follow_those_of_f32(void **state)
{
    (void)state;
    float wide[STEPS], narrow[STEPS];
    (void)train((setup){.dtype = TD_F32, .lr = 0.1}, STEPS, wide);
    for (int i = 0; i < 3; i++) {
        (void)train(setups[i], STEPS, narrow);
        for (int k = 0; k < STEPS; k++)
            assert_true(narrow[k] > wide[k] * 0.98f && narrow[k] < wide[k] * 1.02f);
    }
}

static void remove_checkpoint(const char *directory)
{
    static const char *const files[] = {"manifest.json", "shard-0000.safetensors"};
    char path[200];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(directory), 0);
}

/* The rows are the only ones there are, and stay as they are; moments and layers are f32. */
static void check_file(const char *directory, td_dtype rows)
{
    char path[200];
    td_safetensors *file = NULL;
    (void)snprintf(path, sizeof path, "%s/shard-0000.safetensors", directory);
    assert_ok(td_safetensors_open(path, &file));
    int narrow = 0;
    for (int64_t i = 0; i < td_safetensors_count(file); i++) {
        const td_safetensors_tensor *tensor = td_safetensors_at(file, i);
        bool table = strncmp(tensor->name, "param/", 6) == 0 && tensor->rank == 2 && tensor->dims[0] == ROWS;
        assert_int_equal(tensor->dtype, table ? rows : TD_F32);
        narrow += table;
    }
    assert_true(narrow > 0);
    td_safetensors_close(file);
}

static void test_a_checkpoint_has_the_rows_as_they_are_and_resumes_bit_for_bit(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++) {
        char directory[] = "/tmp/tandem-narrow-XXXXXX";
        float expected[STEPS];
        run first = {0}, second = {0};
        td_data_position position;
        assert_non_null(mkdtemp(directory));
        uint64_t sum = train(setups[i], STEPS, expected);
        open_run(&first, setups[i]);
        for (int k = 0; k < STEPS / 2; k++)
            (void)step(&first, k);
        assert_ok(td_store_save(first.store, directory, (td_data_position){0, STEPS / 2}));
        close_run(&first);
        check_file(directory, setups[i].dtype);
        open_run(&second, setups[i]);
        assert_ok(td_store_load(second.store, directory, &position));
        for (int k = STEPS / 2; k < STEPS; k++)
            assert_memory_equal(&(float){step(&second, k)}, &expected[k], sizeof *expected);
        assert_int_equal(checksum(&second), sum);
        close_run(&second);
        remove_checkpoint(directory);
    }
}

/* How far all elements of the tables moved in some steps too small for their last place. */
static double moved(bool stochastic)
{
    run r = {0};
    uint16_t before[ROWS * DIM], after[ROWS * DIM];
    double sum = 0;
    open_run(&r, (setup){.dtype = TD_BF16, .lr = 1e-4, .stochastic = stochastic});
    int32_t table = td_store_find(r.store, "first.weight");
    for (int i = 0; i < ROWS * DIM; i++)
        before[i] = td_f32_to_bf16(1.5f); /* its last place is 1/128 */
    assert_ok(td_store_write(r.store, table, 0, ROWS * DIM, before));
    for (int i = 0; i < 40; i++)
        (void)step(&r, i);
    assert_ok(td_store_read(r.store, table, 0, ROWS * DIM, after));
    for (int i = 0; i < ROWS * DIM; i++)
        sum += (double)td_bf16_to_f32(before[i]) - (double)td_bf16_to_f32(after[i]);
    close_run(&r);
    return sum;
}

static void test_stochastic_rounding_keeps_small_steps(void **state)
{
    (void)state;
    assert_true(moved(false) == 0);
    assert_true(moved(true) > 0.01); /* towards y, whose mean is 0 */
}

/* What planning a model says that looks its narrow table up densely. NULL: nothing. */
static td_status *plan_dense(td_optimizer rule)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", BATCH);
    td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(batch));
    td_value table = td_parameter(graph, "table.weight", TD_BF16, TD_SHAPE(ROWS, DIM), td_init_uniform(1));
    td_value y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, DIM));
    td_value loss = td_mse(td_embedding(table, ids, (td_embedding_options){.dense = true}), y);
    td_train_options options = td_train_defaults();
    td_group(&options, "*", rule);
    td_plan *plan = NULL;
    td_status *status = td_plan_train(graph, loss, &options, &plan);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    return status;
}

static void test_a_dense_gradient_needs_a_rule_that_works_element_by_element(void **state)
{
    (void)state;
    assert_ok(plan_dense(td_sgd(0.1)));
    td_status *status = plan_dense(td_lamb(0.1));
    assert_non_null(status);
    assert_non_null(strstr(td_status_message(status), "\"table.weight\" is in bf16 without an f32 master"));
    td_status_destroy(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_depend_on_neither_devices_nor_threads),
        cmocka_unit_test(test_the_losses_follow_those_of_f32),
        cmocka_unit_test(test_a_checkpoint_has_the_rows_as_they_are_and_resumes_bit_for_bit),
        cmocka_unit_test(test_stochastic_rounding_keeps_small_steps),
        cmocka_unit_test(test_a_dense_gradient_needs_a_rule_that_works_element_by_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
