/* What attention in pairs of bf16 multiplies, by panels (panel.h): see causal_attention_pairs.c. Not a kernel. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_PAIRS_H
#define TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_PAIRS_H

#include "backends/cpu/kernels/attention_rounded.h"

enum {
    WIDTH_UNIT = 2,
    LEAST_WIDTH = 16, /* narrower ones are hardly worth it, and the scratch has to fit into the other kernel's */
    MOST_WIDTH = INT32_MAX
};

static inline void begin_products(void)
{
}

static inline void end_products(void)
{
}

/* ---- packing --------------------------------------------------------------------------------------------------------------- */

/* Pairs of rows [n, d], `leading` apart, as [PAIRS, padded]; zeros beyond them. */
static inline void pack_rows(const attention *a, const uint16_t *from, int64_t leading, int64_t n, float *to)
{
    memset(to, 0, (size_t)(PAIRS * a->padded) * sizeof *to);
    for (int64_t i = 0; i + 1 < n; i += 2)
        for (int64_t column = 0; column < a->d; column++)
            pairs_put(to + i / 2 * a->padded + column, from[i * leading + column], from[(i + 1) * leading + column]);
    for (int64_t column = 0; n % 2 && column < a->d; column++)
        pairs_put(to + n / 2 * a->padded + column, from[(n - 1) * leading + column], 0);
}

/* Pairs of columns of rows [n, d] as [d / 2, BLOCK]; zeros beyond them. */
static inline void pack_columns(const attention *a, const uint16_t *from, int64_t leading, int64_t n, float *to)
{
    if (n < BLOCK)
        memset(to, 0, (size_t)(BLOCK * a->d / 2) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int64_t pair = 0; pair < a->d / 2; pair++)
            memcpy(to + pair * BLOCK + i, from + i * leading + 2 * pair, sizeof *to);
}

/* Rows [n, BLOCK] as pairs of rows [PAIRS, BLOCK]; `to` may be the rows' own place. */
static inline void round_down(const float *rows, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += 2) {
        uint16_t low[BLOCK], high[BLOCK] = {0};
        round_to_bf16(rows + i * BLOCK, BLOCK, low);
        if (i + 1 < n)
            round_to_bf16(rows + (i + 1) * BLOCK, BLOCK, high);
        for (int64_t j = 0; j < BLOCK; j++)
            pairs_put(to + i / 2 * BLOCK + j, low[j], high[j]);
    }
}

/* scores [rows, BLOCK] = rows of x, `step` apart, times pairs of columns [d / 2, BLOCK]. */
static inline void multiply_scores(const attention *a, const uint16_t *x, int64_t step, const float *packed,
                                   int64_t rows, bool on_diagonal, float *scores)
{
    const panel p = {.a = (const float *)(const void *)x,
                     .step = step / 2,
                     .offset = a->along,
                     .b = packed,
                     .b_leading = BLOCK,
                     .c = scores,
                     .c_leading = BLOCK};
    attention_multiply(p, rows, BLOCK, a->d, on_diagonal ? COLUMNS_TO_ROW : WHOLE);
}

/* Rows [n, BLOCK] of floats become what multiply_down takes, in their place: pairs of rows. */
static inline const float *round_weights(float *rows, int64_t n)
{
    round_down(rows, n, rows);
    return rows;
}

/* Likewise in `down`, and what multiply_along takes in their place: pairs of neighbours. */
static inline const float *round_changes(float *rows, int64_t n, float *down)
{
    round_down(rows, n, down);
    for (int64_t row = 0; row < n; row++)
        round_along(rows + row * BLOCK);
    return down;
}

static inline void multiply_rounded(const attention *a, const float *rounded, int64_t step, const int64_t *offset,
                                    const float *b, int64_t rows, int64_t terms, diagonal_rule diagonal, float *c,
                                    bool add)
{
    const panel p = {.a = rounded,
                     .step = step,
                     .offset = offset,
                     .b = b,
                     .b_leading = a->padded,
                     .c = c,
                     .c_leading = a->padded,
                     .add = add};
    attention_multiply(p, rows, a->padded, terms, diagonal);
}

/* c [rows, padded] (+)= rows of pairs of neighbours, as rounded, times pairs of rows [PAIRS, padded]. */
static inline void multiply_along(const attention *a, const float *rounded, const float *b, int64_t rows, int64_t terms,
                                  bool on_diagonal, float *c, bool add)
{
    multiply_rounded(a, rounded, BLOCK, a->along, b, rows, terms, on_diagonal ? TERMS_TO_ROW : WHOLE, c, add);
}

/* c [rows, padded] (+)= the transpose of what was rounded, times pairs of rows [PAIRS, padded]. */
static inline void multiply_down(const attention *a, const float *rounded, const float *b, int64_t rows, int64_t terms,
                                 bool on_diagonal, float *c, bool add)
{
    multiply_rounded(a, rounded, 1, a->down, b, rows, terms, on_diagonal ? TERMS_FROM_ROW : WHOLE, c, add);
}

#endif
