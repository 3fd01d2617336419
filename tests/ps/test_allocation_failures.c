/* Every allocation of tables' lives fails once: those of a process that is alone, with all rules and checkpoints, and what a worker
 * keeps beside a job. Each time the call says so, and everything that was held is given back, no half file is left. */
#include <stdlib.h>

#include "base/key.h"
#include "ps/job_state.h"
#include "runtime/remote.h"
#include "tests/base/check.h"
#include "tests/base/folder.h"

enum { DIM = 4, NAMED = 48, WINDOWS = 5, TABLES = 3 };

/* ---- tables of a process that is alone -------------------------------------------------------------------------------------------- */

static const td_remote_table tables[TABLES] = {
    {.name = "array",
     .rows = WINDOWS * NAMED,
     .dim = DIM,
     .dtype = TD_F32,
     .initial = {TD_INIT_UNIFORM, -0.5, 0.5},
     .rule = "adagrad",
     .state_names = {"sum"},
     .n_states = 1},
    {.name = "bounded",
     .dim = DIM,
     .dtype = TD_F32,
     .initial = {TD_INIT_UNIFORM, -0.5, 0.5},
     .rule = "sgd",
     .hashed = true,
     .hash = {.admit_count = 2, .capacity = NAMED, .live = 2, .evict = TD_EVICT_LEAST_OFTEN}},
    {.name = "read only", .rows = NAMED, .dim = DIM, .dtype = TD_BF16},
};

/* Ascending keys of a window; every other window names the same ones, so some are admitted and others go. */
static void name_keys(const td_remote_table *table, int64_t window, int64_t *keys)
{
    for (int64_t i = 0; i < NAMED; i++)
        keys[i] = window / 2 * NAMED + i;
    for (int64_t i = 0; i < NAMED && table->hashed; i++) /* keys as they are: any of them is an id's */
        keys[i] = keys[i] * (INT64_C(1) << 55) / 2 + window / 2;
}

static td_status *train(const td_remote *remote, const int32_t *numbers)
{
    static const float gradients[NAMED * DIM] = {1, 2, 3}, coefficients[TD_COEFFICIENTS] = {0.1F};
    int64_t keys[NAMED], places[NAMED];
    float rows[NAMED * DIM];
    for (int64_t i = 0; i < NAMED; i++)
        places[i] = i;
    for (int64_t window = 0; window < WINDOWS; window++)
        for (int t = 0; t < TABLES; t++) {
            td_remote_part part = {numbers[t], NAMED, keys, rows, places, gradients, coefficients};
            if (!tables[t].rule && window)
                continue;
            name_keys(&tables[t], window, keys);
            TD_TRY(remote->pull(remote->self, &part, 1, true));
            if (tables[t].rule)
                TD_TRY(remote->push(remote->self, &part, 1, NULL));
        }
    return NULL;
}

typedef struct life {
    td_own_tables *own;
    int n; /* tables so far */
    folder place;
} life;

static td_status *live(life *l)
{
    int32_t numbers[TABLES];
    uint64_t sum;
    td_remote_file file;
    TD_TRY(td_own_tables_create(&l->own));
    const td_remote *remote = td_own_tables_remote(l->own);
    for (; l->n < TABLES; l->n++)
        TD_TRY(remote->add_table(remote->self, &tables[l->n], &numbers[l->n]));
    TD_TRY(train(remote, numbers));
    TD_TRY(remote->save(remote->self, l->place.path, 1, false, true, &file));
    TD_TRY(train(remote, numbers));
    TD_TRY(remote->save(remote->self, l->place.path, 2, true, false, &file));
    for (int t = 0; t < TABLES; t++) {
        TD_TRY(remote->checksum(remote->self, numbers[t], &sum));
        TD_TRY(remote->clear(remote->self, numbers[t]));
    }
    return NULL;
}

/* A table is whole however the last call ended: it has the rows that it counts. */
static void check_rows(const td_remote *remote, int32_t table)
{
    int64_t rows = 0, count = 0, n, cursor = 0, ids[NAMED];
    float out[NAMED * DIM];
    assert_ok(remote->count(remote->self, table, &count));
    for (; cursor >= 0; rows += n)
        assert_ok(remote->read(remote->self, table, 0, &cursor, NAMED, ids, out, &n));
    assert_int_equal(rows, count);
}

static void end(life *l)
{
    for (int32_t t = 0; t < l->n; t++)
        check_rows(td_own_tables_remote(l->own), t);
    assert_true(count_in_folder(&l->place) <= 1); /* the owner's file, or none */
    td_own_tables_destroy(l->own);
    l->own = NULL;
    l->n = 0;
}

/* A hash table makes do with less address space: then all goes well although an allocation failed. */
static void test_tables_of_a_process_that_is_alone(void **state)
{
    (void)state;
    life l = {.place = make_folder()};
    int refused = 0;
    assert_ok(live(&l)); /* what is made once per process is made */
    assert_true(td_own_tables_count(l.own).rows == 0);
    end(&l);
    const uint64_t before = td_memory_read().bytes_now;
    for (uint64_t n = 1;; n++) {
        td_memory_fail_after(n);
        td_status *status = live(&l);
        const bool failed = td_memory_failed();
        td_memory_fail_after(0);
        if (status && td_status_code(status) != TD_OUT_OF_MEMORY)
            fail_msg("allocation %d: %s [%s]", (int)n, td_status_message(status), td_status_trace(status));
        refused += status != NULL;
        td_status_destroy(status);
        end(&l);
        if (td_memory_read().bytes_now != before)
            fail_msg("allocation %d failed, and %lld bytes were not given back", (int)n,
                     (long long)(td_memory_read().bytes_now - before));
        if (failed)
            continue;
        assert_true(refused > (int)n / 2);
        break;
    }
    remove_folder(&l.place);
}

/* Without memory to list the keys that go next none goes, and it can be asked again. */
static void test_who_goes_next_is_asked_again_when_there_is_memory(void **state)
{
    (void)state;
    const td_key_policy policy = {.capacity = NAMED, .parts = 1, .most_count = TD_MOST_OFTEN, .by_count = true};
    td_key_set set;
    int64_t slot, leaving;
    bool is_new;
    assert_ok(td_key_set_init(&set, &policy, 4 * NAMED));
    for (int64_t key = 0; key <= NAMED; key++)
        assert_ok(td_key_set_name(&set, key, key == 7 ? 1 : 2, &slot, &is_new));
    td_memory_fail_after(1);
    assert_error(td_key_set_leaving(&set, 2, &leaving), TD_OUT_OF_MEMORY, "out of memory");
    td_memory_fail_after(0);
    assert_ok(td_key_set_leaving(&set, 2, &leaving));
    assert_int_equal(set.index.keys[leaving], 7);
    td_key_set_deinit(&set);
}

/* The row is gone, so a checkpoint of changes would bring it back. */
static void test_what_changed_is_not_known_once_it_is_not_noted(void **state)
{
    (void)state;
    td_shard_definition d;
    td_shard *shard = NULL;
    float row[DIM];
    const int64_t id = 7;
    assert_ok(td_client_define(&tables[0], &d));
    assert_ok(td_shard_create(&d, &shard));
    assert_ok(td_shard_pull(shard, &id, 1, true, row));
    assert_ok(td_shard_track(shard));
    td_memory_fail_after(1);
    td_status *status = td_shard_remove(shard, &id, 1);
    td_memory_fail_after(0);
    assert_error(status, TD_OUT_OF_MEMORY, NULL);
    assert_int_equal(shard->n, 0);
    assert_false(shard->tracks);
    td_shard_destroy(shard);
}

/* ---- beside a job ------------------------------------------------------------------------------------------------------------------- */

static td_status *pull_nothing(void *context)
{
    td_job *job = context;
    const td_remote_part part = {.table = 0};
    return td_row_cache_pull(job, &part, 1, false);
}

static void forget_cache(void *context)
{
    td_job *job = context;
    td_row_cache_destroy(job->cache);
    job->cache = NULL;
}

static td_status *pull_nothing_or_forget(void *context)
{
    td_status *status = pull_nothing(context);
    if (status)
        forget_cache(context);
    return status;
}

static void test_rows_that_a_worker_keeps(void **state)
{
    (void)state;
    static td_job job;
    td_shard_definition known[2];
    job.options.cache_bytes = 1 << 12;
    job.tables = known;
    job.n_tables = 2;
    for (int t = 0; t < 2; t++)
        assert_ok(td_client_define(&tables[t], &known[t]));
    assert_true(assert_survives_allocation_failures(pull_nothing_or_forget, forget_cache, &job) >= 2 + 2 * 3);
}

static td_status *make_members(void *context)
{
    return td_members_create(4, 1, 1, context);
}

static void destroy_members(void *context)
{
    td_members_destroy(*(td_members **)context);
}

static void test_members(void **state)
{
    (void)state;
    td_members *members = NULL;
    assert_int_equal(assert_survives_allocation_failures(make_members, destroy_members, &members), 4);
}

/* Without shared memory a buffer is private. */
static void test_buffers_of_ranks_of_one_host(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 4; n++) {
        const uint64_t before = td_memory_read().bytes_now;
        td_near *near = NULL;
        td_buffer buffer = {0};
        td_memory_fail_after(n);
        td_status *status = td_near_create(true, &near);
        if (!status)
            status = td_buffer_room(near, &buffer, 100);
        td_memory_fail_after(0);
        assert_int_equal(td_status_code(status), n == 1 ? TD_OUT_OF_MEMORY : TD_OK);
        assert_true(!near == (n == 1));
        assert_true(!buffer.data == (n == 1));
        assert_true((buffer.id != 0) == (n == 0)); /* the bell or the buffer: either makes it private */
        td_status_destroy(status);
        td_buffer_free(near, &buffer);
        td_near_destroy(near);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_of_a_process_that_is_alone),
        cmocka_unit_test(test_who_goes_next_is_asked_again_when_there_is_memory),
        cmocka_unit_test(test_what_changed_is_not_known_once_it_is_not_noted),
        cmocka_unit_test(test_rows_that_a_worker_keeps),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_buffers_of_ranks_of_one_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
