/* The loops of optimizers over long spans (kernels/update_units.h): the bits that one element at a time has, and nothing beside it, for
 * lengths around every vector, unit and beginning of what is asked for ahead, each array at another alignment, on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/update.h"
#include "backends/isa.h"
#include "base/half.h"

#define DECLARE_baseline(rule) extern const td_update_rule td_cpu_kernel_update_##rule##_baseline;
#define ADDRESS_baseline(rule) &td_cpu_kernel_update_##rule##_baseline,
TD_UPDATE_RULES(DECLARE_baseline)
static const td_update_rule *const baseline[] = {TD_UPDATE_RULES(ADDRESS_baseline)};
enum { N_RULES = sizeof baseline / sizeof *baseline };
#if defined(__x86_64__)
#define DECLARE_avx2(rule) extern const td_update_rule td_cpu_kernel_update_##rule##_avx2;
#define ADDRESS_avx2(rule) &td_cpu_kernel_update_##rule##_avx2,
#define DECLARE_avx512(rule) extern const td_update_rule td_cpu_kernel_update_##rule##_avx512;
#define ADDRESS_avx512(rule) &td_cpu_kernel_update_##rule##_avx512,
TD_UPDATE_RULES(DECLARE_avx2)
TD_UPDATE_RULES(DECLARE_avx512)
static const td_update_rule *const avx2[] = {TD_UPDATE_RULES(ADDRESS_avx2)};
static const td_update_rule *const avx512[] = {TD_UPDATE_RULES(ADDRESS_avx512)};
#endif

typedef void (*rule_test)(const td_update_rule *rule, const td_update_rule *simple, int32_t states);

/* Each rule that has such loops, with every number of states it takes. */
static void try_rules(const td_update_rule *const *rules, rule_test test)
{
    int tried = 0;
    for (int i = 0; i < N_RULES; i++) {
        assert_true((rules[i]->update_long != NULL) == (rules[i]->update_narrow != NULL));
        if (!rules[i]->update_long)
            continue;
        tried++;
        for (int32_t states = rules[i]->least_states; states <= rules[i]->most_states; states++)
            test(rules[i], baseline[i], states);
    }
    assert_true(tried > 0);
}

static void try_all(rule_test test)
{
    try_rules(baseline, test);
#if defined(__x86_64__)
    if (td_isa_available(TD_ISA_AVX2))
        try_rules(avx2, test);
    if (td_isa_available(TD_ISA_AVX512))
        try_rules(avx512, test);
#endif
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------------ */

/* Units have 32 elements, and ask for what is 256 behind them. */
static const int64_t lengths[] = {0,  1,  7,   8,   9,   15,  16,  17,  31,  32,  33,  47,   48,  49,
                                  63, 64, 255, 256, 257, 287, 288, 289, 319, 320, 321, 1000, 1024};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, MOST = 1024, GUARD = 48, SHIFTS = 9, ROOM = MOST + 2 * GUARD };

typedef struct numbers {
    _Alignas(64) float parameter[ROOM];
    _Alignas(64) float states[2][ROOM];
    _Alignas(64) float gradient[ROOM];
    _Alignas(64) uint16_t copy[ROOM];
    uint16_t narrow[2][ROOM]; /* the gradient in bf16, in f16 */
} numbers;

static const float coefficients[] = {0.75f, 0.01f,  0.9f,   0.11f, 0.95f, 0.07f, 1.25f, 1e-3f,
                                     0.02f, 0.625f, 0.375f, 0.5f,  0.3f,  0.7f,  0.2f,  0.6f};

static void fill(numbers *of)
{
    uint32_t seed = 7;
    for (int64_t i = 0; i < ROOM; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = (float)(int32_t)seed * 0x1p-31f;
        of->parameter[i] = x;
        of->states[0][i] = 0.5f + 0.25f * x;
        of->states[1][i] = x * x;
        of->gradient[i] = 1 - 1.5f * x;
        of->narrow[0][i] = td_f32_to_bf16(of->gradient[i]);
        of->narrow[1][i] = td_f32_to_f16(of->gradient[i]);
        of->copy[i] = (uint16_t)i;
    }
}

/* Where the arrays of a span begin: each is shifted otherwise. */
typedef struct span {
    float *parameter, *states[TD_UPDATE_MOST_STATES], *gradient;
} span;

static span span_of(numbers *of, int32_t states, int64_t shift)
{
    return (span){.parameter = of->parameter + GUARD + shift,
                  .states = {states > 0 ? of->states[0] + GUARD + shift * 3 % SHIFTS : NULL,
                             states > 1 ? of->states[1] + GUARD + shift * 5 % SHIFTS : NULL},
                  .gradient = of->gradient + GUARD + shift * 7 % SHIFTS};
}

static void update_element(const td_update_rule *rule, const span *s, int64_t i, float gradient)
{
    float *states[TD_UPDATE_MOST_STATES] = {s->states[0] ? s->states[0] + i : NULL,
                                            s->states[1] ? s->states[1] + i : NULL};
    rule->update(s->parameter + i, states, &gradient, 1, coefficients);
}

/* ---- tests -------------------------------------------------------------------------------------------------------------------- */

static numbers expected, found;

static void expect_same(const td_update_rule *rule, int32_t states, int64_t n, int64_t shift)
{
    if (memcmp(&found, &expected, sizeof found) != 0)
        fail_msg("%s with %d states: %lld elements, shifted by %lld, have other bits", rule->name, states, (long long)n,
                 (long long)shift);
}

static void update_in_f32(const td_update_rule *rule, const td_update_rule *simple, int32_t states)
{
    for (int i = 0; i < N_LENGTHS; i++)
        for (int64_t shift = 0; shift < SHIFTS; shift++) {
            const int64_t n = lengths[i];
            fill(&expected);
            fill(&found);
            const span e = span_of(&expected, states, shift), f = span_of(&found, states, shift);
            for (int64_t at = 0; at < n; at++)
                update_element(simple, &e, at, e.gradient[at]);
            rule->update_long(f.parameter, f.states, f.gradient, n, coefficients);
            expect_same(rule, states, n, shift);
        }
}

static void test_long_updates_have_the_bits_of_one_element_at_a_time(void **state)
{
    (void)state;
    try_all(update_in_f32);
}

/* A way to update from a 16-bit gradient: the copy is of bf16, of f16, or there is none. */
enum { COPY_BF16, COPY_F16, NO_COPY, COPIES };
typedef struct way {
    bool is_bf16, past;
    int copy;
    float factor;
} way;

static void update_in_16_bit(const td_update_rule *rule, const td_update_rule *simple, int32_t states, const way *w,
                             int64_t n, int64_t shift)
{
    fill(&expected);
    fill(&found);
    const span e = span_of(&expected, states, shift), f = span_of(&found, states, shift);
    const int64_t to = w->past ? GUARD : GUARD + shift; /* past the caches: aligned */
    const uint16_t *gradient = expected.narrow[w->is_bf16 ? 0 : 1] + GUARD + shift;
    for (int64_t at = 0; at < n / TD_UPDATE_UNIT * TD_UPDATE_UNIT; at++) {
        const float g = w->is_bf16 ? td_bf16_to_f32(gradient[at]) : td_f16_to_f32(gradient[at]);
        update_element(simple, &e, at, w->factor * g);
        if (w->copy != NO_COPY)
            expected.copy[to + at] =
                w->copy == COPY_BF16 ? td_f32_to_bf16(e.parameter[at]) : td_f32_to_f16(e.parameter[at]);
    }
    const td_update_narrow narrow = {.gradient = found.narrow[w->is_bf16 ? 0 : 1] + GUARD + shift,
                                     .copy = w->copy == NO_COPY ? NULL : found.copy + to,
                                     .is_bf16 = w->is_bf16,
                                     .copy_is_bf16 = w->copy == COPY_BF16,
                                     .past = w->past,
                                     .factor = w->factor};
    rule->update_narrow(f.parameter, f.states, &narrow, n, coefficients);
    expect_same(rule, states, n, shift);
}

static void update_in_every_way(const td_update_rule *rule, const td_update_rule *simple, int32_t states)
{
    static const int64_t shifts[] = {0, 1, 5};
    for (int i = 0; i < N_LENGTHS * COPIES * 8; i++) {
        const way w = {.is_bf16 = i & 1,
                       .past = i & 2 && i / 8 % COPIES != NO_COPY,
                       .copy = i / 8 % COPIES,
                       .factor = i & 4 ? 0.375f : 1.0f};
        for (int s = 0; s < 3; s++)
            update_in_16_bit(rule, simple, states, &w, lengths[i / 8 / COPIES], shifts[s]);
    }
}

static void test_updates_from_16_bit_have_the_bits_of_one_element_at_a_time(void **state)
{
    (void)state;
    try_all(update_in_every_way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_updates_have_the_bits_of_one_element_at_a_time),
        cmocka_unit_test(test_updates_from_16_bit_have_the_bits_of_one_element_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
