/* Panels of taps: a few lines of a filter times a vector of channels, all in registers. Not a kernel.
 *
 *     c[k * columns + l][i] (+)= sum over r, ascending, of a[k * line + l + offset[r]] * b[r][i]     k < lines, l < columns
 *
 * A line of three or five taps alone is too few sums for the units of fma, of which each waits four cycles for its last
 * term. Each sum is the same chain as panel.h's. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_TAPS_H
#define TANDEM_BACKENDS_CPU_KERNELS_TAPS_H

#include "backends/cpu/kernels/panel.h"

#define TAPS_TILE(vector, columns, lines)                                                                              \
    static inline void vector##_taps_##columns(const panel *p, int64_t line)                                           \
    {                                                                                                                  \
        vector sums[lines * columns];                                                                                  \
        _Pragma("GCC unroll 25") for (int i = 0; i < lines * columns; i++) sums[i] = vector##_set(0);                  \
        for (int64_t r = 0; r < p->terms; r++) {                                                                       \
            const vector b = vector##_load(p->b + r * p->b_leading);                                                   \
            const float *a = p->a + p->offset[r];                                                                      \
            _Pragma("GCC unroll 5") for (int k = 0; k < lines; k++, a += line)                                         \
                _Pragma("GCC unroll 5") for (int l = 0; l < columns; l++) sums[k * columns + l] =                      \
                    vector##_fma(vector##_set(a[l]), b, sums[k * columns + l]);                                        \
        }                                                                                                              \
        _Pragma("GCC unroll 25") for (int i = 0; i < lines * columns; i++)                                             \
        {                                                                                                              \
            float *c = p->c + i * p->c_leading;                                                                        \
            vector##_store(c, p->add ? vector##_add(vector##_load(c), sums[i]) : sums[i]);                             \
        }                                                                                                              \
    }

/* Lines at a time, as there are registers: 32, or 16 of half a v16 each. */
#if defined(TD_ISA_avx512)
enum { TAPS_LINES_8_3 = 3, TAPS_LINES_16_3 = 3, TAPS_LINES_8_5 = 5, TAPS_LINES_16_5 = 5 };
#else
enum { TAPS_LINES_8_3 = 3, TAPS_LINES_16_3 = 2, TAPS_LINES_8_5 = 2, TAPS_LINES_16_5 = 1 };
#endif
TAPS_TILE(v8, 3, TAPS_LINES_8_3)
TAPS_TILE(v16, 3, TAPS_LINES_16_3)
TAPS_TILE(v8, 5, TAPS_LINES_8_5)
TAPS_TILE(v16, 5, TAPS_LINES_16_5)

/* Lines of so many columns in one panel; 0: there is none for such lines. */
static inline int64_t taps_lines(int64_t lanes, int64_t columns)
{
    if (columns == 3)
        return lanes == 8 ? TAPS_LINES_8_3 : TAPS_LINES_16_3;
    if (columns == 5)
        return lanes == 8 ? TAPS_LINES_8_5 : TAPS_LINES_16_5;
    return 0;
}

/* Exactly taps_lines lines, `line` elements of a apart. */
static inline void taps_sum(const panel *p, int64_t lanes, int64_t columns, int64_t line)
{
    if (columns == 3)
        (lanes == 8 ? v8_taps_3 : v16_taps_3)(p, line);
    else
        (lanes == 8 ? v8_taps_5 : v16_taps_5)(p, line);
}

#endif
