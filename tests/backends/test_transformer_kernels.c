/* The CPU kernels of attention, batch norm and layer norm: against the reference kernels, and attention, whose order of sums is
 * its own, the same bits on every instruction set. Heads that are no whole vectors, several blocks of positions, samples beyond
 * what is worked on at once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "backends/cpu/engine.h"
#include "backends/registry.h"
#include "base/memory.h"
#include "graph/op.h"
#include "tests/support/kernel_check.h"

static td_value tokens(td_graph *g, int64_t samples, int64_t positions, int64_t columns)
{
    td_value x = td_input(g, "x", TD_F32, TD_SHAPE(td_extent(g, "B", samples), positions, columns));
    return td_name(td_mul(x, td_parameter(g, "p", TD_F32, TD_SHAPE(columns), td_init_constant(0))), "tokens");
}

static td_value short_heads(td_graph *g)
{
    return td_causal_attention(tokens(g, 7, 13, 3 * 4 * 5), 4);
}

static td_value several_blocks(td_graph *g)
{
    return td_causal_attention(tokens(g, 2, 133, 3 * 2 * 18), 2);
}

static td_value one_position(td_graph *g)
{
    return td_causal_attention(tokens(g, 20, 1, 3 * 16), 1);
}

static td_value layer_norm_without_bias(td_graph *g)
{
    td_value x = tokens(g, 5, 3, 21);
    return td_layer_norm_with(x, td_parameter(g, "w", TD_F32, TD_SHAPE(21), td_init_constant(0)), TD_NO_VALUE, 1e-5,
                              "n");
}

static td_value batch_norm_of_images(td_graph *g)
{
    (void)td_scalar(g, "step.random", TD_I64, 3, (double[]){1, 5, 0});
    td_value x = td_input(g, "x", TD_F32, TD_SHAPE(td_extent(g, "B", 6), 5, 7, 9));
    x = td_mul(x, td_parameter(g, "p", TD_F32, TD_SHAPE(5, 1, 1), td_init_constant(0)));
    return td_batch_norm(x, 1e-5, 0.25, "n");
}

static td_value batch_norm_of_rows(td_graph *g)
{
    (void)td_scalar(g, "step.random", TD_I64, 3, (double[]){1, 5, 0});
    td_value x = td_input(g, "x", TD_F32, TD_SHAPE(td_extent(g, "B", 60), 33));
    x = td_mul(x, td_parameter(g, "p", TD_F32, TD_SHAPE(33), td_init_constant(0)));
    return td_batch_norm(x, 1e-5, 0.1, "n");
}

static const gradient_case cases[] = {
    {.name = "short_heads", .build = short_heads},
    {.name = "several_blocks", .build = several_blocks},
    {.name = "one_position", .build = one_position},
    {.name = "layer_norm_without_bias", .build = layer_norm_without_bias},
    {.name = "batch_norm_of_images", .build = batch_norm_of_images},
    {.name = "batch_norm_of_rows", .build = batch_norm_of_rows},
};

static void test_kernels_agree_with_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        kernel_check(&cases[i]);
}

static void test_gradients_agree_with_finite_differences(void **state)
{
    static const gradient_case small[] = {
        {.name = "batch_norm_of_rows", .build = batch_norm_of_rows, .tolerance = 1e-2},
        {.name = "layer_norm_without_bias", .build = layer_norm_without_bias},
    };
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        gradient_check(&small[i]);
}

/* ---- instruction sets ---------------------------------------------------------------------------------------------------------- */

/* Heads that are padded to whole panels; of whole ones, the last of which is half a panel of 32 columns; of those alone. */
static const int64_t head_widths[] = {20, 48, 64};
enum { N_WIDTHS = sizeof head_widths / sizeof *head_widths };
enum { SAMPLES = 2, POSITIONS = 131, HEADS = 3, MOST_WIDTH = HEADS * 64 };

typedef struct memory {
    float qkv[SAMPLES * POSITIONS * 3 * MOST_WIDTH], dy[SAMPLES * POSITIONS * MOST_WIDTH];
    float y[SAMPLES * POSITIONS * MOST_WIDTH], log_sum[SAMPLES * HEADS * POSITIONS];
    float dqkv[SAMPLES * POSITIONS * 3 * MOST_WIDTH];
} memory;

static void fill(memory *m)
{
    memset(m, 0, sizeof *m);
    for (size_t i = 0; i < sizeof m->qkv / sizeof(float); i++)
        m->qkv[i] = (float)((int64_t)(i * 2654435761u >> 8 & 1023) - 512) / 300.0f;
    for (size_t i = 0; i < sizeof m->dy / sizeof(float); i++)
        m->dy[i] = (float)((int64_t)(i * 40503u >> 4 & 255) - 128) / 100.0f;
}

static td_tensor rows(int64_t positions, int64_t columns, float *data)
{
    return (td_tensor){
        .kind = TD_DENSE, .dtype = TD_F32, .rank = 3, .dims = {SAMPLES, positions, columns}, .data = data};
}

static void run(td_isa isa, td_team *team, const char *op, const td_tensor *inputs, int32_t n_inputs,
                const td_tensor *outputs, int32_t n_outputs)
{
    const td_cpu_engine engine = {.host = td_backend_host(), .isa = isa, .gemm = TD_GEMM_REFERENCE};
    const td_attr attrs[1] = {TD_INT("heads", HEADS)};
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = op,
                           .name = op,
                           .attrs = attrs,
                           .n_attrs = 1,
                           .inputs = inputs,
                           .n_inputs = n_inputs,
                           .outputs = outputs,
                           .n_outputs = n_outputs};
    td_cpu_prepared *prepared = NULL;
    td_status *status = td_cpu_engine_prepare(&engine, &call, &prepared, &call.scratch_bytes);
    assert_null(status);
    assert_true(td_cpu_engine_is_own(prepared));
    call.scratch = td_calloc_aligned(call.scratch_bytes + 64);
    assert_non_null(call.scratch);
    status = td_cpu_engine_run(prepared, &call, team);
    assert_null(status);
    td_free(call.scratch);
    td_cpu_engine_release(prepared);
}

static void attend(td_isa isa, td_team *team, int64_t width, memory *m)
{
    const td_tensor qkv = rows(POSITIONS, 3 * width, m->qkv), dy = rows(POSITIONS, width, m->dy),
                    y = rows(POSITIONS, width, m->y), log_sum = rows(HEADS, POSITIONS, m->log_sum),
                    dqkv = rows(POSITIONS, 3 * width, m->dqkv);
    run(isa, team, "causal_attention", &qkv, 1, (td_tensor[]){y, log_sum}, 2);
    run(isa, team, "causal_attention_gradient", (td_tensor[]){dy, qkv, y, log_sum}, 4, &dqkv, 1);
}

static void expect_same_bits(td_team *team, int64_t width)
{
    static memory expected, found;
    fill(&expected);
    attend(TD_ISA_BASELINE, NULL, width, &expected);
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        if (td_isa_available((td_isa)isa)) {
            fill(&found);
            attend((td_isa)isa, team, width, &found);
            assert_memory_equal(&found, &expected, sizeof found);
        }
}

static void test_attention_has_the_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    td_team *team = NULL;
    td_status *status = td_team_create(2, NULL, 0, &team);
    assert_null(status);
    for (int i = 0; i < N_WIDTHS; i++)
        expect_same_bits(team, HEADS * head_widths[i]);
    td_team_destroy(team);
}

/* The weight of the only key that a sample's first query sees is 1 whatever its score: no rounding is left in its gradient. */
static void test_the_first_query_s_gradient_is_zero(void **state)
{
    (void)state;
    static memory m;
    const int64_t width = HEADS * head_widths[0];
    fill(&m);
    attend(TD_ISA_BASELINE, NULL, width, &m);
    for (int64_t sample = 0; sample < SAMPLES; sample++)
        for (int64_t column = 0; column < width; column++)
            assert_true(m.dqkv[sample * POSITIONS * 3 * width + column] == 0);
}

static bool is_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Terms that are left out because their factor is zero would be NaN. */
static void expect_same_terms(int64_t head)
{
    static memory expected, found;
    const int64_t width = HEADS * head;
    fill(&expected);
    for (int64_t column = 0; column < head; column++) {
        expected.qkv[8 * 3 * width + 2 * width + column] = INFINITY;            /* v of position 8, of the first head */
        expected.qkv[(POSITIONS + 70) * 3 * width + width + column] = INFINITY; /* k of position 70, next sample */
        expected.dy[20 * width + head + column] = INFINITY;
    }
    found = expected;
    attend(TD_ISA_BASELINE, NULL, width, &expected);
    assert_true(isfinite(expected.y[0]) && isfinite(expected.y[5 * width]) && !isfinite(expected.y[8 * width]));
    for (int isa = 0; isa < TD_ISA_COUNT; isa++)
        if (td_isa_available((td_isa)isa)) {
            attend((td_isa)isa, NULL, width, &found);
            assert_true(is_same(found.y, expected.y, sizeof found.y / sizeof *found.y));
            assert_true(is_same(found.dqkv, expected.dqkv, sizeof found.dqkv / sizeof *found.dqkv));
        }
}

static void test_attention_leaves_out_the_same_terms_on_every_instruction_set(void **state)
{
    (void)state;
    for (int i = 0; i < N_WIDTHS; i++)
        expect_same_terms(head_widths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_agree_with_the_reference),
        cmocka_unit_test(test_gradients_agree_with_finite_differences),
        cmocka_unit_test(test_attention_has_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(test_the_first_query_s_gradient_is_zero),
        cmocka_unit_test(test_attention_leaves_out_the_same_terms_on_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
