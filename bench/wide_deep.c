/* One training step of Wide & Deep over 39 fields that share two tables: FTRL on the wide one, lazy Adam on the deep one,
 * Adam on the layers.
 *
 *     ids, values [B, 39] -> wide.weight [rows, 1]: weighted sum -> wide [B, 1]
 *     ids, values         -> deep.weight [rows, 16]: weighted rows [B, 39 x 16] -> mlp.0 .. -> deep [B, 1]
 *     wide + deep -> loss (binary cross-entropy) */
#include "bench/workload.h"

enum { FIELDS = 39, DIM = 16, LAYERS = 5 };
static const int64_t sizes[LAYERS] = {1024, 512, 256, 128, 1};

typedef struct shape {
    int64_t rows, batch;
} shape;

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
    td_bench_random random = {.state = 3};
    int64_t touched = 0, n = s->batch * FIELDS;
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        int64_t distinct = 0, *ids = td_workload_memory(out, (size_t)n * sizeof *ids);
        if (!ids)
            return td_workload_check(out);
        td_bench_zipf(&random, s->rows, 1.15, n, ids);
        TD_TRY(td_bench_distinct(ids, n, s->rows, &distinct));
        touched += distinct;
        out->batches[i].samples = s->batch;
        td_workload_dense(out, i, "ids", TD_I64, 2, (int64_t[]){s->batch, FIELDS}, ids);
        fill_numbers(out, i, "values", s->batch, FIELDS, false, &random);
        fill_numbers(out, i, "label", s->batch, 1, true, &random);
    }
    *out_rows_touched = (double)touched / TD_WORKLOAD_BATCHES;
    return NULL;
}

static td_value build_deep(td_workload *out, td_value x)
{
    for (int32_t i = 0; i < LAYERS; i++) {
        double in = (double)td_value_dim(x, 1);
        x = td_linear(x, sizes[i], td_workload_text(out, "mlp.%d", i));
        if (i < LAYERS - 1)
            x = td_relu(x);
        out->flops += 6.0 * (double)out->samples * in * (double)sizes[i];
        out->stream_bytes +=
            sizeof(float) * 6 * (in + 1) * (double)sizes[i]; /* parameter and two moments, in and out */
    }
    return x;
}

static void build_model(td_workload *out, const shape *s)
{
    td_dim batch = td_extent(out->graph, "B", s->batch);
    td_value ids = td_input(out->graph, "ids", TD_I64, TD_SHAPE(batch, FIELDS));
    td_value values = td_input(out->graph, "values", TD_F32, TD_SHAPE(batch, FIELDS));
    td_value label = td_input(out->graph, "label", TD_F32, TD_SHAPE(batch, 1));
    td_value wide = td_parameter(out->graph, "wide.weight", TD_F32, TD_SHAPE(s->rows, 1), td_init_normal(0, 0.01));
    td_value deep = td_parameter(out->graph, "deep.weight", TD_F32, TD_SHAPE(s->rows, DIM), td_init_normal(0, 0.01));
    td_embedding_options weighted = {.pooling = TD_SUM, .weights = values};
    td_value wide_logit = td_name(td_embedding_bag_with(wide, ids, weighted), "wide");
    td_dim fields = {.extent = batch.extent, .multiple = FIELDS}; /* each field of each sample is a bag of its own */
    td_embedding_options weighted_rows = {.weights = td_name(td_reshape(values, TD_SHAPE(fields)), "field_values")};
    td_value rows = td_embedding_bag_with(deep, td_name(td_reshape(ids, TD_SHAPE(fields)), "field_ids"), weighted_rows);
    td_value features = td_reshape(td_name(rows, "rows"), TD_SHAPE(batch, FIELDS * DIM));
    td_value deep_logit = build_deep(out, td_name(features, "features"));
    out->loss = td_name(td_bce_with_logits(td_name(td_add(deep_logit, wide_logit), "logit"), label), "loss");
    td_group(&out->options, "wide.weight",
             td_ftrl(5e-2, .l1 = 1e-8, .l2 = 2e-8)); /* l2: 2e-8 is what MindSpore calls 1e-8 */
    td_group(&out->options, "deep.weight", td_lazy_adam(1e-3));
    td_group(&out->options, "*", td_adam(1e-3));
}

td_status *td_bench_wide_deep(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    shape s = {.rows = request->rows ? request->rows : 2000000, .batch = request->batch ? request->batch : 2048};
    double rows_touched = 0;
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--dim", (double)request->dim));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    out->samples = s.batch;
    out->runs = 9;
    TD_TRY(fill_batches(out, &s, &rows_touched));
    build_model(out, &s);
    /* the least that must move: ids and values in; looked-up rows out, in, and their gradients likewise; a touched row of
     * each table and its two moments once in and once out */
    out->row_size = sizeof(float) * DIM;
    out->row_bytes = 2 * rows_touched * 3 * sizeof(float) * (DIM + 1);
    out->stream_bytes += (double)(s.batch * FIELDS) * (sizeof(int64_t) + sizeof(float) * (1 + 4.0 * DIM));
    td_workload_fact(out, "rows", (double)s.rows);
    td_workload_fact(out, "batch", (double)s.batch);
    return td_workload_check(out);
}
