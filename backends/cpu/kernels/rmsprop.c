/* rmsprop: the formula of optim/rmsprop.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/kernels/update_units.h"

/* As in optim/rmsprop.c. */
enum { SCALE, RATE, ALPHA, ONE_MINUS_ALPHA, EPSILON };

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    const float scale = c[SCALE], rate = -c[RATE], alpha = c[ALPHA], one_minus_alpha = c[ONE_MINUS_ALPHA];
    const float epsilon = c[EPSILON];
    float *restrict square = states[0];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i];
        float v = fmaf(alpha, square[i], one_minus_alpha * (g * g));
        square[i] = v;
        parameter[i] = fmaf(rate, g / (sqrtf(v) + epsilon), parameter[i]);
    }
}

TD_UPDATE_LONG(update)

TD_UPDATE_NARROW(update)

const td_update_rule TD_KERNEL(update_rmsprop) = {.name = "rmsprop",
                                                  .least_states = 1,
                                                  .most_states = 1,
                                                  .update = update,
                                                  .update_long = update_long,
                                                  .update_narrow = update_narrow};

TD_UPDATE_KERNEL(rmsprop)

const td_cpu_kernel TD_KERNEL(rmsprop) = {.op = "rmsprop", .supports = supports, .run = run};
