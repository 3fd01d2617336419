/* Instructions for products of bf16 as written out in C (tests/support/pair_dot.h, amx_tiles.h), with which kernels are tested on any
 * machine: they do what Intel's manual says, and what the processor does that has them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backends/isa.h"
#include "base/half.h"
#include "tests/support/amx_tiles.h"
#include "tests/support/pair_dot.h"

enum { PAIRS = 16 /* of a row of tiles */ };

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

static uint32_t hard(uint64_t *seed)
{
    return td_hard_bf16[next_random(seed) % TD_HARD_BF16];
}

static void test_the_manual_s_dot_product_rounds_and_flushes_as_it_says(void **state)
{
    (void)state;
    const uint32_t one = 0x3f80u, both = one << 16 | one;
    assert_true(td_pair_dot(0.5f, both, both) == 2.5f);
    /* The high half first: 2^24 + 1 is lost to rounding, -2^24 then leaves nothing; the other way round it would leave 1. */
    const uint32_t large = td_f32_to_bf16(-0x1p24f), lost = one << 16 | large;
    assert_true(td_pair_dot(0x1p24f, lost, both) == 0.0f);
    assert_true(td_pair_dot(0x1p24f, large << 16 | one, both) == 1.0f);
    /* Ties to even. */
    assert_true(td_pair_dot(0x1.000002p24f, one, one) == 0x1.000004p24f);
    /* Subnormal numbers are zero, going in and coming out, with their sign. */
    assert_true(td_pair_dot(0x1p-127f, 0, 0) == 0.0f);
    assert_true(td_pair_dot(0, 0x0040u, 0x7f00u) == 0.0f);
    assert_true(td_pair_dot(0, td_f32_to_bf16(0x1p-64f), td_f32_to_bf16(0x1p-63f)) == 0.0f);
    const float negative = td_pair_dot(0, td_f32_to_bf16(-0x1p-64f), td_f32_to_bf16(0x1p-63f));
    assert_true(negative == 0.0f && signbit(negative));
    assert_true(td_pair_dot(0, td_f32_to_bf16(0x1p-63f), td_f32_to_bf16(0x1p-63f)) == 0x1p-126f);
    /* 2^-126 - 2^-151.1 is 2^-126 with the exponents that there are, and less than it with exponents that do not end. */
    assert_true(td_pair_dot(0x1p-126f, td_f32_to_bf16(-0x1.ep-76f), td_f32_to_bf16(0x1p-75f)) == 0.0f);
    assert_true(td_pair_dot(0x1p-126f, td_f32_to_bf16(-0x1.ep-77f), td_f32_to_bf16(0x1p-75f)) == 0x1p-126f);
    assert_true(isnan(td_pair_dot(0, 0x7f80u, 0)));
    assert_true(td_pair_dot(0, 0x7f7fu, 0x7f7fu) == INFINITY);
}

static void test_the_manual_s_tiles_add_up_even_and_odd_terms_apart(void **state)
{
    (void)state;
    const uint32_t one = 0x3f80u, two = 0x4000u, large = td_f32_to_bf16(0x1p24f), minus_large = large | 0x8000u;
    uint32_t a[PAIRS] = {one, one << 16 | two}, b[PAIRS] = {one, one << 16 | one};
    assert_true(td_tile_dot(0.5f, a, b) == 4.5f);
    /* Among even terms the one is lost, and it does not meet the odd ones before that. */
    const uint32_t lost[PAIRS] = {large, one, minus_large << 16}, ones[PAIRS] = {one, one, one << 16};
    assert_true(td_tile_dot(0, lost, ones) == 0);
    /* The sum comes last. */
    assert_true(td_tile_dot(0x1p24f, (uint32_t[PAIRS]){one << 16 | one}, (uint32_t[PAIRS]){one << 16 | one}) ==
                0x1.000002p24f);
}

/* Where nothing is rounded it has to be. Where something is, nothing in the engine asks for it: another way of rounding is reported
 * and no failure. */
static void test_the_instruction_is_the_manual_s(void **state)
{
    (void)state;
    if (!td_isa_available(TD_ISA_AVX512_BF16)) {
        print_message("this processor has no AVX512_BF16: its instruction is not tested\n");
        skip();
    }
    uint64_t seed = 5;
    for (int i = 0; i < 10000; i++) {
        float few[5]; /* whole numbers of 8 bits */
        uint32_t bits[5];
        for (int j = 0; j < 5; j++)
            bits[j] = td_float_bits(few[j] = (float)(int32_t)(next_random(&seed) % 511) - 255);
        const uint32_t a = bits[1] >> 16 | (bits[2] & 0xffff0000u), b = bits[3] >> 16 | (bits[4] & 0xffff0000u);
        assert_true(td_pair_dot_by_instruction(few[0], a, b) == few[0] + few[1] * few[3] + few[2] * few[4]);
    }
    int64_t others = 0, n = 200000;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = hard(&seed) | (uint32_t)hard(&seed) << 16;
        const uint32_t b = i % 2 ? next_random(&seed) : hard(&seed) | (uint32_t)hard(&seed) << 16;
        const float sum = td_bits_float(next_random(&seed));
        const float found = td_pair_dot_by_instruction(sum, a, b), expected = td_pair_dot(sum, a, b);
        others += td_float_bits(found) != td_float_bits(expected) && !(isnan(found) && isnan(expected));
    }
    if (!others)
        return;
    print_message("this processor's VDPBF16PS rounds otherwise than Intel's manual in %lld of %lld hard cases\n",
                  (long long)others, (long long)n);
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_manual_s_dot_product_rounds_and_flushes_as_it_says),
        cmocka_unit_test(test_the_manual_s_tiles_add_up_even_and_odd_terms_apart),
        cmocka_unit_test(test_the_instruction_is_the_manual_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
