/* lamb: the formula of optim/lamb.c in two passes, moments and norms, then the step. Dense gradients only.
 *
 * Each block of 1,024 elements leaves two sums of squares in the scratch memory; they are added without rounding on the
 * calling thread, so the order in which threads finish does not matter. The second pass computes the direction again from
 * the moments, which is cheaper than to keep it. */
#include <math.h>

#include "backends/cpu/update.h"
#include "base/exact.h"

/* As in optim/lamb.c. */
enum { SCALE, RATE, BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, CORRECTION, ROOT, EPSILON, WEIGHT_DECAY };
enum { PARAMETER, GRADIENT, COEFFICIENTS, STATES };

typedef struct lamb_work {
    float *parameter, *m, *v;
    const float *gradient, *c;
    double *squares; /* per block: of the parameter, of the direction */
    int64_t n;
    float rate; /* lr times the trust ratio, negative */
} lamb_work;

static int64_t blocks_of(int64_t n)
{
    return n / TD_EXACT_BLOCK + (n % TD_EXACT_BLOCK != 0);
}

static inline float direction(float parameter, float m, float v, float correction, float root, float epsilon,
                              float weight_decay)
{
    return fmaf(weight_decay, parameter, m * correction / fmaf(sqrtf(v), root, epsilon));
}

static void moments(const float *restrict parameter, float *restrict first, float *restrict second,
                    const float *restrict gradient, float *restrict directions, int64_t n, const float *c)
{
    const float scale = c[SCALE], beta1 = c[BETA1], one_minus_beta1 = c[ONE_MINUS_BETA1], beta2 = c[BETA2];
    const float one_minus_beta2 = c[ONE_MINUS_BETA2], correction = c[CORRECTION], root = c[ROOT];
    const float epsilon = c[EPSILON], weight_decay = c[WEIGHT_DECAY];
    for (int64_t i = 0; i < n; i++) {
        float g = scale * gradient[i];
        float m = fmaf(beta1, first[i], one_minus_beta1 * g);
        float v = fmaf(beta2, second[i], one_minus_beta2 * (g * g));
        first[i] = m;
        second[i] = v;
        directions[i] = direction(parameter[i], m, v, correction, root, epsilon, weight_decay);
    }
}

static void first_pass(void *context, int64_t begin, int64_t end)
{
    const lamb_work *work = context;
    for (int64_t block = begin; block < end; block++) {
        float directions[TD_EXACT_BLOCK];
        int64_t at = block * TD_EXACT_BLOCK, n = work->n - at < TD_EXACT_BLOCK ? work->n - at : TD_EXACT_BLOCK;
        moments(work->parameter + at, work->m + at, work->v + at, work->gradient + at, directions, n, work->c);
        work->squares[2 * block] = td_sum_squares(work->parameter + at, n);
        work->squares[2 * block + 1] = td_sum_squares(directions, n);
    }
}

static void second_pass(void *context, int64_t begin, int64_t end)
{
    const lamb_work *work = context;
    const float *c = work->c;
    const float correction = c[CORRECTION], root = c[ROOT], epsilon = c[EPSILON], weight_decay = c[WEIGHT_DECAY];
    const float rate = work->rate;
    float *restrict parameter = work->parameter;
    const float *restrict m = work->m, *restrict v = work->v;
    for (int64_t i = begin; i < end; i++)
        parameter[i] =
            fmaf(rate, direction(parameter[i], m[i], v[i], correction, root, epsilon, weight_decay), parameter[i]);
}

static double norm(const lamb_work *work, int which)
{
    td_exact sum;
    td_exact_clear(&sum);
    for (int64_t block = 0; block < blocks_of(work->n); block++)
        td_exact_add(&sum, work->squares[2 * block + which]);
    return sqrt(td_exact_round(&sum));
}

static bool supports(const td_kernel_call *call)
{
    static const td_update_rule rule = {.name = "lamb", .least_states = 2, .most_states = 2};
    return td_update_takes(&rule, call, STATES) && td_cpu_is(&call->inputs[GRADIENT], TD_DENSE, TD_F32);
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return (size_t)blocks_of(td_cpu_elements(&call->inputs[PARAMETER])) * 2 * sizeof(double);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    lamb_work work = {.parameter = call->inputs[PARAMETER].data,
                      .m = call->inputs[STATES].data,
                      .v = call->inputs[STATES + 1].data,
                      .gradient = call->inputs[GRADIENT].data,
                      .c = call->inputs[COEFFICIENTS].data,
                      .squares = call->scratch,
                      .n = td_cpu_elements(&call->inputs[PARAMETER])};
    td_cpu_for(team, blocks_of(work.n), TD_CPU_BLOCK / TD_EXACT_BLOCK, first_pass, &work);
    double parameter_norm = norm(&work, 0), direction_norm = norm(&work, 1);
    double ratio = parameter_norm > 0 && direction_norm > 0 ? parameter_norm / direction_norm : 1;
    work.rate = -(float)((double)work.c[RATE] * ratio);
    td_update_for(team, work.n, TD_CPU_BLOCK, work.n, second_pass, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(lamb) = {.op = "lamb", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
