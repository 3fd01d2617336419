/* The own matrix product, compiled for each instruction set: TD_GEMM_TILES where vectors have fma, and TD_GEMM_REFERENCE.
 *
 * C_ij = fma(a_ik, b_kj, C_ij) with k ascending from C_ij = 0, whatever the blocking: bits depend neither on how C is cut
 * over threads nor on the instruction set. Only where a sum is cut into parts are they another sum's, and that is decided
 * by the shape alone. The kernel of pairs adds a pair of products of bf16 at a time by an instruction that rounds in its own
 * way (kernels/gemm_pairs.h), that of tiles 32 products (kernels/amx.h): their bits do not depend on how C is cut either, but they are
 * other sums' than those of fma. */
#ifndef TANDEM_BACKENDS_CPU_GEMM_OWN_H
#define TANDEM_BACKENDS_CPU_GEMM_OWN_H

#include "backends/cpu/gemm.h"

/* A piece of work for one thread. Leading dimensions are elements between rows, as stored. */
typedef struct td_gemm_piece {
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b;
    td_gemm_narrow narrow; /* a and b; widened as they are packed */
    const void *a, *b;
    float *c;
    /* After the last addition, in this order: the bias is added (one number for all columns if bias_is_one); negative numbers
     * become 0; so does what stands where the mask is not positive. Both are of the product's dtype. */
    const void *bias, *mask; /* either may be NULL; the mask is laid out as C is */
    bool bias_is_one, relu;
    uint16_t *rounded; /* where a 16-bit product of one part goes; NULL: nowhere yet, and nothing follows the sums */
    float *packed;     /* td_gemm_packed_floats, 64-byte aligned */
} td_gemm_piece;

/* Pieces are cut at multiples of so many rows: whatever is computed at once of C, in registers or in tiles. */
enum { TD_GEMM_OWN_ROWS = 12, TD_GEMM_AMX_ROWS = 32 };
/* Of the operands, this much is packed at a time. */
enum { TD_GEMM_SPAN = 384, TD_GEMM_PACKED_ROWS = 96, TD_GEMM_PACKED_COLUMNS = 512 };
/* Floats for packing a piece of the product, which has at most TD_GEMM_PACKED_COLUMNS columns; grows with m, n and k. */
int64_t td_gemm_packed_floats(const td_gemm_shape *shape);

/* What follows the sums of a 16-bit product, on n of one row: bias, relu, mask, all in f32, then rounding. */
typedef struct td_gemm_rounding {
    td_gemm_narrow narrow;
    const uint16_t *bias, *mask; /* either may be NULL */
    bool bias_is_one, relu;
    float *sums;
    uint16_t *c;
    int64_t n;
} td_gemm_rounding;

typedef struct td_gemm_own_kernels {
    void (*piece)(const td_gemm_piece *piece);
    void (*round)(const td_gemm_rounding *row);
    int64_t rows;    /* TD_GEMM_OWN_ROWS, TD_GEMM_AMX_ROWS */
    bool reads_rows; /* see td_gemm_reads_rows */
} td_gemm_own_kernels;
const td_gemm_own_kernels *td_gemm_own_kernels_of(td_isa isa);
/* For bf16 alone: in pairs, on TD_ISA_AVX512_BF16; in tiles, on TD_ISA_AMX_BF16. */
const td_gemm_own_kernels *td_gemm_pair_kernels(void);
const td_gemm_own_kernels *td_gemm_amx_kernels(void);

/* Whether whole panels of A's rows are read where they lie: if they are stored as rows, in f32. Else A is packed. */
static inline bool td_gemm_reads_rows(const td_gemm_own_kernels *kernels, bool transpose_a, td_gemm_narrow narrow)
{
    return kernels->reads_rows && !transpose_a && !narrow;
}

/* How a product is cut: its sums into parts by the shape alone; C into tiles for a number of threads, which no bit
 * depends on. */
typedef struct td_gemm_own_cut {
    int64_t tile_m, tile_n, tile_k;
    int64_t tiles_m, tiles_n, parts;
} td_gemm_own_cut;
td_gemm_own_cut td_gemm_own_cut_of(const td_gemm_own_kernels *kernels, const td_gemm_shape *capacity,
                                   const td_gemm_shape *shape, int32_t threads);

/* As for td_gemm_run. */
size_t td_gemm_own_scratch_bytes(const td_gemm_shape *capacity);
void td_gemm_own_run(const td_gemm_own_kernels *kernels, const td_gemm_shape *capacity, const td_gemm_shape *shape,
                     const td_gemm_operands *operands, td_team *team);

#endif
