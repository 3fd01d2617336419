/* Panels: a few rows of sums over a vector of columns, held in registers. Not a kernel.
 *
 *     c[i][l] (+)= sum over r, ascending, of a[i * step + offset[r]] * b[r][l]        i < rows, l < 16 (or 8, or 32)
 *
 * Each sum starts from zero and takes one fma per term, whatever the rows and the vector's width, so a caller may cut rows and
 * columns as suits the machine. The offsets make it a convolution without a copy of every window, or the product of two
 * matrices; what is summed in what order is said by base/convolution.h, or where it is called. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_PANEL_H
#define TANDEM_BACKENDS_CPU_KERNELS_PANEL_H

#include <stdbool.h>

#include "backends/cpu/kernels/vectors.h"

enum { PANEL_ROWS_8 = 12 };
#ifndef TD_PAIRS
#if defined(TD_ISA_avx512)
#define PANEL_32 /* twice as many columns, two registers of each row: half the loads of a */
#endif
enum {
    PANEL_ROWS_16 = 6, /* with AVX2 twelve sums, which leaves room for b and a */
    PANEL_ROWS_32 = 12,
#if defined(TD_ISA_avx512)
    PANEL_MOST_16 = 12 /* for who may cut rows as the instruction set likes */
#else
    PANEL_MOST_16 = PANEL_ROWS_16
#endif
};
#define PANEL_ENTRIES(terms) (terms)
#define PANEL_ENTRY_OF(term) (term)
#define PANEL_ADD(vector, a, b, sum) vector##_fma(vector##_set(*(a)), b, sum)
#else
/* Panels of pairs (pairs.h): r runs over pairs of terms, and a and b hold these. */
#include "backends/cpu/kernels/pairs.h"
enum { PANEL_ROWS_16 = 12, PANEL_ROWS_32 = 12, PANEL_MOST_16 = 12 };
#define PANEL_ENTRIES(terms) (((terms) + 1) / 2)
#define PANEL_ENTRY_OF(term) ((term) / 2)
#define PANEL_ADD(vector, a, b, sum) vector##_add_pair(a, b, sum)
static inline __attribute__((always_inline)) v16 v16_add_pair(const float *a, v16 b, v16 sum)
{
#if defined(TD_ISA_avx512_bf16)
    sum.v = pairs_add(a, b.v, sum.v);
#else
    pairs_add_lanes(a, &b, &sum, 16);
#endif
    return sum;
}
#endif

typedef struct panel {
    const float *a;
    int64_t step;          /* elements of a between rows */
    const int64_t *offset; /* [terms] */
    int64_t terms;
    const float *b;
    int64_t b_leading; /* elements between rows of b */
    float *c;
    int64_t c_leading;
    bool add; /* to what c holds, rather than replacing it */
} panel;

#if defined(__GNUC__)
#define PANEL_INLINE static inline __attribute__((always_inline))
#else
#define PANEL_INLINE static inline
#endif

/* `rows` and, if it is 1, `step` are constants where this is inlined: so the sums stay in registers. */
#define PANEL_TILE(vector, most)                                                                                       \
    PANEL_INLINE void vector##_panel_rows(const panel *p, const int rows, const int64_t step)                          \
    {                                                                                                                  \
        vector sums[most];                                                                                             \
        _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) sums[i] = vector##_set(0);                             \
        for (int64_t r = 0; r < p->terms; r++) {                                                                       \
            const vector b = vector##_load(p->b + r * p->b_leading);                                                   \
            const float *a = p->a + p->offset[r];                                                                      \
            _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) sums[i] =                                          \
                PANEL_ADD(vector, a + i * step, b, sums[i]);                                                           \
        }                                                                                                              \
        _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++)                                                        \
        {                                                                                                              \
            float *c = p->c + i * p->c_leading;                                                                        \
            vector##_store(c, p->add ? vector##_add(vector##_load(c), sums[i]) : sums[i]);                             \
        }                                                                                                              \
    }

PANEL_TILE(v16, PANEL_MOST_16)
#ifdef PANEL_32
PANEL_TILE(v32, PANEL_ROWS_32)
#endif
#ifndef TD_PAIRS
PANEL_TILE(v8, PANEL_ROWS_8)
#endif

#define PANEL_CASE(vector, n)                                                                                          \
    case n:                                                                                                            \
        if (p->step == 1)                                                                                              \
            vector##_panel_rows(p, n, 1);                                                                              \
        else                                                                                                           \
            vector##_panel_rows(p, n, p->step);                                                                        \
        break;

#define PANEL_CASES_TO_6(vector)                                                                                       \
    PANEL_CASE(vector, 1)                                                                                              \
    PANEL_CASE(vector, 2)                                                                                              \
    PANEL_CASE(vector, 3)                                                                                              \
    PANEL_CASE(vector, 4)                                                                                              \
    PANEL_CASE(vector, 5)                                                                                              \
    PANEL_CASE(vector, 6)
#define PANEL_CASES_TO_12(vector)                                                                                      \
    PANEL_CASES_TO_6(vector)                                                                                           \
    PANEL_CASE(vector, 7)                                                                                              \
    PANEL_CASE(vector, 8)                                                                                              \
    PANEL_CASE(vector, 9)                                                                                              \
    PANEL_CASE(vector, 10)                                                                                             \
    PANEL_CASE(vector, 11)                                                                                             \
    PANEL_CASE(vector, 12)

/* `rows` at most PANEL_MOST_16. */
static inline void panel_16(const panel *p, int64_t rows)
{
    switch (rows) {
#if defined(TD_PAIRS) || defined(TD_ISA_avx512)
        PANEL_CASES_TO_12(v16)
#else
        PANEL_CASES_TO_6(v16)
#endif
    default:
        break;
    }
}

#ifdef PANEL_32
/* `rows` at most PANEL_ROWS_32. */
static inline void panel_32(const panel *p, int64_t rows)
{
    switch (rows) {
        PANEL_CASES_TO_12(v32)
    default:
        break;
    }
}
#endif

#ifndef TD_PAIRS
/* `rows` at most PANEL_ROWS_8. */
static inline void panel_8(const panel *p, int64_t rows)
{
    switch (rows) {
        PANEL_CASES_TO_12(v8)
    default:
        break;
    }
}
#endif

/* Rows of one tile when `n` rows are cut evenly into tiles of at most `most`. */
static inline int64_t panel_piece(int64_t n, int64_t most)
{
    const int64_t pieces = (n + most - 1) / most;
    return pieces ? (n + pieces - 1) / pieces : 1;
}

#endif
