/* Sums without rounding: a fixed-point number wide enough for any double, so that adding up in any order, in any pieces,
 * gives the same bits. For norms over devices, chunks and shards (clipping, LAMB), and wherever an order cannot be fixed.
 *
 *     td_exact sum;
 *     td_exact_clear(&sum);
 *     for (...) td_sum_squares_blocks(piece[i], n[i], &sum);      // pieces begin at multiples of TD_EXACT_BLOCK
 *     double norm = sqrt(td_exact_round(&sum));
 *
 * Plain data without pointers: copy it, compare two with td_exact_round, send it to another process of the same machine
 * type. Not thread-safe; give each thread one and add them up. */
#ifndef TANDEM_BASE_EXACT_H
#define TANDEM_BASE_EXACT_H

#include <stdint.h>

#include "base/sums.h"

enum {
    /* Bit 0 of limb 0 is worth 2^-1074, the smallest double. 66 limbs of 32 bits reach 2^1038; two more hold the carries
     * of 2^63 additions of the largest double. */
    TD_EXACT_LIMBS = 68,
    /* Elements whose squares are added in double before they go into an exact sum. No chunk, ratio or shard splits one. */
    TD_EXACT_BLOCK = 1024
};

typedef struct td_exact {
    int64_t limbs[TD_EXACT_LIMBS]; /* base 2^32 with room above: carries move up only now and then */
    uint32_t additions;            /* since they last did */
    uint32_t special;              /* infinities and NaN seen */
} td_exact;

/* Becomes 0. */
void td_exact_clear(td_exact *sum);
/* Infinities and NaN count as in IEEE addition: opposite infinities make NaN. */
void td_exact_add(td_exact *sum, double value);
/* Adds another sum; `other` keeps its value. */
void td_exact_add_sum(td_exact *sum, td_exact *other);
/* The nearest double, ties to even; 0 is +0. The sum keeps its value. */
double td_exact_round(td_exact *sum);

/* ---- sums of squares ---------------------------------------------------------------------------------------------------- */

/* x[0]^2 + ... + x[n - 1]^2 of one block or row, in the order of base/sums.h. A float's square is exact in double, so there
 * is no difference between fma and multiply-add. */
static inline double td_sum_squares(const float *x, int64_t n)
{
    double lanes[TD_SUM_LANES] = {0};
    int64_t whole = n - n % TD_SUM_LANES;
    for (int64_t i = 0; i < whole; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] += (double)x[i + lane] * (double)x[i + lane];
    for (int64_t i = whole; i < n; i++)
        lanes[i - whole] += (double)x[i] * (double)x[i];
    return td_fold_lanes_double(lanes);
}

/* Adds the squares of a dense parameter's elements, or of a piece of it that begins at a multiple of TD_EXACT_BLOCK and ends
 * at one or at the parameter's end. */
void td_sum_squares_blocks(const float *x, int64_t n, td_exact *sum);
/* Adds the squares of rows [rows, dim] of a row-sparse gradient: each row is a block, whatever its length. */
void td_sum_squares_rows(const float *x, int64_t rows, int64_t dim, td_exact *sum);

#endif
