/* rowwise_adagrad: the formula of optim/rowwise_adagrad.c, operation by operation, over one row. */
#include <math.h>

#include "backends/cpu/kernels/vectors.h"
#include "backends/cpu/update.h"

/* As in optim/rowwise_adagrad.c. */
enum { SCALE, RATE, EPSILON };

/* The order of base/sums.h: whole groups of lanes, then what is left. */
static inline float sum_of_squares(const float *gradient, int64_t n, float scale)
{
    const v16 factor = v16_set(scale);
    v16 lanes = v16_set(0);
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES) {
        const v16 g = v16_multiply(factor, v16_load(gradient + i));
        lanes = v16_fma(g, g, lanes);
    }
    if (i == n)
        return v16_fold(lanes);
    float last[TD_SUM_LANES];
    v16_store(last, lanes);
    for (int lane = 0; i < n; i++, lane++) {
        const float g = scale * gradient[i];
        last[lane] = fmaf(g, g, last[lane]);
    }
    return td_fold_lanes(last);
}

/* p += rate * (scale * g) */
static inline void move_row(float *restrict parameter, const float *restrict gradient, int64_t n, float scale,
                            float rate)
{
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES) {
        const v16 g = v16_multiply(v16_set(scale), v16_load(gradient + i));
        v16_store(parameter + i, v16_fma(v16_set(rate), g, v16_load(parameter + i)));
    }
    for (; i < n; i++)
        parameter[i] = fmaf(rate, scale * gradient[i], parameter[i]);
}

static void update(float *restrict parameter, float *const *states, const float *restrict gradient, int64_t n,
                   const float *c)
{
    if (n == 0)
        return;
    const float sum = *states[0] + sum_of_squares(gradient, n, c[SCALE]) / (float)n;
    *states[0] = sum;
    move_row(parameter, gradient, n, c[SCALE], -(c[RATE] / (sqrtf(sum) + c[EPSILON])));
}

/* TOGETHER rows at a time: a square root and two quotients after a sum are a long wait for one row, and hardly longer for so many.
 * Rows that come AHEAD later are asked for in between, one by one: as many at once as a processor can have under way would wait
 * for each other. */
enum { TOGETHER = 8, AHEAD = 16 };

typedef struct some_rows {
    float *parameter, *accumulators;
    const int64_t *rows;
    int64_t n, known;
    const float *gradients, *c;
} some_rows;

static inline __attribute__((always_inline)) void update_some(const some_rows *s, int64_t first, int64_t dim)
{
    const float scale = s->c[SCALE], rate = s->c[RATE], epsilon = s->c[EPSILON];
    const int64_t *rows = s->rows + first, ahead = s->known - first - AHEAD;
    const float *gradients = s->gradients + first * dim;
    float sums[TOGETHER], squares[TOGETHER], rates[TOGETHER];
    for (int r = 0; r < TOGETHER; r++) {
        if (r < ahead)
            td_prefetch_row_to_write(s->parameter + rows[r + AHEAD] * dim, dim * (int64_t)sizeof(float));
        sums[r] = s->accumulators[rows[r]];
        squares[r] = sum_of_squares(gradients + r * dim, dim, scale);
    }
    for (int r = 0; r < TOGETHER; r++) {
        sums[r] += squares[r] / (float)dim;
        rates[r] = -(rate / (sqrtf(sums[r]) + epsilon));
    }
    for (int r = 0; r < TOGETHER; r++) {
        if (r < ahead)
            td_prefetch_row_to_write(s->accumulators + rows[r + AHEAD], sizeof(float));
        s->accumulators[rows[r]] = sums[r];
        move_row(s->parameter + rows[r] * dim, gradients + r * dim, dim, scale, rates[r]);
    }
}

static void update_rows(float *parameter, float *const *states, const int64_t *rows, int64_t n, int64_t known,
                        const float *gradients, int64_t dim, const float *c)
{
    const some_rows s = {parameter, states[0], rows, n, known, gradients, c};
    int64_t i = 0;
    for (; i + TOGETHER <= n; i += TOGETHER)
        if (dim == TD_SUM_LANES) /* the usual row, as constant */
            update_some(&s, i, TD_SUM_LANES);
        else
            update_some(&s, i, dim);
    for (; i < n; i++)
        update(parameter + rows[i] * dim, &(float *){states[0] + rows[i]}, gradients + i * dim, dim, c);
}

const td_update_rule TD_KERNEL(update_rowwise_adagrad) = {.name = "rowwise_adagrad",
                                                          .least_states = 1,
                                                          .most_states = 1,
                                                          .per_row = true,
                                                          .update = update,
                                                          .update_rows = update_rows};

TD_UPDATE_KERNEL(rowwise_adagrad)

const td_cpu_kernel TD_KERNEL(rowwise_adagrad) = {.op = "rowwise_adagrad", .supports = supports, .run = run};
