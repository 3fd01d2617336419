/* A process that is killed at any operation on files while it saves, or while it makes room, leaves its newest whole checkpoint. */
#include "base/file.h"
#include "base/memory.h"
#include "cli/run_directory.h"
#include "runtime/store.h"
#include "tandem/ops.h"
#include "tests/cli/runs.h"

enum { WIDTH = 32, GOOD = 0, BAD = 1 };

#define OR_BAD(call)                                                                                                   \
    do {                                                                                                               \
        if ((call) != NULL)                                                                                            \
            return BAD;                                                                                                \
    } while (0)

/* The same model every time; its store is the process's, which ends without further ado. */
static td_status *open_store(td_store **out_store)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_train_options options = td_train_defaults();
    TD_TRY(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", 4);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, WIDTH)),
             y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_group(&options, "*", td_adam(0.1));
    TD_TRY(td_plan_train(graph, td_mse(td_linear(x, 1, "fc"), y), &options, &plan));
    return td_store_create(plan, out_store);
}

/* Every number of the state says which checkpoint it is of. */
static td_status *mark(td_store *store, int64_t steps, float number)
{
    float numbers[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        numbers[i] = number;
    store->steps = store->updates = steps;
    for (int32_t i = 0; i < store->n_entries; i++)
        TD_TRY(td_store_write(store, i, 0, td_tensor_elements(&store->entries[i].tensor), numbers));
    return NULL;
}

/* Two checkpoints are there already; the third, of step `steps`, is written until operation `n`. */
static int save_and_die(int64_t steps, uint64_t n)
{
    td_store *store = NULL;
    td_checkpoint_series series = {.keep = 2};
    OR_BAD(open_store(&store));
    OR_BAD(mark(store, 10, 1));
    OR_BAD(td_checkpoint_save(store, "points", (td_data_position){0, 10}, &series, NULL));
    OR_BAD(mark(store, 20, 2));
    OR_BAD(td_checkpoint_save(store, "points", (td_data_position){0, 20}, &series, NULL));
    OR_BAD(mark(store, steps, 3));
    td_file_die_at(n);
    OR_BAD(td_checkpoint_save(store, "points", (td_data_position){0, steps}, &series, NULL));
    return GOOD;
}

static int check_newest(int64_t steps, uint64_t n)
{
    td_store *store = NULL;
    char *newest = NULL;
    td_data_position position = {0};
    float numbers[WIDTH];
    (void)n;
    OR_BAD(td_checkpoint_prepare("points"));
    OR_BAD(td_checkpoint_newest("points", &newest));
    OR_BAD(open_store(&store));
    if (!newest || td_store_load(store, newest, &position))
        return BAD;
    OR_BAD(td_store_read(store, 0, 0, td_tensor_elements(&store->entries[0].tensor), numbers));
    bool before = store->steps == 20 && numbers[0] == 2, after = store->steps == steps && numbers[0] == 3;
    for (int32_t i = 0; i < store->n_entries; i++) {
        float number;
        OR_BAD(td_store_read(store, i, 0, 1, &number));
        if (number != numbers[0])
            return BAD;
    }
    return (before || after) && position.batch == store->steps ? GOOD : BAD;
}

static int in_child(int (*work)(int64_t steps, uint64_t n), int64_t steps, uint64_t n)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(work(steps, n));
    return wait_for(child);
}

static void kill_at_every_operation(int64_t steps)
{
    uint64_t n = 1;
    for (int ended = -SIGKILL; ended == -SIGKILL; n++) {
        ended = in_child(save_and_die, steps, n);
        assert_true(ended == GOOD || ended == -SIGKILL);
        if (in_child(check_newest, steps, n) != GOOD)
            fail_msg("killed at operation %llu of saving step %lld: no whole checkpoint", (unsigned long long)n,
                     (long long)steps);
        assert_int_equal(system("test -z \"$(find points -name '*.partial')\" && rm -r points"), 0);
    }
    assert_true(n > 20);
}

static void test_killed_while_a_new_one_is_written(void **state)
{
    (void)state;
    kill_at_every_operation(30);
}

/* As a run does that was resumed from an older one. */
static void test_killed_while_one_is_replaced(void **state)
{
    (void)state;
    kill_at_every_operation(20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_while_a_new_one_is_written),
        cmocka_unit_test(test_killed_while_one_is_replaced),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
