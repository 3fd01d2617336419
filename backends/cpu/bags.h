/* The sum of one bag's rows, vectorised over the row: the inner loop of every kernel that pools. Not a kernel.
 *
 * Elements are independent of each other; each adds its rows in position order from zero (one fma with weights), and the mean
 * divides once, as the reference kernels do. */
#ifndef TANDEM_BACKENDS_CPU_BAGS_H
#define TANDEM_BACKENDS_CPU_BAGS_H

#include "backends/cpu/kernels/vectors.h"
#include "backends/cpu/lookups.h"

typedef struct td_bags {
    td_cpu_lookup lookup;
    const float *weights; /* per id, or NULL */
    bool mean;
} td_bags;

/* `width` vectors of 16 from column k on; the last holds `last` (1 to 16) elements. Constant width: sums stay in registers. */
static inline __attribute__((always_inline)) void td_bag_columns(const td_bags *bags, int64_t begin, int64_t end,
                                                                 int64_t limit, int64_t k, int width, int64_t last,
                                                                 float *out)
{
    v16 sums[4] = {v16_set(0), v16_set(0), v16_set(0), v16_set(0)};
    for (int64_t i = begin; i < end; i++) {
        const float *row = td_cpu_lookup_row(&bags->lookup, i) + k;
        if (k == 0 && i + TD_LOOKUP_PREFETCH < limit)
            td_cpu_lookup_prefetch(&bags->lookup, i + TD_LOOKUP_PREFETCH);
        const v16 weight = v16_set(bags->weights ? bags->weights[i] : 1);
        for (int w = 0; w < width; w++) {
            const v16 x = w + 1 < width || last == 16 ? v16_load(row + 16 * w) : v16_load_first(row + 16 * w, last);
            sums[w] = bags->weights ? v16_fma(weight, x, sums[w]) : v16_add(sums[w], x);
        }
    }
    const v16 count = v16_set((float)(end - begin));
    for (int w = 0; w < width; w++) {
        const v16 sum = bags->mean && begin < end ? v16_divide(sums[w], count) : sums[w];
        v16_store_first(out + k + 16 * w, sum, w + 1 < width ? 16 : last);
    }
}

/* The bag of positions [begin, end), all good, into out[dim]. Good positions go on up to `limit`: what may be prefetched. */
static inline void td_bag_pool(const td_bags *bags, int64_t begin, int64_t end, int64_t limit, float *out)
{
    const int64_t dim = bags->lookup.dim;
    int64_t k = 0;
    if (dim == 16) {
        td_bag_columns(bags, begin, end, limit, 0, 1, 16, out);
        return;
    }
    for (; k + 64 <= dim; k += 64)
        td_bag_columns(bags, begin, end, limit, k, 4, 16, out);
    for (; k + 16 <= dim; k += 16)
        td_bag_columns(bags, begin, end, limit, k, 1, 16, out);
    if (k < dim)
        td_bag_columns(bags, begin, end, limit, k, 1, dim - k, out);
}

#endif
