/* sgd: the formula of optim/sgd.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/kernels/update_units.h"

/* As in optim/sgd.c. */
enum { SCALE, RATE, WEIGHT_DECAY, MOMENTUM, FROM_GRADIENT, FROM_MOMENTUM };

static void plain(float *restrict parameter, const float *restrict gradient, int64_t n, const float *c)
{
    const float scale = c[SCALE], rate = -c[RATE], weight_decay = c[WEIGHT_DECAY];
    for (int64_t i = 0; i < n; i++) {
        float g = fmaf(weight_decay, parameter[i], scale * gradient[i]);
        parameter[i] = fmaf(rate, g, parameter[i]);
    }
}

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    if (!states[0]) {
        plain(parameter, gradient, n, c);
        return;
    }
    const float scale = c[SCALE], rate = -c[RATE], weight_decay = c[WEIGHT_DECAY], decay = c[MOMENTUM];
    const float from_gradient = c[FROM_GRADIENT], from_momentum = c[FROM_MOMENTUM];
    float *restrict momentum = states[0];
    for (int64_t i = 0; i < n; i++) {
        float g = fmaf(weight_decay, parameter[i], scale * gradient[i]);
        float m = fmaf(decay, momentum[i], g);
        momentum[i] = m;
        parameter[i] = fmaf(rate, fmaf(from_momentum, m, from_gradient * g), parameter[i]);
    }
}

TD_UPDATE_LONG(update)

TD_UPDATE_NARROW(update)

const td_update_rule TD_KERNEL(update_sgd) = {.name = "sgd",
                                              .least_states = 0,
                                              .most_states = 1,
                                              .update = update,
                                              .update_long = update_long,
                                              .update_narrow = update_narrow};

TD_UPDATE_KERNEL(sgd)

const td_cpu_kernel TD_KERNEL(sgd) = {.op = "sgd", .supports = supports, .run = run};
