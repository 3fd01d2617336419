/* The own matrix product of one tile, on one thread: TD_GEMM_REFERENCE.
 *
 * C_ij = fma(a_ik, b_kj, C_ij) with k ascending from C_ij = 0; then the bias is added. That chain is kept whatever the
 * blocking below does, so every instruction set gives the same bits: a block of rows and columns stays in registers over a
 * span of k, and waits in C between spans. B is packed so that the inner loop reads it in order. */
#include <math.h>
#include <string.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/gemm.h"

/* A vector of floats, and fma(a, b, c) on it. */
#if defined(TD_ISA_avx512)
#include <immintrin.h>
enum { LANES = 16, ROWS = 12 };
typedef __m512 vector;
#define vector_load(p) _mm512_loadu_ps(p)
#define vector_store(p, v) _mm512_storeu_ps(p, v)
#define vector_fma(a, b, c) _mm512_fmadd_ps(_mm512_set1_ps(a), b, c)
#elif defined(TD_ISA_avx2)
#include <immintrin.h>
enum { LANES = 8, ROWS = 6 };
typedef __m256 vector;
#define vector_load(p) _mm256_loadu_ps(p)
#define vector_store(p, v) _mm256_storeu_ps(p, v)
#define vector_fma(a, b, c) _mm256_fmadd_ps(_mm256_set1_ps(a), b, c)
#else
enum { LANES = 4, ROWS = 2 };
typedef struct vector {
    float lane[LANES];
} vector;

static vector vector_load(const float *p)
{
    vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void vector_store(float *p, vector v)
{
    memcpy(p, &v, sizeof v);
}

static vector vector_fma(float a, vector b, vector c)
{
    for (int i = 0; i < LANES; i++)
        c.lane[i] = fmaf(a, b.lane[i], c.lane[i]);
    return c;
}
#endif

enum {
    COLUMNS = 2 * LANES, /* of C in registers */
    SPAN = 256           /* of k; SPAN * COLUMNS floats of B lie on the stack: 32 KiB at most */
};

/* What one pass over a span of k works on. */
typedef struct block {
    const float *a;     /* at the block's first row and the span's first k */
    int64_t a_row, a_k; /* elements from one row, or k, to the next */
    const float *b;     /* packed: COLUMNS floats for each k */
    int64_t k;
} block;

/* ROWS x COLUMNS of C, `leading` apart. */
static void multiply_block_plainly(const block *in, const int64_t *row_offsets, float *c, int64_t leading)
{
    vector sum[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++) {
        sum[r][0] = vector_load(c + r * leading);
        sum[r][1] = vector_load(c + r * leading + LANES);
    }
    for (int64_t k = 0; k < in->k; k++) {
        vector b0 = vector_load(in->b + k * COLUMNS), b1 = vector_load(in->b + k * COLUMNS + LANES);
        const float *a = in->a + k * in->a_k;
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            float a_rk = a[row_offsets[r]];
            sum[r][0] = vector_fma(a_rk, b0, sum[r][0]);
            sum[r][1] = vector_fma(a_rk, b1, sum[r][1]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++) {
        vector_store(c + r * leading, sum[r][0]);
        vector_store(c + r * leading + LANES, sum[r][1]);
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

static void multiply_block(const block *in, const int64_t *row_offsets, float *c, int64_t leading)
{
    enum { PAIRS = COLUMNS / 2 };
    __m128d sum[ROWS][PAIRS];
    __m128i doubt = _mm_setzero_si128();
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < PAIRS; j++)
            sum[r][j] = load_two(c + r * leading + 2 * j);
    for (int64_t k = 0; k < in->k; k++) {
        const float *a = in->a + k * in->a_k, *b = in->b + k * COLUMNS;
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            __m128d a_rk = _mm_set1_pd((double)a[row_offsets[r]]);
#pragma GCC unroll 8
            for (int j = 0; j < PAIRS; j++)
                sum[r][j] = add_product(a_rk, load_two(b + 2 * j), sum[r][j], &doubt);
        }
    }
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(doubt, _mm_setzero_si128())) != 0xffff) {
        multiply_block_plainly(in, row_offsets, c, leading);
        return;
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < PAIRS; j++)
            _mm_storel_epi64((__m128i *)(void *)(c + r * leading + 2 * j), _mm_castps_si128(_mm_cvtpd_ps(sum[r][j])));
}
#else
static void multiply_block(const block *in, const int64_t *row_offsets, float *c, int64_t leading)
{
    multiply_block_plainly(in, row_offsets, c, leading);
}
#endif

/* The same for a block at the edge of C: it is computed in full beside C, and its `rows` x `columns` are copied. */
static void multiply_edge(const block *in, const int64_t *row_offsets, float *c, int64_t leading, int64_t rows,
                          int64_t columns)
{
    float whole[ROWS * COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++)
        memcpy(whole + r * COLUMNS, c + r * leading, (size_t)columns * sizeof *c);
    multiply_block(in, row_offsets, whole, COLUMNS);
    for (int64_t r = 0; r < rows; r++)
        memcpy(c + r * leading, whole + r * COLUMNS, (size_t)columns * sizeof *c);
}

/* B's columns [j, j + columns) over a span of k, zeros beyond them. */
static void pack(const td_gemm_tile *tile, const float *b, int64_t k, int64_t columns, float *packed)
{
    int64_t b_k = tile->transpose_b ? 1 : tile->ldb, b_column = tile->transpose_b ? tile->ldb : 1;
    if (columns < COLUMNS)
        memset(packed, 0, (size_t)(k * COLUMNS) * sizeof *packed);
    if (tile->transpose_b) {
        for (int64_t j = 0; j < columns; j++)
            for (int64_t l = 0; l < k; l++)
                packed[l * COLUMNS + j] = b[l * b_k + j * b_column];
        return;
    }
    for (int64_t l = 0; l < k; l++)
        memcpy(packed + l * COLUMNS, b + l * b_k, (size_t)columns * sizeof *packed);
}

/* All rows of C, for `columns` columns and one span of k. */
static void multiply_panel(const td_gemm_tile *tile, block *in, float *c, int64_t columns)
{
    const float *first = in->a;
    for (int64_t i = 0; i < tile->m; i += ROWS) {
        int64_t rows = tile->m - i < ROWS ? tile->m - i : ROWS, offsets[ROWS];
        for (int64_t r = 0; r < ROWS; r++)
            offsets[r] = r < rows ? r * in->a_row : 0;
        in->a = first + i * in->a_row;
        if (rows == ROWS && columns == COLUMNS)
            multiply_block(in, offsets, c + i * tile->ldc, tile->ldc);
        else
            multiply_edge(in, offsets, c + i * tile->ldc, tile->ldc, rows, columns);
    }
    in->a = first;
}

static void add_bias(const td_gemm_tile *tile, const float *bias, float *c)
{
    for (int64_t i = 0; i < tile->m; i++)
        for (int64_t j = 0; j < tile->n; j++)
            c[i * tile->ldc + j] += bias[j];
}

static void multiply_tile(const td_gemm_tile *tile, const float *a, const float *b, const float *bias, float *c)
{
    _Alignas(64) float packed[SPAN * COLUMNS];
    int64_t a_row = tile->transpose_a ? 1 : tile->lda, a_k = tile->transpose_a ? tile->lda : 1;
    int64_t b_k = tile->transpose_b ? 1 : tile->ldb, b_column = tile->transpose_b ? tile->ldb : 1;
    for (int64_t i = 0; i < tile->m; i++)
        memset(c + i * tile->ldc, 0, (size_t)tile->n * sizeof *c);
    for (int64_t k = 0; k < tile->k; k += SPAN) {
        int64_t span = tile->k - k < SPAN ? tile->k - k : SPAN;
        for (int64_t j = 0; j < tile->n; j += COLUMNS) {
            int64_t columns = tile->n - j < COLUMNS ? tile->n - j : COLUMNS;
            pack(tile, b + k * b_k + j * b_column, span, columns, packed);
            block in = {.a = a + k * a_k, .a_row = a_row, .a_k = a_k, .b = packed, .k = span};
            multiply_panel(tile, &in, c + j, columns);
        }
    }
    if (bias)
        add_bias(tile, bias, c);
}

extern const td_gemm_tile_fn TD_KERNEL(gemm_tile);
const td_gemm_tile_fn TD_KERNEL(gemm_tile) = multiply_tile;
