/* What follows the sums of a 16-bit product where they lie in memory: sums that were cut into parts, and edges. Not a kernel. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_GEMM_ROUND_H
#define TANDEM_BACKENDS_CPU_KERNELS_GEMM_ROUND_H

#include "backends/cpu/gemm_own.h"
#include "backends/cpu/kernels/narrow.h"

enum { ROUNDED_AT_ONCE = 512 };

/* `n` at most ROUNDED_AT_ONCE from column `at` on. */
static inline void gemm_round_some(const td_gemm_rounding *row, int64_t at, int64_t n)
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

static inline void gemm_round_row(const td_gemm_rounding *row)
{
    for (int64_t at = 0; at < row->n; at += ROUNDED_AT_ONCE)
        gemm_round_some(row, at, row->n - at < ROUNDED_AT_ONCE ? row->n - at : ROUNDED_AT_ONCE);
}

#endif
