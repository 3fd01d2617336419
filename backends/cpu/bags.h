/* The sum of one bag's rows, vectorised over the row: the inner loop of every kernel that pools. Not a kernel.
 *
 * Elements are independent of each other; each adds its rows in position order from zero (one fma with weights), and the mean
 * divides once, as the reference kernels do. So any cut of a row into pieces gives the same bits. */
#ifndef TANDEM_BACKENDS_CPU_BAGS_H
#define TANDEM_BACKENDS_CPU_BAGS_H

#include "backends/cpu/kernels/vectors.h"
#include "backends/cpu/lookups.h"
#include "base/rows16.h"

typedef struct td_bags {
    td_cpu_lookup lookup;
    const float *weights; /* per id, or NULL */
    bool mean;
} td_bags;

/* Positions [begin, end); good positions go on up to `limit`: what may be prefetched. */
typedef struct td_bag_span {
    int64_t begin, end, limit;
} td_bag_span;

TD_PREFETCHES void td_bag_prefetch(const td_bags *bags, const td_bag_span *span, int64_t i, int64_t k)
{
    if (k == 0 && i + TD_LOOKUP_PREFETCH < span->limit)
        td_cpu_lookup_prefetch(&bags->lookup, i + TD_LOOKUP_PREFETCH);
}

/* Elements of a row, widened. */
static inline __attribute__((always_inline)) v16 td_bag_load16(const void *row, td_dtype dtype, int64_t k)
{
    if (dtype == TD_F32)
        return v16_load((const float *)row + k);
    return dtype == TD_BF16 ? v16_load_bf16((const uint16_t *)row + k) : v16_load_f16((const uint16_t *)row + k);
}

static inline __attribute__((always_inline)) float td_bag_load(const void *row, td_dtype dtype, int64_t k)
{
    if (dtype == TD_F32)
        return ((const float *)row)[k];
    return dtype == TD_BF16 ? td_bf16_to_f32(((const uint16_t *)row)[k]) : td_f16_to_f32(((const uint16_t *)row)[k]);
}

/* `width` vectors of 16 from column k on. Constant width and kind: sums stay in registers. */
static inline __attribute__((always_inline)) void td_bag_vectors(const td_bags *bags, const td_bag_span *span,
                                                                 td_dtype dtype, bool weighted, int64_t k, int width,
                                                                 float *out)
{
    v16 sums[4] = {v16_set(0), v16_set(0), v16_set(0), v16_set(0)};
    for (int64_t i = span->begin; i < span->end; i++) {
        const void *row = td_cpu_lookup_row(&bags->lookup, i);
        td_bag_prefetch(bags, span, i, k);
        const v16 weight = v16_set(weighted ? bags->weights[i] : 1);
        for (int w = 0; w < width; w++) {
            const v16 x = td_bag_load16(row, dtype, k + 16 * w);
            sums[w] = weighted ? v16_fma(weight, x, sums[w]) : v16_add(sums[w], x);
        }
    }
    const v16 count = v16_set((float)(span->end - span->begin));
    for (int w = 0; w < width; w++)
        v16_store(out + k + 16 * w, bags->mean && span->begin < span->end ? v16_divide(sums[w], count) : sums[w]);
}

/* The same for `width` elements, fewer than 16. */
static inline __attribute__((always_inline)) void td_bag_elements(const td_bags *bags, const td_bag_span *span,
                                                                  td_dtype dtype, bool weighted, int64_t k, int width,
                                                                  float *out)
{
    float sums[8] = {0};
    for (int64_t i = span->begin; i < span->end; i++) {
        const void *row = td_cpu_lookup_row(&bags->lookup, i);
        td_bag_prefetch(bags, span, i, k);
        const float weight = weighted ? bags->weights[i] : 1;
        for (int w = 0; w < width; w++) {
            const float x = td_bag_load(row, dtype, k + w);
            sums[w] = weighted ? fmaf(weight, x, sums[w]) : sums[w] + x;
        }
    }
    const float count = (float)(span->end - span->begin);
    for (int w = 0; w < width; w++)
        out[k + w] = bags->mean && span->begin < span->end ? sums[w] / count : sums[w];
}

static inline __attribute__((always_inline)) void td_bag_pool_as(const td_bags *bags, const td_bag_span *span,
                                                                 td_dtype dtype, bool weighted, float *out)
{
    const int64_t dim = bags->lookup.dim;
    int64_t k = 0;
    for (; k + 64 <= dim; k += 64)
        td_bag_vectors(bags, span, dtype, weighted, k, 4, out);
    if (k + 32 <= dim) {
        td_bag_vectors(bags, span, dtype, weighted, k, 2, out);
        k += 32;
    }
    if (k + 16 <= dim) {
        td_bag_vectors(bags, span, dtype, weighted, k, 1, out);
        k += 16;
    }
    if (k + 8 <= dim) {
        td_bag_elements(bags, span, dtype, weighted, k, 8, out);
        k += 8;
    }
    if (k + 4 <= dim) {
        td_bag_elements(bags, span, dtype, weighted, k, 4, out);
        k += 4;
    }
    if (k + 2 <= dim) {
        td_bag_elements(bags, span, dtype, weighted, k, 2, out);
        k += 2;
    }
    if (k < dim)
        td_bag_elements(bags, span, dtype, weighted, k, 1, out);
}

/* The bag of positions [begin, end), all good, into out[dim]. */
static inline void td_bag_pool(const td_bags *bags, int64_t begin, int64_t end, int64_t limit, float *out)
{
    const td_bag_span span = {begin, end, limit};
    const td_dtype dtype = bags->lookup.dtype;
    if (dtype == TD_F32 && !bags->weights)
        td_bag_pool_as(bags, &span, TD_F32, false, out);
    else if (dtype == TD_F32)
        td_bag_pool_as(bags, &span, TD_F32, true, out);
    else if (dtype == TD_BF16)
        td_bag_pool_as(bags, &span, TD_BF16, bags->weights != NULL, out);
    else
        td_bag_pool_as(bags, &span, TD_F16, bags->weights != NULL, out);
}

/* The row at a good position, widened into out[dim]. */
static inline void td_bag_copy_row(const td_cpu_lookup *lookup, int64_t position, float *restrict out)
{
    const int64_t dim = lookup->dim;
    const void *row = td_cpu_lookup_row(lookup, position);
    if (lookup->dtype == TD_F32 && dim == 16)
        v16_store(out, v16_load(row));
    else if (lookup->dtype == TD_F32)
        memcpy(out, row, (size_t)dim * sizeof *out);
    else
        td_widen_row(row, lookup->dtype, dim, out);
}

#endif
