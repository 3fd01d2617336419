/* The gradient that an update will see where it is nowhere in memory: widened, added to the sum of its window's earlier micro-batches,
 * scaled by the factor of clipping. What updates with it and what looks at it beforehand make it here, so that their bits are the same
 * (graph/ops/update_mixed.c). Not a kernel. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_SEEN_GRADIENT_H
#define TANDEM_BACKENDS_CPU_KERNELS_SEEN_GRADIENT_H

#include "backends/cpu/kernels/chunks.h"

typedef struct td_seen_gradient {
    const td_tensor *gradient;
    const float *sum; /* NULL: the gradient is the whole of it */
    float factor;
} td_seen_gradient;

/* `sum` and `micro` are absent together; in the first micro-batch of a window the sum is left from the window before. */
static inline const float *td_earlier_sum(const td_tensor *sum, const td_tensor *micro)
{
    const bool adds = sum->kind != TD_NONE && ((const double *)micro->data)[0] == 0;
    return adds ? sum->data : NULL;
}

/* Elements [at, at + n), n at most TD_CHUNK: where they lie, or made in `buffer`. */
static inline const float *td_seen_gradient_load(const td_seen_gradient *seen, int64_t at, int64_t n, float *buffer)
{
    const float *gradient = td_chunk_load(seen->gradient, at, n, buffer);
    const float factor = seen->factor;
    if (seen->sum) {
        const float *sum = seen->sum + at;
        TD_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            buffer[i] = sum[i] + gradient[i];
        gradient = buffer;
    }
    if (factor == 1) /* it would leave every number as it is */
        return gradient;
    TD_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        buffer[i] = factor * gradient[i];
    return buffer;
}

#endif
