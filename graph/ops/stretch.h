/* Stretches of a vector in which tensors lie one after another: which elements of one of them are in it. Not an op. */
#ifndef TANDEM_GRAPH_OPS_STRETCH_H
#define TANDEM_GRAPH_OPS_STRETCH_H

#include <stdint.h>

/* Of a tensor of n elements that begins at `at`, those in [begin, end): from element *first on so many. */
static inline int64_t td_stretch_of(int64_t at, int64_t n, int64_t begin, int64_t end, int64_t *first)
{
    const int64_t from = begin > at ? begin - at : 0, to = end < at + n ? end - at : n;
    *first = from < to ? from : 0;
    return from < to ? to - from : 0;
}

#endif
