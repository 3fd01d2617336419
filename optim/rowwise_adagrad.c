/* Row-wise Adagrad, one accumulator per row of a table (as FBGEMM and DLRM have it):
 *
 *     acc += mean(g^2) over the row;  p -= lr * g / (sqrt(acc) + epsilon)
 *
 * The order of the sum is part of the rule: 16 lanes, element i into lane i mod 16, then lanes folded in halves. So any
 * vector width up to 16 gives the same bits. */
#include "optim/rule.h"

#include <math.h>

enum { SCALE, RATE, EPSILON };
enum { LANES = 16 };

static void coefficients(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS])
{
    (void)update;
    out[SCALE] = (float)scale;
    out[RATE] = (float)lr;
    out[EPSILON] = (float)settings->epsilon;
}

static float sum_of_squares(const float *gradient, int64_t n, float scale)
{
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i];
        lanes[i % LANES] = fmaf(g, g, lanes[i % LANES]);
    }
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

static void reference(float *parameter, float *const *slots, const float *gradient, int64_t n, const float *c)
{
    if (n == 0)
        return;
    float *sum = slots[0];
    *sum += sum_of_squares(gradient, n, c[SCALE]) / (float)n;
    float rate = c[RATE] / (sqrtf(*sum) + c[EPSILON]);
    for (int64_t i = 0; i < n; i++)
        parameter[i] = fmaf(-rate, c[SCALE] * gradient[i], parameter[i]);
}

const td_rule td_rule_rowwise_adagrad = {
    .name = "rowwise_adagrad",
    .summary = "per row: acc += mean(g^2); p -= lr*g/(sqrt(acc) + epsilon), as in FBGEMM",
    .slots = {{.name = "acc", .per_row = true, .from_initial_accumulator = true}},
    .settings = {{"epsilon", 1e-10, 1e-30, 1}, {"initial_accumulator", 0, 0, 1e30}},
    .coefficients = coefficients,
    .reference = reference,
};
