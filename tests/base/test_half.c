/* 16-bit floats: every 16-bit value, rounding at every boundary, against arithmetic in double and the F16C
 * instructions. */
#include "tests/base/check.h"

#include <stdbool.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/half.h"

/* The value of a 16-bit float with this many exponent bits, from its definition. */
static double value_of(uint16_t bits, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

typedef struct format {
    int exponent_bits;
    uint16_t largest;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
    uint16_t (*stochastic)(float, uint32_t);
} format;

static const format bf16 = {8, 0x7f7f, td_bf16_to_f32, td_f32_to_bf16, td_f32_to_bf16_stochastic};
static const format f16 = {5, 0x7bff, td_f16_to_f32, td_f32_to_f16, td_f32_to_f16_stochastic};

static void check_every_value_survives(const format *f)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float wide = f->widen((uint16_t)bits);
        double wanted = value_of((uint16_t)bits, f->exponent_bits);
        if (isnan(wanted)) {
            assert_true(isnan(wide));
            assert_true(isnan(value_of(f->narrow(wide), f->exponent_bits)));
            assert_true(isnan(value_of(f->stochastic(wide, 0xffff), f->exponent_bits)));
            continue;
        }
        assert_true((double)wide == wanted && !signbit(wide) == !signbit(wanted));
        assert_int_equal(f->narrow(wide), bits);
        assert_int_equal(f->stochastic(wide, 0), bits); /* what fits is never changed, whatever the random bits */
        assert_int_equal(f->stochastic(wide, 0xffff), bits);
    }
}

/* Between all neighbours: just below the middle goes down, the middle to the even one, just above goes up. */
static void check_rounding_between_neighbours(const format *f)
{
    for (uint32_t bits = 0; bits <= f->largest; bits++) {
        double low = value_of((uint16_t)bits, f->exponent_bits);
        double high = bits == f->largest ? low + (low - value_of((uint16_t)(bits - 1), f->exponent_bits))
                                         : value_of((uint16_t)(bits + 1), f->exponent_bits);
        float middle = (float)((low + high) / 2);
        if ((double)middle != (low + high) / 2)
            continue; /* between the smallest subnormals of bf16 the middle is no float */
        uint32_t even = bits & 1 ? bits + 1 : bits;
        for (int sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            uint32_t sign_bit = sign ? 0x8000 : 0;
            assert_int_equal(f->narrow(s * middle), sign_bit | even);
            assert_int_equal(f->narrow(s * nextafterf(middle, 0)), sign_bit | bits);
            assert_int_equal(f->narrow(s * nextafterf(middle, INFINITY)), sign_bit | (bits + 1));
        }
    }
}

static void test_bf16_every_value_survives(void **state)
{
    (void)state;
    check_every_value_survives(&bf16);
    check_rounding_between_neighbours(&bf16);
}

static void test_f16_every_value_survives(void **state)
{
    (void)state;
    check_every_value_survives(&f16);
    check_rounding_between_neighbours(&f16);
}

static void test_beyond_the_largest_is_infinity(void **state)
{
    (void)state;
    assert_int_equal(td_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(td_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(td_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(td_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(td_f32_to_bf16(0x1.fffffep127f), 0x7f80);
    assert_int_equal(td_f32_to_bf16(-INFINITY), 0xff80);
    assert_int_equal(td_f32_to_bf16_stochastic(INFINITY, 0xffff), 0x7f80);
    assert_int_equal(td_f32_to_f16_stochastic(-INFINITY, 0xffff), 0xfc00);
    assert_int_equal(td_f32_to_f16_stochastic(1e30f, 0), 0x7c00);
}

/* A NaN whose payload is only in the cut-off bits stays a NaN. */
static void test_nan_stays_nan(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xff800001, 0x7fc00000, 0xffc12345};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float x = td_bits_float(nans[i]);
        assert_true(isnan(td_bf16_to_f32(td_f32_to_bf16(x))));
        assert_true(isnan(td_f16_to_f32(td_f32_to_f16(x))));
        assert_true(isnan(td_bf16_to_f32(td_f32_to_bf16_stochastic(x, 0xffff))));
        assert_true(isnan(td_f16_to_f32(td_f32_to_f16_stochastic(x, 0xffff))));
    }
}

/* Over all 65,536 random numbers, as many round up as the cut-off part says. */
static void check_probability(const format *f, float x, bool exact)
{
    uint16_t down = f->stochastic(x, 0);
    double low = value_of(down, f->exponent_bits), high = value_of((uint16_t)(down + 1), f->exponent_bits);
    assert_true(fabs(low) <= fabs((double)x) && fabs((double)x) < fabs(high));
    int ups = 0;
    for (uint32_t random = 0; random < 65536; random++) {
        uint16_t got = f->stochastic(x, random | 0xabcd0000u);
        assert_true(got == down || got == down + 1);
        ups += got != down;
    }
    double wanted = ((double)x - low) / (high - low) * 65536;
    assert_true(exact ? ups == wanted : fabs(ups - wanted) <= 8);
}

static void test_stochastic_rounding_has_the_right_probability(void **state)
{
    (void)state;
    static const float values[] = {1.2345678f, -3.0e-3f, 1e10f, 1.0f + 0x1p-23f, 0x1.fffffep-1f, 0x1p-130f * 1.7f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        check_probability(&bf16, values[i], true);
    static const float normal[] = {1.2345678f, -3.0e-3f, 60001.7f, 1.0f + 0x1p-23f, 0x1.fffffep-1f};
    for (size_t i = 0; i < sizeof normal / sizeof *normal; i++)
        check_probability(&f16, normal[i], true);
    static const float subnormal[] = {3.1e-5f, -1.234567e-6f, 3e-8f, 1e-9f, 0x1.fffffep-15f};
    for (size_t i = 0; i < sizeof subnormal / sizeof *subnormal; i++)
        check_probability(&f16, subnormal[i], false);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t hardware_narrow(float x)
{
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}
__attribute__((target("f16c"))) static float hardware_widen(uint16_t x)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(x)));
}

static void test_same_bits_as_the_hardware(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2")) /* every core with AVX2 has F16C */
        skip();
    for (uint32_t bits = 0; bits < 65536; bits++)
        assert_int_equal(td_float_bits(td_f16_to_f32((uint16_t)bits)), td_float_bits(hardware_widen((uint16_t)bits)));
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 1021) {
        float x = td_bits_float((uint32_t)bits);
        if (td_f32_to_f16(x) != hardware_narrow(x))
            fail_msg("%08x: own %04x, hardware %04x", (unsigned)bits, td_f32_to_f16(x), hardware_narrow(x));
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_every_value_survives),
        cmocka_unit_test(test_f16_every_value_survives),
        cmocka_unit_test(test_beyond_the_largest_is_infinity),
        cmocka_unit_test(test_nan_stays_nan),
        cmocka_unit_test(test_stochastic_rounding_has_the_right_probability),
#if defined(__x86_64__)
        cmocka_unit_test(test_same_bits_as_the_hardware),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
