/* What attention in bf16 multiplies, in tiles (amx.h): see causal_attention_pairs.c. Not a kernel.
 *
 * A block of BLOCK rows of BLOCK floats that is rounded becomes, in its place, a row of bf16 in the first half of each row, and in the
 * second half of each row its transpose: rows of tiles both, of the sum over columns and of that over rows. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_AMX_H
#define TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_AMX_H

#include "backends/cpu/kernels/attention_rounded.h"
#include "backends/cpu/kernels/gemm_amx_pack.h"

enum {
    WIDTH_UNIT = AMX_TERMS,
    LEAST_WIDTH = AMX_TERMS,
    MOST_WIDTH = 256, /* of rows copied to the stack */
    DOWN = BLOCK / 2, /* floats from a row of what was rounded to that of its transpose */
    ROUNDED_BYTES = BLOCK * 4
};

static inline void begin_products(void)
{
    amx_begin();
}

static inline void end_products(void)
{
    amx_end();
}

/* ---- packing --------------------------------------------------------------------------------------------------------------- */

/* Pairs of rows [n, d], `leading` apart, as [PAIRS, padded]; zeros beyond them. */
static inline void pack_rows(const attention *a, const uint16_t *from, int64_t leading, int64_t n, float *to)
{
    for (int64_t i = 0; i < BLOCK; i += 2)
        for (int64_t column = 0; column < a->d; column += AMX_TERMS) {
            const uint16_t *at = from + i * leading + column;
            amx_line pairs[2];
            amx_pair_lines(amx_line_load(at, i < n ? AMX_TERMS : 0),
                           amx_line_load(at + leading, i + 1 < n ? AMX_TERMS : 0), pairs);
            amx_line_store(to + i / 2 * a->padded + column, pairs[0]);
            amx_line_store(to + i / 2 * a->padded + column + AMX_PAIRS, pairs[1]);
        }
}

/* Pairs of columns of rows [n, d] as [d / 2, BLOCK]; zeros beyond them. */
static inline void pack_columns(const attention *a, const uint16_t *from, int64_t leading, int64_t n, float *to)
{
    for (int64_t i = 0; i < BLOCK; i += AMX_ROWS)
        for (int64_t column = 0; column < a->d; column += AMX_TERMS) {
            const amx_source tile = {from + i * leading + column, leading};
            amx_pack_columns(tile, n - i, AMX_TERMS, (char *)(to + column / 2 * BLOCK + i), ROUNDED_BYTES);
        }
}

/* Rows [n, BLOCK] and their transpose, in their place. */
static inline const float *round_weights(float *rows, int64_t n)
{
    for (int64_t row = 0; row < n; row++)
        round_along(rows + row * BLOCK);
    for (int64_t row = n; row < BLOCK; row++)
        memset(rows + row * BLOCK, 0, ROUNDED_BYTES / 2);
    for (int64_t first = 0; first < BLOCK; first += AMX_TERMS)
        for (int64_t column = 0; column < BLOCK; column += AMX_TERMS) {
            const amx_source from = {(const uint16_t *)(const void *)(rows + first * BLOCK) + column, 2 * BLOCK};
            amx_line lines[2][AMX_ROWS];
            amx_transpose_pairs(from, AMX_TERMS, AMX_TERMS, lines);
            char *to = (char *)(rows + column * BLOCK + DOWN) + 2 * first;
#pragma GCC unroll 16
            for (int64_t i = 0; i < AMX_ROWS; i++) {
                amx_line_store(to + i * ROUNDED_BYTES, lines[0][i]);
                amx_line_store(to + (AMX_ROWS + i) * ROUNDED_BYTES, lines[1][i]);
            }
        }
    return rows + DOWN;
}

static inline const float *round_changes(float *rows, int64_t n, float *down)
{
    (void)down; /* panels of pairs need it */
    return round_weights(rows, n);
}

/* ---- products -------------------------------------------------------------------------------------------------------------- */

/* c [rows, columns] (+)= a [rows, terms] times pairs of terms [terms / 2, columns]; strides in bytes. All of a block of c may be
 * written, columns and terms in whole tiles. */
typedef struct tile_product {
    const char *a, *b;
    int64_t a_stride, b_stride;
    float *c;
    int64_t c_leading, rows, columns, terms;
    bool add;
} tile_product;

/* Two tiles by two of c; terms from `first` on. */
static inline void multiply_four(const tile_product *p, int64_t row, int64_t column, int64_t first, int64_t end)
{
    float *c = p->c + row * p->c_leading + column;
    if (p->add)
        amx_load_four(c, p->c_leading);
    else
        amx_zero_four();
    amx_add_four((amx_operand){p->a + row * p->a_stride + first * 2, p->a_stride, AMX_ROW_BYTES},
                 (amx_operand){p->b + first / 2 * p->b_stride + column * 4, p->b_stride, AMX_PAIRS * p->b_stride},
                 (end - first) / AMX_TERMS);
    amx_store_four(c, p->c_leading);
}

static inline void multiply_tiles(const tile_product *p, diagonal_rule diagonal)
{
    for (int64_t row = 0; row < p->rows; row += AMX_PANEL)
        for (int64_t column = 0; column < p->columns; column += AMX_PANEL) {
            const int64_t first = diagonal == TERMS_FROM_ROW ? row : 0;
            const int64_t end = diagonal == TERMS_TO_ROW && row + AMX_PANEL < p->terms ? row + AMX_PANEL : p->terms;
            if (diagonal != COLUMNS_TO_ROW || column < row + AMX_PANEL)
                multiply_four(p, row, column, first, end);
        }
}

/* scores [rows, BLOCK] = rows of x, `step` apart, times pairs of columns [d / 2, BLOCK]. Rows are copied where tiles would reach
 * beyond them. */
static inline void multiply_scores(const attention *a, const uint16_t *x, int64_t step, const float *packed,
                                   int64_t rows, bool on_diagonal, float *scores)
{
    uint16_t copy[BLOCK * MOST_WIDTH];
    tile_product p = {.a = (const char *)x,
                      .a_stride = 2 * step,
                      .b = (const char *)packed,
                      .b_stride = ROUNDED_BYTES,
                      .c = scores,
                      .c_leading = BLOCK,
                      .rows = rows,
                      .columns = BLOCK,
                      .terms = a->d};
    if (rows % AMX_PANEL) {
        memset(copy, 0, (size_t)(BLOCK * a->d) * sizeof *copy);
        for (int64_t i = 0; i < rows; i++)
            memcpy(copy + i * a->d, x + i * step, (size_t)a->d * sizeof *copy);
        p.a = (const char *)copy;
        p.a_stride = 2 * a->d;
    }
    multiply_tiles(&p, on_diagonal ? COLUMNS_TO_ROW : WHOLE);
}

static inline void multiply_rounded(const attention *a, const float *rounded, const float *b, int64_t rows,
                                    int64_t terms, diagonal_rule diagonal, float *c, bool add)
{
    const tile_product p = {.a = (const char *)rounded,
                            .a_stride = ROUNDED_BYTES,
                            .b = (const char *)b,
                            .b_stride = a->padded * 4,
                            .c = c,
                            .c_leading = a->padded,
                            .rows = rows,
                            .columns = a->d,
                            .terms = (terms + AMX_TERMS - 1) / AMX_TERMS * AMX_TERMS,
                            .add = add};
    multiply_tiles(&p, diagonal);
}

/* c [rows, padded] (+)= rows as rounded, times pairs of rows [PAIRS, padded]. */
static inline void multiply_along(const attention *a, const float *rounded, const float *b, int64_t rows, int64_t terms,
                                  bool on_diagonal, float *c, bool add)
{
    multiply_rounded(a, rounded, b, rows, terms, on_diagonal ? TERMS_TO_ROW : WHOLE, c, add);
}

/* c [rows, padded] (+)= the transpose of what was rounded, times pairs of rows [PAIRS, padded]. */
static inline void multiply_down(const attention *a, const float *rounded, const float *b, int64_t rows, int64_t terms,
                                 bool on_diagonal, float *c, bool add)
{
    multiply_rounded(a, rounded, b, rows, terms, on_diagonal ? TERMS_FROM_ROW : WHOLE, c, add);
}

#endif
