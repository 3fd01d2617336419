/* <name>: the formula, one line per state and one for the parameter, with its source. Copy this file, add one row to
 * optimizers.def, a golden vector or a formula test in tests/optim, and the vector form in backends/cpu/kernels
 * (without it, the plain reference below runs).
 *
 * This example is signed descent with a running mean:  m = beta1 * m + (1 - beta1) * g;  p -= lr * m / (|m| + epsilon).
 */
#include "optim/rule.h"

#include <math.h>

/* What kernels see of a step. SCALE comes first in every rule. */
enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, EPSILON };

/* In double, once per update; rounded to FP32 at the end. */
static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update; /* for bias corrections: td_power(settings->beta1, update) */
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[BETA1] = (float)settings->beta1;
    out[ONE_MINUS_BETA1] = (float)(1 - settings->beta1);
    out[EPSILON] = (float)settings->epsilon;
}

/* Every fmaf and the order of operations are part of the rule: vector kernels repeat them. */
static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *m = slots[0];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        m[i] = fmaf(c[BETA1], m[i], c[ONE_MINUS_BETA1] * g);
        parameter[i] = fmaf(-c[RATE], m[i] / (fabsf(m[i]) + c[EPSILON]), parameter[i]);
    }
}

const td_rule td_rule_template = {
    .name = "template",
    .summary = "the formula in one line, with its source",
    .slots = {{.name = "m"}},
    .settings = {{"beta1", 0.9, 0, 0.99999999}, {"epsilon", 1e-8, 1e-30, 1}}, /* default, least, most */
    .coefficients = coefficients,
    .reference = reference,
};
