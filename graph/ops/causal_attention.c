/* causal_attention: each position attends to itself and those before it, per head, and its gradient.
 *
 *     y[i] = sum over j <= i of softmax_j(q[i] . k[j] / sqrt(d)) v[j]
 *
 * The input is what one linear layer makes of a token: q, k and v, `width` each, in this order; head h takes the d = width /
 * heads columns from h d on. Kernels go through the scores block by block and never hold the whole matrix (Dao et al. 2022); all
 * that is kept for the gradient is each row's ln of the sum of its exponentials. Its order of additions is the kernel's own:
 * here is plain softmax, in double. */
#include <math.h>

#include "graph/ops/in_f32.h"
#include "graph/ops/rules.h"

static const td_attr_spec attention_attrs[] = {
    {.name = "heads", .type = TD_ATTR_INT, .required = true, .help = "independent parts of the width"}, {0}};

/* Input `index` is floats [samples, positions, columns], columns a constant multiple of `parts`. */
static td_status *require_rows(const td_infer *infer, int32_t index, int64_t parts)
{
    TD_TRY(td_infer_dense(infer, index, TD_FLOATS));
    const td_shape *x = &infer->inputs[index].shape;
    const bool fits = parts >= 1 && x->rank == 3 && x->dims[2].extent < 0 && x->dims[2].constant > 0 &&
                      x->dims[2].constant % parts == 0;
    char text[160];
    if (!fits)
        return TD_SHAPE_ERROR(
            infer, "%s is %s; it must be [samples, positions, columns], the columns a multiple of %lld",
            td_infer_port(infer, index), td_shape_text(infer->graph, x, text, sizeof text), (long long)parts);
    return NULL;
}

static td_status *require_heads(const td_infer *infer, int64_t *out_heads)
{
    *out_heads = td_attr_int(infer->attrs, infer->n_attrs, "heads", 1);
    if (*out_heads >= 1 && *out_heads <= INT32_MAX / 3)
        return NULL;
    return TD_SHAPE_ERROR(infer, "heads %lld must be from 1 to %d", (long long)*out_heads, INT32_MAX / 3);
}

static td_status *infer(td_infer *infer)
{
    int64_t heads;
    TD_TRY(require_heads(infer, &heads));
    TD_TRY(require_rows(infer, 0, 3 * heads));
    const td_shape *qkv = &infer->inputs[0].shape;
    infer->outputs[0] = infer->outputs[1] = infer->inputs[0];
    infer->outputs[0].shape.dims[2] = td_dim_constant(qkv->dims[2].constant / 3);
    infer->outputs[1].shape.dims[1] = td_dim_constant(heads);
    infer->outputs[1].shape.dims[2] = qkv->dims[1];
    infer->outputs[1].dtype = TD_F32;
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    const td_value inputs[4] = {d->output_gradients[0], d->inputs[0], d->outputs[0], d->outputs[1]};
    const td_attr attrs[1] = {TD_INT("heads", td_attr_int(d->attrs, d->n_attrs, "heads", 1))};
    d->input_gradients[0] = td_graph_add1(d->graph, "causal_attention_gradient", NULL, inputs, 4, attrs, 1);
    return NULL;
}

/* Half of the scores, each used in `products` products of vectors of d. */
static void attention_cost(const td_kernel_call *call, const td_tensor *qkv, double products, td_cost *out_cost)
{
    const double samples = (double)qkv->dims[0], positions = (double)qkv->dims[1], width = (double)qkv->dims[2] / 3;
    td_cost_bytes(call, out_cost);
    out_cost->flops = products * samples * positions * (positions + 1) * width;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    attention_cost(call, &call->inputs[0], 2, out_cost);
}

/* Sizes of a call, and where one head of one sample is. */
typedef struct head {
    int64_t positions, width, d;
    double scale;
    const float *q, *k, *v; /* rows 3 width apart */
} head;

static head head_of(const td_tensor *qkv, int64_t heads, int64_t sample, int64_t index)
{
    head h = {.positions = qkv->dims[1], .width = qkv->dims[2] / 3};
    h.d = h.width / heads;
    h.scale = 1 / sqrt((double)h.d);
    h.q = (const float *)qkv->data + sample * h.positions * 3 * h.width + index * h.d;
    h.k = h.q + h.width;
    h.v = h.k + h.width;
    return h;
}

static double product(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double score_of(const head *h, int64_t i, int64_t j)
{
    return h->scale * product(h->q + i * 3 * h->width, h->k + j * 3 * h->width, h->d);
}

static double log_sum_of(const head *h, int64_t i)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++)
        most = fmax(most, score_of(h, i, j));
    for (int64_t j = 0; j <= i; j++)
        sum += exp(score_of(h, i, j) - most);
    return most + log(sum);
}

static void attend(const head *h, int64_t i, float *y, float *log_sum)
{
    const double logarithm = log_sum_of(h, i);
    for (int64_t column = 0; column < h->d; column++) {
        double sum = 0;
        for (int64_t j = 0; j <= i; j++)
            sum += exp(score_of(h, i, j) - logarithm) * (double)h->v[j * 3 * h->width + column];
        y[column] = (float)sum;
    }
    *log_sum = (float)logarithm;
}

static td_status *reference_f32(const td_kernel_call *call)
{
    const td_tensor *qkv = &call->inputs[0];
    const int64_t heads = td_attr_int(call->attrs, call->n_attrs, "heads", 1), rows = qkv->dims[0] * heads;
    for (int64_t row = 0; row < rows; row++) {
        const head h = head_of(qkv, heads, row / heads, row % heads);
        float *y = (float *)call->outputs[0].data + row / heads * h.positions * h.width + row % heads * h.d;
        float *log_sums = (float *)call->outputs[1].data + row * h.positions;
        for (int64_t i = 0; i < h.positions; i++)
            attend(&h, i, y + i * h.width, log_sums + i);
    }
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, reference_f32);
}

const td_op td_op_causal_attention = {
    .name = "causal_attention",
    .summary = "attention of every position to itself and those before, of [q, k, v] side by side",
    .inputs = {{"qkv", 0}},
    .outputs = {{"y", 0}, {"log_sum", TD_PORT_NO_GRADIENT}},
    .attrs = attention_attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

enum { GRADIENT, QKV, OUTPUT, LOG_SUM };

static td_status *infer_gradient(td_infer *infer)
{
    int64_t heads;
    TD_TRY(require_heads(infer, &heads));
    TD_TRY(require_rows(infer, QKV, 3 * heads));
    TD_TRY(require_rows(infer, GRADIENT, heads));
    TD_TRY(require_rows(infer, OUTPUT, heads));
    TD_TRY(td_infer_same_dtype(infer, QKV, GRADIENT));
    TD_TRY(td_infer_same_dtype(infer, QKV, OUTPUT));
    TD_TRY(td_infer_require(infer, LOG_SUM, TD_DENSE, TD_F32));
    const td_shape *qkv = &infer->inputs[QKV].shape, *log_sum = &infer->inputs[LOG_SUM].shape;
    td_shape y = *qkv;
    y.dims[2] = td_dim_constant(qkv->dims[2].constant / 3);
    if (!td_shape_equal(&infer->inputs[GRADIENT].shape, &y) || !td_shape_equal(&infer->inputs[OUTPUT].shape, &y) ||
        log_sum->rank != 3 || !td_dim_equal(log_sum->dims[0], qkv->dims[0]) || !td_dim_is(log_sum->dims[1], heads) ||
        !td_dim_equal(log_sum->dims[2], qkv->dims[1]))
        return TD_SHAPE_ERROR(infer, "dy, y and log_sum are not what attention makes of qkv");
    infer->outputs[0] = infer->inputs[QKV];
    return NULL;
}

static void cost_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    attention_cost(call, &call->inputs[QKV], 5, out_cost);
}

/* With p_ij the weights and g_ij = dy_i . v_j: ds_ij = p_ij (g_ij - dy_i . y_i). */
typedef struct head_gradient {
    head h;
    const float *dy, *y, *log_sum; /* dy, y: rows `width` apart */
    float *dq;                     /* dk and dv follow, `width` apart */
} head_gradient;

static double weight_of(const head_gradient *g, int64_t i, int64_t j)
{
    return exp(score_of(&g->h, i, j) - (double)g->log_sum[i]);
}

static double score_gradient(const head_gradient *g, int64_t i, int64_t j)
{
    const float *dy = g->dy + i * g->h.width;
    const double of_weight = product(dy, g->h.v + j * 3 * g->h.width, g->h.d);
    return weight_of(g, i, j) * (of_weight - product(dy, g->y + i * g->h.width, g->h.d)) * g->h.scale;
}

/* One column of the gradients of q, k and v at position `at`. */
static void position_gradient(const head_gradient *g, int64_t at, int64_t column)
{
    const int64_t step = 3 * g->h.width;
    double dq = 0, dk = 0, dv = 0;
    for (int64_t j = 0; j <= at; j++)
        dq += score_gradient(g, at, j) * (double)g->h.k[j * step + column];
    for (int64_t i = at; i < g->h.positions; i++) {
        dk += score_gradient(g, i, at) * (double)g->h.q[i * step + column];
        dv += weight_of(g, i, at) * (double)g->dy[i * g->h.width + column];
    }
    float *out = g->dq + at * step + column;
    out[0] = (float)dq;
    out[g->h.width] = (float)dk;
    out[2 * g->h.width] = (float)dv;
}

static td_status *reference_gradient_f32(const td_kernel_call *call)
{
    const td_tensor *qkv = &call->inputs[QKV];
    const int64_t heads = td_attr_int(call->attrs, call->n_attrs, "heads", 1), rows = qkv->dims[0] * heads;
    for (int64_t row = 0; row < rows; row++) {
        head_gradient g = {.h = head_of(qkv, heads, row / heads, row % heads)};
        const int64_t first = row / heads * g.h.positions * g.h.width + row % heads * g.h.d;
        g.dy = (const float *)call->inputs[GRADIENT].data + first;
        g.y = (const float *)call->inputs[OUTPUT].data + first;
        g.log_sum = (const float *)call->inputs[LOG_SUM].data + row * g.h.positions;
        g.dq = (float *)call->outputs[0].data + (g.h.q - (const float *)qkv->data);
        for (int64_t at = 0; at < g.h.positions; at++)
            for (int64_t column = 0; column < g.h.d; column++)
                position_gradient(&g, at, column);
    }
    return NULL;
}

static td_status *reference_gradient(const td_kernel_call *call)
{
    return td_reference_in_f32(call, reference_gradient_f32);
}

const td_op td_op_causal_attention_gradient = {
    .name = "causal_attention_gradient",
    .summary = "gradient of causal_attention's q, k and v",
    .inputs = {{"dy", 0}, {"qkv", 0}, {"y", 0}, {"log_sum", 0}},
    .outputs = {{"dqkv", 0}},
    .attrs = attention_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_gradient,
    .reference = reference_gradient,
};

/* ---- builder ------------------------------------------------------------------------------------------------------------- */

td_value td_causal_attention(td_value qkv, int64_t heads)
{
    if (!qkv.graph)
        return TD_NO_VALUE;
    const td_attr attrs[1] = {TD_INT("heads", heads)};
    td_value outputs[2];
    td_graph_add(qkv.graph, "causal_attention", NULL, &qkv, 1, attrs, 1, outputs, 2);
    return outputs[0];
}
