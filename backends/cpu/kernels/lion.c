/* lion: the formula of optim/lion.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/kernels/update_units.h"

/* As in optim/lion.c. */
enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, WEIGHT_DECAY };

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    const float scale = c[SCALE], beta1 = c[BETA1], one_minus_beta1 = c[ONE_MINUS_BETA1], beta2 = c[BETA2];
    const float one_minus_beta2 = c[ONE_MINUS_BETA2], rate = -c[RATE], weight_decay = c[WEIGHT_DECAY];
    float *restrict first = states[0];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i];
        float mixed = fmaf(beta1, first[i], one_minus_beta1 * g);
        float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
        parameter[i] = fmaf(rate, fmaf(weight_decay, parameter[i], sign), parameter[i]);
        first[i] = fmaf(beta2, first[i], one_minus_beta2 * g);
    }
}

TD_UPDATE_LONG(update)

TD_UPDATE_NARROW(update)

const td_update_rule TD_KERNEL(update_lion) = {.name = "lion",
                                               .least_states = 1,
                                               .most_states = 1,
                                               .update = update,
                                               .update_long = update_long,
                                               .update_narrow = update_narrow};

TD_UPDATE_KERNEL(lion)

const td_cpu_kernel TD_KERNEL(lion) = {.op = "lion", .supports = supports, .run = run};
