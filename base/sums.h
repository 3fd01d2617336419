/* Sums in one fixed order that vectorises, for reference kernels and vector kernels alike.
 *
 * Float addition is not associative, so an order is part of an op's meaning here. The order of all these sums: element i
 * goes to lane i mod 16, each lane adds its elements in ascending order, and the 16 lanes are folded as a tree, lane l
 * taking lane l + 8, then l + 4, l + 2, l + 1. Any vector width up to 16 gives the same bits, and so does plain C. */
#ifndef TANDEM_BASE_SUMS_H
#define TANDEM_BASE_SUMS_H

#include <math.h>
#include <stdint.h>

enum {
    TD_SUM_LANES = 16,
    /* Elements (of a loss, say) whose sum is one partial sum; partial sums are then added in order. A constant, so that the
     * order does not depend on how many threads share the blocks. A multiple of TD_SUM_LANES. */
    TD_SUM_BLOCK = 1024,
    /* Rows whose contributions to a parameter's gradient are one partial sum (layer norm). */
    TD_SUM_ROWS = 32
};

/* Written out: as a loop, compilers take each step through memory, which is most of the time of a short row. */
static inline float td_fold_lanes(const float l[TD_SUM_LANES])
{
    const float a0 = l[0] + l[8], a1 = l[1] + l[9], a2 = l[2] + l[10], a3 = l[3] + l[11], a4 = l[4] + l[12],
                a5 = l[5] + l[13], a6 = l[6] + l[14], a7 = l[7] + l[15];
    const float b0 = a0 + a4, b1 = a1 + a5, b2 = a2 + a6, b3 = a3 + a7;
    return (b0 + b2) + (b1 + b3);
}

static inline double td_fold_lanes_double(double lanes[TD_SUM_LANES])
{
    for (int step = TD_SUM_LANES / 2; step > 0; step /= 2)
        for (int lane = 0; lane < step; lane++)
            lanes[lane] += lanes[lane + step];
    return lanes[0];
}

/* The sum of x. */
static inline float td_sum(const float *x, int64_t n)
{
    float lanes[TD_SUM_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lanes[i % TD_SUM_LANES] += x[i];
    return td_fold_lanes(lanes);
}

/* The sum of a * b, one rounding per element (fma). */
static inline float td_dot(const float *a, const float *b, int64_t n)
{
    float lanes[TD_SUM_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lanes[i % TD_SUM_LANES] = fmaf(a[i], b[i], lanes[i % TD_SUM_LANES]);
    return td_fold_lanes(lanes);
}

#endif
