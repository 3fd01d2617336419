/* A checkpoint resumes bit for bit, whatever devices the two runs used; damage and strangers are refused before anything
 * changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/philox.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/base/check.h"

enum { IN = 7, BATCH = 16 };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} run;

static void open_run(run *r, bool cut, int64_t width)
{
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value x = td_input(r->graph, "x", TD_F32, TD_SHAPE(batch, IN)),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value loss = td_mse(td_linear(td_relu(td_linear(x, width, "fc.0")), 1, "fc.1"), y);
    r->options = td_train_defaults();
    if (cut) {
        td_add_device(&r->options, "accel", "emulated:memory=64MiB,cores=1");
        td_place(&r->options, "fc.1*", "cpu");
    }
    td_group(&r->options, "*",
             td_adam(1e-2, .schedule = {.kind = TD_SCHEDULE_LINEAR, .warmup_steps = 3, .total_steps = 40}));
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
}

static float step(run *r, int64_t at)
{
    float x[BATCH * IN], y[BATCH];
    td_random_fill(x, at * BATCH * IN, BATCH * IN, td_philox_key_of(5, "test", "x"), TD_RANDOM_NORMAL, 0, 1);
    for (int i = 0; i < BATCH; i++)
        y[i] = x[i * IN] * x[i * IN + 1];
    td_field fields[2] = {{"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, IN}, .data = x}},
                          {"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = y}}};
    td_batch batch = {.samples = BATCH, .n_fields = 2, .fields = fields};
    td_step_report report;
    assert_ok(td_session_step(r->session, &batch, &report));
    return report.loss;
}

static uint64_t checksum(run *r)
{
    uint64_t sum = 0;
    assert_ok(td_store_checksum(r->store, &sum));
    return sum;
}

static char *temporary_directory(void)
{
    char *name = td_strdup("/tmp/tandem-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(name));
    return name;
}

static void remove_directory(char *directory)
{
    static const char *const files[] = {"manifest.json", "shard-0000.safetensors"};
    char path[200];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(directory), 0); /* nothing else was left in it */
    td_free(directory);
}

static void test_resume_is_bit_for_bit_across_devices(void **state)
{
    (void)state;
    char *directory = temporary_directory();
    run whole = {0}, first = {0}, second = {0};
    float straight[20], resumed[20];
    open_run(&whole, false, 9);
    for (int i = 0; i < 20; i++)
        straight[i] = step(&whole, i);
    open_run(&first, false, 9);
    for (int i = 0; i < 10; i++)
        resumed[i] = step(&first, i);
    assert_ok(td_store_save(first.store, directory, (td_data_position){2, 10}));
    close_run(&first);
    open_run(&second, true, 9);
    td_data_position position;
    assert_ok(td_store_load(second.store, directory, &position));
    assert_int_equal(position.epoch, 2);
    assert_int_equal(position.batch, 10);
    assert_int_equal(td_store_steps(second.store), 10);
    for (int i = 10; i < 20; i++)
        resumed[i] = step(&second, i);
    assert_memory_equal(straight, resumed, sizeof straight);
    assert_true(checksum(&whole) == checksum(&second));
    close_run(&whole);
    close_run(&second);
    remove_directory(directory);
}

static void expect_refusal(run *r, const char *directory, const char *words)
{
    td_data_position position;
    uint64_t before = checksum(r);
    td_status *status = td_store_load(r->store, directory, &position);
    assert_non_null(status);
    if (!strstr(td_status_message(status), words))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), words);
    td_status_destroy(status);
    assert_true(checksum(r) == before);
}

static void flip_byte(const char *directory, const char *file, long at)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", directory, file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    (void)fputc(byte ^ 0x40, f);
    (void)fclose(f);
}

static void test_damage_and_other_models_are_refused_whole(void **state)
{
    (void)state;
    char *directory = temporary_directory();
    run r = {0}, wider = {0};
    open_run(&r, false, 9);
    (void)step(&r, 0);
    expect_refusal(&r, directory, "manifest.json");
    assert_ok(td_store_save(r.store, directory, (td_data_position){0, 1}));
    (void)step(&r, 1);
    open_run(&wider, false, 10);
    expect_refusal(&wider, directory, "f32[9, 7], the model's is f32[10, 7]");
    close_run(&wider);
    flip_byte(directory, "shard-0000.safetensors", -5);
    expect_refusal(&r, directory, "damaged");
    flip_byte(directory, "shard-0000.safetensors", -5);
    td_data_position position;
    assert_ok(td_store_load(r.store, directory, &position));
    flip_byte(directory, "manifest.json", 0);
    expect_refusal(&r, directory, "manifest.json");
    close_run(&r);
    remove_directory(directory);
}

static void test_no_write_may_fail_silently(void **state)
{
    (void)state;
    run r = {0};
    open_run(&r, false, 9);
    (void)step(&r, 0);
    for (uint64_t n = 1;; n++) {
        char *directory = temporary_directory();
        td_file_fail_after(n);
        td_status *status = td_store_save(r.store, directory, (td_data_position){0, 1});
        bool failed = td_file_failed();
        td_file_fail_after(0);
        assert_true(failed == (status != NULL));
        td_status_destroy(status);
        td_data_position position;
        status = td_store_load(r.store, directory, &position); /* whole or refused, never half */
        assert_true(failed || !status);
        td_status_destroy(status);
        remove_directory(directory);
        if (!failed)
            break;
    }
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_is_bit_for_bit_across_devices),
        cmocka_unit_test(test_damage_and_other_models_are_refused_whole),
        cmocka_unit_test(test_no_write_may_fail_silently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
