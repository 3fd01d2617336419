/* RMSProp, not centered, without momentum (as torch.optim.RMSprop has it):
 *
 *     v = alpha * v + (1 - alpha) * g^2;  p -= lr * g / (sqrt(v) + epsilon) */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, RATE, ALPHA, ONE_MINUS_ALPHA, EPSILON };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update;
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[ALPHA] = (float)settings->alpha;
    out[ONE_MINUS_ALPHA] = (float)(1 - settings->alpha);
    out[EPSILON] = (float)settings->epsilon;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *v = slots[0];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        v[i] = fmaf(c[ALPHA], v[i], c[ONE_MINUS_ALPHA] * (g * g));
        parameter[i] = fmaf(-c[RATE], g / (sqrtf(v[i]) + c[EPSILON]), parameter[i]);
    }
}

const td_rule td_rule_rmsprop = {
    .name = "rmsprop",
    .summary = "v = alpha*v + (1-alpha)*g^2; p -= lr*g/(sqrt(v) + epsilon), as torch.optim.RMSprop",
    .slots = {{.name = "v"}},
    .settings = {{"alpha", 0.99, 0, 0.99999999}, {"epsilon", 1e-8, 1e-30, 1}},
    .coefficients = coefficients,
    .reference = reference,
};
