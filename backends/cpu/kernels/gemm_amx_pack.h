/* Packing the operands of the matrix product in tiles (amx.h): panels of AMX_PANEL rows of A or columns of B, each a block of
 * AMX_BLOCK_BYTES for every AMX_TERMS terms of the sum, with zeros beyond the edges. Not a kernel.
 *
 * A block of A is two tiles, one after the other. A block of B is two tiles side by side: a row of it is a pair of terms of all its
 * columns. As in gemm_pack.h, an operand is stored across the panel (the terms of one row or column are neighbours) or along it. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_AMX_PACK_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_AMX_PACK_H

#include <string.h>

#include "backends/cpu/kernels/amx.h"

#if defined(TD_ISA_avx512)
#include <immintrin.h>
#endif

enum { AMX_PANEL = 2 * AMX_ROWS, AMX_BLOCK_BYTES = 2 * AMX_TILE_BYTES, AMX_AHEAD = 16 };

/* A matrix of bf16 as stored: the lines are `leading` numbers apart. */
typedef struct amx_source {
    const uint16_t *data;
    int64_t leading;
} amx_source;

static inline int64_t amx_blocks(int64_t terms)
{
    return (terms + AMX_TERMS - 1) / AMX_TERMS;
}

static inline int64_t amx_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- 32 neighbours of a line ---------------------------------------------------------------------------------------------- */

#if defined(TD_ISA_avx512)
typedef __m512i amx_line;

/* Zeros from n on; nothing is read there. */
static inline amx_line amx_line_load(const uint16_t *from, int64_t n)
{
    return n >= AMX_TERMS ? _mm512_loadu_si512(from)
                          : _mm512_maskz_loadu_epi16((__mmask32)((1u << (n > 0 ? n : 0)) - 1), from);
}

static inline void amx_line_store(void *to, amx_line line)
{
    _mm512_storeu_si512(to, line);
}

/* Each with its neighbour of the other line: the first 16 pairs, the last 16. */
static inline void amx_pair_lines(amx_line even, amx_line odd, amx_line out[2])
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    out[0] = _mm512_permutex2var_epi64(low, first, high);
    out[1] = _mm512_permutex2var_epi64(low, last, high);
}

/* Of pairs: 16 lines of 16. */
static inline __attribute__((always_inline)) void amx_transpose(amx_line r[AMX_ROWS])
{
    __m512i t[AMX_ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
#else
typedef struct amx_line {
    uint16_t term[AMX_TERMS];
} amx_line;

static inline amx_line amx_line_load(const uint16_t *from, int64_t n)
{
    amx_line line = {{0}};
    if (n > 0)
        memcpy(line.term, from, (size_t)amx_least(n, AMX_TERMS) * sizeof *from);
    return line;
}

static inline void amx_line_store(void *to, amx_line line)
{
    memcpy(to, &line, sizeof line);
}

static inline void amx_pair_lines(amx_line even, amx_line odd, amx_line out[2])
{
    for (int i = 0; i < AMX_TERMS; i++) {
        out[i / AMX_PAIRS].term[i % AMX_PAIRS * 2] = even.term[i];
        out[i / AMX_PAIRS].term[i % AMX_PAIRS * 2 + 1] = odd.term[i];
    }
}

static inline void amx_transpose(amx_line r[AMX_ROWS])
{
    amx_line t[AMX_ROWS];
    for (int i = 0; i < AMX_ROWS; i++)
        for (int j = 0; j < AMX_PAIRS; j++)
            memcpy(&t[j].term[2 * i], &r[i].term[2 * j], 2 * sizeof *t->term);
    memcpy(r, t, sizeof t);
}
#endif

/* ---- operands stored across ----------------------------------------------------------------------------------------------- */

/* Lines are rows of tiles as they lie there. */
static inline void amx_pack_a_across(amx_source s, int64_t rows, int64_t terms, char *to)
{
    for (int64_t row = 0; row < rows; row += AMX_PANEL, to += amx_blocks(terms) * AMX_BLOCK_BYTES)
        for (int64_t i = 0; i < AMX_PANEL; i++) {
            const uint16_t *from = s.data + (row + i) * s.leading;
            char *line = to + i * AMX_ROW_BYTES;
            for (int64_t term = 0; term < terms; term += AMX_TERMS, line += AMX_BLOCK_BYTES)
                amx_line_store(line, amx_line_load(from + term, row + i < rows ? terms - term : 0));
        }
}

/* A tile of 16 columns, transposed; `leading`: of its rows, in bytes. */
static inline void amx_pack_columns(amx_source s, int64_t columns, int64_t terms, char *to, int64_t leading)
{
    amx_line r[AMX_ROWS];
#pragma GCC unroll 16
    for (int64_t i = 0; i < AMX_ROWS; i++)
        r[i] = amx_line_load(s.data + i * s.leading, i < columns ? terms : 0);
    amx_transpose(r);
#pragma GCC unroll 16
    for (int64_t i = 0; i < AMX_PAIRS; i++)
        amx_line_store(to + i * leading, r[i]);
}

static inline void amx_pack_b_across(amx_source s, int64_t columns, int64_t terms, char *to)
{
    for (int64_t column = 0; column < columns; column += AMX_PANEL)
        for (int64_t term = 0; term < terms; term += AMX_TERMS, to += AMX_BLOCK_BYTES)
            for (int64_t i = 0; i < AMX_PANEL; i += AMX_ROWS) {
                const amx_source tile = {s.data + (column + i) * s.leading + term, s.leading};
                amx_pack_columns(tile, columns - column - i, terms - term, to + i * 4, 2 * AMX_ROW_BYTES);
            }
}

/* ---- operands stored along ------------------------------------------------------------------------------------------------ */

/* Two terms of AMX_PANEL rows or columns, of which there are n; `terms` are left. */
static inline void amx_pair_terms(amx_source s, int64_t n, int64_t terms, amx_line out[2])
{
    const amx_line even = amx_line_load(s.data, terms > 0 ? n : 0),
                   odd = amx_line_load(s.data + s.leading, terms > 1 ? n : 0);
    __builtin_prefetch(s.data + AMX_AHEAD * s.leading);
    __builtin_prefetch(s.data + (AMX_AHEAD + 1) * s.leading);
    amx_pair_lines(even, odd, out);
}

/* AMX_TERMS terms of AMX_PANEL rows, of which so many are left: the first 16 rows, the last 16. */
static inline __attribute__((always_inline)) void amx_transpose_pairs(amx_source s, int64_t rows, int64_t terms,
                                                                      amx_line lines[2][AMX_ROWS])
{
    amx_line pairs[2];
#pragma GCC unroll 16
    for (int64_t i = 0; i < AMX_PAIRS; i++) {
        amx_pair_terms((amx_source){s.data + 2 * i * s.leading, s.leading}, rows, terms - 2 * i, pairs);
        lines[0][i] = pairs[0];
        lines[1][i] = pairs[1];
    }
    amx_transpose(lines[0]);
    amx_transpose(lines[1]);
}

static inline void amx_pack_a_along(amx_source s, int64_t rows, int64_t terms, char *to)
{
    const int64_t panel_bytes = amx_blocks(terms) * AMX_BLOCK_BYTES;
    for (int64_t term = 0; term < terms; term += AMX_TERMS, to += AMX_BLOCK_BYTES)
        for (int64_t row = 0; row < rows; row += AMX_PANEL) {
            amx_line lines[2][AMX_ROWS];
            const amx_source at = {s.data + term * s.leading + row, s.leading};
            amx_transpose_pairs(at, rows - row, terms - term, lines);
            char *block = to + row / AMX_PANEL * panel_bytes;
#pragma GCC unroll 16
            for (int64_t i = 0; i < AMX_ROWS; i++) {
                amx_line_store(block + i * AMX_ROW_BYTES, lines[0][i]);
                amx_line_store(block + AMX_TILE_BYTES + i * AMX_ROW_BYTES, lines[1][i]);
            }
        }
}

static inline void amx_pack_b_along(amx_source s, int64_t columns, int64_t terms, char *to)
{
    const int64_t panel_bytes = amx_blocks(terms) * AMX_BLOCK_BYTES;
    for (int64_t pair = 0; pair < amx_blocks(terms) * AMX_PAIRS; pair++, to += 2 * AMX_ROW_BYTES)
        for (int64_t column = 0; column < columns; column += AMX_PANEL) {
            amx_line pairs[2];
            const amx_source at = {s.data + 2 * pair * s.leading + column, s.leading};
            amx_pair_terms(at, columns - column, terms - 2 * pair, pairs);
            amx_line_store(to + column / AMX_PANEL * panel_bytes, pairs[0]);
            amx_line_store(to + column / AMX_PANEL * panel_bytes + AMX_ROW_BYTES, pairs[1]);
        }
}

#endif
