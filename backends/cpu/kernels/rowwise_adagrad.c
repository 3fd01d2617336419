/* rowwise_adagrad: the formula of optim/rowwise_adagrad.c, operation by operation, over one row. */
#include <math.h>

#include "backends/cpu/update.h"
#include "base/sums.h"

/* As in optim/rowwise_adagrad.c. */
enum { SCALE, RATE, EPSILON };

/* The order of base/sums.h: whole groups of lanes, then what is left. */
static float sum_of_squares(const float *gradient, int64_t n, float scale)
{
    float lanes[TD_SUM_LANES] = {0};
    int64_t whole = n - n % TD_SUM_LANES;
    for (int64_t i = 0; i < whole; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++) {
            float g = scale * gradient[i + lane];
            lanes[lane] = fmaf(g, g, lanes[lane]);
        }
    for (int64_t i = whole; i < n; i++) {
        float g = scale * gradient[i];
        lanes[i - whole] = fmaf(g, g, lanes[i - whole]);
    }
    return td_fold_lanes(lanes);
}

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    if (n == 0)
        return;
    const float scale = c[SCALE];
    float sum = *states[0] + sum_of_squares(gradient, n, scale) / (float)n;
    const float rate = -(c[RATE] / (sqrtf(sum) + c[EPSILON]));
    *states[0] = sum;
    for (int64_t i = 0; i < n; i++)
        parameter[i] = fmaf(rate, scale * gradient[i], parameter[i]);
}

const td_update_rule TD_KERNEL(update_rowwise_adagrad) = {
    .name = "rowwise_adagrad", .least_states = 1, .most_states = 1, .per_row = true, .update = update};

TD_UPDATE_KERNEL(rowwise_adagrad)

const td_cpu_kernel TD_KERNEL(rowwise_adagrad) = {.op = "rowwise_adagrad", .supports = supports, .run = run};
