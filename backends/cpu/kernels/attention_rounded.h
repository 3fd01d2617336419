/* What attention in pairs and in tiles of bf16 share beside attention.h. Not a kernel. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_ROUNDED_H
#define TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_ROUNDED_H

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/narrow.h"

enum { PAIRS = BLOCK / 2 };

/* A row of BLOCK floats as pairs of neighbours, in its place. */
static inline void round_along(float *row)
{
    uint16_t rounded[BLOCK];
    round_to_bf16(row, BLOCK, rounded);
    memcpy(row, rounded, sizeof rounded);
}

#endif
