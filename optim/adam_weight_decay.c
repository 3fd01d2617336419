/* Adam with weight decay and without bias correction, as BERT's AdamWeightDecayOptimizer and
 * mindspore.nn.AdamWeightDecay:
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     p -= lr * (m / (sqrt(v) + epsilon) + weight_decay * p)
 *
 * On a row-sparse gradient it acts on touched rows only: other rows neither decay nor move. */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, EPSILON, WEIGHT_DECAY };

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
    out[EPSILON] = (float)settings->epsilon;
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *m = slots[0], *v = slots[1];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        m[i] = fmaf(c[BETA1], m[i], c[ONE_MINUS_BETA1] * g);
        v[i] = fmaf(c[BETA2], v[i], c[ONE_MINUS_BETA2] * (g * g));
        float move = fmaf(c[WEIGHT_DECAY], parameter[i], m[i] / (sqrtf(v[i]) + c[EPSILON]));
        parameter[i] = fmaf(-c[RATE], move, parameter[i]);
    }
}

const td_rule td_rule_adam_weight_decay = {
    .name = "adam_weight_decay",
    .summary = "Adam with weight decay, no bias correction, as mindspore.nn.AdamWeightDecay; sparse: touched rows only",
    .slots = {{.name = "m"}, {.name = "v"}},
    .settings = {{"beta1", 0.9, 0, 0.99999999},
                 {"beta2", 0.999, 0, 0.99999999},
                 {"epsilon", 1e-6, 1e-30, 1},
                 {"weight_decay", 0, 0, 1e6}},
    .coefficients = coefficients,
    .reference = reference,
};
