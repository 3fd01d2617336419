/* Updates of long spans as one loop, f32 parameter and states: with a f32 gradient where it lies, or with a 16-bit one and a 16-bit copy or
 * none, the common case of update_mixed. Not a kernel.
 *
 * A rule's loop is inlined for a unit of elements, in the second case between widening its gradients and rounding its parameters, and what
 * comes some units later is asked for, a few lines at a time, so that nothing waits but memory. Where widening, update and rounding each
 * went over 512 elements memory stood still in between, and so it did after a burst of requests for as many (docs/decisions.md, 57). */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_UPDATE_UNITS_H
#define TANDEM_BACKENDS_CPU_KERNELS_UPDATE_UNITS_H

#include <string.h>

#include "backends/cpu/kernels/narrow.h"
#include "backends/cpu/update.h"

enum { TD_UPDATE_AHEAD = 256 /* elements */, TD_NARROW_BYTES = TD_UPDATE_UNIT * sizeof(uint16_t) };

static inline void td_narrow_load(const td_update_narrow *w, int64_t at, float gradient[TD_UPDATE_UNIT])
{
    if (w->is_bf16)
        widen_bf16(w->gradient + at, TD_UPDATE_UNIT, gradient);
    else
        widen_f16(w->gradient + at, TD_UPDATE_UNIT, gradient);
    for (int64_t i = 0; w->factor != 1 && i < TD_UPDATE_UNIT; i++)
        gradient[i] = w->factor * gradient[i];
}

/* Past the caches if so asked: its lines are written whole, and need not be read first. */
static inline void td_narrow_store(const td_update_narrow *w, int64_t at, const float *parameter)
{
    uint16_t piece[TD_UPDATE_UNIT] __attribute__((aligned(32)));
    if (!w->copy)
        return;
    if (w->copy_is_bf16)
        round_to_bf16(parameter, TD_UPDATE_UNIT, piece);
    else
        round_to_f16(parameter, TD_UPDATE_UNIT, piece);
#ifdef __AVX__
    if (w->past) {
        __m256i *out = (__m256i *)(void *)(w->copy + at);
        _mm256_stream_si256(out, _mm256_load_si256((const __m256i *)(const void *)piece));
        _mm256_stream_si256(out + 1, _mm256_load_si256((const __m256i *)(const void *)(piece + TD_UPDATE_UNIT / 2)));
        return;
    }
#endif
    memcpy(w->copy + at, piece, TD_NARROW_BYTES);
}

/* Asks for the two lines that a unit of f32 will take some units later. */
TD_PREFETCHES void td_update_fetch(const float *array)
{
    __builtin_prefetch(array + TD_UPDATE_AHEAD);
    __builtin_prefetch(array + TD_UPDATE_AHEAD + TD_UPDATE_UNIT / 2);
}

/* Of a parameter and of up to two states. */
TD_PREFETCHES void td_update_fetch_all(const float *parameter, float *const *states)
{
    td_update_fetch(parameter);
    for (int s = 0; s < 2 && states[s]; s++)
        td_update_fetch(states[s]);
}

/* `update_long` of a rule whose loop is `update` and which has up to two states. */
#define TD_UPDATE_LONG(update)                                                                                         \
    static void update_long(float *parameter, float *const *states, const float *gradient, int64_t n,                  \
                            const float *coefficients)                                                                 \
    {                                                                                                                  \
        int64_t at = 0;                                                                                                \
        for (; at + TD_UPDATE_UNIT <= n; at += TD_UPDATE_UNIT) {                                                       \
            float *here[2] = {states[0] ? states[0] + at : NULL, states[1] ? states[1] + at : NULL};                   \
            if (at + TD_UPDATE_AHEAD + TD_UPDATE_UNIT <= n) {                                                          \
                td_update_fetch(gradient + at);                                                                        \
                td_update_fetch_all(parameter + at, here);                                                             \
            }                                                                                                          \
            update(parameter + at, here, gradient + at, TD_UPDATE_UNIT, coefficients);                                 \
        }                                                                                                              \
        float *rest[2] = {states[0] ? states[0] + at : NULL, states[1] ? states[1] + at : NULL};                       \
        if (at < n)                                                                                                    \
            update(parameter + at, rest, gradient + at, n - at, coefficients);                                         \
    }

/* `update_narrow` of such a rule. */
#define TD_UPDATE_NARROW(update)                                                                                       \
    static void update_narrow(float *parameter, float *const *states, const td_update_narrow *w, int64_t n,            \
                              const float *coefficients)                                                               \
    {                                                                                                                  \
        for (int64_t at = 0; at + TD_UPDATE_UNIT <= n; at += TD_UPDATE_UNIT) {                                         \
            float gradient[TD_UPDATE_UNIT];                                                                            \
            float *here[2] = {states[0] ? states[0] + at : NULL, states[1] ? states[1] + at : NULL};                   \
            if (at + TD_UPDATE_AHEAD + TD_UPDATE_UNIT <= n) {                                                          \
                __builtin_prefetch(w->gradient + at + TD_UPDATE_AHEAD);                                                \
                td_update_fetch_all(parameter + at, here);                                                             \
            }                                                                                                          \
            td_narrow_load(w, at, gradient);                                                                           \
            update(parameter + at, here, gradient, TD_UPDATE_UNIT, coefficients);                                      \
            td_narrow_store(w, at, parameter + at);                                                                    \
        }                                                                                                              \
    }

#endif
