/* Lazy Adam for tables (as torch.optim.SparseAdam has it): only touched rows move, and only their moments decay.
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     p -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)
 *
 * t is the global update; epsilon is not scaled by the bias correction as it is in Adam. On a dense gradient every row
 * counts as touched. */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, STEP, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, EPSILON };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    double root = sqrt(1 - td_power(settings->beta2, update));
    out[SCALE] = (float)scale;
    out[STEP] = (float)(lr * root / (1 - td_power(settings->beta1, update)));
    out[BETA1] = (float)settings->beta1;
    out[ONE_MINUS_BETA1] = (float)(1 - settings->beta1);
    out[BETA2] = (float)settings->beta2;
    out[ONE_MINUS_BETA2] = (float)(1 - settings->beta2);
    out[EPSILON] = (float)settings->epsilon;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *m = slots[0], *v = slots[1];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        m[i] = fmaf(c[BETA1], m[i], c[ONE_MINUS_BETA1] * g);
        v[i] = fmaf(c[BETA2], v[i], c[ONE_MINUS_BETA2] * (g * g));
        parameter[i] = fmaf(-c[STEP], m[i] / (sqrtf(v[i]) + c[EPSILON]), parameter[i]);
    }
}

const td_rule td_rule_lazy_adam = {
    .name = "lazy_adam",
    .summary = "Adam on the touched rows of a table, as torch.optim.SparseAdam",
    .slots = {{.name = "m"}, {.name = "v"}},
    .settings = {{"beta1", 0.9, 0, 0.99999999}, {"beta2", 0.999, 0, 0.99999999}, {"epsilon", 1e-8, 1e-30, 1}},
    .coefficients = coefficients,
    .reference = reference,
};
