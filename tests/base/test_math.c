/* Own elementary functions against the C library in double, over all exponents; special values; the same bits for every
 * instruction set this machine has. */
#include "tests/base/check.h"

#include <stdlib.h>

#include "base/math.h"

enum { STRIDE = 8191 }; /* a prime: some 500,000 floats over all exponents and both signs */

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}
static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* The distance between neighbouring floats at x. */
static double unit_in_last_place(double x)
{
    double magnitude = fmin(fabs(x), 0x1.fffffep127);
    int exponent = magnitude > 0 ? ilogb(magnitude) : -126;
    return ldexp(1, (exponent < -126 ? -126 : exponent) - 23);
}

typedef float (*float_function)(float);
typedef double (*double_function)(double);

static void check_accuracy(float_function own, double_function library, double allowed)
{
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += STRIDE) {
        float x = td_bits_float((uint32_t)bits);
        float got = own(x);
        double wanted = library((double)x);
        if (isnan(wanted)) {
            assert_true(isnan(got));
            continue;
        }
        if (isinf(got) || isinf((float)wanted)) {
            assert_true(got == (float)wanted);
            continue;
        }
        double error = fabs((double)got - wanted) / unit_in_last_place(wanted);
        if (!(error <= allowed))
            fail_msg("at %a: got %a, wanted %a: %g ulp", (double)x, (double)got, wanted, error);
    }
}

static void test_expf(void **state)
{
    (void)state;
    check_accuracy(td_expf, exp, 1.0);
}
static void test_bounded_exponential_has_the_same_bits_within_its_bounds(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += STRIDE) {
        const float x = td_bits_float((uint32_t)bits), got = td_expf_bounded(x);
        if (isnan(x))
            assert_true(isnan(got));
        else if (x <= 88)
            assert_int_equal(td_float_bits(got), td_float_bits(td_expf(x < -87 ? -87 : x)));
        else if (x >= 89)
            assert_true(isinf(got));
    }
}
static void test_logf(void **state)
{
    (void)state;
    check_accuracy(td_logf, log, 1.0);
}
static void test_log1pf(void **state)
{
    (void)state;
    check_accuracy(td_log1pf, log1p, 2.0);
}
static void test_tanhf(void **state)
{
    (void)state;
    check_accuracy(td_tanhf, tanh, 2.0);
}
static void test_sigmoidf(void **state)
{
    (void)state;
    check_accuracy(td_sigmoidf, sigmoid, 2.5);
}
static void test_erff(void **state)
{
    (void)state;
    check_accuracy(td_erff, erf, 2.0);
}
static void test_softplusf(void **state)
{
    (void)state;
    check_accuracy(td_softplusf, softplus, 2.5);
}

/* A loss is as exact where the label is 1 as where it is 0, however small it is. */
static float loss_of_zero(float x)
{
    return td_bce_with_logitsf(x, 0);
}
static float loss_of_one(float x)
{
    return td_bce_with_logitsf(-x, 1);
}
static void test_bce_with_logitsf(void **state)
{
    (void)state;
    check_accuracy(loss_of_zero, softplus, 2.5);
    check_accuracy(loss_of_one, softplus, 2.5);
    assert_true(isnan(td_bce_with_logitsf(NAN, 0)) && isnan(td_bce_with_logitsf(NAN, 1)));
}

static void check_same(float got, float wanted)
{
    assert_int_equal(td_float_bits(got), td_float_bits(wanted));
}

static void test_special_values(void **state)
{
    (void)state;
    check_same(td_expf(0.0f), 1.0f);
    check_same(td_expf(-0.0f), 1.0f);
    check_same(td_expf(-INFINITY), 0.0f);
    check_same(td_expf(INFINITY), INFINITY);
    check_same(td_expf(88.8f), INFINITY);
    check_same(td_expf(-103.0f), 0x1p-149f); /* the smallest subnormal, not zero */
    check_same(td_logf(0.0f), -INFINITY);
    check_same(td_logf(-0.0f), -INFINITY);
    check_same(td_logf(1.0f), 0.0f);
    check_same(td_logf(0x1p-149f), (float)log(0x1p-149));
    assert_true(isnan(td_logf(-1.0f)));
    assert_true(isnan(td_logf(-INFINITY)));
    check_same(td_log1pf(-0.0f), -0.0f);
    check_same(td_log1pf(-1.0f), -INFINITY);
    check_same(td_log1pf(0x1p-149f), 0x1p-149f);
    check_same(td_tanhf(-0.0f), -0.0f);
    check_same(td_tanhf(INFINITY), 1.0f);
    check_same(td_tanhf(-INFINITY), -1.0f);
    check_same(td_erff(-0.0f), -0.0f);
    check_same(td_erff(-INFINITY), -1.0f);
    check_same(td_sigmoidf(0.0f), 0.5f);
    check_same(td_sigmoidf(-INFINITY), 0.0f);
    check_same(td_sigmoidf(INFINITY), 1.0f);
    assert_true(td_sigmoidf(-100.0f) > 0); /* subnormal */
    check_same(td_softplusf(-INFINITY), 0.0f);
    check_same(td_softplusf(INFINITY), INFINITY);
    const float_function all[] = {td_expf, td_logf, td_log1pf, td_tanhf, td_erff, td_sigmoidf, td_softplusf};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_true(isnan(all[i](NAN)) && isnan(all[i](-NAN)));
}

static double unit_in_last_place_long(long double x)
{
    return (double)ldexpl(1, ilogbl(x) - 52);
}

static void test_double_functions(void **state)
{
    (void)state;
    srand48(1);
    for (int i = 0; i < 200000; i++) {
        double x = (drand48() - 0.5) * 1400;
        long double wanted = expl((long double)x);
        assert_true((double)fabsl((long double)td_exp(x) - wanted) <= 1.1 * unit_in_last_place_long(wanted));
        double exponent = 1 + (double)(lrand48() % 2045);
        double y = i % 2 ? 0.5 + 1.5 * drand48() : ldexp(1 + drand48(), (int)exponent - 1023);
        wanted = logl((long double)y);
        assert_true((double)fabsl((long double)td_log(y) - wanted) <= 1.1 * unit_in_last_place_long(wanted));
    }
    assert_true(td_exp(-INFINITY) == 0 && isinf(td_exp(710)) && td_exp(0) == 1);
    assert_true(td_exp(-745.0) == 0x1p-1074);
    assert_true(isinf(td_log(0)) && td_log(0) < 0 && isnan(td_log(-1)) && td_log(1) == 0 && isinf(td_log(INFINITY)));
    assert_true(fabs(td_log(0x1p-1074) - log(0x1p-1074)) < 1e-12);
    assert_true(isnan(td_exp(NAN)) && isnan(td_log(NAN)));
}

/* ---- instruction sets ---------------------------------------------------------------------------------------------------------------- */

enum { FUNCTIONS = 8, BLOCK = 4096 };

#define ALL_FUNCTIONS(suffix, ...)                                                                                     \
    __VA_ARGS__ static void all_##suffix(const float *restrict x, float(*restrict out)[BLOCK])                         \
    {                                                                                                                  \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[0][i] = td_expf(x[i]);                                                                                 \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[1][i] = td_logf(x[i]);                                                                                 \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[2][i] = td_log1pf(x[i]);                                                                               \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[3][i] = td_tanhf(x[i]);                                                                                \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[4][i] = td_sigmoidf(x[i]);                                                                             \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[5][i] = td_erff(x[i]);                                                                                 \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[6][i] = td_softplusf(x[i]);                                                                            \
        for (int i = 0; i < BLOCK; i++)                                                                                \
            out[7][i] = td_expf_bounded(x[i]);                                                                         \
    }

ALL_FUNCTIONS(baseline)
#if defined(__x86_64__)
ALL_FUNCTIONS(avx2, __attribute__((target("avx2,fma"), flatten)))
ALL_FUNCTIONS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"), flatten)))

static float wanted_block[FUNCTIONS][BLOCK], got_block[FUNCTIONS][BLOCK];

static void check_instruction_set(void (*all)(const float *restrict, float (*restrict)[BLOCK]))
{
    float x[BLOCK];
    uint32_t bits = 0;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < BLOCK; i++, bits += 26209) /* a prime near 2^32 / (40 * BLOCK) */
            x[i] = td_bits_float(bits);
        all_baseline(x, wanted_block);
        all(x, got_block);
        for (int f = 0; f < FUNCTIONS; f++)
            for (int i = 0; i < BLOCK; i++)
                if (!(isnan(wanted_block[f][i]) && isnan(got_block[f][i])))
                    check_same(got_block[f][i], wanted_block[f][i]);
    }
}

static void test_same_bits_with_avx2(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        skip();
    check_instruction_set(all_avx2);
}

static void test_same_bits_with_avx512(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        skip();
    check_instruction_set(all_avx512);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expf),
        cmocka_unit_test(test_bounded_exponential_has_the_same_bits_within_its_bounds),
        cmocka_unit_test(test_logf),
        cmocka_unit_test(test_log1pf),
        cmocka_unit_test(test_tanhf),
        cmocka_unit_test(test_sigmoidf),
        cmocka_unit_test(test_erff),
        cmocka_unit_test(test_softplusf),
        cmocka_unit_test(test_bce_with_logitsf),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_double_functions),
#if defined(__x86_64__)
        cmocka_unit_test(test_same_bits_with_avx2),
        cmocka_unit_test(test_same_bits_with_avx512),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
