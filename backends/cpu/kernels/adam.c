/* adam: the formula of optim/adam.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/kernels/update_units.h"

/* As in optim/adam.c. */
enum { SCALE, STEP, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, ROOT, EPSILON, WEIGHT_DECAY };

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    const float scale = c[SCALE], beta1 = c[BETA1], one_minus_beta1 = c[ONE_MINUS_BETA1];
    const float beta2 = c[BETA2], one_minus_beta2 = c[ONE_MINUS_BETA2], epsilon = c[EPSILON];
    const float step = -c[STEP], root = c[ROOT], weight_decay = c[WEIGHT_DECAY];
    float *restrict first = states[0], *restrict second = states[1];
    for (int64_t i = 0; i < n; i++) {
        float g = fmaf(weight_decay, parameter[i], scale * gradient[i]);
        float m = fmaf(beta1, first[i], one_minus_beta1 * g);
        float v = fmaf(beta2, second[i], one_minus_beta2 * (g * g));
        first[i] = m;
        second[i] = v;
        parameter[i] = fmaf(step, m / fmaf(sqrtf(v), root, epsilon), parameter[i]);
    }
}

TD_UPDATE_LONG(update)

TD_UPDATE_NARROW(update)

const td_update_rule TD_KERNEL(update_adam) = {.name = "adam",
                                               .least_states = 2,
                                               .most_states = 2,
                                               .update = update,
                                               .update_long = update_long,
                                               .update_narrow = update_narrow};

TD_UPDATE_KERNEL(adam)

const td_cpu_kernel TD_KERNEL(adam) = {.op = "adam", .supports = supports, .run = run};
