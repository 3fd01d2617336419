/* Adagrad (Duchi et al. 2011, as torch.optim.Adagrad has it):  acc += g^2;  p -= lr * g / (sqrt(acc) + epsilon). */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, RATE, EPSILON };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update;
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[EPSILON] = (float)settings->epsilon;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *sum = slots[0];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        sum[i] = fmaf(g, g, sum[i]);
        parameter[i] = fmaf(-c[RATE], g / (sqrtf(sum[i]) + c[EPSILON]), parameter[i]);
    }
}

const td_rule td_rule_adagrad = {
    .name = "adagrad",
    .summary = "acc += g^2; p -= lr*g/(sqrt(acc) + epsilon), as torch.optim.Adagrad",
    .slots = {{.name = "acc", .from_initial_accumulator = true}},
    .settings = {{"epsilon", 1e-10, 1e-30, 1}, {"initial_accumulator", 0, 0, 1e30}},
    .coefficients = coefficients,
    .reference = reference,
};
