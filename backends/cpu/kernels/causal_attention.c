/* causal_attention and its gradient, a block of queries against a block of keys at a time (Dao et al. 2022): no matrix of all
 * scores is ever in memory. Blocks begin at multiples of BLOCK whatever the team, and are taken in ascending order, so bits
 * depend on the shape alone; products are panels (panel.h): one fma per term, ascending.
 *
 * A task of the forward pass is one block of queries of one head of one sample; of the gradient, a head of a sample: the
 * gradients of its keys and values are summed over blocks of queries, those of its queries over blocks of keys. */
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/gemm_pack.h"
#include "base/prefetch.h"

static bool supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

/* Asks for rows [n, d], `leading` apart, to come as near as the second cache: the hardware does not foresee them. */
TD_PREFETCHES void fetch_rows(const attention *a, const float *from, int64_t leading, int64_t n)
{
    enum { LINE_FLOATS = TD_PREFETCH_LINE / sizeof(float) };
    for (int64_t i = 0; i < n; i++)
        for (int64_t column = 0; column < a->d; column += LINE_FLOATS)
            __builtin_prefetch(from + i * leading + column, 0, 2);
}

/* Rows of whole panels. */
typedef struct panel_rows {
    const float *data;
    int64_t leading;
} panel_rows;

/* Rows [n, d], `leading` apart: where they lie if d is whole panels, else as [n, padded] in `memory`, with zeros beyond d. */
static panel_rows rows_in_panels(const attention *a, const float *from, int64_t leading, int64_t n, float *memory)
{
    if (a->d == a->padded)
        return (panel_rows){from, leading};
    memset(memory, 0, (size_t)(n * a->padded) * sizeof *memory);
    for (int64_t i = 0; i < n; i++)
        memcpy(memory + i * a->padded, from + i * leading, (size_t)a->d * sizeof *memory);
    return (panel_rows){memory, a->padded};
}

/* Rows [n, d], `leading` apart, as their transpose [d, BLOCK], with zeros beyond them. Asks for the block of rows after them. */
static void pack_columns(const attention *a, const float *from, int64_t leading, int64_t n, float *to)
{
    const gemm_source rows = {.data = from, .line_bytes = leading * (int64_t)sizeof *from, .narrow = TD_GEMM_F32};
    gemm_pack_across(rows, BLOCK, n, a->d, to);
}

/* scores [rows, BLOCK] = rows of x, `step` apart, times a packed [d, BLOCK]. */
static void multiply_scores(const attention *a, const float *x, int64_t step, const float *packed, int64_t rows,
                            bool on_diagonal, float *scores)
{
    const panel p = {
        .a = x, .step = step, .offset = a->along, .b = packed, .b_leading = BLOCK, .c = scores, .c_leading = BLOCK};
    attention_multiply(p, rows, BLOCK, a->d, on_diagonal ? COLUMNS_TO_ROW : WHOLE);
}

/* ---- forward ----------------------------------------------------------------------------------------------------------- */

static void attend_to_block(const attention *a, query_block *q, const float *queries, const float *head, int64_t block,
                            int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width;
    const float *first_key = head + keys * BLOCK * step + a->width;
    pack_columns(a, first_key, step, n, q->keys);
    const panel_rows values = rows_in_panels(a, first_key + a->width, step, n, q->values);
    if (keys < block)
        fetch_rows(a, first_key + BLOCK * step + a->width, step, block_rows(a, keys + 1));
    multiply_scores(a, queries, step, q->keys, rows, keys == block, q->scores);
    for (int64_t row = 0; row < rows; row++)
        weigh_row(a, q, row, keys == block ? row + 1 : n, keys == 0);
    const panel p = {.a = q->scores,
                     .step = BLOCK,
                     .offset = a->along,
                     .b = values.data,
                     .b_leading = values.leading,
                     .c = q->sums,
                     .c_leading = a->padded,
                     .add = keys > 0};
    attention_multiply(p, rows, a->padded, n, keys == block ? TERMS_TO_ROW : WHOLE);
}

static void attend(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t block = task % a->blocks, row = task / a->blocks, sample = row / a->heads, index = row % a->heads;
    const float *head = (const float *)a->qkv + sample * a->positions * 3 * a->width + index * a->d;
    query_block q = query_block_at(a, a->scratch + slot * a->slot_floats);
    for (int64_t keys = 0; keys <= block; keys++)
        attend_to_block(a, &q, head + block * BLOCK * 3 * a->width, head, block, keys);
    float *y = (float *)a->call->outputs[0].data + (sample * a->positions + block * BLOCK) * a->width + index * a->d;
    float *log_sum = (float *)a->call->outputs[1].data + row * a->positions + block * BLOCK;
    for (int64_t i = 0; i < block_rows(a, block); i++) {
        for (int64_t column = 0; column < a->d; column++)
            y[i * a->width + column] = q.sums[i * a->padded + column] / q.total[i];
        log_sum[i] = q.most[i] + td_logf(q.total[i]);
    }
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    const attention a = attention_of(call, &call->inputs[0]);
    return (size_t)(slots_for(a.samples * a.heads * a.blocks) * query_floats(&a)) * sizeof(float);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    const attention a = attention_of(call, &call->inputs[0]);
    return attention_run(a, team, state, a.blocks, query_floats(&a), attend);
}

const td_cpu_kernel TD_KERNEL(causal_attention) = {.op = "causal_attention",
                                                   .supports = supports,
                                                   .widens = true,
                                                   .prepare = attention_prepare,
                                                   .destroy = td_free,
                                                   .scratch_bytes = scratch_bytes,
                                                   .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------ */

/* The scratch of a head. */
typedef struct head_work {
    const float *head, *dy, *log_sum; /* q, k and v are 3 width apart, dy width */
    panel_rows keys;                  /* of a block of keys, as they are and packed: */
    float *packed_keys, *key_columns, *value_columns;
    float *queries, *gradients;           /* packed, of a block of queries: q and dy */
    float *weights, *changes;             /* [BLOCK, BLOCK]: p, ds */
    float *key_gradient, *value_gradient; /* [BLOCK, padded] */
    float *shares, *query_gradient;       /* [positions]: dy . y; [positions, padded] */
} head_work;

static head_work head_work_at(const attention *a, float *memory)
{
    const int64_t panel_floats = BLOCK * a->padded, column_floats = BLOCK * a->d;
    head_work w = {.key_columns = memory, .value_columns = memory + column_floats};
    w.packed_keys = w.value_columns + column_floats;
    w.queries = w.packed_keys + panel_floats;
    w.gradients = w.queries + panel_floats;
    w.key_gradient = w.gradients + panel_floats;
    w.value_gradient = w.key_gradient + panel_floats;
    w.weights = w.value_gradient + panel_floats;
    w.changes = w.weights + BLOCK * BLOCK;
    w.query_gradient = w.changes + BLOCK * BLOCK;
    w.shares = w.query_gradient + a->positions * a->padded;
    return w;
}

/* The contributions of one block of queries and one of keys. */
static void differentiate_block(const attention *a, head_work *w, int64_t block, int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width, first = block * BLOCK;
    const float *queries = w->head + first * step, *dy = w->dy + first * a->width;
    const bool on_diagonal = keys == block;
    const panel_rows query_rows = rows_in_panels(a, queries, step, rows, w->queries);
    const panel_rows gradient_rows = rows_in_panels(a, dy, a->width, rows, w->gradients);
    multiply_scores(a, queries, step, w->key_columns, rows, on_diagonal, w->weights);
    multiply_scores(a, dy, a->width, w->value_columns, rows, on_diagonal, w->changes);
    for (int64_t row = 0; row < rows; row++)
        differentiate_row(w->weights + row * BLOCK, w->changes + row * BLOCK, on_diagonal ? row + 1 : n, a->scale,
                          w->log_sum[first + row], w->shares[first + row]);
    panel p = {.step = 1, .offset = a->down, .c_leading = a->padded, .add = block > keys};
    p.a = w->weights;
    p.b = gradient_rows.data;
    p.b_leading = gradient_rows.leading;
    p.c = w->value_gradient;
    attention_multiply(p, n, a->padded, rows, on_diagonal ? TERMS_FROM_ROW : WHOLE);
    p.a = w->changes;
    p.b = query_rows.data;
    p.b_leading = query_rows.leading;
    p.c = w->key_gradient;
    attention_multiply(p, n, a->padded, rows, on_diagonal ? TERMS_FROM_ROW : WHOLE);
    p.step = BLOCK;
    p.offset = a->along;
    p.b = w->keys.data;
    p.b_leading = w->keys.leading;
    p.c = w->query_gradient + first * a->padded;
    p.add = keys > 0;
    attention_multiply(p, rows, a->padded, n, on_diagonal ? TERMS_TO_ROW : WHOLE);
}

static void unpack_rows(const attention *a, const float *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * 3 * a->width, from + i * a->padded, (size_t)a->d * sizeof *to);
}

static void differentiate_keys(const attention *a, head_work *w, int64_t keys, float *out)
{
    const int64_t n = block_rows(a, keys), step = 3 * a->width;
    const float *first_key = w->head + keys * BLOCK * step + a->width;
    pack_columns(a, first_key, step, n, w->key_columns);
    pack_columns(a, first_key + a->width, step, n, w->value_columns);
    w->keys = rows_in_panels(a, first_key, step, n, w->packed_keys);
    for (int64_t block = keys; block < a->blocks; block++)
        differentiate_block(a, w, block, keys);
    unpack_rows(a, w->key_gradient, n, out + keys * BLOCK * step + a->width);
    unpack_rows(a, w->value_gradient, n, out + keys * BLOCK * step + 2 * a->width);
}

/* In the order of a panel's terms. The first query sees one key, so that its y is v: in this order dy . y is dy . v to the bit, the
 * gradient of its score zero, and not what two orders leave of it, of which Adam would make whole steps. */
static float dot_in_order(const float *x, const float *y, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = fmaf(x[i], y[i], sum);
    return sum;
}

static void differentiate_head(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t sample = task / a->heads, index = task % a->heads;
    const int64_t first = sample * a->positions * a->width + index * a->d;
    const int64_t at = sample * a->positions * 3 * a->width + index * a->d;
    const float *y = (const float *)a->call->inputs[OUTPUT].data + first;
    head_work w = head_work_at(a, a->scratch + slot * a->slot_floats);
    w.head = (const float *)a->qkv + at;
    w.dy = (const float *)a->call->inputs[GRADIENT].data + first;
    w.log_sum = (const float *)a->call->inputs[LOG_SUM].data + task * a->positions;
    float *out = (float *)a->call->outputs[0].data + at;
    for (int64_t i = 0; i < a->positions; i++)
        w.shares[i] = v16_dot(w.dy + i * a->width, y + i * a->width, a->d);
    if (a->positions > 0)
        w.shares[0] = dot_in_order(w.dy, y, a->d);
    for (int64_t keys = 0; keys < a->blocks; keys++)
        differentiate_keys(a, &w, keys, out);
    unpack_rows(a, w.query_gradient, a->positions, out);
}

static size_t gradient_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    const attention a = attention_of(call, &call->inputs[QKV]);
    return (size_t)(slots_for(a.samples * a.heads) * head_floats(&a)) * sizeof(float);
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    const attention a = attention_of(call, &call->inputs[QKV]);
    return attention_run(a, team, state, a.positions > 0, head_floats(&a), differentiate_head);
}

const td_cpu_kernel TD_KERNEL(causal_attention_gradient) = {.op = "causal_attention_gradient",
                                                            .supports = supports,
                                                            .widens = true,
                                                            .prepare = attention_prepare,
                                                            .destroy = td_free,
                                                            .scratch_bytes = gradient_scratch_bytes,
                                                            .run = run_gradient};
