/* The gradient of one row of a table: rows of gradients added up, vectorised over the row. Not a kernel.
 *
 * Elements are independent of each other, each adds its positions in order, so any cut of a row into pieces gives the same
 * bits. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_ROW_SUMS_H
#define TANDEM_BACKENDS_CPU_KERNELS_ROW_SUMS_H

#include "backends/cpu/kernels/vectors.h"
#include "backends/cpu/table_updates.h"

/* Items order[0 .. n), n at least 1, all of one source. */
typedef struct row_span {
    const td_table_source *source;
    const td_row_item *items;
    const uint32_t *order;
    int64_t n;
} row_span;

static inline const float *row_span_gradient(const row_span *span, int64_t i)
{
    return span->source->gradient + span->items[span->order[i]].bag * span->source->pitch;
}

static inline float row_span_weight(const row_span *span, int64_t i)
{
    return span->source->weights ? span->source->weights[span->items[span->order[i]].position] : 1;
}

static inline float row_span_count(const row_span *span, int64_t i)
{
    const td_lookup *lookup = &span->source->lookup;
    const int64_t bag = span->items[span->order[i]].bag;
    return span->source->mean ? (float)(td_lookup_begin(lookup, bag + 1) - td_lookup_begin(lookup, bag)) : 1;
}

/* What item i adds: 16 elements from column k on. */
static inline __attribute__((always_inline)) v16 row_span_term(const row_span *span, bool scaled, int64_t i, int64_t k)
{
    const v16 x = v16_load(row_span_gradient(span, i) + k);
    if (!scaled)
        return x;
    return v16_divide(v16_multiply(x, v16_set(row_span_weight(span, i))), v16_set(row_span_count(span, i)));
}

/* `width` vectors of 16 from column k on. Constant width: sums stay in registers. */
static inline __attribute__((always_inline)) void row_sum_vectors(const row_span *span, bool scaled, int64_t k,
                                                                  int width, float *sum)
{
    v16 sums[4] = {v16_set(0), v16_set(0), v16_set(0), v16_set(0)};
    for (int w = 0; w < width; w++)
        sums[w] = row_span_term(span, scaled, 0, k + 16 * w);
    for (int64_t i = 1; i < span->n; i++)
        for (int w = 0; w < width; w++)
            sums[w] = v16_add(sums[w], row_span_term(span, scaled, i, k + 16 * w));
    for (int w = 0; w < width; w++)
        v16_store(sum + k + 16 * w, sums[w]);
}

static inline __attribute__((always_inline)) void row_sum_elements(const row_span *span, bool scaled, int64_t k,
                                                                   int width, float *sum)
{
    float sums[8] = {0};
    for (int64_t i = 0; i < span->n; i++) {
        const float *gradient = row_span_gradient(span, i) + k;
        const float weight = scaled ? row_span_weight(span, i) : 1, count = scaled ? row_span_count(span, i) : 1;
        for (int w = 0; w < width; w++) {
            const float x = scaled ? gradient[w] * weight / count : gradient[w];
            sums[w] = i == 0 ? x : sums[w] + x;
        }
    }
    for (int w = 0; w < width; w++)
        sum[k + w] = sums[w];
}

static inline __attribute__((always_inline)) void row_sum_as(const row_span *span, bool scaled, int64_t dim, float *sum)
{
    int64_t k = 0;
    for (; k + 64 <= dim; k += 64)
        row_sum_vectors(span, scaled, k, 4, sum);
    if (k + 32 <= dim) {
        row_sum_vectors(span, scaled, k, 2, sum);
        k += 32;
    }
    if (k + 16 <= dim) {
        row_sum_vectors(span, scaled, k, 1, sum);
        k += 16;
    }
    if (k + 8 <= dim) {
        row_sum_elements(span, scaled, k, 8, sum);
        k += 8;
    }
    if (k + 4 <= dim) {
        row_sum_elements(span, scaled, k, 4, sum);
        k += 4;
    }
    if (k + 2 <= dim) {
        row_sum_elements(span, scaled, k, 2, sum);
        k += 2;
    }
    if (k < dim)
        row_sum_elements(span, scaled, k, 1, sum);
}

/* The sum of a span: a row of the gradient itself where that is all, else in `sum`. */
static inline const float *row_sum(const row_span *span, int64_t dim, float *sum)
{
    const bool scaled = span->source->weights || span->source->mean;
    if (span->n == 1 && !scaled)
        return row_span_gradient(span, 0);
    if (scaled)
        row_sum_as(span, true, dim, sum);
    else
        row_sum_as(span, false, dim, sum);
    return sum;
}

#endif
