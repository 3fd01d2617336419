/* Matrix products for CPU kernels: C = A B, plus a bias, row-major f32, perhaps many of one shape.
 *
 *     td_gemm *gemm = NULL;
 *     TD_TRY(td_gemm_create(engine, &(td_gemm_shape){.batch = 1, .m = 2048, .n = 512, .k = 256, .transpose_b = true}, &gemm));
 *     TD_TRY(td_gemm_run(gemm, &actual, &(td_gemm_operands){.a = x, .b = weight, .c = y, .scratch = scratch}, team));
 *
 * The work is cut into tiles, and long sums into parts that are added in order, by the actual shape alone: bits do not
 * depend on the number of threads, nor on the capacity. Each tile is computed by one thread: by an own kernel that adds
 * a_ik * b_kj to C_ij with fma, k ascending, which gives the same bits on every instruction set (gemm_own.h); or, where
 * vectors have no fma, by a oneDNN primitive, unless TD_GEMM_REFERENCE asks for those bits there too. TD_GEMM_LIBRARY
 * leaves the cutting to oneDNN.
 *
 * 16-bit operands are widened for all that, with one exception: on TD_ISA_AVX512_BF16 and TD_ISA_AMX_BF16, and unless
 * TD_GEMM_REFERENCE is asked for, products of bf16 are made by the processor's bf16 instructions, which add products in pairs or in
 * tiles: other bits than elsewhere, but just as independent of threads, of the capacity and of devices. TD_GEMM_LIBRARY has oneDNN's
 * bf16 primitives for it. What oneDNN needs for a new shape is made at first use and kept, up to a fixed number of
 * shapes. */
#ifndef TANDEM_BACKENDS_CPU_GEMM_H
#define TANDEM_BACKENDS_CPU_GEMM_H

#include "backends/cpu/engine.h"

typedef enum td_gemm_narrow { TD_GEMM_F32 = 0, TD_GEMM_BF16, TD_GEMM_F16 } td_gemm_narrow;

/* `batch` products: A [m, k] (or [k, m] if transpose_a) times B [k, n] (or [n, k]), one after the other in memory; B may be
 * one for all. What follows the sums, in this order: the bias, n numbers, is added to every row; relu: negative numbers
 * become 0; mask: so does what stands where the mask, laid out as C is, is not positive. narrow: all operands are bf16 or f16
 * instead of f32; sums are f32, rounded once, after all that. */
typedef struct td_gemm_shape {
    int64_t batch, m, n, k;
    bool transpose_a, transpose_b, shared_b, has_bias, relu, has_mask;
    td_gemm_narrow narrow;
} td_gemm_shape;

typedef struct td_gemm_operands {
    const void *a, *b, *bias, *mask;
    void *c;
    void *scratch; /* td_gemm_scratch_bytes */
} td_gemm_operands;

typedef struct td_gemm td_gemm;

/* Whether oneDNN computes; otherwise the own kernel does. */
bool td_gemm_uses_onednn(const td_cpu_engine *engine);
/* Whether products of bf16 are made by the processor's instructions for them. */
bool td_gemm_uses_bf16(const td_cpu_engine *engine);
td_status *td_gemm_create(const td_cpu_engine *engine, const td_gemm_shape *capacity, td_gemm **out_gemm) TD_MUST_USE;
void td_gemm_destroy(td_gemm *gemm);
/* At most, for any shape up to the capacity. */
size_t td_gemm_scratch_bytes(const td_gemm *gemm);
/* `shape` has the flags of the capacity. Sizes may be 0 (k 0: C is the bias, or zero). */
td_status *td_gemm_run(td_gemm *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands,
                       td_team *team) TD_MUST_USE;

/* ---- for the files of gemm*.c and the tests ---------------------------------------------------------------------------------- */

/* How a product is cut for oneDNN. */
typedef struct td_gemm_cut {
    int64_t tile_m, tile_n, tile_k; /* the last tile of each direction may be smaller */
    int64_t tiles_m, tiles_n, parts;
} td_gemm_cut;
td_gemm_cut td_gemm_cut_of(const td_gemm_shape *shape);

/* One tile for oneDNN: sizes and leading dimensions (elements between rows, as stored). Accumulate: the product is added
 * to C. */
typedef struct td_gemm_tile {
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b, has_bias, accumulate, is_bf16;
} td_gemm_tile;

/* What follows the sums of an f32 product, on one row (of those of all products) at c; `bias_is_one`: one number of bias for
 * all of it. */
void td_gemm_finish_row(const td_gemm_shape *shape, const td_gemm_operands *operands, bool bias_is_one, int64_t row,
                        float *c);

#endif
