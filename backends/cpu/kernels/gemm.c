/* The own matrix product of one piece, on one thread: see backends/cpu/gemm_own.h.
 *
 * The blocking is that of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): a span of B is
 * packed into panels of columns, then block after block of A's rows into panels of rows; one panel of B stays in the first
 * cache while the rows of the block go by. A few rows by two vectors of C stay in registers over a span of k, and wait in C
 * between spans. The next block of A is fetched into the cache meanwhile. */
#include "backends/cpu/gemm_own.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/gemm_pack.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- rows x GEMM_COLUMNS of C ----------------------------------------------------------------------------------------------- */

/* One step of the innermost loops: panels as packed, and what becomes of the sums. */
typedef struct step {
    const float *a, *b;
    int64_t k;
    bool first, last; /* span of the sum */
    float *c;
    const float *next_c; /* of the step after this one, fetched meanwhile: sums begun in an earlier span wait there */
    int64_t ldc;
    const float *bias, *mask; /* at C's place; NULL without, or before the last span */
    bool bias_is_one, relu;
} step;

INLINE void add_products_plainly(const step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    const float *a = s->a, *b = s->b;
#pragma GCC unroll 4
    for (int64_t k = 0; k < s->k; k++, a += GEMM_ROWS, b += GEMM_COLUMNS) {
        gemm_vector b0 = gemm_load(b), b1 = gemm_load(b + GEMM_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            gemm_vector a_rk = gemm_set(a[r]);
            sum[r][0] = gemm_fma(a_rk, b0, sum[r][0]);
            sum[r][1] = gemm_fma(a_rk, b1, sum[r][1]);
        }
    }
}

#if !defined(__FMA__) && defined(__SSE2__)
#include <emmintrin.h>

/* Without an fma instruction, fmaf is a slow call. But the product of two floats is exact in double, so
 * s = (double)a * b + c has been rounded once, and rounding s to float gives what fma gives unless s lies just between two
 * floats (its low 29 bits are a one and zeros), or the result is subnormal, where floats lie wider apart. Both are rare:
 * such blocks are done again, plainly.
 *
 * Adds to two columns' sums, kept as doubles that hold floats; notes in `doubt` where rounding twice could differ. */
static inline __m128d add_product(__m128d a, __m128d b, __m128d c, __m128i *doubt)
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

INLINE void add_products(const step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    enum { PAIRS = GEMM_COLUMNS / 2 };
    __m128d pairs[GEMM_ROWS][PAIRS];
    __m128i doubt = _mm_setzero_si128();
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PAIRS; j++)
            pairs[r][j] = load_two(sum[r][j / 2].lane + j % 2 * 2);
    for (int64_t k = 0; k < s->k; k++) {
        const float *a = s->a + k * GEMM_ROWS, *b = s->b + k * GEMM_COLUMNS;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m128d a_rk = _mm_set1_pd((double)a[r]);
#pragma GCC unroll 8
            for (int j = 0; j < PAIRS; j++)
                pairs[r][j] = add_product(a_rk, load_two(b + 2 * j), pairs[r][j], &doubt);
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
INLINE void add_products(const step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    add_products_plainly(s, rows, sum);
}
#endif

INLINE void finish(const step *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    if (s->bias) {
        gemm_vector b0 = s->bias_is_one ? gemm_set(s->bias[0]) : gemm_load(s->bias);
        gemm_vector b1 = s->bias_is_one ? b0 : gemm_load(s->bias + GEMM_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            sum[r][0] = gemm_add(sum[r][0], b0);
            sum[r][1] = gemm_add(sum[r][1], b1);
        }
    }
    if (s->relu) {
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            sum[r][0] = gemm_relu(sum[r][0]);
            sum[r][1] = gemm_relu(sum[r][1]);
        }
    }
    if (s->mask) {
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const float *mask = s->mask + r * s->ldc;
            sum[r][0] = gemm_where_positive(gemm_load(mask), sum[r][0]);
            sum[r][1] = gemm_where_positive(gemm_load(mask + GEMM_LANES), sum[r][1]);
        }
    }
}

INLINE void multiply_rows(const step *s, int rows)
{
    gemm_vector sum[GEMM_ROWS][2];
    float *c = s->c;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        __builtin_prefetch(s->next_c + r * s->ldc, 1);
        __builtin_prefetch(s->next_c + r * s->ldc + GEMM_COLUMNS - 1, 1);
        sum[r][0] = sum[r][1] = gemm_set(0);
    }
    if (!s->first) {
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            sum[r][0] = gemm_load(c + r * s->ldc);
            sum[r][1] = gemm_load(c + r * s->ldc + GEMM_LANES);
        }
    }
    add_products(s, rows, sum);
    if (s->last)
        finish(s, rows, sum);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        gemm_store(c + r * s->ldc, sum[r][0]);
        gemm_store(c + r * s->ldc + GEMM_LANES, sum[r][1]);
    }
}

static __attribute__((noinline)) void multiply_full(const step *s)
{
    multiply_rows(s, GEMM_ROWS);
}

static __attribute__((noinline)) void multiply_half(const step *s)
{
    multiply_rows(s, GEMM_ROWS / 2);
}

static __attribute__((noinline)) void multiply_one(const step *s)
{
    multiply_rows(s, 1);
}

/* At an edge of C: computed beside C at full size, and its `rows` x `columns` copied. */
static void multiply_edge(const step *s, int64_t rows, int64_t columns)
{
    float c[GEMM_ROWS * GEMM_COLUMNS] = {0}, mask[GEMM_ROWS * GEMM_COLUMNS] = {0}, bias[GEMM_COLUMNS] = {0};
    const size_t bytes = (size_t)columns * sizeof *c;
    step whole = *s;
    whole.c = c;
    whole.next_c = c;
    whole.ldc = GEMM_COLUMNS;
    for (int64_t r = 0; r < rows && !s->first; r++)
        memcpy(c + r * GEMM_COLUMNS, s->c + r * s->ldc, bytes);
    for (int64_t r = 0; r < rows && s->mask; r++)
        memcpy(mask + r * GEMM_COLUMNS, s->mask + r * s->ldc, bytes);
    whole.mask = s->mask ? mask : NULL;
    if (s->bias && !s->bias_is_one) {
        memcpy(bias, s->bias, bytes);
        whole.bias = bias;
    }
    (rows == 1 ? multiply_one : rows <= GEMM_ROWS / 2 ? multiply_half : multiply_full)(&whole);
    for (int64_t r = 0; r < rows; r++)
        memcpy(s->c + r * s->ldc, c + r * GEMM_COLUMNS, bytes);
}

/* ---- fetching ahead --------------------------------------------------------------------------------------------------------- */

/* A rectangle of memory, fetched into the second cache a few lines at a time. */
typedef struct ahead {
    const char *data;
    int64_t rows, row_bytes, stride_bytes, row, at;
} ahead;

enum { LINE_BYTES = 64, LINES_AT_ONCE = 6 };

static inline void fetch_some(ahead *next)
{
    for (int i = 0; i < LINES_AT_ONCE && next->row < next->rows; i++) {
        __builtin_prefetch(next->data + next->row * next->stride_bytes + next->at, 0, 2);
        next->at += LINE_BYTES;
        if (next->at >= next->row_bytes) {
            next->at = 0;
            next->row++;
        }
    }
}

/* ---- a piece ---------------------------------------------------------------------------------------------------------------- */

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A block of A's rows over a span of the sum. */
typedef struct block {
    int64_t row, rows, k, span;
} block;

static gemm_source a_of(const td_gemm_piece *piece, const block *at)
{
    gemm_source a = {piece->a, piece->lda, piece->narrow};
    return piece->transpose_a ? gemm_source_at(a, at->k, at->row) : gemm_source_at(a, at->row, at->k);
}

static void pack_a(const td_gemm_piece *piece, const block *at, float *to)
{
    if (piece->transpose_a)
        gemm_pack_along(a_of(piece, at), GEMM_ROWS, at->rows, at->span, to);
    else
        gemm_pack_across(a_of(piece, at), GEMM_ROWS, at->rows, at->span, to);
}

static void pack_b(const td_gemm_piece *piece, int64_t k, int64_t span, float *to)
{
    gemm_source b = {piece->b, piece->ldb, piece->narrow};
    if (piece->transpose_b)
        gemm_pack_across(gemm_source_at(b, 0, k), GEMM_COLUMNS, piece->n, span, to);
    else
        gemm_pack_along(gemm_source_at(b, k, 0), GEMM_COLUMNS, piece->n, span, to);
}

/* The block after this one, as stored; nothing after the last. */
static ahead ahead_of(const td_gemm_piece *piece, const block *at)
{
    block next = *at;
    next.row += at->rows;
    if (next.row >= piece->m) {
        next.row = 0;
        next.k += at->span;
    }
    if (next.k >= piece->k)
        return (ahead){0};
    next.rows = least(piece->m - next.row, TD_GEMM_PACKED_ROWS);
    next.span = least(piece->k - next.k, at->span);
    int64_t lines = piece->transpose_a ? next.span : next.rows, width = piece->transpose_a ? next.rows : next.span;
    int64_t element_bytes = piece->narrow ? 2 : 4;
    return (ahead){.data = a_of(piece, &next).data,
                   .rows = lines,
                   .row_bytes = width * element_bytes,
                   .stride_bytes = piece->lda * element_bytes};
}

/* C of the step after that at (i, j) of a block; the step's own where the next is not a full one. */
static const float *next_c_of(const td_gemm_piece *piece, const block *at, int64_t i, int64_t j)
{
    int64_t row = i + GEMM_ROWS < at->rows ? i + GEMM_ROWS : 0, column = row ? j : j + GEMM_COLUMNS;
    bool is_full = at->rows - row >= GEMM_ROWS && piece->n - column >= GEMM_COLUMNS;
    return piece->c + (is_full ? (at->row + row) * piece->ldc + column : (at->row + i) * piece->ldc + j);
}

/* All columns of a block, A and B packed. */
static void multiply_block(const td_gemm_piece *piece, const block *at, const float *a, const float *b)
{
    ahead next = ahead_of(piece, at);
    const float *bias = piece->narrow ? NULL : piece->bias, *mask = piece->narrow ? NULL : piece->mask;
    step s = {.k = at->span,
              .first = at->k == 0,
              .last = at->k + at->span >= piece->k,
              .ldc = piece->ldc,
              .bias_is_one = piece->bias_is_one,
              .relu = piece->relu && !piece->narrow};
    for (int64_t j = 0; j < piece->n; j += GEMM_COLUMNS) {
        int64_t columns = least(piece->n - j, GEMM_COLUMNS);
        s.b = b + j * at->span;
        s.bias = bias ? bias + (piece->bias_is_one ? 0 : j) : NULL;
        for (int64_t i = 0; i < at->rows; i += GEMM_ROWS) {
            int64_t rows = least(at->rows - i, GEMM_ROWS), place = (at->row + i) * piece->ldc + j;
            s.a = a + i * at->span;
            s.c = piece->c + place;
            s.next_c = next_c_of(piece, at, i, j);
            s.mask = mask && s.last ? mask + place : NULL;
            fetch_some(&next);
            if (rows == GEMM_ROWS && columns == GEMM_COLUMNS)
                multiply_full(&s);
            else if (rows == 1 && columns == GEMM_COLUMNS)
                multiply_one(&s);
            else
                multiply_edge(&s, rows, columns);
        }
    }
}

enum { ROUNDED_AT_ONCE = 512 };

/* `n` at most ROUNDED_AT_ONCE from column `at` on. */
static void round_some(const td_gemm_rounding *row, int64_t at, int64_t n)
{
    float buffer[ROUNDED_AT_ONCE];
    float *sums = row->sums + at;
    const bool is_bf16 = row->narrow == TD_GEMM_BF16;
    if (row->bias && row->bias_is_one) {
        const float bias = is_bf16 ? td_bf16_to_f32(*row->bias) : td_f16_to_f32(*row->bias);
        for (int64_t j = 0; j < n; j++)
            sums[j] += bias;
    } else if (row->bias) {
        (is_bf16 ? widen_bf16 : widen_f16)(row->bias + at, n, buffer);
        for (int64_t j = 0; j < n; j++)
            sums[j] += buffer[j];
    }
    for (int64_t j = 0; row->relu && j < n; j++)
        sums[j] = sums[j] < 0.0f ? 0.0f : sums[j];
    if (row->mask) {
        (is_bf16 ? widen_bf16 : widen_f16)(row->mask + at, n, buffer);
        for (int64_t j = 0; j < n; j++)
            sums[j] = buffer[j] <= 0.0f ? 0.0f : sums[j];
    }
    (is_bf16 ? round_to_bf16 : round_to_f16)(sums, n, row->c + at);
}

static void round_row(const td_gemm_rounding *row)
{
    for (int64_t at = 0; at < row->n; at += ROUNDED_AT_ONCE)
        round_some(row, at, least(row->n - at, ROUNDED_AT_ONCE));
}

/* While the block's sums are in a cache still. */
static void round_block(const td_gemm_piece *piece, const block *at)
{
    for (int64_t i = at->row; i < at->row + at->rows; i++) {
        const td_gemm_rounding row = {.narrow = piece->narrow,
                                      .bias = piece->bias,
                                      .mask = piece->mask ? (const uint16_t *)piece->mask + i * piece->ldc : NULL,
                                      .bias_is_one = piece->bias_is_one,
                                      .relu = piece->relu,
                                      .sums = piece->c + i * piece->ldc,
                                      .c = piece->rounded + i * piece->ldc,
                                      .n = piece->n};
        round_row(&row);
    }
}

static void multiply_piece(const td_gemm_piece *piece)
{
    int64_t spans = (piece->k + TD_GEMM_SPAN - 1) / TD_GEMM_SPAN, span = (piece->k + spans - 1) / spans;
    int64_t panels = (piece->n + GEMM_COLUMNS - 1) / GEMM_COLUMNS;
    float *b = piece->packed, *a = b + panels * GEMM_COLUMNS * span;
    for (int64_t k = 0; k < piece->k; k += span) {
        block at = {.k = k, .span = least(piece->k - k, span)};
        pack_b(piece, k, at.span, b);
        for (; at.row < piece->m; at.row += TD_GEMM_PACKED_ROWS) {
            at.rows = least(piece->m - at.row, TD_GEMM_PACKED_ROWS);
            pack_a(piece, &at, a);
            multiply_block(piece, &at, a, b);
            if (piece->rounded && k + at.span >= piece->k)
                round_block(piece, &at);
        }
    }
}

extern const td_gemm_own_kernels TD_KERNEL(gemm_own);
const td_gemm_own_kernels TD_KERNEL(gemm_own) = {.piece = multiply_piece, .round = round_row};
