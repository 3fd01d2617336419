/* LAMB (You et al. 2020, algorithm 2 with bias correction; phi the identity, so the trust ratio is not clamped):
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * p
 *     p -= lr * r * u,  r = |p| / |u| over the whole parameter, 1 where either norm is 0
 *
 * The norms are sums of squares in double per block of 1,024 elements, added without rounding (base/exact.h), so that any
 * cut of the parameter between blocks gives the same bits. */
#include "optim/rule.h"

#include <math.h>

#include "base/exact.h"

enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, CORRECTION, ROOT, EPSILON, WEIGHT_DECAY };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[BETA1] = (float)settings->beta1;
    out[ONE_MINUS_BETA1] = (float)(1 - settings->beta1);
    out[BETA2] = (float)settings->beta2;
    out[ONE_MINUS_BETA2] = (float)(1 - settings->beta2);
    out[CORRECTION] = (float)(1 / (1 - td_power(settings->beta1, update)));
    out[ROOT] = (float)(1 / sqrt(1 - td_power(settings->beta2, update)));
    out[EPSILON] = (float)settings->epsilon;
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
}

static float direction(float parameter, float m, float v, const float *c)
{
    return fmaf(c[WEIGHT_DECAY], parameter, m * c[CORRECTION] / fmaf(sqrtf(v), c[ROOT], c[EPSILON]));
}

/* Moments of one block, and the squares of its parameters and directions. */
static void first_pass(const float *parameter, float *m, float *v, const float *gradient, int64_t n, const float *c,
                       td_exact *parameter_squares, td_exact *direction_squares)
{
    float directions[TD_EXACT_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        float g = c[SCALE] * gradient[i];
        m[i] = fmaf(c[BETA1], m[i], c[ONE_MINUS_BETA1] * g);
        v[i] = fmaf(c[BETA2], v[i], c[ONE_MINUS_BETA2] * (g * g));
        directions[i] = direction(parameter[i], m[i], v[i], c);
    }
    td_exact_add(parameter_squares, td_sum_squares(parameter, n));
    td_exact_add(direction_squares, td_sum_squares(directions, n));
}

static td_status *reference_tensor(float *parameter, float *const *slots, const float *gradient, int64_t n,
                                   const float *c)
{
    float *m = slots[0], *v = slots[1];
    td_exact parameter_squares, direction_squares;
    td_exact_clear(&parameter_squares);
    td_exact_clear(&direction_squares);
    for (int64_t at = 0; at < n; at += TD_EXACT_BLOCK)
        first_pass(parameter + at, m + at, v + at, gradient + at, n - at < TD_EXACT_BLOCK ? n - at : TD_EXACT_BLOCK, c,
                   &parameter_squares, &direction_squares);
    double parameter_norm = sqrt(td_exact_round(&parameter_squares));
    double direction_norm = sqrt(td_exact_round(&direction_squares));
    double ratio = parameter_norm > 0 && direction_norm > 0 ? parameter_norm / direction_norm : 1;
    float rate = (float)((double)c[RATE] * ratio);
    for (int64_t i = 0; i < n; i++)
        parameter[i] = fmaf(-rate, direction(parameter[i], m[i], v[i], c), parameter[i]);
    return NULL;
}

const td_rule td_rule_lamb = {
    .name = "lamb",
    .summary = "Adam's direction, scaled by |p|/|u| of the whole parameter (You et al. 2020)",
    .slots = {{.name = "m"}, {.name = "v"}},
    .settings = {{"beta1", 0.9, 0, 0.99999999},
                 {"beta2", 0.999, 0, 0.99999999},
                 {"epsilon", 1e-6, 1e-30, 1},
                 {"weight_decay", 0, 0, 1e6}},
    .refuses_row_sparse = "its step depends on the norm of the whole parameter, which touched rows do not give; use "
                          "lazy_adam for tables",
    .whole_tensor = true,
    .coefficients = coefficients,
    .reference_tensor = reference_tensor,
};
