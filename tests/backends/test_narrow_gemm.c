/* Matrix products of 16-bit numbers: their bits against sums written out here, over shapes, threads and instruction sets. bf16
 * in pairs too: everywhere with the instruction in C (test_pair_dot.c), and with the instruction itself where the processor has it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cpu/gemm_own.h"
#include "backends/registry.h"
#include "base/half.h"
#include "base/memory.h"
#include "tests/support/amx_tiles.h"
#include "tests/support/pair_dot.h"

static void must(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

/* ---- problems ---------------------------------------------------------------------------------------------------------------- */

/* Edges of vectors, blocks, spans (384 numbers; 768 in pairs, 512 in tiles) and parts of sums; sums of odd length, and of none. */
static const td_gemm_shape shapes[] = {
    {.batch = 1, .m = 1, .n = 1, .k = 1},
    {.batch = 1, .m = 5, .n = 7, .k = 3, .has_bias = true},
    {.batch = 1, .m = 0, .n = 7, .k = 3},
    {.batch = 1, .m = 4, .n = 6, .k = 0, .has_bias = true, .relu = true},
    {.batch = 1, .m = 50, .n = 13, .k = 512, .transpose_b = true, .has_bias = true},
    {.batch = 1, .m = 61, .n = 65, .k = 257},
    {.batch = 1, .m = 47, .n = 141, .k = 801, .transpose_b = true, .has_bias = true, .relu = true},
    {.batch = 1, .m = 33, .n = 67, .k = 70, .has_mask = true},
    {.batch = 1, .m = 24, .n = 64, .k = 16, .transpose_a = true, .has_bias = true, .relu = true, .has_mask = true},
    {.batch = 1, .m = 100, .n = 1, .k = 71, .transpose_b = true, .has_bias = true, .relu = true},
    {.batch = 1, .m = 1, .n = 1, .k = 3001, .has_bias = true, .has_mask = true},
    {.batch = 2, .m = 30, .n = 1, .k = 40, .transpose_a = true, .has_mask = true},
    {.batch = 1, .m = 30, .n = 40, .k = 5001, .transpose_a = true, .has_bias = true, .relu = true, .has_mask = true},
    {.batch = 1, .m = 108, .n = 64, .k = 769, .transpose_a = true},
    {.batch = 3, .m = 13, .n = 17, .k = 48},
    {.batch = 2, .m = 25, .n = 30, .k = 901, .transpose_a = true, .transpose_b = true},
    {.batch = 4, .m = 31, .n = 29, .k = 23, .transpose_a = true, .shared_b = true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct problem {
    td_gemm_shape shape;
    uint16_t *a, *b, *bias, *mask, *c, *expected;
    int64_t n_c;
} problem;

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

static uint16_t narrowed(td_gemm_narrow narrow, float x)
{
    return narrow == TD_GEMM_BF16 ? td_f32_to_bf16(x) : td_f32_to_f16(x);
}

static float widened(td_gemm_narrow narrow, uint16_t x)
{
    return narrow == TD_GEMM_BF16 ? td_bf16_to_f32(x) : td_f16_to_f32(x);
}

static uint16_t *numbers(td_gemm_narrow narrow, int64_t n, uint64_t *seed)
{
    uint16_t *values = td_calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = narrowed(narrow, (float)(int32_t)next_random(seed) * 0x1p-31f);
    return values;
}

static problem make_problem(const td_gemm_shape *shape, td_gemm_narrow narrow)
{
    uint64_t seed = 7;
    problem p = {.shape = *shape, .n_c = shape->batch * shape->m * shape->n};
    p.shape.narrow = narrow;
    p.a = numbers(narrow, shape->batch * shape->m * shape->k, &seed);
    p.b = numbers(narrow, (shape->shared_b ? 1 : shape->batch) * shape->k * shape->n, &seed);
    p.bias = numbers(narrow, shape->n, &seed);
    p.mask = numbers(narrow, p.n_c, &seed);
    p.c = numbers(narrow, p.n_c, &seed);
    p.expected = numbers(narrow, p.n_c, &seed);
    return p;
}

static void free_problem(problem *p)
{
    td_free(p->a);
    td_free(p->b);
    td_free(p->bias);
    td_free(p->mask);
    td_free(p->c);
    td_free(p->expected);
}

/* ---- what is right ------------------------------------------------------------------------------------------------------------ */

/* How a sum goes on by some pairs of terms, zeros beyond its end: an instruction's. */
enum { MOST_PAIRS = 16 };
typedef struct dot_rule {
    int64_t pairs;
    float (*add)(float sum, const uint32_t *a, const uint32_t *b);
} dot_rule;

static float add_by_manual(float sum, const uint32_t *a, const uint32_t *b)
{
    return td_pair_dot(sum, *a, *b);
}

static float add_by_processor(float sum, const uint32_t *a, const uint32_t *b)
{
    return td_pair_dot_by_instruction(sum, *a, *b);
}

static const dot_rule chains = {0}; /* of fma */
static const dot_rule manual_pairs = {1, add_by_manual}, processor_pairs = {1, add_by_processor};
static const dot_rule tiles = {MOST_PAIRS, td_tile_dot};

static uint16_t a_at(const problem *p, int64_t product, int64_t i, int64_t l)
{
    const td_gemm_shape *s = &p->shape;
    return (p->a + product * s->m * s->k)[s->transpose_a ? l * s->m + i : i * s->k + l];
}

static uint16_t b_at(const problem *p, int64_t product, int64_t l, int64_t j)
{
    const td_gemm_shape *s = &p->shape;
    return (p->b + (s->shared_b ? 0 : product) * s->k * s->n)[s->transpose_b ? j * s->k + l : l * s->n + j];
}

/* Terms l and l + 1 in one, of which there are some before `to`. */
static uint32_t pair_of(uint16_t (*at)(const problem *, int64_t, int64_t, int64_t), const problem *p, int64_t product,
                        int64_t line, int64_t l, int64_t to, bool line_first)
{
    uint32_t pair = 0;
    for (int64_t i = 0; i < 2 && l + i < to; i++)
        pair |= (uint32_t)(line_first ? at(p, product, line, l + i) : at(p, product, l + i, line)) << 16 * i;
    return pair;
}

/* The terms [from, to): one after the other by fma, or as the rule says. */
static float part_of(const problem *p, dot_rule rule, int64_t product, int64_t i, int64_t j, int64_t from, int64_t to)
{
    float sum = 0;
    for (int64_t l = from; !rule.pairs && l < to; l++)
        sum = fmaf(widened(p->shape.narrow, a_at(p, product, i, l)), widened(p->shape.narrow, b_at(p, product, l, j)),
                   sum);
    for (int64_t l = from; rule.pairs && l < to; l += 2 * rule.pairs) {
        uint32_t a[MOST_PAIRS], b[MOST_PAIRS];
        for (int64_t pair = 0; pair < rule.pairs; pair++) {
            a[pair] = pair_of(a_at, p, product, i, l + 2 * pair, to, true);
            b[pair] = pair_of(b_at, p, product, j, l + 2 * pair, to, false);
        }
        sum = rule.add(sum, a, b);
    }
    return sum;
}

static uint16_t element_of(const problem *p, dot_rule rule, int64_t part_k, int64_t product, int64_t i, int64_t j)
{
    const td_gemm_shape *s = &p->shape;
    float sum = part_of(p, rule, product, i, j, 0, part_k < s->k ? part_k : s->k);
    for (int64_t from = part_k; from < s->k; from += part_k)
        sum += part_of(p, rule, product, i, j, from, from + part_k < s->k ? from + part_k : s->k);
    if (s->has_bias)
        sum += widened(s->narrow, p->bias[j]);
    if (s->relu)
        sum = sum < 0 ? 0 : sum;
    if (s->has_mask)
        sum = widened(s->narrow, p->mask[(product * s->m + i) * s->n + j]) <= 0 ? 0 : sum;
    return narrowed(s->narrow, sum);
}

static void expect(problem *p, dot_rule rule)
{
    const td_gemm_shape *s = &p->shape;
    const int64_t part_k =
        s->k && p->n_c ? td_gemm_own_cut_of(td_gemm_own_kernels_of(TD_ISA_BASELINE), s, s, 1).tile_k : 1;
    for (int64_t product = 0; product < s->batch; product++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++)
                p->expected[(product * s->m + i) * s->n + j] = element_of(p, rule, part_k, product, i, j);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------ */

static void run(const td_gemm_own_kernels *kernels, problem *p, int32_t threads)
{
    td_team *team = NULL;
    must(td_team_create(threads, NULL, 0, &team));
    td_team_allow_spinning(team, false);
    const size_t bytes = td_gemm_own_scratch_bytes(&p->shape);
    unsigned char *scratch = td_calloc_aligned(bytes + 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes + 64); /* NaN wherever somebody reads before writing */
    memset(p->c, 0xff, ((size_t)p->n_c + 1) * sizeof *p->c);
    const td_gemm_operands operands = {.a = p->a,
                                       .b = p->b,
                                       .bias = p->shape.has_bias ? p->bias : NULL,
                                       .mask = p->mask,
                                       .c = p->c,
                                       .scratch = scratch};
    if (p->n_c)
        td_gemm_own_run(kernels, &p->shape, &p->shape, &operands, team);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(scratch[bytes + i], 0xff);
    assert_int_equal(p->c[p->n_c], 0xffff);
    td_free(scratch);
    td_team_destroy(team);
}

static void compare(const problem *p, const char *who)
{
    for (int64_t i = 0; i < p->n_c; i++) {
        const float found = widened(p->shape.narrow, p->c[i]), expected = widened(p->shape.narrow, p->expected[i]);
        if (p->c[i] != p->expected[i] && !(isnan(found) && isnan(expected)))
            fail_msg("%s, %lld x %lld x %lld: element %lld is %a, not %a", who, (long long)p->shape.m,
                     (long long)p->shape.n, (long long)p->shape.k, (long long)i, (double)found, (double)expected);
    }
}

typedef struct variant {
    const char *name;
    const td_gemm_own_kernels *kernels;
} variant;

/* On one thread and on more than there are rows of tiles. */
static void check(const variant *variants, int n, td_gemm_narrow narrow, dot_rule rule)
{
    for (int i = 0; i < N_SHAPES; i++) {
        problem p = make_problem(&shapes[i], narrow);
        expect(&p, rule);
        for (int v = 0; v < n; v++)
            for (int32_t threads = 1; threads <= 5; threads += 4) {
                run(variants[v].kernels, &p, threads);
                compare(&p, variants[v].name);
            }
        free_problem(&p);
    }
}

static void test_widened_products_are_chains_of_fma_on_every_instruction_set(void **state)
{
    (void)state;
    variant variants[TD_ISA_COUNT];
    int n = 0;
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        if (td_isa_available((td_isa)isa))
            variants[n++] = (variant){td_isa_name((td_isa)isa), td_gemm_own_kernels_of((td_isa)isa)};
    check(variants, n, TD_GEMM_BF16, chains);
    check(variants, n, TD_GEMM_F16, chains);
}

/* ---- pairs ---------------------------------------------------------------------------------------------------------------------- */

extern const td_gemm_own_kernels td_cpu_kernel_gemm_own_pairs_baseline;
#if defined(__x86_64__)
extern const td_gemm_own_kernels td_cpu_kernel_gemm_own_pairs_avx2, td_cpu_kernel_gemm_own_pairs_avx512;
#endif

/* The kernel of pairs with the instruction in C, on whatever vectors it is packed and edged for. */
static int pair_variants(variant variants[3])
{
    int n = 0;
    variants[n++] = (variant){"pairs, baseline", &td_cpu_kernel_gemm_own_pairs_baseline};
#if defined(__x86_64__)
    if (td_isa_available(TD_ISA_AVX2))
        variants[n++] = (variant){"pairs, avx2", &td_cpu_kernel_gemm_own_pairs_avx2};
    if (td_isa_available(TD_ISA_AVX512))
        variants[n++] = (variant){"pairs, avx512", &td_cpu_kernel_gemm_own_pairs_avx512};
#endif
    return n;
}

extern const td_gemm_own_kernels td_cpu_kernel_gemm_own_amx_in_c_baseline;
#if defined(__x86_64__)
extern const td_gemm_own_kernels td_cpu_kernel_gemm_own_amx_in_c_avx2, td_cpu_kernel_gemm_own_amx_in_c_avx512;
#endif

/* The kernel of tiles likewise. */
static int tile_variants(variant variants[3])
{
    int n = 0;
    variants[n++] = (variant){"tiles, baseline", &td_cpu_kernel_gemm_own_amx_in_c_baseline};
#if defined(__x86_64__)
    if (td_isa_available(TD_ISA_AVX2))
        variants[n++] = (variant){"tiles, avx2", &td_cpu_kernel_gemm_own_amx_in_c_avx2};
    if (td_isa_available(TD_ISA_AVX512))
        variants[n++] = (variant){"tiles, avx512", &td_cpu_kernel_gemm_own_amx_in_c_avx512};
#endif
    return n;
}

static void test_pairs_are_packed_and_summed_in_order_at_every_shape(void **state)
{
    (void)state;
    variant variants[3];
    check(variants, pair_variants(variants), TD_GEMM_BF16, manual_pairs);
}

static void test_tiles_are_packed_and_summed_in_order_at_every_shape(void **state)
{
    (void)state;
    variant variants[3];
    check(variants, tile_variants(variants), TD_GEMM_BF16, tiles);
}

/* Within what sums of k terms are worth: each is rounded once at most, at 2^-24 of what was summed, and the result to 8 bits. */
static void check_close(const problem *p)
{
    const td_gemm_shape *s = &p->shape;
    for (int64_t e = 0; e < p->n_c; e++) {
        const int64_t product = e / (s->m * s->n), row = e / s->n % s->m, column = e % s->n;
        double sum = s->has_bias ? (double)td_bf16_to_f32(p->bias[column]) : 0, magnitude = fabs(sum);
        for (int64_t l = 0; l < s->k; l++) {
            const double term =
                (double)td_bf16_to_f32(a_at(p, product, row, l)) * (double)td_bf16_to_f32(b_at(p, product, l, column));
            sum += term;
            magnitude += fabs(term);
        }
        const double bound = (double)(s->k + 2) * 0x1p-24 * magnitude + 0x1p-8 * fabs(sum);
        if ((s->relu && sum < 0) || (s->has_mask && td_bf16_to_f32(p->mask[e]) <= 0))
            sum = 0;
        if (!(fabs((double)td_bf16_to_f32(p->c[e]) - sum) <= bound * 1.01))
            fail_msg("%lld x %lld x %lld: element %lld is %g, not about %g", (long long)s->m, (long long)s->n,
                     (long long)s->k, (long long)e, (double)td_bf16_to_f32(p->c[e]), sum);
    }
}

static void test_sums_of_pairs_and_tiles_are_as_exact_as_chains(void **state)
{
    (void)state;
    const td_gemm_own_kernels *kernels[] = {&td_cpu_kernel_gemm_own_pairs_baseline,
                                            &td_cpu_kernel_gemm_own_amx_in_c_baseline};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N_SHAPES; i++) {
            problem p = make_problem(&shapes[i], TD_GEMM_BF16);
            run(kernels[k], &p, 1);
            check_close(&p);
            free_problem(&p);
        }
}

static void fill_hard(problem *p, uint64_t *seed)
{
    for (int64_t i = 0; i < p->shape.m * p->shape.k; i++)
        p->a[i] = td_hard_bf16[next_random(seed) % TD_HARD_BF16];
    for (int64_t i = 0; i < p->shape.k * p->shape.n; i++)
        p->b[i] = td_hard_bf16[next_random(seed) % TD_HARD_BF16];
}

static void check_hard(const variant *variants, int n, dot_rule rule)
{
    const td_gemm_shape shape = {.batch = 1, .m = 30, .n = 45, .k = 5, .has_bias = true, .relu = true};
    problem p = make_problem(&shape, TD_GEMM_BF16);
    uint64_t seed = 99;
    for (int trial = 0; trial < 40; trial++) {
        fill_hard(&p, &seed);
        expect(&p, rule);
        for (int v = 0; v < n; v++) {
            run(variants[v].kernels, &p, 1);
            compare(&p, variants[v].name);
        }
    }
    free_problem(&p);
}

static void test_hard_numbers_go_through_pairs_and_tiles_unchanged(void **state)
{
    (void)state;
    variant variants[3];
    check_hard(variants, pair_variants(variants), manual_pairs);
    check_hard(variants, tile_variants(variants), tiles);
}

/* ---- the processor's own ----------------------------------------------------------------------------------------------------- */

static void test_the_processor_s_pairs_are_the_instruction_in_order(void **state)
{
    (void)state;
    if (!td_isa_available(TD_ISA_AVX512_BF16)) {
        print_message("this processor has no AVX512_BF16: its products of pairs are not tested\n");
        skip();
    }
    const variant processor = {"avx512_bf16", td_gemm_pair_kernels()};
    check(&processor, 1, TD_GEMM_BF16, processor_pairs);
    check_hard(&processor, 1, processor_pairs);
}

static void test_the_processor_s_tiles_are_the_manual_s(void **state)
{
    (void)state;
    if (!td_isa_available(TD_ISA_AMX_BF16)) {
        print_message("this processor has no AMX: its products in tiles are not tested\n");
        skip();
    }
    const variant processor = {"amx_bf16", td_gemm_amx_kernels()};
    check(&processor, 1, TD_GEMM_BF16, tiles);
    check_hard(&processor, 1, tiles);
}

/* ---- who computes ------------------------------------------------------------------------------------------------------------- */

static void test_bf16_instructions_are_for_tiles_and_library_on_their_own_instruction_sets(void **state)
{
    (void)state;
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        for (int kind = TD_GEMM_TILES; kind <= TD_GEMM_REFERENCE; kind++) {
            const td_cpu_engine engine = {.isa = (td_isa)isa, .gemm = (td_gemm_kind)kind};
            char text[96];
            assert_int_equal(td_gemm_uses_bf16(&engine), isa >= TD_ISA_AVX512_BF16 && kind != TD_GEMM_REFERENCE);
            td_cpu_engine_describe(&engine, text, sizeof text);
            assert_int_equal(strstr(text, "bf16 products in hardware") != NULL, td_gemm_uses_bf16(&engine));
        }
}

/* Through td_gemm, as kernels ask for it. */
static void run_as(td_gemm_kind kind, td_isa isa, problem *p)
{
    td_cpu_engine engine;
    td_gemm *gemm = NULL;
    td_team *team = NULL;
    must(td_cpu_engine_init(&engine, td_backend_host(), kind));
    engine.isa = isa;
    must(td_team_create(2, NULL, 0, &team));
    must(td_gemm_create(&engine, &p->shape, &gemm));
    /* Whoever computes, so that plans are the same on all processors. */
    assert_int_equal(td_gemm_scratch_bytes(gemm), td_gemm_own_scratch_bytes(&p->shape));
    void *scratch = td_calloc_aligned(td_gemm_scratch_bytes(gemm) + 1);
    assert_non_null(scratch);
    const td_gemm_operands operands = {
        .a = p->a, .b = p->b, .bias = p->bias, .mask = p->mask, .c = p->c, .scratch = scratch};
    must(td_gemm_run(gemm, &p->shape, &operands, team));
    td_free(scratch);
    td_gemm_destroy(gemm);
    td_team_destroy(team);
}

static void test_a_product_of_bf16_has_the_bits_of_who_computes_it(void **state)
{
    (void)state;
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        for (int kind = TD_GEMM_TILES; td_isa_available((td_isa)isa) && kind <= TD_GEMM_REFERENCE; kind += 2) {
            const bool in_hardware = isa >= TD_ISA_AVX512_BF16 && kind == TD_GEMM_TILES;
            problem p = make_problem(&shapes[6], TD_GEMM_BF16);
            expect(&p, !in_hardware ? chains : isa == TD_ISA_AMX_BF16 ? tiles : processor_pairs);
            run_as((td_gemm_kind)kind, (td_isa)isa, &p);
            compare(&p, td_isa_name((td_isa)isa));
            free_problem(&p);
        }
}

#ifdef TANDEM_HAVE_ONEDNN
/* oneDNN's own where it has them, with bias, relu and mask; else the own kernel's. */
static void test_the_library_s_products_of_bf16_are_close(void **state)
{
    (void)state;
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        for (int i = 0; td_isa_available((td_isa)isa) && i < N_SHAPES; i++) {
            problem p = make_problem(&shapes[i], TD_GEMM_BF16);
            run_as(TD_GEMM_LIBRARY, (td_isa)isa, &p);
            check_close(&p);
            free_problem(&p);
        }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widened_products_are_chains_of_fma_on_every_instruction_set),
        cmocka_unit_test(test_pairs_are_packed_and_summed_in_order_at_every_shape),
        cmocka_unit_test(test_tiles_are_packed_and_summed_in_order_at_every_shape),
        cmocka_unit_test(test_sums_of_pairs_and_tiles_are_as_exact_as_chains),
        cmocka_unit_test(test_hard_numbers_go_through_pairs_and_tiles_unchanged),
        cmocka_unit_test(test_the_processor_s_pairs_are_the_instruction_in_order),
        cmocka_unit_test(test_the_processor_s_tiles_are_the_manual_s),
        cmocka_unit_test(test_bf16_instructions_are_for_tiles_and_library_on_their_own_instruction_sets),
        cmocka_unit_test(test_a_product_of_bf16_has_the_bits_of_who_computes_it),
#ifdef TANDEM_HAVE_ONEDNN
        cmocka_unit_test(test_the_library_s_products_of_bf16_are_close),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
