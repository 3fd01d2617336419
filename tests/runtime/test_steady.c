/* What a step costs beyond its arithmetic stays nothing: after the first steps none of ours allocates, what libraries
 * allocate they also free, and the number of locks taken does not depend on the number of ops.
 *
 * Counted by standing in for malloc and pthread_mutex_lock in this program. Sanitizers do so themselves: there only our own
 * allocations are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>

#include "base/memory.h"
#include "base/record.h"
#include "tandem/ops.h"
#include "tandem/profiler.h"
#include "tandem/session.h"
#include "tests/base/check.h"

/* ---- counting -------------------------------------------------------------------------------------------------------------- */

static atomic_llong live, locks; /* blocks allocated and not freed; pthread_mutex_lock calls */

#if defined(__GLIBC__) && !TD_HAS_ASAN && !TD_HAS_TSAN
enum { COUNTED = 1 };
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&live, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&live, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&live, !memory);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&live, 1);
    return __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return aligned_alloc(alignment, bytes);
}

int posix_memalign(void **out_memory, size_t alignment, size_t bytes)
{
    *out_memory = aligned_alloc(alignment, bytes);
    return *out_memory ? 0 : 12; /* ENOMEM */
}

void free(void *memory)
{
    atomic_fetch_sub(&live, memory != NULL);
    __libc_free(memory);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic real)(pthread_mutex_t *);
    int (*lock)(pthread_mutex_t *) = atomic_load(&real);
    if (!lock) {
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store(&real, lock);
    }
    atomic_fetch_add(&locks, 1);
    return lock(mutex);
}
#else
enum { COUNTED = 0 };
#endif

/* ---- a model with a little of everything, in full and in short batches ---------------------------------------------------- */

enum { BATCH = 9, SHORT = 5, ROWS = 13, DIM = 4, BAGS = 2 * BATCH };

typedef struct run {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
    float x[BATCH * DIM], y[BATCH];
    int64_t ids[BATCH], bag[BAGS], offsets[BATCH + 1];
    td_field fields[3][4]; /* as many batches may be out at once */
    int64_t handed_out;
} run;

static td_value build_dlrm(td_graph *g)
{
    td_dim batch = td_extent(g, "B", BATCH);
    td_value x = td_input(g, "x", TD_F32, TD_SHAPE(batch, DIM)), y = td_input(g, "y", TD_F32, TD_SHAPE(batch, 1)),
             ids = td_input(g, "ids", TD_I64, TD_SHAPE(batch)),
             bag = td_input_ragged(g, "bag", TD_I64, batch, td_extent(g, "n", BAGS));
    td_value first = td_parameter(g, "table.0.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1)),
             second = td_parameter(g, "table.1.weight", TD_F32, TD_SHAPE(ROWS, DIM), td_init_normal(0, 1));
    td_value vectors[] = {td_relu(td_linear(x, DIM, "bottom")), td_embedding(first, ids, (td_embedding_options){0}),
                          td_embedding_bag(second, bag, TD_SUM)};
    td_value joined = td_concat(2, (td_value[]){vectors[0], td_dot_interaction(3, vectors)}, 1);
    return td_bce_with_logits(td_linear(joined, 1, "top"), y);
}

static void open_run(run *r, bool cut)
{
    assert_ok(td_graph_create(&r->graph));
    td_value loss = build_dlrm(r->graph);
    assert_ok(td_graph_check(r->graph));
    r->options = td_train_defaults();
    if (cut) {
        td_add_device(&r->options, "accel", "emulated:memory=16MiB,cores=1");
        td_place(&r->options, "table*", "cpu");
    }
    td_group(&r->options, "table*", td_adagrad(0.01));
    td_group(&r->options, "*", td_sgd(0.01));
    assert_ok(td_plan_train(r->graph, loss, &r->options, &r->plan));
    assert_ok(td_store_create(r->plan, &r->store));
    assert_ok(td_session_create(r->plan, r->store, &r->session));
    for (int i = 0; i < BATCH; i++) {
        r->y[i] = (float)(i % 2);
        r->ids[i] = i * 5 % ROWS;
        r->offsets[i + 1] = r->offsets[i] + i % 3;
    }
    for (int i = 0; i < BAGS; i++)
        r->bag[i] = i * 3 % ROWS;
}

static void close_run(run *r)
{
    td_session_destroy(r->session);
    td_store_release(r->store);
    td_plan_release(r->plan);
    td_train_options_deinit(&r->options);
    td_graph_destroy(r->graph);
}

/* Every third batch is short. */
static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    run *r = self;
    int64_t samples = r->handed_out++ % 3 ? BATCH : SHORT;
    const td_tensor dense = {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, DIM}, .data = r->x},
                    label = {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {samples, 1}, .data = r->y},
                    ids = {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {samples}, .data = r->ids},
                    bag = {.kind = TD_RAGGED,
                           .dtype = TD_I64,
                           .rank = 1,
                           .dims = {samples},
                           .data = r->bag,
                           .index = r->offsets,
                           .entries = r->offsets[samples]};
    *out_end = false;
    static const char *const names[] = {"x", "y", "ids", "bag"};
    td_field *own = r->fields[r->handed_out % 3];
    const td_tensor *const tensors[] = {&dense, &label, &ids, &bag};
    for (int i = 0; i < 4; i++)
        own[i] = (td_field){names[i], *tensors[i]};
    *out_batch = (td_batch){.samples = samples, .n_fields = 4, .fields = own};
    return NULL;
}

static void release_batch(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static void run_steps(run *r, int64_t steps)
{
    td_source source = {.self = r, .next = next_batch, .release = release_batch};
    assert_ok(td_session_run(r->session, &source, steps, NULL, NULL));
}

/* Records all steps from now on, into a folder that goes at the end. */
static td_profiler *start_recording(char *folder)
{
    td_profiler_options options = td_profiler_defaults();
    td_profiler *profiler = NULL;
    assert_non_null(mkdtemp(folder));
    options.directory = folder;
    assert_ok(td_profiler_create(&options, &profiler));
    td_profiler_start(profiler);
    return profiler;
}

static void end_recording(td_profiler *profiler, const char *folder)
{
    char command[128];
    uint64_t records = 0, dropped = 0;
    td_profiler_stop(profiler);
    td_profiler_counts(profiler, &records, &dropped);
    assert_null(td_profiler_error(profiler));
    assert_true(records > 1000 && dropped == 0);
    td_profiler_destroy(profiler);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void check_that_steps_allocate_nothing(bool cut, int64_t steps, bool recorded)
{
    run r = {0};
    char folder[] = "/tmp/tandem_steady_XXXXXX";
    open_run(&r, cut);
    td_profiler *profiler = recorded ? start_recording(folder) : NULL;
    run_steps(&r, 30);
    const uint64_t own = td_memory_read().allocations;
    const long long all = atomic_load(&live);
    run_steps(&r, steps);
    assert_int_equal(td_memory_read().allocations, own);
    assert_int_equal(atomic_load(&live), all);
    if (recorded)
        end_recording(profiler, folder);
    close_run(&r);
}

static void test_ten_thousand_steps_allocate_nothing(void **state)
{
    (void)state;
    check_that_steps_allocate_nothing(false, 10000, false);
}

static void test_steps_over_two_devices_allocate_nothing(void **state)
{
    (void)state;
    check_that_steps_allocate_nothing(true, 1500, false);
}

static void test_recorded_steps_allocate_nothing(void **state)
{
    (void)state;
    check_that_steps_allocate_nothing(false, 500, true);
    check_that_steps_allocate_nothing(true, 300, true);
}

/* ---- locks ------------------------------------------------------------------------------------------------------------------ */

/* Locks that one step of a chain of `n` adds takes, once warm. */
static long long locks_of_chain(int32_t n)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    td_train_options options = td_train_defaults();
    assert_ok(td_graph_create(&graph));
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(1)), y = x;
    for (int32_t i = 0; i < n; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "add.%d", (int)i);
        y = td_name(td_add(y, x), name);
    }
    assert_ok(td_graph_check(graph));
    assert_ok(td_plan_evaluate(graph, &y, 1, &options, NULL, &plan));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    float one = 1;
    td_field field = {"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 1, .dims = {1}, .data = &one}};
    td_batch batch = {.samples = 1, .n_fields = 1, .fields = &field};
    td_step_report report;
    long long taken = 0;
    for (int step = 0; step < 5; step++) {
        const long long before = atomic_load(&locks);
        assert_ok(td_session_step(session, &batch, &report));
        taken = atomic_load(&locks) - before;
        assert_true(*(const float *)report.outputs[0].data == (float)(n + 1));
    }
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    return taken;
}

static void test_ops_take_no_lock(void **state)
{
    (void)state;
    if (!COUNTED)
        skip();
    const long long few = locks_of_chain(3), many = locks_of_chain(300);
    assert_true(few > 0); /* they are counted */
    assert_int_equal(few, many);
}

static void test_recorded_ops_take_no_lock(void **state)
{
    (void)state;
    td_record_span span;
    if (!COUNTED)
        skip();
    assert_true(td_record_open(1024));
    td_record_switch(true);
    const long long few = locks_of_chain(3), many = locks_of_chain(300);
    td_record_switch(false);
    assert_int_equal(few, many);
    bool any = false;
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span)) {
            any = true;
            td_record_consume(i, &span);
        }
    assert_true(any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_thousand_steps_allocate_nothing),
        cmocka_unit_test(test_steps_over_two_devices_allocate_nothing),
        cmocka_unit_test(test_ops_take_no_lock),
        cmocka_unit_test(test_recorded_steps_allocate_nothing),
        cmocka_unit_test(test_recorded_ops_take_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
