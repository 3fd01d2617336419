/* FTRL-proximal with L1 and L2 (McMahan et al. 2013, algorithm 1 with beta = 0):
 *
 *     n = acc + g^2;  z += g - (n^-lr_power - acc^-lr_power) / lr * p;  acc = n
 *     p = 0 if |z| <= l1, else -(z - sign(z) * l1) / (n^-lr_power / lr + l2)
 *
 * TensorFlow and MindSpore have 2 * l2 where this has l2: give it twice theirs. A touched row with gradient 0 is set
 * from its z like any other. */
#include "optim/rule.h"

#include <math.h>

#include "base/math.h"

enum { SCALE, INVERSE_RATE, POWER, L1, L2 };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update;
    out[SCALE] = (float)scale;
    out[INVERSE_RATE] = (float)(1 / lr);
    out[POWER] = (float)-settings->lr_power;
    out[L1] = (float)settings->l1;
    out[L2] = (float)settings->l2;
}

/* x^exponent for x > 0; accumulators never are 0 here. */
static float power(float x, float exponent)
{
    return exponent == 0.5f ? sqrtf(x) : (float)td_exp((double)exponent * td_log((double)x));
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *sum = slots[0], *z = slots[1];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        float before = power(sum[i], c[POWER]);
        sum[i] = fmaf(g, g, sum[i]);
        float root = power(sum[i], c[POWER]);
        z[i] = fmaf(-((root - before) * c[INVERSE_RATE]), parameter[i], z[i] + g);
        float excess = fabsf(z[i]) - c[L1];
        float moved = -copysignf(excess, z[i]) / fmaf(root, c[INVERSE_RATE], c[L2]);
        parameter[i] = excess <= 0 ? 0.0f : moved; /* a NaN compares false and stays */
    }
}

static td_status *check(const td_optimizer *settings)
{
    const td_schedule *schedule = &settings->schedule;
    bool falls = schedule->kind == TD_SCHEDULE_COSINE || schedule->kind == TD_SCHEDULE_LINEAR;
    if (settings->lr == 0 || (falls && schedule->final_factor == 0))
        return TD_ERROR(TD_INVALID_ARGUMENT, "optimizer ftrl: it divides by the learning rate, which %s 0; %s",
                        settings->lr == 0 ? "is" : "falls to",
                        settings->lr == 0 ? "set lr" : "set the schedule's final_factor above 0");
    return NULL;
}

const td_rule td_rule_ftrl = {
    .name = "ftrl",
    .summary = "FTRL-proximal, denominator n^-lr_power/lr + l2 (McMahan et al. 2013, beta 0)",
    .slots = {{.name = "acc", .from_initial_accumulator = true}, {.name = "z"}},
    .settings = {{"initial_accumulator", 0.1, 1e-30, 1e30},
                 {"l1", 0, 0, 1e30},
                 {"l2", 0, 0, 1e30},
                 {"lr_power", -0.5, -1, 0}},
    .check = check,
    .coefficients = coefficients,
    .reference = reference,
};
