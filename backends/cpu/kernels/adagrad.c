/* adagrad: the formula of optim/adagrad.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/update.h"

/* As in optim/adagrad.c. */
enum { SCALE, RATE, EPSILON };

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    const float scale = c[SCALE], rate = -c[RATE], epsilon = c[EPSILON];
    float *restrict sum = states[0];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i];
        float s = fmaf(g, g, sum[i]);
        sum[i] = s;
        parameter[i] = fmaf(rate, g / (sqrtf(s) + epsilon), parameter[i]);
    }
}

const td_update_rule TD_KERNEL(update_adagrad) = {
    .name = "adagrad", .least_states = 1, .most_states = 1, .update = update};

TD_UPDATE_KERNEL(adagrad)

const td_cpu_kernel TD_KERNEL(adagrad) = {.op = "adagrad", .supports = supports, .run = run};
