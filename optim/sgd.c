/* Stochastic gradient descent with L2 weight decay and momentum, as torch.optim.SGD (dampening 0) has it:
 *
 *     g += weight_decay * p
 *     without momentum: p -= lr * g
 *     with momentum:    b = momentum * b + g;  p -= lr * b                     (b is g at the first update)
 *     nesterov:         b = momentum * b + g;  p -= lr * (g + momentum * b)
 *
 * Both momentum forms are p -= lr * (from_gradient * g + from_momentum * b), so kernels need no flag. */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, RATE, WEIGHT_DECAY, MOMENTUM, FROM_GRADIENT, FROM_MOMENTUM };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update;
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
    out[MOMENTUM] = (float)settings->momentum;
    out[FROM_GRADIENT] = settings->nesterov ? 1.0f : 0.0f;
    out[FROM_MOMENTUM] = settings->nesterov ? (float)settings->momentum : 1.0f;
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    float *momentum = slots ? slots[0] : NULL;
    for (int64_t i = 0; i < n; i++) {
        float g = fmaf(c[WEIGHT_DECAY], parameter[i], c[SCALE] * gradient[i]);
        if (momentum) {
            momentum[i] = fmaf(c[MOMENTUM], momentum[i], g);
            g = fmaf(c[FROM_MOMENTUM], momentum[i], c[FROM_GRADIENT] * g);
        }
        parameter[i] = fmaf(-c[RATE], g, parameter[i]);
    }
}

static td_status *check(const td_optimizer *settings)
{
    if (settings->nesterov && settings->momentum == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "optimizer sgd: nesterov needs a momentum; set momentum (0.9, say)");
    return NULL;
}

const td_rule td_rule_sgd = {
    .name = "sgd",
    .summary = "p -= lr*(g + weight_decay*p), with momentum and nesterov as torch.optim.SGD",
    .slots = {{.name = "momentum", .only_with = "momentum"}},
    .settings = {{"momentum", 0, 0, 1}, {"nesterov", 0, 0, 1}, {"weight_decay", 0, 0, 1e6}},
    .check = check,
    .coefficients = coefficients,
    .reference = reference,
};
