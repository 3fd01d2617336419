/* The own matrix product of one piece, on one thread: see backends/cpu/gemm_own.h.
 *
 * The blocking is that of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): a span of B is
 * packed into panels of columns, then block after block of A's rows into panels of rows; one panel of B stays in the first
 * cache while the rows of the block go by. A few rows by two vectors of C stay in registers over a span of k, and wait in C
 * between spans. The next block of A is fetched into the cache meanwhile. With AVX-512 rows of f32 are read where they lie. */
#include "backends/cpu/gemm_own.h"
#include "backends/cpu/kernel.h"
#ifdef TD_PAIRS
#include "backends/cpu/kernels/gemm_pairs.h"
#else
#include "backends/cpu/kernels/gemm_pack.h"
#if defined(TD_ISA_avx512)
#define GEMM_READS_ROWS
#endif
/* One entry of a panel for each k. */
static inline __attribute__((always_inline)) void add_entry(const float *a, gemm_vector b0, gemm_vector b1,
                                                            gemm_vector sum[2])
{
    const gemm_vector a_rk = gemm_set(*a);
    sum[0] = gemm_fma(a_rk, b0, sum[0]);
    sum[1] = gemm_fma(a_rk, b1, sum[1]);
}
#define gemm_entries(k) (k)
#define gemm_pack_panels_across gemm_pack_across
#define gemm_pack_panels_along gemm_pack_along
enum { GEMM_SPAN = TD_GEMM_SPAN, GEMM_SPAN_UNIT = 1 };
#endif
#include "backends/cpu/kernels/gemm_round.h"
#include "backends/cpu/kernels/gemm_step.h"

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

static inline int64_t element_bytes(const td_gemm_piece *piece)
{
    return piece->narrow ? 2 : 4;
}

static gemm_source a_of(const td_gemm_piece *piece, const block *at)
{
    gemm_source a = {piece->a, piece->lda * element_bytes(piece), piece->narrow};
    return piece->transpose_a ? gemm_source_at(a, at->k, at->row) : gemm_source_at(a, at->row, at->k);
}

extern const td_gemm_own_kernels TD_KERNEL(gemm_own);

/* Rows of the block that are read where they lie, whole panels of them: the others are packed. */
static int64_t rows_as_stored(const td_gemm_piece *piece, const block *at)
{
    const bool reads = td_gemm_reads_rows(&TD_KERNEL(gemm_own), piece->transpose_a, piece->narrow);
    return reads ? at->rows / GEMM_ROWS * GEMM_ROWS : 0;
}

static void pack_a(const td_gemm_piece *piece, const block *at, float *to)
{
    const int64_t first = rows_as_stored(piece, at);
    block packed = *at;
    packed.row += first;
    packed.rows -= first;
    to += first * gemm_entries(at->span);
    if (piece->transpose_a)
        gemm_pack_panels_along(a_of(piece, &packed), GEMM_ROWS, packed.rows, packed.span, to);
    else
        gemm_pack_panels_across(a_of(piece, &packed), GEMM_ROWS, packed.rows, packed.span, to);
}

static void pack_b(const td_gemm_piece *piece, int64_t k, int64_t span, float *to)
{
    gemm_source b = {piece->b, piece->ldb * element_bytes(piece), piece->narrow};
    if (piece->transpose_b)
        gemm_pack_panels_across(gemm_source_at(b, 0, k), GEMM_COLUMNS, piece->n, span, to);
    else
        gemm_pack_panels_along(gemm_source_at(b, k, 0), GEMM_COLUMNS, piece->n, span, to);
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
    return (ahead){.data = a_of(piece, &next).data,
                   .rows = lines,
                   .row_bytes = width * element_bytes(piece),
                   .stride_bytes = piece->lda * element_bytes(piece)};
}

/* The step after that at (i, j) of a block: what it reads first, its sums so far, or else what it writes. The step's own
 * where the next is not a full one. */
static void fetch_next(const td_gemm_piece *piece, const block *at, int64_t i, int64_t j, gemm_step *s)
{
    int64_t row = i + GEMM_ROWS < at->rows ? i + GEMM_ROWS : 0, column = row ? j : j + GEMM_COLUMNS;
    bool is_full = at->rows - row >= GEMM_ROWS && piece->n - column >= GEMM_COLUMNS;
    int64_t place = is_full ? (at->row + row) * piece->ldc + column : (at->row + i) * piece->ldc + j;
    bool is_rounded = s->to.rounded && s->first;
    s->next = is_rounded ? (const char *)(piece->rounded + place) : (const char *)(piece->c + place);
    s->next_element_bytes = is_rounded ? 2 : 4;
    s->next_row_bytes = piece->ldc * s->next_element_bytes;
}

/* The element of the bias or of the mask, or NULL without. */
static const void *operand_at(const td_gemm_piece *piece, const void *operand, int64_t element)
{
    return operand ? (const char *)operand + element * element_bytes(piece) : NULL;
}

/* All columns of a block, A and B packed. */
static void multiply_block(const td_gemm_piece *piece, const block *at, const float *a, const float *b)
{
    const int64_t as_stored = rows_as_stored(piece, at);
    ahead next = ahead_of(piece, at);
    gemm_step s = {
        .entries = gemm_entries(at->span),
        .first = at->k == 0,
        .last = at->k + at->span >= piece->k,
        .to = {.ldc = piece->ldc, .narrow = piece->narrow, .bias_is_one = piece->bias_is_one, .relu = piece->relu}};
    for (int64_t j = 0; j < piece->n; j += GEMM_COLUMNS) {
        int64_t columns = least(piece->n - j, GEMM_COLUMNS);
        s.b = b + j * s.entries;
        s.to.bias = s.last ? operand_at(piece, piece->bias, piece->bias_is_one ? 0 : j) : NULL;
        for (int64_t i = 0; i < at->rows; i += GEMM_ROWS) {
            int64_t rows = least(at->rows - i, GEMM_ROWS), place = (at->row + i) * piece->ldc + j;
            s.lda = i < as_stored ? piece->lda : 0;
            s.a = i < as_stored ? (const float *)piece->a + (at->row + i) * piece->lda + at->k : a + i * s.entries;
            s.to.c = piece->c + place;
            s.to.rounded = s.last && piece->rounded ? piece->rounded + place : NULL;
            s.to.mask = s.last ? operand_at(piece, piece->mask, place) : NULL;
            fetch_next(piece, at, i, j, &s);
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

static void multiply_piece(const td_gemm_piece *piece)
{
    int64_t spans = (piece->k + GEMM_SPAN - 1) / GEMM_SPAN, span = (piece->k + spans - 1) / spans;
    int64_t panels = (piece->n + GEMM_COLUMNS - 1) / GEMM_COLUMNS;
    span = (span + GEMM_SPAN_UNIT - 1) / GEMM_SPAN_UNIT * GEMM_SPAN_UNIT;
    float *b = piece->packed, *a = b + panels * GEMM_COLUMNS * gemm_entries(span);
    for (int64_t k = 0; k < piece->k; k += span) {
        block at = {.k = k, .span = least(piece->k - k, span)};
        pack_b(piece, k, at.span, b);
        for (; at.row < piece->m; at.row += TD_GEMM_PACKED_ROWS) {
            at.rows = least(piece->m - at.row, TD_GEMM_PACKED_ROWS);
            pack_a(piece, &at, a);
            multiply_block(piece, &at, a, b);
        }
    }
}

const td_gemm_own_kernels TD_KERNEL(gemm_own) = {.piece = multiply_piece,
                                                 .round = gemm_round_row,
                                                 .rows = TD_GEMM_OWN_ROWS,
#ifdef GEMM_READS_ROWS
                                                 .reads_rows = true
#endif
};
