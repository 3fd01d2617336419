/* The CPU kernels of optimizers give the reference's bits: for every instruction set that runs here, 1 to 3 threads, odd
 * sizes and alignments. A kernel that writes outside its tensors touches a guard and fails too. */
#include "tests/optim/lookup_case.h"

#include <stdio.h>

#include "backends/cpu/engine.h"

enum { MOST_THREADS = 3 };
static td_team *teams[MOST_THREADS];

static int make_teams(void **state)
{
    (void)state;
    for (int32_t t = 0; t < MOST_THREADS; t++)
        assert_ok(td_team_create(t + 1, NULL, 0, &teams[t]));
    return 0;
}

static int destroy_teams(void **state)
{
    (void)state;
    for (int t = 0; t < MOST_THREADS; t++)
        td_team_destroy(teams[t]);
    return 0;
}

static const td_cpu_kernel *find_kernel(td_isa isa, const td_kernel_call *call)
{
    int32_t count;
    const td_cpu_kernel *const *kernels = td_cpu_kernels(isa, &count);
    for (int32_t i = 0; i < count; i++)
        if (strcmp(kernels[i]->op, call->op) == 0 && (!kernels[i]->supports || kernels[i]->supports(call)))
            return kernels[i];
    fail_msg("no kernel takes %s", call->op);
    return NULL;
}

static td_status *run_kernel(td_isa isa, td_kernel_call call, td_team *team)
{
    const td_cpu_kernel *kernel = find_kernel(isa, &call);
    call.scratch_bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&call, NULL) : 0;
    call.scratch = td_calloc_aligned(call.scratch_bytes + 1);
    memset(call.scratch, 0xa5, call.scratch_bytes);
    td_status *status = kernel->run(&call, team, NULL);
    td_free(call.scratch);
    return status;
}

/* The kernel, in every way it can run here, against the reference. */
static void check_kernels(update_case *c)
{
    float *before[1 + TD_MAX_SLOTS] = {NULL}, *expected[1 + TD_MAX_SLOTS] = {NULL};
    update_save(c, before);
    assert_ok(td_op_reference(c->call.op)(&c->call));
    update_save(c, expected);
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        for (int t = 0; td_isa_available((td_isa)isa) && t < MOST_THREADS; t++) {
            update_restore(c, before);
            assert_ok(run_kernel((td_isa)isa, c->call, teams[t]));
            char what[64];
            snprintf(what, sizeof what, "%s, %d threads, %s:", td_isa_name((td_isa)isa), t + 1, c->call.op);
            update_assert_equal(c, expected, what);
        }
    update_free(before);
    update_free(expected);
}

static float *random_floats(int64_t n, int64_t skew, float **out_memory)
{
    *out_memory = td_calloc((size_t)(n + skew + 1), sizeof(float));
    for (int64_t i = 0; i < n + skew; i++)
        (*out_memory)[i] = update_random_float();
    return *out_memory + skew;
}

static void check_dense(td_optimizer settings, int64_t rows, int64_t dim, int64_t skew)
{
    update_case c;
    float *memory;
    update_case_init(&c, settings, rows, dim, skew, 3);
    c.inputs[1] = update_dense(TD_F32, random_floats(rows * dim, (skew * 3) % 5, &memory), 2, rows, dim);
    c.inputs[2] = update_coefficients(&c);
    check_kernels(&c);
    td_free(memory);
    update_case_deinit(&c);
}

static void test_dense_updates(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 7, 8, 15, 16, 17, 31, 33, 1023, 1024, 1025};
    for (int i = 0; i < UPDATE_SETTINGS; i++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            check_dense(update_settings[i], 1, sizes[s], (int64_t)s % 4);
        check_dense(update_settings[i], 2500, 17, 1); /* several blocks */
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        check_dense(td_lamb(0.01, .weight_decay = 0.1), 1, sizes[s], (int64_t)s % 4);
    check_dense(td_lamb(0.01, .weight_decay = 0.1), 2500, 17, 1);
    check_dense(td_lamb(0.01), 40, 1024, 0);
}

static void check_sparse(td_optimizer settings, int64_t rows, int64_t dim, int64_t stride, int64_t skew)
{
    int64_t count = 0, *index = td_calloc((size_t)rows + 1, sizeof *index);
    for (int64_t row = stride / 2; row < rows; row += stride)
        index[count++] = row;
    update_case c;
    float *memory;
    update_case_init(&c, settings, rows, dim, skew, 3);
    c.inputs[1] = (td_tensor){.kind = TD_ROW_SPARSE,
                              .dtype = TD_F32,
                              .rank = 2,
                              .dims = {rows, dim},
                              .entries = rows,
                              .data = random_floats(rows * dim, skew, &memory),
                              .index = index,
                              .count = &count};
    c.inputs[2] = update_coefficients(&c);
    check_kernels(&c);
    td_free(memory);
    td_free(index);
    update_case_deinit(&c);
}

static void test_row_sparse_updates(void **state)
{
    (void)state;
    static const int64_t dims[] = {1, 3, 8, 16, 17, 64, 129};
    for (int i = 0; i < UPDATE_SETTINGS; i++) {
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            check_sparse(update_settings[i], 120, dims[d], 3, (int64_t)d % 4);
        check_sparse(update_settings[i], 4000, 4, 1, 0); /* several blocks */
        check_sparse(update_settings[i], 5, 4, 100, 0);  /* no row at all */
    }
}

static void test_embedding_updates(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATE_SETTINGS; i++)
        for (int s = 0; s < LOOKUP_SHAPES; s++) {
            lookup_case c;
            lookup_case_init(&c, update_settings[i], &lookup_shapes[s]);
            check_kernels(&c.update);
            lookup_case_deinit(&c);
        }
}

/* Ids that are all the same, that are all different, and whose neighbours are equal. */
static void test_embedding_updates_of_extreme_ids(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        lookup_shape shape = {.rows = 30011, .dim = 5, .bags = 20000, .pooling = "none"};
        lookup_case c;
        lookup_case_init(&c, td_adagrad(0.1), &shape);
        for (int64_t i = 0; i < c.count; i++)
            c.wide_ids[i] = kind == 0 ? 4242 : kind == 1 ? i * 7919 % shape.rows : i / 3;
        check_kernels(&c.update);
        lookup_case_deinit(&c);
    }
}

/* The first bad id is named whatever the number of threads, and nothing is written. */
static void test_a_bad_id_is_named_and_nothing_is_written(void **state)
{
    (void)state;
    lookup_shape shape = {.rows = 1000, .dim = 4, .bags = 30000, .pooling = "none"};
    float *before[1 + TD_MAX_SLOTS] = {NULL};
    lookup_case c;
    lookup_case_init(&c, td_adam(0.1), &shape);
    c.wide_ids[29000] = -5;
    c.wide_ids[17000] = 1000;
    update_save(&c.update, before);
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        for (int t = 0; td_isa_available((td_isa)isa) && t < MOST_THREADS; t++) {
            assert_error(run_kernel((td_isa)isa, c.update.call, teams[t]), TD_DATA_ERROR,
                         "embedding_update test: id 1000 at position 17000 is outside its table of 1000 rows");
            update_assert_equal(&c.update, before, "after a bad id");
        }
    update_free(before);
    lookup_case_deinit(&c);
}

static void test_falling_offsets_are_refused(void **state)
{
    (void)state;
    lookup_case c;
    lookup_case_init(&c, td_adam(0.1), &lookup_shapes[3]);
    c.offsets[5] = c.count + 3;
    assert_error(run_kernel(td_isa_best(), c.update.call, teams[1]), TD_DATA_ERROR, "offsets must not fall");
    lookup_case_deinit(&c);
}

/* At capacity a call asks for at least the scratch of any smaller one. */
static void test_scratch_at_capacity_suffices(void **state)
{
    (void)state;
    size_t least = 0;
    lookup_shape shape = {.rows = 10, .dim = 24, .pooling = "none"};
    for (shape.bags = 0; shape.bags < 3000; shape.bags += 61) {
        lookup_case c;
        lookup_case_init(&c, td_sgd(0.1), &shape);
        size_t bytes = find_kernel(td_isa_best(), &c.update.call)->scratch_bytes(&c.update.call, NULL);
        assert_true(bytes >= least);
        least = bytes;
        lookup_case_deinit(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense_updates),
                                       cmocka_unit_test(test_row_sparse_updates),
                                       cmocka_unit_test(test_embedding_updates),
                                       cmocka_unit_test(test_embedding_updates_of_extreme_ids),
                                       cmocka_unit_test(test_a_bad_id_is_named_and_nothing_is_written),
                                       cmocka_unit_test(test_falling_offsets_are_refused),
                                       cmocka_unit_test(test_scratch_at_capacity_suffices)};
    return cmocka_run_group_tests(tests, make_teams, destroy_teams);
}
