/* A click log that exists only as a function: row i of seed s, with the probability behind its label.
 *
 * Each row draws dense features, ids and a label from Philox at (row, draw), so any row can be made alone, in any
 * order, on any thread. The label is Bernoulli of a logistic model:
 *
 *     logit = bias + sum_j w_j x_j + sum_t e_t(id_t) + c sum_(a,b) g_a(id_a) g_b(id_b)
 *
 * x_j is bell-shaped with variance 1. e and g are hidden numbers per id, hashes of (seed, table, id) with variance 1
 * before scaling: the dense part, the ids and the interactions of neighbouring tables (0,1), (2,3), ... give variances
 * of about 0.4, 1 and 0.4. With bags, e_t and g_t are sums over the bag, divided by the root of its mean length.
 * Popularity: the table's ranks are Zipf-like with exponent `skew` (constant within octaves of ranks); an id's effect
 * fades with its octave beyond the first few thousand ranks, so that what can be learned does not wait for rare ids;
 * ranks are scattered over the table. About a quarter of all labels is 1. Everything is integer or own arithmetic: the
 * same rows on every machine. */
#ifndef TANDEM_DATA_CLICK_MODEL_H
#define TANDEM_DATA_CLICK_MODEL_H

#include "base/philox.h"
#include "tandem/data.h"

enum { TD_CLICK_OCTAVES = 45, TD_CLICK_GUIDES = 64 };

typedef struct td_click_table {
    uint64_t rows, multiplier, offset; /* id = (rank * multiplier + offset) modulo rows */
    uint64_t key;                      /* of its hidden numbers */
    int32_t n_octaves;
    uint32_t below[TD_CLICK_OCTAVES]; /* octave k where below[k - 1] <= bits < below[k] */
    uint8_t guide[TD_CLICK_GUIDES];   /* the first octave to look at, by the top six bits */
} td_click_table;

typedef struct td_click_model {
    td_philox_key key;
    int32_t n_dense, n_tables;
    int64_t bag;
    double bias, dense_scale, id_scale, pair_scale;
    float *weights; /* [n_dense] */
    td_click_table *tables;
} td_click_model;

/* Where a row goes: element i of each; what is NULL is left out. ids[t]: one id per row, or with offsets[t] (bag > 1)
 * the ids of all rows one after the other, offsets[t][i + 1] being set. */
typedef struct td_click_sink {
    float *dense, *label;
    int64_t *const *ids;
    int64_t *const *offsets;
} td_click_sink;

td_status *td_click_model_create(const td_synthetic_options *options, int32_t n_tables, const int64_t *table_rows,
                                 td_click_model **out_model) TD_MUST_USE;
void td_click_model_destroy(td_click_model *model);
/* Row `row` into element `i` of the sink; returns the true logit, *out_label the label. */
double td_click_model_row(const td_click_model *model, int64_t row, int64_t i, const td_click_sink *sink,
                          float *out_label);

#endif
