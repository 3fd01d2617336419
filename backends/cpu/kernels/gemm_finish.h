/* What follows the sums of a matrix product while they are in registers: bias, relu, mask, and storing. Not a kernel. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_FINISH_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_FINISH_H

#include "backends/cpu/gemm_own.h"
#include "backends/cpu/kernels/gemm_vectors.h"

#define INLINE static inline __attribute__((always_inline))

/* Where some rows of two vectors go, and what becomes of them before. */
typedef struct gemm_results {
    float *c;          /* where sums wait between spans, and f32 results go */
    uint16_t *rounded; /* where the results of a 16-bit product go; NULL: they are sums still */
    int64_t ldc;
    const void *bias, *mask; /* of the product's dtype, at C's place; NULL without, or before the last span */
    td_gemm_narrow narrow;
    bool bias_is_one, relu;
} gemm_results;

/* `narrow` is s->narrow, where the compiler knows it: here as in the next functions. */
INLINE gemm_vector load_as(td_gemm_narrow narrow, const void *from, int64_t at)
{
    return narrow == TD_GEMM_F32    ? gemm_load((const float *)from + at)
           : narrow == TD_GEMM_BF16 ? gemm_load_bf16((const uint16_t *)from + at)
                                    : gemm_load_f16((const uint16_t *)from + at);
}

INLINE gemm_vector set_as(td_gemm_narrow narrow, const void *from)
{
    return gemm_set(narrow == TD_GEMM_F32    ? *(const float *)from
                    : narrow == TD_GEMM_BF16 ? td_bf16_to_f32(*(const uint16_t *)from)
                                             : td_f16_to_f32(*(const uint16_t *)from));
}

INLINE void finish_as(td_gemm_narrow narrow, const gemm_results *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    if (s->bias) {
        gemm_vector b0 = s->bias_is_one ? set_as(narrow, s->bias) : load_as(narrow, s->bias, 0);
        gemm_vector b1 = s->bias_is_one ? b0 : load_as(narrow, s->bias, GEMM_LANES);
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
            sum[r][0] = gemm_where_positive(load_as(narrow, s->mask, r * s->ldc), sum[r][0]);
            sum[r][1] = gemm_where_positive(load_as(narrow, s->mask, r * s->ldc + GEMM_LANES), sum[r][1]);
        }
    }
}

INLINE void store_sums(const gemm_results *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        gemm_store(s->c + r * s->ldc, sum[r][0]);
        gemm_store(s->c + r * s->ldc + GEMM_LANES, sum[r][1]);
    }
}

INLINE void store_rounded(td_gemm_narrow narrow, const gemm_results *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        uint16_t *to = s->rounded + r * s->ldc;
        if (narrow == TD_GEMM_BF16) {
            gemm_store_bf16(to, sum[r][0]);
            gemm_store_bf16(to + GEMM_LANES, sum[r][1]);
        } else {
            gemm_store_f16(to, sum[r][0]);
            gemm_store_f16(to + GEMM_LANES, sum[r][1]);
        }
    }
}

/* Bias, relu, mask; then the results are stored. */
INLINE void finish(const gemm_results *s, int rows, gemm_vector sum[GEMM_ROWS][2])
{
    if (!s->rounded) {
        if (s->narrow == TD_GEMM_F32) /* else more is added to it: see td_gemm_piece */
            finish_as(TD_GEMM_F32, s, rows, sum);
        store_sums(s, rows, sum);
        return;
    }
    if (s->narrow == TD_GEMM_BF16) {
        finish_as(TD_GEMM_BF16, s, rows, sum);
        store_rounded(TD_GEMM_BF16, s, rows, sum);
    } else {
        finish_as(TD_GEMM_F16, s, rows, sum);
        store_rounded(TD_GEMM_F16, s, rows, sum);
    }
}

#endif
