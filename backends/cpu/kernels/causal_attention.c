/* causal_attention and its gradient, a block of queries against a block of keys at a time (Dao et al. 2022): no matrix of all
 * scores is ever in memory. Blocks begin at multiples of BLOCK whatever the team, and are taken in ascending order, so bits
 * depend on the shape alone; products are panels (panel.h): one fma per term, ascending.
 *
 * A task of the forward pass is one block of queries of one head of one sample; of the gradient, a head of a sample: the
 * gradients of its keys and values are summed over blocks of queries, those of its queries over blocks of keys. */
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/gemm_pack.h"
#include "base/prefetch.h"
#include "base/sums.h"

static bool supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

/* Rows of d that are needed soon, of up to three matrices: the hardware does not foresee them. They are asked for one by one between
 * computations, to come as near as the second cache; who asks for many at once waits for them. */
typedef struct rows_ahead {
    const float *from[3]; /* NULL: of fewer matrices */
    int64_t leading[3], n;
} rows_ahead;

TD_PREFETCHES void fetch_row(const attention *a, const rows_ahead *next, int64_t row)
{
    enum { LINE_FLOATS = TD_PREFETCH_LINE / sizeof(float) };
    if (row >= next->n)
        return;
    for (int32_t i = 0; i < 3 && next->from[i]; i++)
        for (int64_t column = 0; column < a->d; column += LINE_FLOATS)
            __builtin_prefetch(next->from[i] + row * next->leading[i] + column, 0, 2);
}

/* A block of keys and its values. `head`: the head's first query. */
static rows_ahead keys_ahead(const attention *a, const float *head, int64_t keys)
{
    const int64_t step = 3 * a->width;
    const float *first_key = head + keys * BLOCK * step + a->width;
    return (rows_ahead){.from = {first_key, first_key + a->width}, .leading = {step, step}, .n = block_rows(a, keys)};
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

/* Rows [n, d], `leading` apart, as their transpose [d, BLOCK], with zeros beyond them. */
static void pack_columns(const attention *a, const float *from, int64_t leading, int64_t n, float *to)
{
    const gemm_source rows = {.data = from, .line_bytes = leading * (int64_t)sizeof *from, .narrow = TD_GEMM_F32};
    gemm_pack_across(rows, BLOCK, n, a->d, to);
}

/* scores [rows, BLOCK] = rows of x, `step` apart, times a packed [d, BLOCK]. */
static void multiply_scores(const attention *a, const float *x, int64_t step, const float *packed, int64_t rows,
                            diagonal_rule diagonal, float *scores)
{
    const panel p = {
        .a = x, .step = step, .offset = a->along, .b = packed, .b_leading = BLOCK, .c = scores, .c_leading = BLOCK};
    attention_multiply(p, rows, BLOCK, a->d, diagonal);
}

/* ---- forward ----------------------------------------------------------------------------------------------------------- */

/* Scores stand as [key, query]: queries are packed once for all blocks of keys, which are read where they lie, and neither the largest
 * score nor the sum over keys has to cross a vector. */

/* On the diagonal a query sees no key after it. */
static void hide_unseen(float *scores, int64_t keys)
{
    for (int64_t key = 1; key < keys; key++)
        for (int64_t i = 0; i < key; i++)
            scores[key * BLOCK + i] = -INFINITY;
}

/* Of each query, the largest of scores and of what was before. */
static void find_largest(const float *scores, int64_t keys, float scale, const float *before, float *largest)
{
    for (int64_t i = 0; i < BLOCK; i += TD_SUM_LANES) {
        v16 most = v16_load(before + i);
        for (int64_t key = 0; key < keys; key++)
            most = v16_larger(v16_multiply(v16_load(scores + key * BLOCK + i), v16_set(scale)), most);
        v16_store(largest + i, most);
    }
}

static void weigh_scores(float *restrict scores, float scale, const float *restrict most)
{
    for (int32_t i = 0; i < BLOCK; i++) /* e^-infinity is 0 */
        scores[i] = td_expf(scores[i] * scale - most[i]);
}

/* Sums over a block of keys, in the order of td_sum. */
static void sum_over_keys(const float *weights, float *sums)
{
    for (int64_t i = 0; i < BLOCK; i += TD_SUM_LANES) {
        v16 lanes[TD_SUM_LANES];
        for (int64_t lane = 0; lane < TD_SUM_LANES; lane++) {
            lanes[lane] = v16_load(weights + lane * BLOCK + i);
            for (int64_t key = lane + TD_SUM_LANES; key < BLOCK; key += TD_SUM_LANES)
                lanes[lane] = v16_add(lanes[lane], v16_load(weights + key * BLOCK + i));
        }
        for (int64_t half = TD_SUM_LANES / 2; half > 0; half /= 2)
            for (int64_t lane = 0; lane < half; lane++)
                lanes[lane] = v16_add(lanes[lane], lanes[lane + half]);
        v16_store(sums + i, lanes[0]);
    }
}

/* Scores of a block of keys become weights below the largest so far; what was summed below a smaller one is scaled down. */
static void weigh_block(const attention *a, query_block *q, int64_t keys, bool on_diagonal, bool first,
                        const rows_ahead *next)
{
    float most[BLOCK], sums[BLOCK], shrink[BLOCK];
    if (on_diagonal)
        hide_unseen(q->scores, keys);
    find_largest(q->scores, keys, a->scale, q->most, most);
    for (int64_t key = 0; key < keys; key++) {
        fetch_row(a, next, key);
        weigh_scores(q->scores + key * BLOCK, a->scale, most);
    }
    memset(q->scores + keys * BLOCK, 0, (size_t)((BLOCK - keys) * BLOCK) * sizeof(float));
    sum_over_keys(q->scores, sums);
    for (int32_t i = 0; i < BLOCK; i++)
        shrink[i] = td_expf(q->most[i] - most[i]);
    for (int32_t i = 0; i < BLOCK; i++)
        q->total[i] = fmaf(q->total[i], shrink[i], sums[i]);
    memcpy(q->most, most, sizeof most);
    for (int64_t i = 0; i < BLOCK && !first; i++)
        for (int64_t column = 0; column < a->padded; column++)
            q->sums[i * a->padded + column] *= shrink[i];
}

static void attend_to_block(const attention *a, query_block *q, const float *head, int64_t block, int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width;
    const bool on_diagonal = keys == block;
    const float *first_key = head + keys * BLOCK * step + a->width;
    const panel_rows values = rows_in_panels(a, first_key + a->width, step, n, q->values);
    multiply_scores(a, first_key, step, q->columns, n, on_diagonal ? COLUMNS_FROM_ROW : WHOLE, q->scores);
    const rows_ahead next = on_diagonal ? (rows_ahead){0} : keys_ahead(a, head, keys + 1);
    weigh_block(a, q, n, on_diagonal, keys == 0, &next);
    const panel p = {.a = q->scores,
                     .step = 1,
                     .offset = a->down,
                     .b = values.data,
                     .b_leading = values.leading,
                     .c = q->sums,
                     .c_leading = a->padded,
                     .add = keys > 0};
    attention_multiply(p, rows, a->padded, n, on_diagonal ? TERMS_TO_ROW : WHOLE);
}

static void attend(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t block = task % a->blocks, row = task / a->blocks, sample = row / a->heads, index = row % a->heads;
    const float *head = (const float *)a->qkv + sample * a->positions * 3 * a->width + index * a->d;
    query_block q = query_block_at(a, a->scratch + slot * a->slot_floats);
    pack_columns(a, head + block * BLOCK * 3 * a->width, 3 * a->width, block_rows(a, block), q.columns);
    for (int64_t i = 0; i < BLOCK; i++) {
        q.most[i] = -INFINITY;
        q.total[i] = 0;
    }
    for (int64_t keys = 0; keys <= block; keys++)
        attend_to_block(a, &q, head, block, keys);
    float *y = (float *)a->call->outputs[0].data + (sample * a->positions + block * BLOCK) * a->width + index * a->d;
    float *log_sum = (float *)a->call->outputs[1].data + row * a->positions + block * BLOCK;
    for (int64_t i = 0; i < block_rows(a, block); i++)
        for (int64_t column = 0; column < a->d; column++)
            y[i * a->width + column] = q.sums[i * a->padded + column] / q.total[i];
    for (int64_t i = 0; i < block_rows(a, block); i++)
        log_sum[i] = q.most[i] + td_logf(q.total[i]);
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
    const float *head, *dy, *y, *log_sum; /* q, k and v are 3 width apart, dy and y width */
    panel_rows keys;                      /* of a block of keys, as they are and packed: */
    float *packed_keys, *key_columns, *value_columns;
    float *queries, *gradients; /* packed, of a block of queries: q and dy */
    float *weights, *changes;   /* [BLOCK, BLOCK]: p, ds */
    float *shares;              /* [positions]: dy . y */
    /* [BLOCK, padded] twice, [positions, padded]; or their places in the result: */
    float *key_gradient, *value_gradient, *query_gradient;
    int64_t leading; /* padded, or 3 width */
} head_work;

/* Whether gradients are summed where they belong, without a copy, if they are whole panels. Those of a long text are read and written again
 * for every block, and rows so far apart may fall into the same sets of a cache. */
static bool sums_in_place(const attention *a)
{
    enum { FEW_BLOCKS = 8 };
    return a->d == a->padded && a->blocks <= FEW_BLOCKS;
}

static head_work head_work_at(const attention *a, float *memory)
{
    const int64_t panel_floats = BLOCK * a->padded, column_floats = BLOCK * a->d;
    head_work w = {.key_columns = memory, .value_columns = memory + column_floats, .leading = a->padded};
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

/* In the order of a panel's terms. The first query sees one key, so that its y is v: in this order dy . y is dy . v to the bit, the
 * gradient of its score zero, and not what two orders leave of it, of which Adam would make whole steps. */
static float dot_in_order(const float *x, const float *y, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = fmaf(x[i], y[i], sum);
    return sum;
}

/* Shares of some positions, which their first block of keys needs first. */
static void share_gradients(const attention *a, head_work *w, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++) {
        const float *dy = w->dy + i * a->width, *y = w->y + i * a->width;
        w->shares[i] = i == 0 ? dot_in_order(dy, y, a->d) : v16_dot(dy, y, a->d);
    }
}

/* What is read for the first time after a block of queries met one of keys. */
static rows_ahead ahead_of(const attention *a, const head_work *w, int64_t block, int64_t keys)
{
    const int64_t step = 3 * a->width, next = (block + 1) * BLOCK;
    if (block + 1 == a->blocks)
        return keys + 1 < a->blocks ? keys_ahead(a, w->head, keys + 1) : (rows_ahead){0};
    if (keys > 0)
        return (rows_ahead){0};
    return (rows_ahead){.from = {w->head + next * step, w->dy + next * a->width, w->y + next * a->width},
                        .leading = {step, a->width, a->width},
                        .n = block_rows(a, block + 1)};
}

/* The contributions of one block of queries and one of keys. */
static void differentiate_block(const attention *a, head_work *w, int64_t block, int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width, first = block * BLOCK;
    const float *queries = w->head + first * step, *dy = w->dy + first * a->width;
    const bool on_diagonal = keys == block;
    const diagonal_rule seen = on_diagonal ? COLUMNS_TO_ROW : WHOLE;
    const panel_rows query_rows = rows_in_panels(a, queries, step, rows, w->queries);
    const panel_rows gradient_rows = rows_in_panels(a, dy, a->width, rows, w->gradients);
    if (keys == 0)
        share_gradients(a, w, first, rows);
    multiply_scores(a, queries, step, w->key_columns, rows, seen, w->weights);
    multiply_scores(a, dy, a->width, w->value_columns, rows, seen, w->changes);
    const rows_ahead next = ahead_of(a, w, block, keys);
    for (int64_t row = 0; row < rows; row++) {
        fetch_row(a, &next, row);
        differentiate_row(w->weights + row * BLOCK, w->changes + row * BLOCK, on_diagonal ? row + 1 : n, a->scale,
                          w->log_sum[first + row], w->shares[first + row]);
    }
    panel p = {.step = 1, .offset = a->down, .c_leading = w->leading, .add = block > keys};
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
    p.c = w->query_gradient + first * w->leading;
    p.add = keys > 0;
    attention_multiply(p, rows, a->padded, n, on_diagonal ? TERMS_TO_ROW : WHOLE);
}

/* Unless they are in their place. */
static void unpack_rows(const attention *a, const head_work *w, const float *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n && from != to; i++)
        memcpy(to + i * 3 * a->width, from + i * w->leading, (size_t)a->d * sizeof *to);
}

static void differentiate_keys(const attention *a, head_work *w, int64_t keys, float *out)
{
    const int64_t n = block_rows(a, keys), step = 3 * a->width;
    const float *first_key = w->head + keys * BLOCK * step + a->width;
    pack_columns(a, first_key, step, n, w->key_columns);
    pack_columns(a, first_key + a->width, step, n, w->value_columns);
    w->keys = rows_in_panels(a, first_key, step, n, w->packed_keys);
    float *key_gradient = out + keys * BLOCK * step + a->width, *value_gradient = key_gradient + a->width;
    if (sums_in_place(a)) {
        w->key_gradient = key_gradient;
        w->value_gradient = value_gradient;
    }
    for (int64_t block = keys; block < a->blocks; block++)
        differentiate_block(a, w, block, keys);
    unpack_rows(a, w, w->key_gradient, n, key_gradient);
    unpack_rows(a, w, w->value_gradient, n, value_gradient);
}

static void differentiate_head(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t sample = task / a->heads, index = task % a->heads;
    const int64_t first = sample * a->positions * a->width + index * a->d;
    const int64_t at = sample * a->positions * 3 * a->width + index * a->d;
    head_work w = head_work_at(a, a->scratch + slot * a->slot_floats);
    w.head = (const float *)a->qkv + at;
    w.dy = (const float *)a->call->inputs[GRADIENT].data + first;
    w.y = (const float *)a->call->inputs[OUTPUT].data + first;
    w.log_sum = (const float *)a->call->inputs[LOG_SUM].data + task * a->positions;
    float *out = (float *)a->call->outputs[0].data + at;
    if (sums_in_place(a)) {
        w.query_gradient = out;
        w.leading = 3 * a->width;
    }
    for (int64_t keys = 0; keys < a->blocks; keys++)
        differentiate_keys(a, &w, keys, out);
    unpack_rows(a, &w, w.query_gradient, a->positions, out);
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
