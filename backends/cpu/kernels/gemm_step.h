/* The innermost step of the own matrix product: GEMM_ROWS x GEMM_COLUMNS of C over a span of the sum, and what follows the last
 * one. Not a kernel: the one that includes this has add_entry, which adds the products of one entry of packed A and two vectors of
 * packed B to two vectors of sums. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_STEP_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_STEP_H

#include "backends/cpu/kernels/gemm_finish.h"

/* Panels as packed, or rows of A as they are stored; and what becomes of the sums. */
typedef struct gemm_step {
    const float *a, *b;
    int64_t lda;      /* between rows of A as stored; 0: it is packed */
    int64_t entries;  /* of the panels */
    bool first, last; /* span of the sum */
    gemm_results to;
    const char *next; /* what the step after this one writes, or reads first; fetched meanwhile */
    int64_t next_row_bytes, next_element_bytes;
} gemm_step;

INLINE void add_products_plainly(const gemm_step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    const float *a = s->a, *b = s->b;
#pragma GCC unroll 4
    for (int64_t k = 0; k < s->entries; k++, a += GEMM_ROWS, b += GEMM_COLUMNS) {
        gemm_vector b0 = gemm_load(b), b1 = gemm_load(b + GEMM_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
            add_entry(a + r, b0, b1, sum[r]);
    }
}

#ifdef GEMM_READS_ROWS
/* The same with GEMM_ROWS rows of A as they are stored. Every third has an address of its own; the two after it are lda and 2 lda
 * further, which an instruction adds as it reads. */
INLINE void add_products_of_rows(const gemm_step *s, gemm_vector sum[GEMM_ROWS][2])
{
    const float *row[GEMM_ROWS / 3], *b = s->b;
#pragma GCC unroll 4
    for (int i = 0; i < GEMM_ROWS / 3; i++)
        row[i] = s->a + 3 * i * s->lda;
#pragma GCC unroll 4
    for (int64_t k = 0; k < s->entries; k++, b += GEMM_COLUMNS) {
        gemm_vector b0 = gemm_load(b), b1 = gemm_load(b + GEMM_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < GEMM_ROWS; r++)
            add_entry(row[r / 3] + r % 3 * s->lda, b0, b1, sum[r]);
#pragma GCC unroll 4
        for (int i = 0; i < GEMM_ROWS / 3; i++)
            row[i]++;
    }
}
#endif

#if !defined(__FMA__) && defined(__SSE2__) && !defined(TD_PAIRS)
#include <emmintrin.h>

/* Without an fma instruction, fmaf is a slow call. But the product of two floats is exact in double, so
 * s = (double)a * b + c has been rounded once, and rounding s to float gives what fma gives unless s lies just between two
 * floats (its low 29 bits are a one and zeros), or the result is subnormal, where floats lie wider apart. Both are rare:
 * such blocks are done again, plainly.
 *
 * Adds to two columns' sums, kept as doubles that hold floats; notes in `doubt` where rounding twice could differ. */
static inline __m128d add_in_double(__m128d a, __m128d b, __m128d c, __m128i *doubt)
{
    const __m128i low_bits = _mm_set1_epi64x(0x1fffffff), between = _mm_set1_epi64x(0x10000000);
    const __m128d sign = _mm_set1_pd(-0.0), tiny = _mm_set1_pd(0x1p-125), zero = _mm_setzero_pd();
    __m128d s = _mm_add_pd(_mm_mul_pd(a, b), c), magnitude = _mm_andnot_pd(sign, s);
    __m128i is_between = _mm_cmpeq_epi32(_mm_and_si128(_mm_castpd_si128(s), low_bits), between);
    /* The upper halves of `low_bits` and `between` are both 0, so they compare equal: leave them out. */
    is_between = _mm_and_si128(is_between, low_bits);
    __m128d is_tiny = _mm_and_pd(_mm_cmplt_pd(magnitude, tiny), _mm_cmpneq_pd(s, zero));
    *doubt = _mm_or_si128(*doubt, _mm_or_si128(is_between, _mm_castpd_si128(is_tiny)));
    return _mm_cvtps_pd(_mm_cvtpd_ps(s));
}

static inline __m128d load_two(const float *p)
{
    return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

INLINE void add_products(const gemm_step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    enum { PAIRS = GEMM_COLUMNS / 2 };
    __m128d pairs[GEMM_ROWS][PAIRS];
    __m128i doubt = _mm_setzero_si128();
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PAIRS; j++)
            pairs[r][j] = load_two(sum[r][j / 2].lane + j % 2 * 2);
    for (int64_t k = 0; k < s->entries; k++) {
        const float *a = s->a + k * GEMM_ROWS, *b = s->b + k * GEMM_COLUMNS;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m128d a_rk = _mm_set1_pd((double)a[r]);
#pragma GCC unroll 8
            for (int j = 0; j < PAIRS; j++)
                pairs[r][j] = add_in_double(a_rk, load_two(b + 2 * j), pairs[r][j], &doubt);
        }
    }
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(doubt, _mm_setzero_si128())) != 0xffff) {
        add_products_plainly(s, rows, sum);
        return;
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PAIRS; j++)
            _mm_storel_epi64((__m128i *)(void *)(sum[r][j / 2].lane + j % 2 * 2),
                             _mm_castps_si128(_mm_cvtpd_ps(pairs[r][j])));
}
#else
INLINE void add_products(const gemm_step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
#ifdef GEMM_READS_ROWS
    if (rows == GEMM_ROWS && s->lda) {
        add_products_of_rows(s, sum);
        return;
    }
#endif
    add_products_plainly(s, rows, sum);
}
#endif

/* ---- the step -------------------------------------------------------------------------------------------------------------- */

INLINE void multiply_rows(const gemm_step *s, int rows)
{
    gemm_vector sum[GEMM_ROWS][2];
    const float *c = s->to.c;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        const char *next = s->next + r * s->next_row_bytes;
        __builtin_prefetch(next, 1);
        __builtin_prefetch(next + (GEMM_COLUMNS - 1) * s->next_element_bytes, 1);
        sum[r][0] = sum[r][1] = gemm_set(0);
    }
    if (!s->first) {
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            sum[r][0] = gemm_load(c + r * s->to.ldc);
            sum[r][1] = gemm_load(c + r * s->to.ldc + GEMM_LANES);
        }
    }
    add_products(s, rows, sum);
    if (s->last)
        finish(&s->to, rows, sum);
    else
        store_sums(&s->to, rows, sum);
}

static __attribute__((noinline)) void multiply_full(const gemm_step *s)
{
    multiply_rows(s, GEMM_ROWS);
}

static __attribute__((noinline)) void multiply_half(const gemm_step *s)
{
    multiply_rows(s, GEMM_ROWS / 2);
}

static __attribute__((noinline)) void multiply_one(const gemm_step *s)
{
    multiply_rows(s, 1);
}

/* `rows` x `columns` of elements between a matrix and one of GEMM_COLUMNS. */
static inline void copy_edge(const void *from, int64_t from_row, void *to, int64_t to_row, int64_t rows,
                             int64_t columns, int64_t element)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)to + r * to_row * element, (const char *)from + r * from_row * element,
               (size_t)(columns * element));
}

/* GEMM_ROWS x GEMM_COLUMNS of either dtype. */
typedef union edge_buffer {
    float f32[GEMM_ROWS * GEMM_COLUMNS];
    uint16_t narrow[GEMM_ROWS * GEMM_COLUMNS];
} edge_buffer;

/* At an edge of C: computed beside C at full size, and its `rows` x `columns` copied. */
static void multiply_edge(const gemm_step *s, int64_t rows, int64_t columns)
{
    edge_buffer mask = {0}, bias = {0};
    float c[GEMM_ROWS * GEMM_COLUMNS] = {0};
    uint16_t rounded[GEMM_ROWS * GEMM_COLUMNS];
    const int64_t element = s->to.narrow ? 2 : 4;
    gemm_step whole = *s;
    whole.to.c = c;
    whole.to.rounded = s->to.rounded ? rounded : NULL;
    whole.to.ldc = GEMM_COLUMNS;
    whole.next = (const char *)c;
    whole.next_row_bytes = 0;
    if (!s->first)
        copy_edge(s->to.c, s->to.ldc, c, GEMM_COLUMNS, rows, columns, (int64_t)sizeof *c);
    if (s->to.mask) {
        copy_edge(s->to.mask, s->to.ldc, &mask, GEMM_COLUMNS, rows, columns, element);
        whole.to.mask = &mask;
    }
    if (s->to.bias && !s->to.bias_is_one) {
        copy_edge(s->to.bias, 0, &bias, 0, 1, columns, element);
        whole.to.bias = &bias;
    }
    (rows == 1 ? multiply_one : rows <= GEMM_ROWS / 2 ? multiply_half : multiply_full)(&whole);
    if (s->to.rounded)
        copy_edge(rounded, GEMM_COLUMNS, s->to.rounded, s->to.ldc, rows, columns, (int64_t)sizeof *rounded);
    else
        copy_edge(c, GEMM_COLUMNS, s->to.c, s->to.ldc, rows, columns, (int64_t)sizeof *c);
}

#endif
