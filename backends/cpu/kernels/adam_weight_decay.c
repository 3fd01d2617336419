/* adam_weight_decay: the formula of optim/adam_weight_decay.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/kernels/update_units.h"

/* As in optim/adam_weight_decay.c. */
enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, EPSILON, WEIGHT_DECAY };

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    const float scale = c[SCALE], beta1 = c[BETA1], one_minus_beta1 = c[ONE_MINUS_BETA1];
    const float beta2 = c[BETA2], one_minus_beta2 = c[ONE_MINUS_BETA2], epsilon = c[EPSILON];
    const float rate = -c[RATE], weight_decay = c[WEIGHT_DECAY];
    float *restrict first = states[0], *restrict second = states[1];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i];
        float m = fmaf(beta1, first[i], one_minus_beta1 * g);
        float v = fmaf(beta2, second[i], one_minus_beta2 * (g * g));
        first[i] = m;
        second[i] = v;
        float move = fmaf(weight_decay, parameter[i], m / (sqrtf(v) + epsilon));
        parameter[i] = fmaf(rate, move, parameter[i]);
    }
}

TD_UPDATE_LONG(update)

TD_UPDATE_NARROW(update)

const td_update_rule TD_KERNEL(update_adam_weight_decay) = {.name = "adam_weight_decay",
                                                            .least_states = 2,
                                                            .most_states = 2,
                                                            .update = update,
                                                            .update_long = update_long,
                                                            .update_narrow = update_narrow};

TD_UPDATE_KERNEL(adam_weight_decay)

const td_cpu_kernel TD_KERNEL(adam_weight_decay) = {.op = "adam_weight_decay", .supports = supports, .run = run};
