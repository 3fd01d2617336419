/* ftrl: the formula of optim/ftrl.c, operation by operation, over a span of elements. */
#include <math.h>

#include "backends/cpu/update.h"
#include "base/math.h"

/* As in optim/ftrl.c. */
enum { SCALE, INVERSE_RATE, POWER, L1, L2 };

/* The new parameter from its z and root = acc^power. */
static inline float shrunk(float z, float root, float inverse_rate, float l1, float l2)
{
    float excess = fabsf(z) - l1;
    float moved = -copysignf(excess, z) / fmaf(root, inverse_rate, l2);
    return excess <= 0 ? 0.0f : moved;
}

static void update_root(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                        const float *c)
{
    const float scale = c[SCALE], inverse_rate = c[INVERSE_RATE], l1 = c[L1], l2 = c[L2];
    float *restrict sum = states[0], *restrict z = states[1];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i], before = sqrtf(sum[i]);
        float s = fmaf(g, g, sum[i]), root = sqrtf(s);
        float next = fmaf(-((root - before) * inverse_rate), parameter[i], z[i] + g);
        sum[i] = s;
        z[i] = next;
        parameter[i] = shrunk(next, root, inverse_rate, l1, l2);
    }
}

/* x^exponent for x > 0. */
static inline float power(float x, double exponent)
{
    return (float)td_exp(exponent * td_log((double)x));
}

static void update_power(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                         const float *c)
{
    const float scale = c[SCALE], inverse_rate = c[INVERSE_RATE], l1 = c[L1], l2 = c[L2];
    const double exponent = (double)c[POWER];
    float *restrict sum = states[0], *restrict z = states[1];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i], before = power(sum[i], exponent);
        float s = fmaf(g, g, sum[i]), root = power(s, exponent);
        float next = fmaf(-((root - before) * inverse_rate), parameter[i], z[i] + g);
        sum[i] = s;
        z[i] = next;
        parameter[i] = shrunk(next, root, inverse_rate, l1, l2);
    }
}

static void update(float *parameter, float *const *states, const float *gradient, int64_t n, const float *c)
{
    (c[POWER] == 0.5f ? update_root : update_power)(parameter, states, gradient, n, c);
}

const td_update_rule TD_KERNEL(update_ftrl) = {.name = "ftrl", .least_states = 2, .most_states = 2, .update = update};

TD_UPDATE_KERNEL(ftrl)

const td_cpu_kernel TD_KERNEL(ftrl) = {.op = "ftrl", .supports = supports, .run = run};
