/* Pooled embedding tables: the forward sum alone, and a step with backward and update by each optimizer that takes
 * row-sparse gradients.
 *
 *     ids_t<i> (bags) -> table.<i>.weight -> bag [B, dim] -> concat [B, T dim]; step: loss = <concat, upstream>
 *
 * The peers hand a fixed gradient to the concatenated output. The gradient of the inner product of that output with a fixed
 * input is that input, so our step does the same, and computes a loss besides. */
#include <string.h>

#include "bench/workload.h"

enum { MOST_TABLES = TD_WORKLOAD_MOST_FIELDS - 1 };

typedef struct shape {
    int64_t tables, rows, dim, batch, bag;
    double alpha;
} shape;

static td_status *shape_of(const td_bench_case *self, const td_bench_request *request, shape *out)
{
    out->tables = request->tables ? request->tables : 8;
    out->rows = request->rows ? request->rows : 1000000;
    out->dim = request->dim ? request->dim : 64;
    out->batch = request->batch ? request->batch : 2048;
    out->bag = request->bag ? request->bag : 20;
    out->alpha = request->alpha == TD_BENCH_UNIFORM ? 0 : request->alpha != 0 ? request->alpha : 1.15;
    if (out->tables > MOST_TABLES)
        return TD_ERROR(TD_INVALID_ARGUMENT, "bench: %s has at most %d tables, not %lld", self->name, MOST_TABLES,
                        (long long)out->tables);
    return NULL;
}

/* Ids of all tables for one batch; *rows_touched grows by the different rows of each. */
static td_status *fill_batch(td_workload *out, const shape *s, int32_t index, int64_t *offsets, td_bench_random *random,
                             int64_t *rows_touched)
{
    out->batches[index].samples = s->batch;
    for (int64_t t = 0; t < s->tables; t++) {
        int64_t *ids = td_workload_memory(out, (size_t)(s->batch * s->bag) * sizeof *ids), distinct = 0;
        if (!ids)
            return td_workload_check(out);
        td_bench_zipf(random, s->rows, s->alpha, s->batch * s->bag, ids);
        TD_TRY(td_bench_distinct(ids, s->batch * s->bag, s->rows, &distinct));
        *rows_touched += distinct;
        td_workload_ragged(out, index, td_workload_text(out, "ids_t%lld", (long long)t), s->batch, ids, offsets);
    }
    return NULL;
}

static td_status *fill_batches(td_workload *out, const shape *s, bool training, double *out_rows_touched)
{
    td_bench_random random = {.state = 7};
    int64_t touched = 0, *offsets = td_workload_memory(out, (size_t)(s->batch + 1) * sizeof *offsets);
    float *upstream =
        training ? td_workload_memory(out, (size_t)(s->batch * s->tables * s->dim) * sizeof *upstream) : NULL;
    for (int64_t i = 0; offsets && i <= s->batch; i++)
        offsets[i] = i * s->bag;
    for (int64_t i = 0; upstream && i < s->batch * s->tables * s->dim; i++)
        upstream[i] = (float)(3.4641016 * (td_bench_uniform(&random) - 0.5)); /* deviation 1, as the peers' */
    TD_TRY(td_workload_check(out));
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        TD_TRY(fill_batch(out, s, i, offsets, &random, &touched));
        if (training)
            td_workload_dense(out, i, "upstream", TD_F32, 2, (int64_t[]){s->batch, s->tables * s->dim}, upstream);
    }
    *out_rows_touched = (double)touched / TD_WORKLOAD_BATCHES;
    return NULL;
}

/* [B, T dim] */
static td_value build_bags(td_workload *out, const shape *s)
{
    td_dim batch = td_extent(out->graph, "B", s->batch), ids = td_extent(out->graph, "ids", s->batch * s->bag);
    td_value bags[MOST_TABLES];
    for (int64_t t = 0; t < s->tables; t++) {
        td_value table = td_parameter(out->graph, td_workload_text(out, "table.%lld.weight", (long long)t), TD_F32,
                                      TD_SHAPE(s->rows, s->dim), td_init_uniform(0.05));
        td_value field =
            td_input_ragged(out->graph, td_workload_text(out, "ids_t%lld", (long long)t), TD_I64, batch, ids);
        bags[t] = td_name(td_embedding_bag(table, field, TD_SUM), td_workload_text(out, "bag.%lld", (long long)t));
    }
    return s->tables == 1 ? bags[0] : td_name(td_concat((int32_t)s->tables, bags, 1), "concat");
}

/* The inner product of two [B, n] as one number. */
static td_value inner_product(td_value a, td_value b)
{
    return td_name(td_reduce_sum(td_reduce_sum(td_name(td_mul(a, b), "products"), 1, false), 0, true), "loss");
}

/* Bytes of optimizer state of one row. */
static double state_bytes(const char *rule, int64_t dim)
{
    static const struct {
        const char *rule;
        int32_t moments;
    } known[] = {{"sgd", 0}, {"rowwise_adagrad", 0}, {"adagrad", 1}, {"rmsprop", 1}, {"lion", 1}};
    double moments = 2;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(rule, known[i].rule))
            moments = known[i].moments;
    return sizeof(float) * (moments * (double)dim + !strcmp(rule, "rowwise_adagrad"));
}

/* The least that must move: ids and offsets in, the sums out; each row that is touched, once; in a step also its update,
 * once in and once out with its state, and the upstream gradient in. */
static void set_work(td_workload *out, const shape *s, const char *rule, double rows_touched)
{
    double ids = (double)(s->tables * s->batch * s->bag), sums = (double)(s->tables * s->batch * s->dim);
    out->row_size = sizeof(float) * (double)s->dim;
    out->row_bytes = rows_touched * out->row_size;
    out->flops = ids * (double)s->dim;
    out->stream_bytes = sizeof(int64_t) * ids + sizeof(float) * sums;
    if (!rule)
        return;
    out->row_bytes = 2 * rows_touched * (out->row_size + state_bytes(rule, s->dim));
    out->flops *= 2;
    out->stream_bytes += sizeof(float) * sums;
}

td_status *td_bench_embedding(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    shape s;
    double rows_touched = 0;
    TD_TRY(shape_of(self, request, &s));
    TD_TRY(fill_batches(out, &s, self->rule != NULL, &rows_touched));
    td_value sums = build_bags(out, &s);
    if (self->rule) {
        td_value upstream =
            td_input(out->graph, "upstream", TD_F32, TD_SHAPE(td_extent(out->graph, "B", s.batch), s.tables * s.dim));
        out->loss = inner_product(sums, upstream);
        td_group(&out->options, "*", (td_optimizer){.name = self->rule, .lr = 0.01});
    } else {
        out->output = sums;
    }
    set_work(out, &s, self->rule, rows_touched);
    td_workload_fact(out, "tables", (double)s.tables);
    td_workload_fact(out, "rows", (double)s.rows);
    td_workload_fact(out, "dim", (double)s.dim);
    td_workload_fact(out, "batch", (double)s.batch);
    td_workload_fact(out, "bag", (double)s.bag);
    td_workload_fact(out, "alpha", s.alpha);
    return td_workload_check(out);
}
