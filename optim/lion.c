/* Lion (Chen et al. 2023, algorithm 2):
 *
 *     c = beta1 * m + (1 - beta1) * g;  p -= lr * (sign(c) + weight_decay * p);  m = beta2 * m + (1 - beta2) * g
 *
 * sign(0) is 0, and the sign of a NaN is that NaN, so that a broken gradient shows. On a row-sparse gradient it acts on
 * touched rows only. */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, WEIGHT_DECAY };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update;
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[BETA1] = (float)settings->beta1;
    out[ONE_MINUS_BETA1] = (float)(1 - settings->beta1);
    out[BETA2] = (float)settings->beta2;
    out[ONE_MINUS_BETA2] = (float)(1 - settings->beta2);
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *m = slots[0];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        float mixed = fmaf(c[BETA1], m[i], c[ONE_MINUS_BETA1] * g);
        float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
        parameter[i] = fmaf(-c[RATE], fmaf(c[WEIGHT_DECAY], parameter[i], sign), parameter[i]);
        m[i] = fmaf(c[BETA2], m[i], c[ONE_MINUS_BETA2] * g);
    }
}

const td_rule td_rule_lion = {
    .name = "lion",
    .summary = "p -= lr*(sign(beta1*m + (1-beta1)*g) + weight_decay*p); m = beta2*m + (1-beta2)*g (Chen et al. 2023)",
    .slots = {{.name = "m"}},
    .settings = {{"beta1", 0.9, 0, 0.99999999}, {"beta2", 0.99, 0, 0.99999999}, {"weight_decay", 0, 0, 1e6}},
    .coefficients = coefficients,
    .reference = reference,
};
