/* Cutting matrix products: what gemm.c and gemm_cut.c share. */
#ifndef TANDEM_BACKENDS_CPU_GEMM_CUT_H
#define TANDEM_BACKENDS_CPU_GEMM_CUT_H

#include "backends/cpu/gemm.h"

/* No tile is larger. */
enum { TD_GEMM_TILE_ROWS = 256, TD_GEMM_TILE_COLUMNS = 384 };

/* Bytes for the parts of sums beyond the first, at any shape up to the capacity. */
size_t td_gemm_partial_bytes(const td_gemm_shape *capacity);

static inline int64_t td_divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline int64_t td_clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

#endif
