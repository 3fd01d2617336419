/* The own matrix product of bf16 in tiles (amx.h), one piece on one thread: see backends/cpu/gemm_own.h.
 *
 * As in gemm.c, a span of B is packed, then block after block of A's rows; one panel of B stays in the first cache while the panels of
 * A go by. Two tiles of A by two of B make AMX_PANEL x AMX_PANEL of C in four tiles over a span of the sum; these go through a buffer,
 * where what follows the sums is done to them. Tiles of a sum begin at multiples of AMX_TERMS of the piece's, whatever the blocking:
 * bits depend on where it is cut into parts alone. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/gemm_amx_pack.h"
#include "backends/cpu/kernels/gemm_finish.h"
#include "backends/cpu/kernels/gemm_round.h"

enum {
    SPAN = 16 * AMX_TERMS, /* a panel of B is two thirds of a first cache */
    FINISH_ROWS = GEMM_ROWS < 4 ? GEMM_ROWS : 4
};

/* A span of A's rows and B's columns fits into what td_gemm_packed_floats says: 16 floats have the terms of a tile's row. */
_Static_assert(SPAN / 2 <= TD_GEMM_SPAN && TD_GEMM_PACKED_ROWS % AMX_PANEL == 0 &&
                   TD_GEMM_PACKED_COLUMNS % AMX_PANEL == 0,
               "packed tiles must fit into the scratch");

/* A block of A's rows over a span of the sum. */
typedef struct block {
    int64_t row, rows, k, span;
} block;

static const uint16_t *element(const void *data, int64_t at)
{
    return (const uint16_t *)data + at;
}

static void pack_a(const td_gemm_piece *piece, const block *at, char *to)
{
    if (piece->transpose_a)
        amx_pack_a_along((amx_source){element(piece->a, at->k * piece->lda + at->row), piece->lda}, at->rows, at->span,
                         to);
    else
        amx_pack_a_across((amx_source){element(piece->a, at->row * piece->lda + at->k), piece->lda}, at->rows, at->span,
                          to);
}

static void pack_b(const td_gemm_piece *piece, int64_t k, int64_t span, char *to)
{
    if (piece->transpose_b)
        amx_pack_b_across((amx_source){element(piece->b, k), piece->ldb}, piece->n, span, to);
    else
        amx_pack_b_along((amx_source){element(piece->b, k * piece->ldb), piece->ldb}, piece->n, span, to);
}

/* ---- sums ------------------------------------------------------------------------------------------------------------------ */

typedef float sums_buffer[AMX_PANEL * AMX_PANEL];

/* A panel of A times one of B over `blocks` of the sum. */
static void add_panels(const char *a, const char *b, int64_t blocks)
{
    amx_add_four((amx_operand){a, AMX_ROW_BYTES, AMX_BLOCK_BYTES}, (amx_operand){b, 2 * AMX_ROW_BYTES, AMX_BLOCK_BYTES},
                 blocks);
}

/* Where there are no more than AMX_ROWS rows. */
static void add_half_panel(const char *a, const char *b, int64_t blocks)
{
    for (; blocks; blocks--, a += AMX_BLOCK_BYTES, b += AMX_BLOCK_BYTES) {
        amx_load(4, a, AMX_ROW_BYTES);
        amx_load(6, b, 2 * AMX_ROW_BYTES);
        amx_load(7, b + AMX_ROW_BYTES, 2 * AMX_ROW_BYTES);
        amx_add(0, 4, 6);
        amx_add(1, 4, 7);
    }
}

/* ---- what follows them ----------------------------------------------------------------------------------------------------- */

/* Of C: where it lies in the piece, and how much of a panel by a panel is C's. */
typedef struct place {
    int64_t row, column, rows, columns;
} place;

static void copy_rows(const float *from, int64_t from_row, float *to, int64_t to_row, const place *at)
{
    for (int64_t r = 0; r < at->rows; r++)
        memcpy(to + r * to_row, from + r * from_row, (size_t)at->columns * sizeof *to);
}

INLINE void finish_rows(gemm_results to, const float *sums, int rows)
{
    gemm_vector sum[GEMM_ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        sum[r][0] = gemm_load(sums + r * AMX_PANEL);
        sum[r][1] = gemm_load(sums + r * AMX_PANEL + GEMM_LANES);
    }
    finish(&to, rows, sum);
}

/* GEMM_COLUMNS columns, all of them C's. */
static void finish_columns(gemm_results to, const float *sums, int64_t rows)
{
    int64_t row = 0;
    for (; row + FINISH_ROWS <= rows; row += FINISH_ROWS) {
        finish_rows(to, sums + row * AMX_PANEL, FINISH_ROWS);
        to.rounded += FINISH_ROWS * to.ldc;
        to.mask = to.mask ? element(to.mask, FINISH_ROWS * to.ldc) : NULL;
    }
    for (; row < rows; row++) {
        finish_rows(to, sums + row * AMX_PANEL, 1);
        to.rounded += to.ldc;
        to.mask = to.mask ? element(to.mask, to.ldc) : NULL;
    }
}

/* The last columns, fewer than GEMM_COLUMNS. */
static void finish_edge(const gemm_results *to, float *sums, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        gemm_round_row(&(td_gemm_rounding){.narrow = to->narrow,
                                           .bias = to->bias,
                                           .mask = to->mask ? element(to->mask, r * to->ldc) : NULL,
                                           .bias_is_one = to->bias_is_one,
                                           .relu = to->relu,
                                           .sums = sums + r * AMX_PANEL,
                                           .c = to->rounded + r * to->ldc,
                                           .n = columns});
}

static void finish_sums(const td_gemm_piece *piece, const place *at, float *sums)
{
    const int64_t first = at->row * piece->ldc + at->column;
    for (int64_t column = 0; column < at->columns; column += GEMM_COLUMNS) {
        const gemm_results to = {.rounded = piece->rounded + first + column,
                                 .ldc = piece->ldc,
                                 .bias = piece->bias && !piece->bias_is_one ? element(piece->bias, at->column + column)
                                                                            : piece->bias,
                                 .mask = piece->mask ? element(piece->mask, first + column) : NULL,
                                 .narrow = TD_GEMM_BF16,
                                 .bias_is_one = piece->bias_is_one,
                                 .relu = piece->relu};
        if (at->columns - column >= GEMM_COLUMNS)
            finish_columns(to, sums + column, at->rows);
        else
            finish_edge(&to, sums + column, at->rows, at->columns - column);
    }
}

/* ---- a piece --------------------------------------------------------------------------------------------------------------- */

static void multiply_panels(const td_gemm_piece *piece, const block *at, const place *c, const char *a, const char *b)
{
    _Alignas(64) sums_buffer sums;
    float *to = piece->c + c->row * piece->ldc + c->column;
    if (at->k == 0) {
        amx_zero_four();
    } else {
        copy_rows(to, piece->ldc, sums, AMX_PANEL, c);
        amx_load_four(sums, AMX_PANEL);
    }
    (c->rows > AMX_ROWS ? add_panels : add_half_panel)(a, b, amx_blocks(at->span));
    amx_store_four(sums, AMX_PANEL);
    if (piece->rounded && at->k + at->span >= piece->k)
        finish_sums(piece, c, sums);
    else
        copy_rows(sums, AMX_PANEL, to, piece->ldc, c);
}

static void multiply_block(const td_gemm_piece *piece, const block *at, const char *a, const char *b)
{
    const int64_t panel_bytes = amx_blocks(at->span) * AMX_BLOCK_BYTES;
    for (int64_t j = 0; j < piece->n; j += AMX_PANEL)
        for (int64_t i = 0; i < at->rows; i += AMX_PANEL) {
            const place c = {.row = at->row + i,
                             .column = j,
                             .rows = amx_least(at->rows - i, AMX_PANEL),
                             .columns = amx_least(piece->n - j, AMX_PANEL)};
            multiply_panels(piece, at, &c, a + i / AMX_PANEL * panel_bytes, b + j / AMX_PANEL * panel_bytes);
        }
}

static void multiply_piece(const td_gemm_piece *piece)
{
    char *b = (char *)piece->packed;
    amx_begin();
    for (int64_t k = 0; k < piece->k; k += SPAN) {
        block at = {.k = k, .span = amx_least(piece->k - k, SPAN)};
        char *a = b + (piece->n + AMX_PANEL - 1) / AMX_PANEL * amx_blocks(at.span) * AMX_BLOCK_BYTES;
        pack_b(piece, k, at.span, b);
        for (; at.row < piece->m; at.row += TD_GEMM_PACKED_ROWS) {
            at.rows = amx_least(piece->m - at.row, TD_GEMM_PACKED_ROWS);
            pack_a(piece, &at, a);
            multiply_block(piece, &at, a, b);
        }
    }
    amx_end();
}

extern const td_gemm_own_kernels TD_KERNEL(gemm_own_amx);
const td_gemm_own_kernels TD_KERNEL(gemm_own_amx) = {
    .piece = multiply_piece, .round = gemm_round_row, .rows = TD_GEMM_AMX_ROWS};
