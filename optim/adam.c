/* Adam with L2 weight decay (Kingma and Ba 2015, as torch.optim.Adam has it):
 *
 *     g += weight_decay * p;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     p -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
 *
 * On a row-sparse gradient it acts on touched rows only: moments of other rows do not decay, t is the global update. */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, STEP, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, ROOT, EPSILON, WEIGHT_DECAY };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    out[SCALE] = (float)scale;
    out[STEP] = (float)(lr / (1 - td_power(settings->beta1, update)));
    out[BETA1] = (float)settings->beta1;
    out[ONE_MINUS_BETA1] = (float)(1 - settings->beta1);
    out[BETA2] = (float)settings->beta2;
    out[ONE_MINUS_BETA2] = (float)(1 - settings->beta2);
    out[ROOT] = (float)(1 / sqrt(1 - td_power(settings->beta2, update)));
    out[EPSILON] = (float)settings->epsilon;
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *m = slots[0], *v = slots[1];
    for (int64_t i = 0; i < n; i++) {
        float g = fmaf(c[WEIGHT_DECAY], parameter[i], c[SCALE] * gradient[i]);
        m[i] = fmaf(c[BETA1], m[i], c[ONE_MINUS_BETA1] * g);
        v[i] = fmaf(c[BETA2], v[i], c[ONE_MINUS_BETA2] * (g * g));
        parameter[i] = fmaf(-c[STEP], m[i] / fmaf(sqrtf(v[i]), c[ROOT], c[EPSILON]), parameter[i]);
    }
}

const td_rule td_rule_adam = {
    .name = "adam",
    .summary = "Adam with bias correction and L2 weight decay, as torch.optim.Adam; sparse: touched rows only",
    .slots = {{.name = "m"}, {.name = "v"}},
    .settings = {{"beta1", 0.9, 0, 0.99999999},
                 {"beta2", 0.999, 0, 0.99999999},
                 {"epsilon", 1e-8, 1e-30, 1},
                 {"weight_decay", 0, 0, 1e6}},
    .coefficients = coefficients,
    .reference = reference,
};
