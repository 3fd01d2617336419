/* Tables that take memory by touched rows, or lie in a file: the bits are those of tables in memory, whatever is paged in and out
 * meanwhile; memory stays within the bound; rows beyond 2^31 are rows like any other. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "runtime/session.h"
#include "tandem/ops.h"
#include "tests/base/check.h"
#include "tests/base/folder.h"
#include "tests/support/same_stores.h"
#include "where.h"

enum { BATCH = 64, BAG = 3, DIM = 16, ODD_DIM = 10, STEPS = 12, AT_ONCE = 4 };

/* ---- a model of two tables ------------------------------------------------------------------------------------------------------- */

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_value logit, loss;
    td_plan *plan;
    td_store *store;
    td_session *session;
    int64_t rows, step;
    int64_t ids[AT_ONCE][BATCH], bag[AT_ONCE][BATCH * BAG], offsets[BATCH + 1];
    float y[BATCH];
    td_field fields[AT_ONCE][3];
    int64_t last; /* steps to hand out */
} run;

static void build(run *r, int64_t rows)
{
    r->rows = rows;
    for (int64_t i = 0; i < BATCH; i++) { /* the same for all batches: the step before may still read them */
        r->y[i] = (float)(i % 2);
        r->offsets[i + 1] = (i + 1) * BAG;
    }
    assert_ok(td_graph_create(&r->graph));
    td_dim batch = td_extent(r->graph, "B", BATCH);
    td_value ids = td_input(r->graph, "ids", TD_I64, TD_SHAPE(batch)),
             bag = td_input_ragged(r->graph, "bag", TD_I64, batch, td_extent(r->graph, "n", BATCH * BAG)),
             y = td_input(r->graph, "y", TD_F32, TD_SHAPE(batch, 1)),
             wide = td_parameter(r->graph, "table.0", TD_F32, TD_SHAPE(rows, DIM), td_init_normal(0, 1)),
             narrow = td_parameter(r->graph, "table.1", TD_F32, TD_SHAPE(rows, ODD_DIM), td_init_uniform(1)),
             parts[] = {td_embedding(wide, ids, (td_embedding_options){0}), td_embedding_bag(narrow, bag, TD_SUM)};
    r->logit = td_linear(td_relu(td_linear(td_concat(2, parts, 1), 8, "bottom")), 1, "top");
    r->loss = td_bce_with_logits(r->logit, y);
    r->options = td_train_defaults();
}

static void open_window(run *r, int64_t rows, const char *accelerator, td_optimizer optimizer, td_table_options tables,
                        int32_t accumulate)
{
    build(r, rows);
    r->options.accumulate = accumulate;
    if (accelerator) {
        td_add_device(&r->options, "accel", accelerator);
        td_place(&r->options, "table*", "cpu");
        r->options.early_lookup = accumulate > 1 ? TD_OFF : TD_ON;
    }
    td_group(&r->options, "table*", optimizer);
    td_group(&r->options, "*", td_sgd(0.1));
    td_tables(&r->options, tables);
    assert_ok(td_plan_train(r->graph, r->loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
}

static void open_run(run *r, int64_t rows, const char *accelerator, td_optimizer optimizer, td_table_options tables)
{
    open_window(r, rows, accelerator, optimizer, tables, 1);
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

/* Ids all over the table, some the same in every step, some twice in a batch. */
static int64_t id_at(const run *r, int64_t step, int64_t i)
{
    if (i % 8 == 0)
        return i % r->rows;
    return (int64_t)(mix((uint64_t)(step * 1000003 + i / 2)) % (uint64_t)r->rows);
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    run *r = self;
    int parity = (int)(r->step % AT_ONCE);
    *out_end = r->step == r->last;
    if (*out_end)
        return NULL;
    int64_t samples = r->step % 5 == 4 ? BATCH - 7 : BATCH; /* short ones in between */
    for (int64_t i = 0; i < samples; i++)
        r->ids[parity][i] = id_at(r, r->step, i);
    for (int64_t i = 0; i < samples * BAG; i++)
        r->bag[parity][i] = id_at(r, r->step + 77, i);
    td_field *fields = r->fields[parity];
    fields[0] =
        (td_field){"ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {samples}, .data = r->ids[parity]}};
    fields[1] = (td_field){"bag",
                           {.kind = TD_RAGGED,
                            .dtype = TD_I64,
                            .rank = 1,
                            .dims = {samples},
                            .entries = samples * BAG,
                            .data = r->bag[parity],
                            .index = r->offsets}};
    fields[2] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = r->y}};
    *out_batch = (td_batch){.samples = samples, .index = r->step, .n_fields = 3, .fields = fields};
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

/* ---- the same bits ------------------------------------------------------------------------------------------------------------- */

static const td_table_options memory = {.storage = TD_TABLE_MEMORY}, sparse = {.storage = TD_TABLE_SPARSE};

/* A bound that makes pages come and go: what two steps may touch, and no more. */
static td_table_options file_at_least(const run *like)
{
    return (td_table_options){
        .storage = TD_TABLE_FILE, .path = TD_BINARY_DIR, .resident_bytes = like->plan->paging.needed_bytes};
}

static td_table_options tightest_file(int64_t rows, const char *accelerator, td_optimizer optimizer, int32_t accumulate)
{
    run r = {0};
    open_window(&r, rows, accelerator, optimizer, (td_table_options){.storage = TD_TABLE_FILE, .path = TD_BINARY_DIR},
                accumulate);
    td_table_options tables = file_at_least(&r);
    assert_true(tables.resident_bytes > 0 && tables.resident_bytes < r.plan->paging.bytes);
    close_run(&r);
    return tables;
}

static void check_bits(const char *accelerator, td_optimizer optimizer, int32_t accumulate)
{
    enum { ROWS = 60000 };
    run plain = {0}, by_touch = {0}, in_file = {0};
    open_window(&plain, ROWS, accelerator, optimizer, memory, accumulate);
    open_window(&by_touch, ROWS, accelerator, optimizer, sparse, accumulate);
    open_window(&in_file, ROWS, accelerator, optimizer, tightest_file(ROWS, accelerator, optimizer, accumulate),
                accumulate);
    train(&plain, 5 * STEPS);
    train(&by_touch, 5 * STEPS);
    train(&in_file, 5 * STEPS);
    assert_true(checksum(&plain) == checksum(&by_touch));
    assert_true(checksum(&plain) == checksum(&in_file));
    check_same_stores(plain.store, by_touch.store);
    check_same_stores(plain.store, in_file.store);
    td_device_counters held = td_session_device(in_file.session, 0);
    assert_true(held.peak_bytes <= held.planned_peak_bytes);
    assert_true(in_file.store->pool.peak_held == in_file.store->pool.most_pages); /* so pages did come and go */
    assert_true(by_touch.store->pool.peak_held < by_touch.store->pool.most_pages);
    close_run(&plain);
    close_run(&by_touch);
    close_run(&in_file);
}

static void test_bits_are_those_of_tables_in_memory(void **state)
{
    (void)state;
    check_bits(NULL, td_lazy_adam(0.01), 1);
    check_bits("emulated:memory=16MiB,cores=1", td_adagrad(0.1, .initial_accumulator = 0.5), 1);
    check_bits("emulated:memory=16MiB,cores=1", td_rowwise_adagrad(0.1), 1);
    check_bits("emulated:memory=16MiB,cores=1", td_lazy_adam(0.01), 3); /* windows: rows may leave memory within one */
}

/* ---- more rows than 32 bits count --------------------------------------------------------------------------------------------------- */

static void test_a_table_of_more_than_two_to_the_31_rows_trains(void **state)
{
    (void)state;
    const int64_t rows = ((int64_t)1 << 31) + 7;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        print_message("skipped: this process's address space is limited (ulimit -v)\n");
        skip();
    }
    void *probe = td_reserve((size_t)rows * DIM * 4 * 4);
    if (!probe) {
        print_message("skipped: this machine does not give %.0f GB of address space (overcommit_memory 2?)\n",
                      (double)rows * DIM * 4 * 4 / 1e9);
        skip();
    }
    td_unreserve(probe, (size_t)rows * DIM * 4 * 4);
    run r = {0};
    open_run(&r, rows, NULL, td_lazy_adam(0.01),
             (td_table_options){.storage = TD_TABLE_SPARSE, .resident_bytes = 64 << 20});
    train(&r, 1);
    /* the last row, by itself */
    float before[DIM], after[DIM], expected[DIM];
    int32_t index = td_store_find(r.store, "table.0");
    assert_ok(td_store_read(r.store, index, (rows - 1) * DIM, DIM, before));
    td_initial_fill(&r.store->entries[index].initial, (rows - 1) * DIM, DIM, expected);
    assert_memory_equal(before, expected, sizeof before);
    r.last = ++r.step;
    td_batch batch;
    bool end = false;
    td_step_report report;
    r.last = r.step + 1;
    assert_ok(next(&r, &batch, &end));
    ((int64_t *)r.fields[(r.step - 1) % AT_ONCE][0].tensor.data)[5] = rows - 1;
    assert_ok(td_session_step(r.session, &batch, &report));
    assert_ok(td_store_read(r.store, index, (rows - 1) * DIM, DIM, after));
    assert_memory_not_equal(before, after, sizeof before);
    assert_true(checksum(&r) != 0);
    ((int64_t *)r.fields[(r.step - 1) % AT_ONCE][0].tensor.data)[5] = rows;
    assert_error(td_session_step(r.session, &batch, &report), TD_DATA_ERROR, "table");
    td_device_counters held = td_session_device(r.session, 0);
    assert_true(held.peak_bytes <= held.planned_peak_bytes && held.planned_peak_bytes < (uint64_t)4 << 30);
    close_run(&r);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------------- */

enum { CHECKPOINT_ROWS = 20000 };

/* A run that goes on from a checkpoint of `saved`. */
static void resume(run *r, const char *path, td_table_options tables, uint64_t seed)
{
    *r = (run){0};
    build(r, CHECKPOINT_ROWS);
    r->options.seed = seed;
    td_group(&r->options, "table*", td_lazy_adam(0.01));
    td_group(&r->options, "*", td_sgd(0.1));
    td_tables(&r->options, tables);
    assert_ok(td_plan_train(r->graph, r->loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
    train(r, 2); /* what it learnt must be forgotten */
    td_data_position position;
    assert_ok(td_store_load(r->store, path, &position));
    r->step = position.batch;
}

/* Saved with any storage, loaded with any, the run ends as one that was never interrupted. */
static void test_checkpoints_pass_between_storages(void **state)
{
    (void)state;
    td_table_options kept[] = {memory, sparse, tightest_file(CHECKPOINT_ROWS, NULL, td_lazy_adam(0.01), 1)};
    run whole = {0};
    open_run(&whole, CHECKPOINT_ROWS, NULL, td_lazy_adam(0.01), memory);
    train(&whole, 2 * STEPS);
    for (int from = 0; from < 3; from++) {
        folder place = make_folder();
        run first = {0};
        open_run(&first, CHECKPOINT_ROWS, NULL, td_lazy_adam(0.01), kept[from]);
        train(&first, STEPS);
        assert_ok(td_store_save(first.store, place.path, (td_data_position){0, STEPS}));
        uint64_t there = from > 0 ? (uint64_t)first.store->tables[0].n_there : CHECKPOINT_ROWS;
        close_run(&first);
        for (int to = 0; to < 3; to++) {
            run second;
            resume(&second, place.path, kept[to], to == 1 ? 1 : 99); /* another seed: the checkpoint's counts */
            if (to > 0) /* rows that nobody touched take nothing, whoever wrote the checkpoint */
                assert_true((uint64_t)second.store->tables[0].n_there <= there &&
                            second.store->tables[0].n_there < CHECKPOINT_ROWS);
            train(&second, 2 * STEPS);
            assert_true(checksum(&whole) == checksum(&second));
            check_same_stores(whole.store, second.store);
            close_run(&second);
        }
        remove_folder(&place);
    }
    close_run(&whole);
}

/* ---- numbers put in one by one ----------------------------------------------------------------------------------------------------- */

static void test_writing_some_elements_keeps_the_others(void **state)
{
    (void)state;
    run plain = {0}, r = {0};
    open_run(&plain, 1000, NULL, td_adagrad(0.1, .initial_accumulator = 0.5), memory);
    open_run(&r, 1000, NULL, td_adagrad(0.1, .initial_accumulator = 0.5), sparse);
    float some[25];
    for (int i = 0; i < 25; i++)
        some[i] = 0.5f * (float)i;
    for (int i = 0; i < 2; i++) {
        run *each = i ? &plain : &r;
        assert_ok(td_store_write(each->store, td_store_find(each->store, "table.1"), 33, 25, some));
        assert_ok(td_store_write(each->store, td_store_find(each->store, "table.0"), 7 * DIM, DIM, some));
    }
    check_same_stores(plain.store, r.store);
    assert_int_equal(r.store->tables[0].n_there, 1);
    assert_int_equal(r.store->tables[1].n_there, 3); /* elements 33 to 57 lie in rows 3, 4 and 5 */
    assert_error(td_store_read(r.store, td_store_find(r.store, "table.0"), 1000 * DIM - 1, 2, some),
                 TD_INVALID_ARGUMENT, "16000 elements");
    close_run(&plain);
    close_run(&r);
}

/* ---- what is refused ---------------------------------------------------------------------------------------------------------------- */

static td_status *plan_with(td_table_options tables)
{
    run r = {0};
    build(&r, 100000);
    td_group(&r.options, "*", td_sgd(0.1));
    td_tables(&r.options, tables);
    td_status *status = td_plan_train(r.graph, r.loss, &r.options, &r.plan);
    if (!status)
        status = td_store_create(r.plan, &r.store);
    close_run(&r);
    return status;
}

static void test_what_cannot_be_kept_is_refused(void **state)
{
    (void)state;
    assert_error(plan_with((td_table_options){.storage = TD_TABLE_FILE, .resident_bytes = 65536}), TD_DOES_NOT_FIT,
                 "two steps may touch");
    assert_error(plan_with((td_table_options){.storage = TD_TABLE_FILE, .path = "/nowhere/at/all"}), TD_NOT_FOUND,
                 "/nowhere/at/all");
    if (access("/dev/shm", W_OK) == 0)
        assert_error(plan_with((td_table_options){.storage = TD_TABLE_FILE, .path = "/dev/shm"}), TD_INVALID_ARGUMENT,
                     "in memory itself");
    run r = {0};
    build(&r, 20000000); /* 2 GB of rows */
    td_add_device(&r.options, "cpu", "cpu:memory=1GiB");
    td_group(&r.options, "*", td_sgd(0.1));
    td_status *status = td_plan_train(r.graph, r.loss, &r.options, &r.plan);
    assert_non_null(strstr(td_status_message(status), "tables.storage: file"));
    assert_error(status, TD_DOES_NOT_FIT, "cpu has");
    close_run(&r);
}

/* The rows that a run touches exceed what sparse tables may take: an error of the step, which did nothing yet. */
static void test_sparse_tables_end_at_their_bound(void **state)
{
    (void)state;
    run r = {0};
    open_run(&r, 1000000, NULL, td_sgd(0.1), (td_table_options){.storage = TD_TABLE_SPARSE, .resident_bytes = 2 << 20});
    td_source source = {&r, next, release};
    r.last = 1000;
    assert_error(td_session_run(r.session, &source, 0, NULL, NULL), TD_OUT_OF_MEMORY,
                 "all that tables.resident allows");
    assert_true(td_store_steps(r.store) > 0 && td_store_steps(r.store) < 1000);
    close_run(&r);
}

/* Every write to the file fails once: the step says so, no row is lost, and the run goes on where it was. */
static void test_a_full_disk_is_an_error_of_the_step(void **state)
{
    (void)state;
    enum { ROWS = 60000 };
    run plain = {0}, r = {0};
    open_run(&plain, ROWS, NULL, td_lazy_adam(0.01), memory);
    open_run(&r, ROWS, NULL, td_lazy_adam(0.01), tightest_file(ROWS, NULL, td_lazy_adam(0.01), 1));
    train(&plain, 3 * STEPS);
    td_source source = {&r, next, release};
    int failures = 0;
    r.last = 3 * STEPS;
    while (td_store_steps(r.store) < 3 * STEPS) {
        int64_t before = td_store_steps(r.store);
        td_file_fail_after((uint64_t)failures * 7 + 5);
        td_status *status = td_session_run(r.session, &source, 0, NULL, NULL);
        td_file_fail_after(0);
        if (status) {
            assert_error(status, TD_IO, "working file");
            failures++;
        }
        assert_true(td_store_steps(r.store) >= before);
        r.step = td_store_steps(r.store);
    }
    assert_true(failures > 3);
    assert_true(checksum(&plain) == checksum(&r));
    check_same_stores(plain.store, r.store);
    close_run(&plain);
    close_run(&r);
}

/* Evaluating reads rows that nobody trained: they have their initial values, and do not count as written. */
static void test_evaluation_changes_nothing(void **state)
{
    (void)state;
    run r = {0};
    open_run(&r, 60000, NULL, td_lazy_adam(0.01), tightest_file(60000, NULL, td_lazy_adam(0.01), 1));
    train(&r, STEPS);
    uint64_t before = checksum(&r);
    td_plan *plan = NULL;
    td_session *session = NULL;
    assert_ok(td_plan_evaluate(r.graph, &r.logit, 1, &r.options, r.store, &plan));
    assert_ok(td_session_create(plan, r.store, &session));
    td_source source = {&r, next, release};
    r.last += 4 * STEPS;
    assert_ok(td_session_run(session, &source, 0, NULL, NULL));
    assert_true(checksum(&r) == before);
    td_session_destroy(session);
    td_plan_release(plan);
    close_run(&r);
}

/* ---- a table three times what the process may have ------------------------------------------------------------------------------------ */

/* A sanitizer's own memory grows with ours, so what a process takes says nothing then: the run is the same, without limits. */
enum { MEMORY_IS_MEASURED = !TD_HAS_ASAN && !TD_HAS_TSAN };
enum { LIMIT_MIB = 64, LARGE_ROWS = LIMIT_MIB * (1 << 20) / (DIM + ODD_DIM) / 4 };

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    bool good = file && fputs(text, file) >= 0;
    return file ? (fclose(file) == 0 && good) : false;
}

/* Joins a new control group with this limit, of version 1 or 2, where this user may make one. */
static bool join_limited_group(char *group, size_t size)
{
    static const char *const roots[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                           {"/sys/fs/cgroup", "memory.max"}};
    char path[300], bytes[32];
    (void)snprintf(bytes, sizeof bytes, "%d", LIMIT_MIB << 20);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(group, size, "%s/tandem-test-%ld", roots[i][0], (long)getpid());
        if (mkdir(group, 0777) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", group, roots[i][1]);
        bool good = write_text(path, bytes);
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", group);
        if (good && write_text(path, "0"))
            return true;
        (void)rmdir(group);
    }
    group[0] = '\0';
    return false;
}

/* Memory of the process that no file backs, in bytes. */
static int64_t anonymous_bytes(void)
{
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "RssAnon: %lld", &kib) != 1) {
    }
    if (file)
        (void)fclose(file);
    return kib * 1024;
}

static void train_large(int64_t *out_before, int64_t *out_after)
{
    const td_table_options tables = {.storage = TD_TABLE_FILE, .path = TD_BINARY_DIR, .resident_bytes = 16 << 20};
    folder place = make_folder();
    td_data_position position;
    run r = {0}, again = {0};
    *out_before = anonymous_bytes();
    open_run(&r, LARGE_ROWS, NULL, td_lazy_adam(0.01), tables);
    assert_true(r.plan->paging.bytes >= (int64_t)3 * LIMIT_MIB << 20);
    train(&r, 120);
    assert_true(r.store->pool.peak_held == r.store->pool.most_pages);
    *out_after = anonymous_bytes();
    assert_ok(td_store_save(r.store, place.path, (td_data_position){0, r.step}));
    uint64_t sum = checksum(&r);
    close_run(&r);
    open_run(&again, LARGE_ROWS, NULL, td_lazy_adam(0.01), tables);
    assert_ok(td_store_load(again.store, place.path, &position));
    assert_true(checksum(&again) == sum);
    again.step = position.batch;
    train(&again, again.step + 10);
    int64_t now = anonymous_bytes();
    *out_after = now > *out_after ? now : *out_after;
    close_run(&again);
    remove_folder(&place);
}

/* Training, saving, loading and going on, in a process of its own. */
static void test_a_table_three_times_the_memory_trains(void **state)
{
    (void)state;
    char group[200], path[300];
    int ends[2], status = 0;
    int64_t seen[3] = {0};
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        seen[0] = MEMORY_IS_MEASURED && join_limited_group(group, sizeof group);
        train_large(&seen[1], &seen[2]);
        _exit(write(ends[1], seen, sizeof seen) == (ssize_t)sizeof seen ? 0 : 1);
    }
    close(ends[1]);
    bool told = read(ends[0], seen, sizeof seen) == (ssize_t)sizeof seen;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/tandem-test-%ld", i ? "" : "/memory", (long)child);
        (void)rmdir(path);
    }
    if (WIFSIGNALED(status))
        fail_msg("the process was ended by signal %d (9: its group had no memory left)", WTERMSIG(status));
    assert_true(told && WEXITSTATUS(status) == 0);
    if (!MEMORY_IS_MEASURED) {
        print_message("a sanitizer's build: memory was not limited, nor its use checked\n");
        return;
    }
    if (!seen[0])
        print_message("no memory control group can be made here: only resident bytes were checked\n");
    print_message("%.1f MiB of memory taken, 16 MiB of tables allowed\n", (double)(seen[2] - seen[1]) / (1 << 20));
    assert_true(seen[2] - seen[1] < (16 + 16) << 20); /* kernels, batches and books take some, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_three_times_the_memory_trains), /* first: it forks, so no thread may have run */
        cmocka_unit_test(test_bits_are_those_of_tables_in_memory),
        cmocka_unit_test(test_a_table_of_more_than_two_to_the_31_rows_trains),
        cmocka_unit_test(test_checkpoints_pass_between_storages),
        cmocka_unit_test(test_writing_some_elements_keeps_the_others),
        cmocka_unit_test(test_what_cannot_be_kept_is_refused),
        cmocka_unit_test(test_sparse_tables_end_at_their_bound),
        cmocka_unit_test(test_a_full_disk_is_an_error_of_the_step),
        cmocka_unit_test(test_evaluation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
