/* update_mixed on many tensors of odd sizes in one dispatch, each at another alignment: the CPU's kernels leave the bits that the reference
 * leaves, and touch nothing beside, on every instruction set and number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/engine.h"
#include "base/half.h"
#include "base/memory.h"
#include "graph/op.h"
#include "optim/rule.h"

enum { PARTS = 11, PART_INPUTS = 9, GUARD = 8, MOST_THREADS = 3 };
static const int64_t sizes[PARTS] = {1, 2, 3, 31, 511, 513, 1023, 1025, 4099, 16385, 33000};
enum { GRADIENT = 1, SUM, MICRO, FACTOR, COEFFICIENTS, STATES };

/* All numbers of one kind, each part's some elements behind the one before, so that alignments differ. */
typedef struct buffers {
    float *parameter, *m, *v, *sum;
    uint16_t *gradient, *copy;
    int64_t at[PARTS], n;
} buffers;

static buffers make_buffers(uint32_t seed)
{
    buffers b = {.n = GUARD};
    for (int32_t p = 0; p < PARTS; p++) {
        b.at[p] = b.n;
        b.n += sizes[p] + GUARD + p;
    }
    b.parameter = calloc((size_t)b.n, sizeof *b.parameter);
    b.m = calloc((size_t)b.n, sizeof *b.m);
    b.v = calloc((size_t)b.n, sizeof *b.v);
    b.sum = calloc((size_t)b.n, sizeof *b.sum);
    b.gradient = calloc((size_t)b.n, sizeof *b.gradient);
    b.copy = calloc((size_t)b.n, sizeof *b.copy);
    assert_true(b.parameter && b.m && b.v && b.sum && b.gradient && b.copy);
    for (int64_t i = 0; i < b.n; i++) {
        seed = seed * 1664525 + 1013904223;
        const float x = (float)(int32_t)seed * 0x1p-31f;
        b.parameter[i] = x;
        b.m[i] = 0.5f * x;
        b.v[i] = x * x;
        b.sum[i] = 3 * x - 1;
        b.gradient[i] = td_f32_to_bf16(1 - x);
    }
    return b;
}

static void free_buffers(buffers *b)
{
    free(b->parameter);
    free(b->m);
    free(b->v);
    free(b->sum);
    free(b->gradient);
    free(b->copy);
}

static td_tensor vector(td_dtype dtype, void *data, int64_t n)
{
    return (td_tensor){.kind = TD_DENSE, .dtype = dtype, .rank = 1, .dims = {n}, .data = data};
}

/* Every second part adds to a sum, every third is clipped. `kernel` NULL: the reference. */
static void update(const td_cpu_kernel *kernel, td_team *team, buffers *b)
{
    float coefficients[TD_COEFFICIENTS] = {0}, factor = 0.375f;
    double micro[3] = {0, 1, 1};
    td_optimizer given = td_adamw(1e-2, .weight_decay = 0.1), settings;
    assert_null(td_rule_resolve(td_rule_find("adamw"), &given, &settings));
    td_rule_find("adamw")->coefficients(&settings, settings.lr, 3, 0.5, coefficients);
    td_tensor inputs[PARTS * PART_INPUTS] = {0}, outputs[PARTS];
    for (int32_t p = 0; p < PARTS; p++) {
        td_tensor *part = inputs + p * PART_INPUTS;
        const int64_t at = b->at[p], n = sizes[p];
        part[0] = vector(TD_F32, b->parameter + at, n);
        part[GRADIENT] = vector(TD_BF16, b->gradient + at, n);
        if (p % 2) {
            part[SUM] = vector(TD_F32, b->sum + at, n);
            part[MICRO] = (td_tensor){.kind = TD_SCALAR, .dtype = TD_F64, .rank = 1, .dims = {3}, .data = micro};
        }
        if (p % 3 == 0)
            part[FACTOR] = vector(TD_F32, &factor, 1);
        part[COEFFICIENTS] =
            (td_tensor){.kind = TD_SCALAR, .dtype = TD_F32, .rank = 1, .dims = {TD_COEFFICIENTS}, .data = coefficients};
        part[STATES] = vector(TD_F32, b->m + at, n);
        part[STATES + 1] = vector(TD_F32, b->v + at, n);
        outputs[p] = vector(TD_BF16, b->copy + at, n);
    }
    const td_attr attrs[] = {TD_STRING("rule", "adamw"), TD_STRING("copy", "bf16"), TD_INT("outputs", PARTS)};
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = "update_mixed",
                           .name = "update_mixed",
                           .attrs = attrs,
                           .n_attrs = 3,
                           .inputs = inputs,
                           .outputs = outputs,
                           .n_inputs = PARTS * PART_INPUTS,
                           .n_outputs = PARTS};
    if (!kernel) {
        assert_null(td_op_reference("update_mixed")(&call));
        return;
    }
    assert_true(kernel->supports(&call));
    assert_null(kernel->run(&call, team, NULL));
}

static const td_cpu_kernel *find(td_isa isa)
{
    int32_t n = 0;
    const td_cpu_kernel *const *kernels = td_cpu_kernels(isa, &n);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(kernels[i]->op, "update_mixed") == 0)
            return kernels[i];
    fail_msg("no kernel for update_mixed");
    return NULL;
}

static void check(td_isa isa, td_team *team, const buffers *expected)
{
    buffers found = make_buffers(7);
    update(find(isa), team, &found);
    assert_memory_equal(found.parameter, expected->parameter, (size_t)found.n * sizeof(float));
    assert_memory_equal(found.m, expected->m, (size_t)found.n * sizeof(float));
    assert_memory_equal(found.v, expected->v, (size_t)found.n * sizeof(float));
    assert_memory_equal(found.copy, expected->copy, (size_t)found.n * sizeof(uint16_t));
    free_buffers(&found);
}

static void test_many_odd_tensors_in_one_dispatch_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    buffers expected = make_buffers(7);
    update(NULL, NULL, &expected);
    for (int32_t threads = 1; threads <= MOST_THREADS; threads++) {
        td_team *team = NULL;
        assert_null(td_team_create(threads, NULL, 0, &team));
        for (int isa = 0; isa < TD_ISA_COUNT; isa++)
            if (td_isa_available((td_isa)isa))
                check((td_isa)isa, team, &expected);
        td_team_destroy(team);
    }
    free_buffers(&expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_odd_tensors_in_one_dispatch_have_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
