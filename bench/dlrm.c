/* One training step of DLRM: bottom MLP over numbers, one lookup per table, dot products of all pairs, top MLP; binary
 * cross-entropy, SGD. Tables start in U(-0.01, 0.01): from N(0, 1), torch's own, sums of 100 rows drive the loss to NaN at once.
 *
 *     dense [B, n] -> bottom.0 .. (ReLU after each) -> x [B, dim];  ids_t<i> -> table.<i> -> bag.<i> [B, dim]
 *     [x, dot products below the diagonal] -> top.0 .. (ReLU between) -> logit [B, 1] -> loss */
#include <string.h>

#include "bench/workload.h"

enum { MOST_TABLES = 26, MOST_LAYERS = 4 };

typedef struct shape {
    int64_t rows[MOST_TABLES];
    int64_t tables, dim, batch, bag, dense;
    int64_t bottom[MOST_LAYERS], top[MOST_LAYERS];
    int32_t n_bottom, n_top;
} shape;

/* Rows as published for the Criteo Kaggle set, capped at 2,000,000. */
static const shape kaggle = {
    .rows = {1460, 583,   2000000, 2000000, 305,  24,   12517, 633,     3,  93145, 5683,   2000000, 3194,
             27,   14992, 2000000, 10,      5652, 2173, 4,     2000000, 18, 15,    286181, 105,     142572},
    .tables = 26,
    .dim = 16,
    .batch = 2048,
    .bag = 1,
    .dense = 13,
    .bottom = {512, 256, 64, 16},
    .n_bottom = 4,
    .top = {512, 256, 1},
    .n_top = 3,
};
static const shape large = {
    .rows = {1000000, 1000000, 1000000, 1000000, 1000000, 1000000, 1000000, 1000000},
    .tables = 8,
    .dim = 64,
    .batch = 512,
    .bag = 100,
    .dense = 512,
    .bottom = {512, 64},
    .n_bottom = 2,
    .top = {1024, 1024, 1024, 1},
    .n_top = 4,
};

/* ---- data ------------------------------------------------------------------------------------------------------------------- */

/* The ids of a table: [B] where bags have one each, else bags. */
static td_status *fill_ids(td_workload *out, const shape *s, int32_t index, int64_t table, int64_t *offsets,
                           td_bench_random *random, int64_t *rows_touched)
{
    int64_t n = s->batch * s->bag, distinct = 0, *ids = td_workload_memory(out, (size_t)n * sizeof *ids);
    const char *name = td_workload_text(out, "ids_t%lld", (long long)table);
    if (!ids)
        return td_workload_check(out);
    td_bench_zipf(random, s->rows[table], 1.15, n, ids);
    TD_TRY(td_bench_distinct(ids, n, s->rows[table], &distinct));
    *rows_touched += distinct;
    if (s->bag == 1)
        td_workload_dense(out, index, name, TD_I64, 1, &n, ids);
    else
        td_workload_ragged(out, index, name, s->batch, ids, offsets);
    return NULL;
}

static void fill_numbers(td_workload *out, int32_t index, const char *name, int64_t batch, int64_t columns, bool labels,
                         td_bench_random *random)
{
    float *data = td_workload_memory(out, (size_t)(batch * columns) * sizeof *data);
    for (int64_t i = 0; data && i < batch * columns; i++) {
        double u = td_bench_uniform(random);
        data[i] = labels ? (float)(u < 0.5) : (float)u;
    }
    td_workload_dense(out, index, name, TD_F32, 2, (int64_t[]){batch, columns}, data);
}

static td_status *fill_batches(td_workload *out, const shape *s, double *out_rows_touched)
{
    td_bench_random random = {.state = 727};
    int64_t touched = 0, *offsets = td_workload_memory(out, (size_t)(s->batch + 1) * sizeof *offsets);
    for (int64_t i = 0; offsets && i <= s->batch; i++)
        offsets[i] = i * s->bag;
    TD_TRY(td_workload_check(out));
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        out->batches[i].samples = s->batch;
        fill_numbers(out, i, "dense", s->batch, s->dense, false, &random);
        fill_numbers(out, i, "label", s->batch, 1, true, &random);
        for (int64_t t = 0; t < s->tables; t++)
            TD_TRY(fill_ids(out, s, i, t, offsets, &random, &touched));
    }
    *out_rows_touched = (double)touched / TD_WORKLOAD_BATCHES;
    return NULL;
}

/* ---- model ------------------------------------------------------------------------------------------------------------------ */

static td_value build_mlp(td_workload *out, td_value x, const char *name, const int64_t *sizes, int32_t n,
                          bool last_is_linear)
{
    for (int32_t i = 0; i < n; i++) {
        double in = (double)td_value_dim(x, 1);
        x = td_linear(x, sizes[i], td_workload_text(out, "%s.%d", name, i));
        if (!(last_is_linear && i == n - 1))
            x = td_relu(x);
        /* forward, gradient of the weight and, but for the model's own input, gradient of the input */
        out->flops +=
            (strcmp(name, "bottom") == 0 && i == 0 ? 4.0 : 6.0) * (double)out->samples * in * (double)sizes[i];
    }
    return x;
}

static td_value build_vector(td_workload *out, const shape *s, int64_t table, td_dim batch)
{
    const char *name = td_workload_text(out, "ids_t%lld", (long long)table);
    td_value weight = td_parameter(out->graph, td_workload_text(out, "table.%lld.weight", (long long)table), TD_F32,
                                   TD_SHAPE(s->rows[table], s->dim), td_init_uniform(0.01));
    td_value ids =
        s->bag == 1 ? td_input(out->graph, name, TD_I64, TD_SHAPE(batch))
                    : td_input_ragged(out->graph, name, TD_I64, batch, td_extent(out->graph, "ids", s->batch * s->bag));
    return td_name(td_embedding_bag(weight, ids, TD_SUM), td_workload_text(out, "bag.%lld", (long long)table));
}

static void build_model(td_workload *out, const shape *s)
{
    td_dim batch = td_extent(out->graph, "B", s->batch);
    td_value dense = td_input(out->graph, "dense", TD_F32, TD_SHAPE(batch, s->dense));
    td_value label = td_input(out->graph, "label", TD_F32, TD_SHAPE(batch, 1));
    td_value vectors[MOST_TABLES + 1];
    vectors[0] = build_mlp(out, dense, "bottom", s->bottom, s->n_bottom, false);
    for (int64_t t = 0; t < s->tables; t++)
        vectors[t + 1] = build_vector(out, s, t, batch);
    td_value dots = td_name(td_dot_interaction((int32_t)s->tables + 1, vectors), "interaction");
    td_value features = td_name(td_concat(2, (td_value[]){vectors[0], dots}, 1), "features");
    td_value logit = build_mlp(out, features, "top", s->top, s->n_top, true);
    out->loss = td_name(td_bce_with_logits(logit, label), "loss");
    td_group(&out->options, "*", td_sgd(0.01));
}

/* Parameters of the layers: read forward and backward, gradient written and read, updated. */
static double dense_parameters(const shape *s)
{
    double sum = 0, in = (double)s->dense;
    for (int32_t i = 0; i < s->n_bottom; in = (double)s->bottom[i++])
        sum += (in + 1) * (double)s->bottom[i];
    in = (double)(s->dim + (s->tables + 1) * s->tables / 2);
    for (int32_t i = 0; i < s->n_top; in = (double)s->top[i++])
        sum += (in + 1) * (double)s->top[i];
    return sum;
}

/* The least that must move: ids and numbers in, looked-up vectors out and in again, their gradients likewise, each touched
 * row once in and once out, parameters of layers once in and once out. Activations of layers count as cached. */
static void set_work(td_workload *out, const shape *s, double rows_touched)
{
    double vectors = (double)(s->batch * (s->tables + 1) * s->dim), pairs = (double)(s->tables * (s->tables + 1) / 2);
    out->row_size = sizeof(float) * (double)s->dim;
    out->row_bytes = 2 * rows_touched * out->row_size;
    out->flops += 3 * 2 * (double)(s->batch * s->dim) * pairs + 2 * (double)(s->batch * s->tables * s->bag * s->dim);
    out->stream_bytes = sizeof(int64_t) * (double)(s->batch * s->tables * s->bag) +
                        sizeof(float) * ((double)(s->batch * s->dense) + 4 * vectors + 2 * dense_parameters(s));
}

td_status *td_bench_dlrm(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    shape s = strncmp(self->name, "dlrm.kaggle", strlen("dlrm.kaggle")) ? large : kaggle;
    double rows_touched = 0;
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--dim", (double)request->dim));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    s.batch = request->batch ? request->batch : s.batch;
    for (int64_t t = 0; request->rows && t < s.tables; t++)
        s.rows[t] = s.rows[t] < request->rows ? s.rows[t] : request->rows;
    out->samples = s.batch;
    out->options.precision = strstr(self->name, ".bf16") ? TD_MIXED_BF16 : TD_FP32;
    TD_TRY(fill_batches(out, &s, &rows_touched));
    build_model(out, &s);
    set_work(out, &s, rows_touched);
    td_workload_fact(out, "batch", (double)s.batch);
    return td_workload_check(out);
}
