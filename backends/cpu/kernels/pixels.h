/* Panels of pixels: sums of a few channels over vectors of neighbouring pixels, held in registers. Not a kernel.
 *
 *     c[v][k][l] (+)= sum over r, ascending, of a[v][offset[r] + l] * b[r * b_leading + k]
 *                                                                         v < vectors, k < channels, l < 16
 *
 * What panel.h does for many channels, for few: lanes are pixels then, not channels. Each sum is the same chain of fma. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_PIXELS_H
#define TANDEM_BACKENDS_CPU_KERNELS_PIXELS_H

#include "backends/cpu/kernels/panel.h"

enum {
    PIXEL_LANES = 16,
    PIXEL_CHANNELS = 6,
#if defined(TD_ISA_avx512)
    PIXEL_VECTORS = 2 /* twelve sums: enough to keep two units of fma busy */
#else
    PIXEL_VECTORS = 1 /* of two registers each with AVX2 */
#endif
};

typedef struct pixel_panel {
    const float *a[PIXEL_VECTORS];
    const int64_t *offset; /* [terms] */
    int64_t terms;
    const float *b;
    int64_t b_leading;
    float *c; /* [vectors][PIXEL_CHANNELS][PIXEL_LANES] */
    bool add; /* to what c holds, rather than replacing it */
} pixel_panel;

/* `vectors` and `channels` are constants where this is inlined: so the sums stay in registers. */
PANEL_INLINE void pixel_panel_sum(const pixel_panel *p, const int vectors, const int channels)
{
    v16 sums[PIXEL_VECTORS][PIXEL_CHANNELS];
    _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) _Pragma("GCC unroll 6") for (int k = 0; k < channels; k++)
        sums[v][k] = v16_set(0);
    for (int64_t r = 0; r < p->terms; r++) {
        const float *b = p->b + r * p->b_leading;
        v16 a[PIXEL_VECTORS];
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) a[v] = v16_load(p->a[v] + p->offset[r]);
        _Pragma("GCC unroll 6") for (int k = 0; k < channels; k++)
        {
            const v16 weight = v16_set(b[k]);
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) sums[v][k] = v16_fma(a[v], weight, sums[v][k]);
        }
    }
    _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) _Pragma("GCC unroll 6") for (int k = 0; k < channels; k++)
    {
        float *c = p->c + (v * PIXEL_CHANNELS + k) * PIXEL_LANES;
        v16_store(c, p->add ? v16_add(v16_load(c), sums[v][k]) : sums[v][k]);
    }
}

#define PIXEL_CASE(n)                                                                                                  \
    case n:                                                                                                            \
        if (vectors == PIXEL_VECTORS)                                                                                  \
            pixel_panel_sum(p, PIXEL_VECTORS, n);                                                                      \
        else                                                                                                           \
            pixel_panel_sum(p, 1, n);                                                                                  \
        break;

/* `vectors` is 1 or PIXEL_VECTORS, `channels` at most PIXEL_CHANNELS. */
static inline void pixels_sum(const pixel_panel *p, int64_t vectors, int64_t channels)
{
    switch (channels) {
        PIXEL_CASE(1)
        PIXEL_CASE(2)
        PIXEL_CASE(3)
        PIXEL_CASE(4)
        PIXEL_CASE(5)
        PIXEL_CASE(6)
    default:
        break;
    }
}

#endif
