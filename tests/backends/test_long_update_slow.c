/* update_mixed on more than 2^31 elements: their two ends are updated right, and nothing behind them is touched. What lies between is a few
 * pages of zeros, mapped again and again, so a machine needs address space for it, not memory. Skipped where that is not to be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cpu/engine.h"
#include "base/half.h"
#include "base/memory.h"
#include "graph/op.h"
#include "optim/rule.h"

enum { PIECE = 2 << 20 /* bytes */, END = 1000 };
static const int64_t ELEMENTS = ((int64_t)1 << 31) + 12345;

typedef struct span {
    char *memory;
    int64_t bytes;
} span;

/* The first and the last piece have memory of their own. False: there is no address space. */
static bool map_span(span *s, int64_t bytes, int file)
{
    const int64_t pieces = (bytes + PIECE - 1) / PIECE + 1;
    s->bytes = pieces * PIECE;
    s->memory =
        mmap(NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->memory == MAP_FAILED) {
        s->memory = NULL;
        return false;
    }
    for (int64_t i = 1; i < pieces - 2; i++)
        if (mmap(s->memory + i * PIECE, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file,
                 0) == MAP_FAILED)
            return false;
    return true;
}

static void unmap_span(span *s)
{
    if (s->memory)
        (void)munmap(s->memory, (size_t)s->bytes);
}

static td_tensor vector(td_dtype dtype, span s, int64_t shift)
{
    return (td_tensor){.kind = TD_DENSE, .dtype = dtype, .rank = 1, .dims = {ELEMENTS}, .data = s.memory + shift};
}

/* The element `i` of the first, or from the end, of the last END: number k of 2 * END. */
static int64_t element(int64_t k)
{
    return k < END ? k : ELEMENTS - 2 * END + k;
}

static void run(const td_tensor inputs[9], td_tensor *copy)
{
    const td_attr attrs[] = {TD_STRING("rule", "sgd"), TD_STRING("copy", "bf16"), TD_INT("outputs", 1)};
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = "update_mixed",
                           .name = "update_mixed",
                           .attrs = attrs,
                           .n_attrs = 3,
                           .inputs = inputs,
                           .outputs = copy,
                           .n_inputs = 9,
                           .n_outputs = 1};
    int32_t n = 0;
    const td_cpu_kernel *const *kernels =
        td_cpu_kernels(td_isa_available(TD_ISA_AVX2) ? TD_ISA_AVX2 : TD_ISA_BASELINE, &n);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(kernels[i]->op, "update_mixed") == 0) {
            assert_true(kernels[i]->supports(&call));
            assert_null(kernels[i]->run(&call, NULL, NULL));
        }
}

/* Numbers at both ends, none of them aligned to more than its own size. */
static void check_ends(const span spans[3])
{
    float coefficients[TD_COEFFICIENTS] = {0};
    td_optimizer given = td_sgd(0.5), settings;
    assert_null(td_rule_resolve(td_rule_find("sgd"), &given, &settings));
    td_rule_find("sgd")->coefficients(&settings, settings.lr, 1, 1, coefficients);
    td_tensor inputs[9] = {vector(TD_F32, spans[0], 4), vector(TD_BF16, spans[1], 2)},
              copy = vector(TD_BF16, spans[2], 6);
    inputs[5] =
        (td_tensor){.kind = TD_SCALAR, .dtype = TD_F32, .rank = 1, .dims = {TD_COEFFICIENTS}, .data = coefficients};
    float *parameter = inputs[0].data;
    uint16_t *gradient = inputs[1].data, *out = copy.data;
    for (int64_t k = 0; k < 2 * END; k++) {
        parameter[element(k)] = (float)k;
        gradient[element(k)] = td_f32_to_bf16((float)(k % 64));
    }
    parameter[ELEMENTS] = 77;
    out[ELEMENTS] = 77;
    run(inputs, &copy);
    for (int64_t k = 0; k < 2 * END; k++) {
        const float expected = (float)k - 0.5f * (float)(k % 64);
        if (parameter[element(k)] != expected || out[element(k)] != td_f32_to_bf16(expected))
            fail_msg("element %lld is %g, not %g", (long long)element(k), (double)parameter[element(k)],
                     (double)expected);
    }
    assert_true(parameter[ELEMENTS] == 77 && out[ELEMENTS] == 77);
}

static void test_an_update_of_more_than_two_to_the_31_elements_reaches_both_ends(void **state)
{
    (void)state;
    static const int64_t bytes[3] = {4, 2, 2};
    span spans[3] = {{0}};
    char name[] = "/tmp/tandem_long_update_XXXXXX";
    int file = mkstemp(name);
    assert_true(file >= 0);
    (void)unlink(name);
    bool mapped = ftruncate(file, PIECE) == 0;
    for (int i = 0; i < 3 && mapped; i++)
        mapped = map_span(&spans[i], ELEMENTS * bytes[i], file);
    if (mapped)
        check_ends(spans);
    for (int i = 0; i < 3; i++)
        unmap_span(&spans[i]);
    (void)close(file);
    if (!mapped) {
        print_message("no address space for 2^31 elements here: skipped\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_update_of_more_than_two_to_the_31_elements_reaches_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
