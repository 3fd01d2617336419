/* The cheapest clock there is: the processor's time-stamp counter where it is safe, the monotonic clock in nanoseconds elsewhere.
 *
 * Safe means that the counter runs at one rate on all cores, whatever they do (invariant), and that the operating system itself
 * trusts it. Ticks mean nothing alone: whoever writes them down writes pairs of ticks and nanoseconds beside them. */
#ifndef TANDEM_BASE_TICKS_H
#define TANDEM_BASE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Found once, by td_ticks_prepare; until then the clock is the monotonic one. */
extern bool td_ticks_from_counter;

static inline uint64_t td_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(td_ticks_from_counter, 1))
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(td_ticks_from_counter, 1)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return (uint64_t)td_clock_ns();
}

/* Decides which clock it is, for the life of the process. Call it before threads that read ticks are told to. */
void td_ticks_prepare(void);
/* "tsc", "cntvct" or "monotonic". */
const char *td_ticks_name(void);

/* The same moment on both clocks. */
typedef struct td_ticks_pair {
    uint64_t ticks;
    int64_t ns;    /* monotonic */
    int64_t error; /* nanoseconds that the reading took: the pair is this exact */
} td_ticks_pair;
/* The best of a few readings. */
td_ticks_pair td_ticks_read_pair(void);

#endif
