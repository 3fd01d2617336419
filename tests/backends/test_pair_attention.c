/* Attention of bf16 in pairs and in tiles: beside the reference, and its bits over threads and vectors, with the instructions in C;
 * with the processor's own where it has them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cpu/engine.h"
#include "backends/registry.h"
#include "base/half.h"
#include "base/memory.h"
#include "graph/op.h"

#define VARIANT(isa)                                                                                                   \
    extern const td_cpu_kernel td_cpu_kernel_causal_attention_pairs_pairs_##isa,                                       \
        td_cpu_kernel_causal_attention_gradient_pairs_pairs_##isa, td_cpu_kernel_causal_attention_pairs_in_c_##isa,    \
        td_cpu_kernel_causal_attention_gradient_pairs_in_c_##isa
VARIANT(baseline);
#if defined(__x86_64__)
VARIANT(avx2);
VARIANT(avx512);
#endif

typedef struct variant {
    const char *name;
    const td_cpu_kernel *forward, *gradient;
} variant;

typedef enum family { IN_PAIRS, IN_TILES, FAMILIES } family;
enum { MOST_VARIANTS = 4 };

static const td_cpu_kernel *processor_s(const char *op)
{
    int32_t n = 0;
    const td_cpu_kernel *const *kernels = td_cpu_pair_kernels(TD_ISA_AMX_BF16, &n);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(kernels[i]->op, op) == 0)
            return kernels[i];
    return NULL;
}

static int find_variants(family of, variant variants[MOST_VARIANTS])
{
    int n = 0;
#define ADD(isa)                                                                                                       \
    variants[n++] = of == IN_PAIRS ? (variant){"pairs, " #isa, &td_cpu_kernel_causal_attention_pairs_pairs_##isa,      \
                                               &td_cpu_kernel_causal_attention_gradient_pairs_pairs_##isa}             \
                                   : (variant){"tiles, " #isa, &td_cpu_kernel_causal_attention_pairs_in_c_##isa,       \
                                               &td_cpu_kernel_causal_attention_gradient_pairs_in_c_##isa}
    ADD(baseline);
#if defined(__x86_64__)
    if (td_isa_available(TD_ISA_AVX2))
        ADD(avx2);
    if (td_isa_available(TD_ISA_AVX512))
        ADD(avx512);
#endif
    if (of == IN_TILES && td_isa_available(TD_ISA_AMX_BF16))
        variants[n++] = (variant){"tiles, the processor's", processor_s("causal_attention"),
                                  processor_s("causal_attention_gradient")};
    return n;
}

/* ---- one problem --------------------------------------------------------------------------------------------------------------- */

typedef struct shape {
    int64_t samples, positions, heads, d;
} shape;

/* Whole blocks of 64, one more, odd ends, narrow and wide heads; the widths of five are of whole tiles. */
static const shape shapes[] = {{2, 1, 1, 16}, {1, 64, 2, 18},  {1, 65, 1, 64},  {2, 131, 2, 32}, {1, 180, 1, 96},
                               {0, 5, 1, 16}, {1, 128, 2, 64}, {1, 17, 1, 256}, {1, 131, 2, 48}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct problem {
    shape s;
    int64_t rows, width; /* samples x positions; heads x d */
    uint16_t *qkv, *dy, *y, *dqkv;
    float *log_sum;
} problem;

static uint16_t *numbers(int64_t n, uint32_t seed)
{
    uint16_t *values = td_calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = td_f32_to_bf16((float)(int32_t)seed * 0x1p-30f);
    }
    return values;
}

static problem make_problem(const shape *s)
{
    problem p = {.s = *s, .rows = s->samples * s->positions, .width = s->heads * s->d};
    p.qkv = numbers(p.rows * p.width * 3, 1);
    p.dy = numbers(p.rows * p.width, 2);
    p.y = numbers(p.rows * p.width, 3);
    p.dqkv = numbers(p.rows * p.width * 3, 4);
    p.log_sum = td_calloc((size_t)(p.rows * s->heads) + 1, sizeof *p.log_sum);
    assert_non_null(p.log_sum);
    return p;
}

static void free_problem(problem *p)
{
    td_free(p->qkv);
    td_free(p->dy);
    td_free(p->y);
    td_free(p->dqkv);
    td_free(p->log_sum);
}

/* Attention and its gradient: how they are called, and by whom. */
typedef struct calls {
    td_attr heads;
    td_tensor inputs[4], outputs[2], gradients[1];
    td_kernel_call forward, gradient;
} calls;

static td_tensor rows_of(const problem *p, int64_t columns, uint16_t *data)
{
    return (td_tensor){
        .kind = TD_DENSE, .dtype = TD_BF16, .rank = 3, .dims = {p->s.samples, p->s.positions, columns}, .data = data};
}

static void fill_calls(const problem *p, calls *c)
{
    *c = (calls){.heads = TD_INT("heads", p->s.heads)};
    c->inputs[0] = rows_of(p, p->width, p->dy);
    c->inputs[1] = rows_of(p, 3 * p->width, p->qkv);
    c->inputs[2] = c->outputs[0] = rows_of(p, p->width, p->y);
    c->inputs[3] = (td_tensor){.kind = TD_DENSE,
                               .dtype = TD_F32,
                               .rank = 3,
                               .dims = {p->s.samples, p->s.heads, p->s.positions},
                               .data = p->log_sum};
    c->outputs[1] = c->inputs[3];
    c->gradients[0] = rows_of(p, 3 * p->width, p->dqkv);
    c->forward = (td_kernel_call){.struct_size = sizeof c->forward,
                                  .op = "causal_attention",
                                  .name = "attention",
                                  .attrs = &c->heads,
                                  .n_attrs = 1,
                                  .inputs = &c->inputs[1],
                                  .n_inputs = 1,
                                  .outputs = c->outputs,
                                  .n_outputs = 2};
    c->gradient = c->forward;
    c->gradient.op = "causal_attention_gradient";
    c->gradient.inputs = c->inputs;
    c->gradient.n_inputs = 4;
    c->gradient.outputs = c->gradients;
    c->gradient.n_outputs = 1;
}

static void must(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

static void run_kernel(const td_cpu_kernel *kernel, td_kernel_call *call, td_team *team)
{
    void *state = NULL;
    assert_true(kernel->supports(call));
    must(kernel->prepare(NULL, call, &state));
    call->scratch_bytes = kernel->scratch_bytes(call, state);
    unsigned char *scratch = td_calloc_aligned(call->scratch_bytes + 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, call->scratch_bytes + 64); /* NaN wherever somebody reads before writing */
    call->scratch = scratch;
    must(kernel->run(call, team, state));
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(scratch[call->scratch_bytes + i], 0xff);
    td_free(scratch);
    kernel->destroy(state);
}

static void attend(const td_cpu_kernel *forward, const td_cpu_kernel *gradient, problem *p, int32_t threads)
{
    td_team *team = NULL;
    calls c;
    fill_calls(p, &c);
    must(td_team_create(threads, NULL, 0, &team));
    td_team_allow_spinning(team, false);
    run_kernel(forward, &c.forward, team);
    run_kernel(gradient, &c.gradient, team);
    td_team_destroy(team);
}

static bool is_taken(const variant *v, problem *p)
{
    calls c;
    fill_calls(p, &c);
    return v->forward->supports(&c.forward) && v->gradient->supports(&c.gradient);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------- */

/* No number is further from the reference's than weights of 8 bits explain, and on average they are much closer. */
static void compare(const char *what, const uint16_t *found, const uint16_t *expected, int64_t n)
{
    double largest = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)td_bf16_to_f32(expected[i])));
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)td_bf16_to_f32(found[i]) - (double)td_bf16_to_f32(expected[i]));
        sum += error;
        if (!(error <= 0x1p-6 * largest))
            fail_msg("%s: element %lld of %lld is %g, not about %g", what, (long long)i, (long long)n,
                     (double)td_bf16_to_f32(found[i]), (double)td_bf16_to_f32(expected[i]));
    }
    assert_true(sum <= 0x1p-9 * largest * (double)n);
}

static void compare_problems(const char *who, const problem *found, const problem *expected)
{
    char what[80];
    const shape *s = &found->s;
    snprintf(what, sizeof what, "%s, %lld x %lld, %lld heads of %lld", who, (long long)s->samples,
             (long long)s->positions, (long long)s->heads, (long long)s->d);
    compare(what, found->y, expected->y, found->rows * found->width);
    compare(what, found->dqkv, expected->dqkv, found->rows * found->width * 3);
    for (int64_t i = 0; i < found->rows * s->heads; i++)
        assert_true(fabsf(found->log_sum[i] - expected->log_sum[i]) <= 1e-4f);
}

static void refer(problem *p)
{
    calls c;
    fill_calls(p, &c);
    must(td_op_reference("causal_attention")(&c.forward));
    must(td_op_reference("causal_attention_gradient")(&c.gradient));
}

static void test_attention_in_pairs_and_in_tiles_is_attention(void **state)
{
    (void)state;
    int taken[FAMILIES] = {0};
    for (family of = IN_PAIRS; of < FAMILIES; of++)
        for (int i = 0; i < N_SHAPES; i++) {
            variant variants[MOST_VARIANTS];
            find_variants(of, variants);
            problem expected = make_problem(&shapes[i]), found = make_problem(&shapes[i]);
            if (is_taken(&variants[0], &found)) {
                taken[of]++;
                refer(&expected);
                attend(variants[0].forward, variants[0].gradient, &found, 1);
                compare_problems(variants[0].name, &found, &expected);
            }
            free_problem(&expected);
            free_problem(&found);
        }
    assert_int_equal(taken[IN_PAIRS], N_SHAPES);
    assert_int_equal(taken[IN_TILES], N_SHAPES - 4);
}

static void expect_same_bits(const variant *variants, int n, const shape *s)
{
    problem first = make_problem(s), found = make_problem(s);
    if (is_taken(&variants[0], &first)) {
        attend(variants[0].forward, variants[0].gradient, &first, 1);
        for (int v = 0; v < n; v++) {
            attend(variants[v].forward, variants[v].gradient, &found, 1 + 2 * v);
            assert_memory_equal(found.y, first.y, (size_t)(found.rows * found.width) * sizeof *found.y);
            assert_memory_equal(found.dqkv, first.dqkv, (size_t)(3 * found.rows * found.width) * sizeof *found.dqkv);
            assert_memory_equal(found.log_sum, first.log_sum,
                                (size_t)(found.rows * found.s.heads) * sizeof *found.log_sum);
        }
    }
    free_problem(&first);
    free_problem(&found);
}

static void test_its_bits_depend_neither_on_threads_nor_on_vectors(void **state)
{
    (void)state;
    for (family of = IN_PAIRS; of < FAMILIES; of++) {
        variant variants[MOST_VARIANTS];
        const int n = find_variants(of, variants);
        for (int i = 0; i < N_SHAPES; i++)
            expect_same_bits(variants, n, &shapes[i]);
    }
}

static void test_only_bf16_in_heads_of_an_even_width_is_taken(void **state)
{
    (void)state;
    static const shape narrow = {1, 5, 1, 14}, odd = {1, 5, 1, 17};
    variant variants[MOST_VARIANTS];
    find_variants(IN_PAIRS, variants);
    calls c;
    problem p = make_problem(&narrow);
    fill_calls(&p, &c);
    assert_false(variants[0].forward->supports(&c.forward));
    assert_false(variants[0].gradient->supports(&c.gradient));
    free_problem(&p);
    p = make_problem(&odd);
    fill_calls(&p, &c);
    assert_false(variants[0].forward->supports(&c.forward));
    free_problem(&p);
    p = make_problem(&shapes[3]);
    fill_calls(&p, &c);
    assert_true(variants[0].forward->supports(&c.forward) && variants[0].gradient->supports(&c.gradient));
    for (int i = 0; i < 3; i++)
        c.inputs[i].dtype = TD_F16;
    assert_false(variants[0].forward->supports(&c.forward) || variants[0].gradient->supports(&c.gradient));
    free_problem(&p);
}

/* The engine takes it where bf16 instructions are used, and its scratch is that of the other kernel there too. */
static void test_the_engine_s_attention_is_in_pairs_or_tiles_where_the_processor_has_them(void **state)
{
    (void)state;
    td_backend_set_reference(td_op_reference);
    size_t scratch_bytes[2];
    problem expected = make_problem(&shapes[3]), found = make_problem(&shapes[3]);
    refer(&expected);
    for (int kind = 0; kind < 2; kind++) {
        td_cpu_engine engine;
        td_cpu_prepared *prepared = NULL;
        calls c;
        fill_calls(&found, &c);
        must(td_cpu_engine_init(&engine, td_backend_host(), kind ? TD_GEMM_REFERENCE : TD_GEMM_TILES));
        td_kernel_call *both[2] = {&c.forward, &c.gradient};
        for (int i = 0; i < 2; i++) {
            must(td_cpu_engine_prepare(&engine, both[i], &prepared, &both[i]->scratch_bytes));
            both[i]->scratch = td_calloc_aligned(both[i]->scratch_bytes + 1);
            assert_non_null(both[i]->scratch);
            must(td_cpu_engine_run(prepared, both[i], NULL));
            td_free(both[i]->scratch);
            td_cpu_engine_release(prepared);
        }
        scratch_bytes[kind] = c.forward.scratch_bytes + c.gradient.scratch_bytes;
        compare_problems(kind ? "reference" : "tiles", &found, &expected);
    }
    assert_int_equal(scratch_bytes[0], scratch_bytes[1]);
    free_problem(&expected);
    free_problem(&found);
}

/* Whatever processor this is: a plan must not depend on it. */
static void test_scratch_is_that_of_the_widened_kernel(void **state)
{
    (void)state;
    variant variants[MOST_VARIANTS];
    find_variants(IN_PAIRS, variants);
    for (int i = 0; i < N_SHAPES; i++) {
        problem p = make_problem(&shapes[i]);
        calls c;
        fill_calls(&p, &c);
        td_kernel_call *both[2] = {&c.forward, &c.gradient};
        for (int k = 0; k < 2; k++) {
            const td_cpu_engine engine = {.host = td_backend_host(), .isa = TD_ISA_BASELINE, .gemm = TD_GEMM_REFERENCE};
            td_cpu_prepared *prepared = NULL;
            size_t bytes = 0;
            must(td_cpu_engine_prepare(&engine, both[k], &prepared, &bytes));
            const td_cpu_kernel *kernel = k ? variants[0].gradient : variants[0].forward;
            assert_int_equal(kernel->scratch_bytes(both[k], NULL), bytes);
            td_cpu_engine_release(prepared);
        }
        free_problem(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_in_pairs_and_in_tiles_is_attention),
        cmocka_unit_test(test_its_bits_depend_neither_on_threads_nor_on_vectors),
        cmocka_unit_test(test_only_bf16_in_heads_of_an_even_width_is_taken),
        cmocka_unit_test(test_the_engine_s_attention_is_in_pairs_or_tiles_where_the_processor_has_them),
        cmocka_unit_test(test_scratch_is_that_of_the_widened_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
