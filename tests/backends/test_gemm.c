/* Matrix products: against plain sums in double, at many shapes; and their bits over threads, instruction sets and
 * capacities. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cpu/gemm_own.h"
#include "backends/registry.h"
#include "base/memory.h"

static void must(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

/* Shapes at the edges of tiles, of vectors and of the sums' parts; and of nothing at all. */
static const td_gemm_shape shapes[] = {
    {.batch = 1, .m = 1, .n = 1, .k = 1},
    {.batch = 1, .m = 5, .n = 7, .k = 3, .has_bias = true},
    {.batch = 1, .m = 0, .n = 7, .k = 3},
    {.batch = 1, .m = 4, .n = 0, .k = 3},
    {.batch = 1, .m = 4, .n = 6, .k = 0, .has_bias = true},
    {.batch = 1, .m = 4, .n = 6, .k = 0},
    {.batch = 0, .m = 4, .n = 6, .k = 2},
    {.batch = 1, .m = 128, .n = 13, .k = 512, .transpose_b = true, .has_bias = true},
    {.batch = 1, .m = 301, .n = 65, .k = 257},
    {.batch = 1, .m = 207, .n = 141, .k = 800, .transpose_b = true, .has_bias = true, .relu = true},
    {.batch = 1, .m = 133, .n = 367, .k = 70, .has_mask = true},
    {.batch = 1, .m = 1000, .n = 1, .k = 70, .transpose_b = true, .has_bias = true, .relu = true},
    {.batch = 1, .m = 1, .n = 1, .k = 3000, .has_bias = true, .has_mask = true},
    {.batch = 3, .m = 90, .n = 1, .k = 40, .transpose_a = true, .has_mask = true},
    {.batch = 1, .m = 30, .n = 40, .k = 5000, .transpose_a = true, .has_bias = true, .relu = true, .has_mask = true},
    {.batch = 1, .m = 301, .n = 401, .k = 67, .transpose_b = true, .has_bias = true},
    {.batch = 1, .m = 300, .n = 700, .k = 300},
    {.batch = 1, .m = 40, .n = 50, .k = 2111, .transpose_a = true},
    {.batch = 1, .m = 100, .n = 90, .k = 2048, .transpose_a = true, .has_bias = true},
    {.batch = 1, .m = 1, .n = 256, .k = 4096, .transpose_a = true},
    {.batch = 1, .m = 130, .n = 100, .k = 1024, .has_bias = true},
    {.batch = 1, .m = 70, .n = 300, .k = 2048, .transpose_b = true, .has_bias = true},
    {.batch = 1, .m = 1024, .n = 40, .k = 600, .transpose_a = true},
    {.batch = 2, .m = 50, .n = 1024, .k = 1100},
    {.batch = 6, .m = 33, .n = 17, .k = 48},
    {.batch = 3, .m = 65, .n = 70, .k = 900, .transpose_a = true, .transpose_b = true},
    {.batch = 4, .m = 31, .n = 29, .k = 23, .transpose_a = true, .shared_b = true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct problem {
    td_gemm_shape shape;
    float *a, *b, *bias, *mask, *c;
    int64_t n_a, n_b, n_c;
} problem;

static float number(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) * 0x1p-31f;
}

static float *numbers(int64_t n, uint64_t *seed)
{
    float *values = td_calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = number(seed);
    return values;
}

static problem make_problem(const td_gemm_shape *shape)
{
    uint64_t seed = 7;
    problem p = {.shape = *shape, .n_a = shape->batch * shape->m * shape->k, .n_c = shape->batch * shape->m * shape->n};
    p.n_b = (shape->shared_b ? 1 : shape->batch) * shape->k * shape->n;
    p.a = numbers(p.n_a, &seed);
    p.b = numbers(p.n_b, &seed);
    p.bias = numbers(shape->n, &seed);
    p.mask = numbers(p.n_c, &seed);
    p.c = td_calloc((size_t)p.n_c + 1, sizeof *p.c);
    assert_non_null(p.c);
    return p;
}

static void free_problem(problem *p)
{
    td_free(p->a);
    td_free(p->b);
    td_free(p->bias);
    td_free(p->mask);
    td_free(p->c);
}

static td_cpu_engine make_engine(td_gemm_kind kind, td_isa isa)
{
    td_cpu_engine engine;
    must(td_cpu_engine_init(&engine, td_backend_host(), kind));
    engine.isa = isa;
    return engine;
}

/* Runs it in a plan of this capacity (NULL: just as large). The result must not be touched beyond its end. */
static void run(const td_cpu_engine *engine, problem *p, const td_gemm_shape *capacity, int32_t threads)
{
    td_team *team = NULL;
    td_gemm *gemm = NULL;
    must(td_team_create(threads, NULL, 0, &team));
    must(td_gemm_create(engine, capacity ? capacity : &p->shape, &gemm));
    size_t bytes = td_gemm_scratch_bytes(gemm);
    unsigned char *scratch = td_calloc_aligned(bytes + 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes + 64); /* NaN wherever somebody reads before writing */
    memset(p->c, 0xff, ((size_t)p->n_c + 1) * sizeof *p->c);
    td_gemm_operands operands = {.a = p->a,
                                 .b = p->b,
                                 .bias = p->shape.has_bias ? p->bias : NULL,
                                 .mask = p->mask,
                                 .c = p->c,
                                 .scratch = scratch};
    must(td_gemm_run(gemm, &p->shape, &operands, team));
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(scratch[bytes + i], 0xff);
    assert_true(isnan(p->c[p->n_c]));
    td_free(scratch);
    td_gemm_destroy(gemm);
    td_team_destroy(team);
}

static double exact(const problem *p, int64_t product, int64_t i, int64_t j, double *out_magnitude)
{
    const td_gemm_shape *s = &p->shape;
    const float *a = p->a + product * s->m * s->k, *b = p->b + (s->shared_b ? 0 : product * s->k * s->n);
    double sum = s->has_bias ? (double)p->bias[j] : 0.0;
    *out_magnitude = fabs(sum);
    for (int64_t l = 0; l < s->k; l++) {
        double term = (double)a[s->transpose_a ? l * s->m + i : i * s->k + l] *
                      (double)b[s->transpose_b ? j * s->k + l : l * s->n + j];
        sum += term;
        *out_magnitude += fabs(term);
    }
    return sum;
}

/* The bound on a sum of n rounded terms: n * 2^-24 * the sum of magnitudes; far above what is seen, far below a mistake. */
static void check(const problem *p)
{
    const td_gemm_shape *s = &p->shape;
    for (int64_t product = 0; product < s->batch; product++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                double magnitude = 0, wanted = exact(p, product, i, j, &magnitude);
                if (s->relu && wanted < 0)
                    wanted = 0;
                if (s->has_mask && p->mask[(product * s->m + i) * s->n + j] <= 0.0f)
                    wanted = 0;
                double error = fabs((double)p->c[(product * s->m + i) * s->n + j] - wanted);
                if (!(error <= (double)(s->k + 2) * 0x1p-24 * magnitude))
                    fail_msg("%lld x %lld x %lld: C[%lld][%lld] is off by %g", (long long)s->m, (long long)s->n,
                             (long long)s->k, (long long)i, (long long)j, error);
            }
}

/* Who computes. ThreadSanitizer does not see how OpenMP's threads wait for each other, and would report the library's own. */
typedef struct way {
    td_gemm_kind kind;
    bool on_baseline; /* instead of the best instruction set */
} way;
static const way ways[] = {
#ifdef TANDEM_HAVE_ONEDNN
    {TD_GEMM_TILES, true},
#if !TD_HAS_TSAN
    {TD_GEMM_LIBRARY, false},
#endif
#endif
    {TD_GEMM_TILES, false},
    {TD_GEMM_REFERENCE, true}};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static td_cpu_engine engine_of(const way *w)
{
    return make_engine(w->kind, w->on_baseline ? TD_ISA_BASELINE : td_isa_best());
}

static void test_products_are_right_at_every_shape(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int w = 0; w < N_WAYS; w++) {
            td_cpu_engine engine = engine_of(&ways[w]);
            problem p = make_problem(&shapes[i]);
            run(&engine, &p, NULL, 2);
            check(&p);
            free_problem(&p);
        }
}

static void test_bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int w = 0; w < N_WAYS; w++) {
            if (ways[w].kind == TD_GEMM_LIBRARY)
                continue;
            td_cpu_engine engine = engine_of(&ways[w]);
            problem one = make_problem(&shapes[i]), more = make_problem(&shapes[i]);
            run(&engine, &one, NULL, 1);
            static const int32_t threads[] = {2, 3, 70};
            for (int t = 0; t < 3; t++) {
                run(&engine, &more, NULL, threads[t]);
                assert_memory_equal(more.c, one.c, (size_t)one.n_c * sizeof *one.c);
            }
            free_problem(&one);
            free_problem(&more);
        }
}

static const td_gemm_shape chain_shape = {
    .batch = 1, .m = 301, .n = 401, .k = 67, .transpose_b = true, .has_bias = true};

static void test_reference_bits_are_a_chain_of_fma_on_every_instruction_set(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        problem base = make_problem(&shapes[i]), other = make_problem(&shapes[i]);
        td_cpu_engine engine = make_engine(TD_GEMM_REFERENCE, TD_ISA_BASELINE);
        run(&engine, &base, NULL, 1);
        for (int isa = 1; isa < TD_ISA_COUNT; isa++) {
            if (!td_isa_available((td_isa)isa))
                continue;
            engine = make_engine(TD_GEMM_REFERENCE, (td_isa)isa);
            run(&engine, &other, NULL, 2);
            assert_memory_equal(other.c, base.c, (size_t)base.n_c * sizeof *base.c);
        }
        free_problem(&base);
        free_problem(&other);
    }
    /* Short sums are not cut into parts: the chain itself can be written down. */
    problem p = make_problem(&chain_shape);
    td_cpu_engine engine = make_engine(TD_GEMM_REFERENCE, td_isa_best());
    run(&engine, &p, NULL, 1);
    for (int64_t m = 0; m < p.shape.m; m += 7)
        for (int64_t n = 0; n < p.shape.n; n++) {
            float sum = 0;
            for (int64_t k = 0; k < p.shape.k; k++)
                sum = fmaf(p.a[m * p.shape.k + k], p.b[n * p.shape.k + k], sum);
            assert_true(p.c[m * p.shape.n + n] == sum + p.bias[n]);
        }
    free_problem(&p);
}

/* Sums that land between two floats, in the subnormal range, at infinity, or cancel to nothing: where an fma made of two
 * roundings would differ. */
static void test_hard_sums_are_rounded_once_on_every_instruction_set(void **state)
{
    (void)state;
    static const float hard[] = {1.0f,        0x1.000002p0f,   0x1.fffffep0f,   -1.0f,
                                 0x1p-24f,    0x1.000002p-24f, -0x1p-25f,       0x1p-126f,
                                 0x1.8p-127f, 0x1p-149f,       0x1p127f,        0x1.fffffep127f,
                                 0.0f,        0x1.8p0f,        0x1.000002p-75f, -0x1.fffffep-76f,
                                 0x1p-63f,    0x1.555556p1f};
    enum { N_HARD = sizeof hard / sizeof hard[0] };
    td_gemm_shape shape = {.batch = 1, .m = 60, .n = 64, .k = 5};
    problem p = make_problem(&shape);
    uint64_t seed = 99;
    for (int trial = 0; trial < 60; trial++) {
        for (int64_t i = 0; i < p.n_a; i++)
            p.a[i] = hard[(int)((number(&seed) * 0.5f + 0.5f) * 0.999f * N_HARD)];
        for (int64_t i = 0; i < p.n_b; i++)
            p.b[i] = hard[(int)((number(&seed) * 0.5f + 0.5f) * 0.999f * N_HARD)];
        for (int isa = 0; isa < TD_ISA_COUNT; isa++) {
            if (!td_isa_available((td_isa)isa))
                continue;
            td_cpu_engine engine = make_engine(TD_GEMM_REFERENCE, (td_isa)isa);
            run(&engine, &p, NULL, 1);
            for (int64_t m = 0; m < shape.m; m++)
                for (int64_t n = 0; n < shape.n; n++) {
                    float sum = 0;
                    for (int64_t k = 0; k < shape.k; k++)
                        sum = fmaf(p.a[m * shape.k + k], p.b[k * shape.n + n], sum);
                    float found = p.c[m * shape.n + n];
                    assert_true(isnan(sum) ? isnan(found) : memcmp(&found, &sum, sizeof sum) == 0);
                }
        }
    }
    free_problem(&p);
}

/* A short batch in a plan for a full one gives what a plan of its own size gives. */
static void test_bits_do_not_depend_on_the_capacity(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int w = 0; w < N_WAYS; w++) {
            if (ways[w].kind == TD_GEMM_LIBRARY)
                continue;
            td_gemm_shape larger = shapes[i];
            larger.m = larger.m * 2 + 77;
            larger.k += 1500;
            larger.n += 3;
            larger.batch += 2;
            td_cpu_engine engine = engine_of(&ways[w]);
            problem own = make_problem(&shapes[i]), in_larger = make_problem(&shapes[i]);
            run(&engine, &own, NULL, 2);
            run(&engine, &in_larger, &larger, 2);
            assert_memory_equal(in_larger.c, own.c, (size_t)own.n_c * sizeof *own.c);
            free_problem(&own);
            free_problem(&in_larger);
        }
}

/* What td_gemm_scratch_bytes promises: no shape up to the capacity keeps more parts of sums than it has room for. */
static void test_cuts_cover_everything_and_keep_few_parts(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 13, 63, 64, 65, 129, 255, 257, 384, 385, 511, 700, 1024, 4097, 100000};
    enum { N = sizeof sizes / sizeof sizes[0] };
    for (int m = 0; m < N; m++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < N; k++)
                for (int64_t batch = 1; batch < 20; batch += 6) {
                    td_gemm_shape shape = {.batch = batch, .m = sizes[m], .n = sizes[n], .k = sizes[k]};
                    td_gemm_cut cut = td_gemm_cut_of(&shape);
                    assert_true(cut.tile_m <= 256 && cut.tile_n <= 384 && cut.tile_m >= 1 && cut.tile_n >= 1 &&
                                cut.tile_k >= 1);
                    assert_true(cut.tile_m * cut.tiles_m >= shape.m && cut.tile_m * (cut.tiles_m - 1) < shape.m);
                    assert_true(cut.tile_n * cut.tiles_n >= shape.n && cut.tile_n * (cut.tiles_n - 1) < shape.n);
                    assert_true(cut.tile_k * cut.parts >= shape.k && cut.tile_k * (cut.parts - 1) < shape.k);
                    assert_true((cut.parts - 1) * cut.tiles_m * cut.tiles_n * batch <= 15);
                    assert_true(cut.parts == 1 || cut.parts <= shape.k / 256);
                }
}

/* The same for the own kernel, whose tiles depend on the threads and whose parts must not. */
static void test_own_cuts_cover_everything_and_parts_depend_on_the_shape_alone(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 13, 64, 65, 257, 512, 700, 1024, 4097, 100000};
    enum { N = sizeof sizes / sizeof sizes[0] };
    const td_gemm_own_kernels by_rows[] = {
        {.rows = TD_GEMM_OWN_ROWS}, {.rows = TD_GEMM_AMX_ROWS}, {.rows = TD_GEMM_OWN_ROWS, .reads_rows = true}};
    for (int m = 0; m < 3 * N; m++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < N; k++) {
                const td_gemm_own_kernels *kernels = &by_rows[m / N];
                td_gemm_shape shape = {.batch = 1, .m = sizes[m % N], .n = sizes[n], .k = sizes[k]};
                int64_t tile_k = td_gemm_own_cut_of(kernels, &shape, &shape, 1).tile_k;
                for (int32_t threads = 1; threads < 100; threads += 11) {
                    td_gemm_own_cut cut = td_gemm_own_cut_of(kernels, &shape, &shape, threads);
                    int64_t rows = shape.n == 1 ? 1 : shape.m, columns = shape.n == 1 ? shape.m : shape.n;
                    assert_true(cut.tile_n <= TD_GEMM_PACKED_COLUMNS);
                    assert_true(cut.tile_m * cut.tiles_m >= rows && cut.tile_m * (cut.tiles_m - 1) < rows);
                    assert_true(cut.tile_n * cut.tiles_n >= columns && cut.tile_n * (cut.tiles_n - 1) < columns);
                    assert_true(cut.tile_k == tile_k);
                    assert_true(cut.tile_k * cut.parts >= shape.k && cut.tile_k * (cut.parts - 1) < shape.k);
                }
            }
}

static void test_own_cuts_give_threads_equal_shares_of_few_tiles(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
        int32_t threads;
        int64_t tiles_m, tiles_n;
    } cases[] = {{2048, 1024, 624, 2, 1, 2}, /* as many as threads */
                 {2048, 1536, 384, 2, 1, 4}, /* three, which n asks for, would keep one of them waiting */
                 {2048, 1536, 384, 3, 1, 3},
                 {4096, 256, 384, 4, 4, 1},
                 {8, 64, 64, 4, 1, 1}}; /* not worth waking anybody */
    const td_gemm_own_kernels kernels = {.rows = TD_GEMM_OWN_ROWS, .reads_rows = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const td_gemm_shape shape = {.batch = 1, .m = cases[i].m, .n = cases[i].n, .k = cases[i].k};
        const td_gemm_own_cut cut = td_gemm_own_cut_of(&kernels, &shape, &shape, cases[i].threads);
        assert_int_equal(cut.tiles_m, cases[i].tiles_m);
        assert_int_equal(cut.tiles_n, cases[i].tiles_n);
    }
}

/* More shapes than the cache of primitives has room for, twice over. */
static void test_new_extents_are_prepared_at_first_use_and_forgotten_in_time(void **state)
{
    (void)state;
    td_cpu_engine engine = make_engine(TD_GEMM_TILES, TD_ISA_BASELINE); /* oneDNN, where there is one */
    td_gemm_shape capacity = {.batch = 1, .m = 200, .n = 20, .k = 10, .transpose_b = true, .has_bias = true};
    problem p = make_problem(&capacity);
    td_team *team = NULL;
    td_gemm *gemm = NULL;
    must(td_team_create(2, NULL, 0, &team));
    must(td_gemm_create(&engine, &capacity, &gemm));
    void *scratch = td_calloc_aligned(td_gemm_scratch_bytes(gemm) + 1);
    td_gemm_operands operands = {.a = p.a, .b = p.b, .bias = p.bias, .mask = p.mask, .c = p.c, .scratch = scratch};
    for (int64_t i = 0; i < 300; i++) {
        p.shape.m = 1 + (i * 7) % 200;
        must(td_gemm_run(gemm, &p.shape, &operands, team));
        check(&p);
    }
    td_free(scratch);
    td_gemm_destroy(gemm);
    td_team_destroy(team);
    free_problem(&p);
}

static void test_every_failed_allocation_is_an_error_without_a_leak(void **state)
{
    (void)state;
    problem p = make_problem(&chain_shape);
    td_cpu_engine engine = make_engine(TD_GEMM_TILES, TD_ISA_BASELINE); /* oneDNN, where there is one */
    td_team *team = NULL;
    must(td_team_create(2, NULL, 0, &team));
    uint64_t before = td_memory_read().bytes_now;
    static _Alignas(64) char scratch[4 << 20];
    td_gemm_operands operands = {.a = p.a, .b = p.b, .bias = p.bias, .mask = p.mask, .c = p.c, .scratch = scratch};
    for (uint64_t n = 1;; n++) {
        td_gemm *gemm = NULL;
        td_memory_fail_after(n);
        td_status *status = td_gemm_create(&engine, &p.shape, &gemm);
        if (!status) {
            assert_true(td_gemm_scratch_bytes(gemm) <= sizeof scratch);
            status = td_gemm_run(gemm, &p.shape, &operands, team);
        }
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        if (failed)
            assert_int_equal(td_status_code(status), TD_OUT_OF_MEMORY);
        else
            must(status);
        td_status_destroy(status);
        td_gemm_destroy(gemm);
        assert_int_equal(td_memory_read().bytes_now, before);
        if (!failed)
            break;
    }
    td_team_destroy(team);
    free_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_right_at_every_shape),
        cmocka_unit_test(test_bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(test_reference_bits_are_a_chain_of_fma_on_every_instruction_set),
        cmocka_unit_test(test_hard_sums_are_rounded_once_on_every_instruction_set),
        cmocka_unit_test(test_bits_do_not_depend_on_the_capacity),
        cmocka_unit_test(test_cuts_cover_everything_and_keep_few_parts),
        cmocka_unit_test(test_own_cuts_cover_everything_and_parts_depend_on_the_shape_alone),
        cmocka_unit_test(test_own_cuts_give_threads_equal_shares_of_few_tiles),
        cmocka_unit_test(test_new_extents_are_prepared_at_first_use_and_forgotten_in_time),
        cmocka_unit_test(test_every_failed_allocation_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
