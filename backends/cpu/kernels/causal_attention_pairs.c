/* causal_attention and its gradient of bf16 in pairs (pairs.h), block by block as causal_attention.c. Scores, weights' sums and the
 * sums of results are f32 as there; weights, and the gradients of scores, are rounded to bf16 before they are multiplied. In
 * sums over positions a pair is two rows, in sums over a head's columns two neighbours: for that a head's width is even. Compiled
 * with panels of pairs (attention_pairs.h), and once more with tiles (attention_amx.h). */
#ifdef TD_AMX
#include "backends/cpu/kernels/attention_amx.h"
#else
#include "backends/cpu/kernels/attention_pairs.h"
#endif
#include "backends/cpu/widened.h"

/* All bf16 but the logarithms of sums, and heads of a width that suits. */
static bool supports(const td_kernel_call *call)
{
    const bool is_gradient = call->n_inputs > 1;
    const td_tensor *qkv = &call->inputs[is_gradient ? QKV : 0];
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, i == LOG_SUM ? TD_F32 : TD_BF16))
            return false;
    const int64_t d = qkv->dims[2] / 3 / td_cpu_attr_int(call, "heads", 1);
    return d % WIDTH_UNIT == 0 && d >= LEAST_WIDTH && d <= MOST_WIDTH &&
           td_cpu_is(&call->outputs[0], TD_DENSE, TD_BF16);
}

/* ---- forward ----------------------------------------------------------------------------------------------------------- */

static void attend_to_block(const attention *a, query_block *q, const uint16_t *queries, const uint16_t *head,
                            int64_t block, int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width;
    const uint16_t *first_key = head + keys * BLOCK * step + a->width;
    pack_columns(a, first_key, step, n, q->columns);
    pack_rows(a, first_key + a->width, step, n, q->values);
    multiply_scores(a, queries, step, q->columns, rows, keys == block, q->scores);
    for (int64_t row = 0; row < rows; row++) {
        weigh_row(a, q, row, keys == block ? row + 1 : n, keys == 0);
        round_along(q->scores + row * BLOCK);
    }
    multiply_along(a, q->scores, q->values, rows, n, keys == block, q->sums, keys > 0);
}

static void attend(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t block = task % a->blocks, row = task / a->blocks, sample = row / a->heads, index = row % a->heads;
    const uint16_t *head = (const uint16_t *)a->qkv + sample * a->positions * 3 * a->width + index * a->d;
    query_block q = query_block_at(a, a->scratch + slot * a->slot_floats);
    begin_products();
    for (int64_t keys = 0; keys <= block; keys++)
        attend_to_block(a, &q, head + block * BLOCK * 3 * a->width, head, block, keys);
    end_products();
    uint16_t *y =
        (uint16_t *)a->call->outputs[0].data + (sample * a->positions + block * BLOCK) * a->width + index * a->d;
    float *log_sum = (float *)a->call->outputs[1].data + row * a->positions + block * BLOCK;
    for (int64_t i = 0; i < block_rows(a, block); i++) {
        for (int64_t column = 0; column < a->d; column++)
            y[i * a->width + column] = td_f32_to_bf16(q.sums[i * a->padded + column] / q.total[i]);
        log_sum[i] = q.most[i] + td_logf(q.total[i]);
    }
}

/* That of the other kernel and of the operands it widens, so that plans are the same on all processors. */
static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    const attention a = attention_of(call, &call->inputs[0]);
    const int64_t floats = slots_for(a.samples * a.heads * a.blocks) * query_floats(&a);
    return td_widened_scratch_bytes(call, (size_t)floats * sizeof(float));
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    const attention a = attention_of(call, &call->inputs[0]);
    return attention_run(a, team, state, a.blocks, query_floats(&a), attend);
}

extern const td_cpu_kernel TD_KERNEL(causal_attention_pairs);
const td_cpu_kernel TD_KERNEL(causal_attention_pairs) = {.op = "causal_attention",
                                                         .supports = supports,
                                                         .prepare = attention_prepare,
                                                         .destroy = td_free,
                                                         .scratch_bytes = scratch_bytes,
                                                         .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------ */

/* The scratch of a head, within head_floats. */
typedef struct head_work {
    const uint16_t *head, *dy; /* q, k and v are 3 width apart, dy width */
    const float *log_sum;
    float *key_columns, *value_columns;   /* [d / 2, BLOCK]: pairs of columns of a block of keys */
    float *keys, *queries, *gradients;    /* [PAIRS, padded]: pairs of rows of k, q and dy */
    float *weights, *changes;             /* [BLOCK, BLOCK]: p, ds */
    float *changes_down;                  /* [PAIRS, BLOCK]: pairs of rows of ds */
    float *key_gradient, *value_gradient; /* [BLOCK, padded] */
    float *shares, *query_gradient;       /* [positions]: dy . y; [blocks BLOCK, padded] */
} head_work;

static head_work head_work_at(const attention *a, float *memory)
{
    const int64_t pair_floats = PAIRS * a->padded;
    head_work w = {.key_columns = memory, .value_columns = memory + PAIRS * a->d};
    w.keys = w.value_columns + PAIRS * a->d;
    w.queries = w.keys + pair_floats;
    w.gradients = w.queries + pair_floats;
    w.key_gradient = w.gradients + pair_floats;
    w.value_gradient = w.key_gradient + 2 * pair_floats;
    w.weights = w.value_gradient + 2 * pair_floats;
    w.changes = w.weights + BLOCK * BLOCK;
    w.changes_down = w.changes + BLOCK * BLOCK;
    w.query_gradient = w.changes_down + PAIRS * BLOCK;
    w.shares = w.query_gradient + a->blocks * BLOCK * a->padded;
    return w;
}

/* The contributions of one block of queries and one of keys. */
static void differentiate_block(const attention *a, head_work *w, int64_t block, int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width, first = block * BLOCK;
    const uint16_t *queries = w->head + first * step, *dy = w->dy + first * a->width;
    const bool on_diagonal = keys == block;
    pack_rows(a, queries, step, rows, w->queries);
    pack_rows(a, dy, a->width, rows, w->gradients);
    multiply_scores(a, queries, step, w->key_columns, rows, on_diagonal, w->weights);
    multiply_scores(a, dy, a->width, w->value_columns, rows, on_diagonal, w->changes);
    for (int64_t row = 0; row < rows; row++)
        differentiate_row(w->weights + row * BLOCK, w->changes + row * BLOCK, on_diagonal ? row + 1 : n, a->scale,
                          w->log_sum[first + row], w->shares[first + row]);
    const float *weights_down = round_weights(w->weights, rows);
    const float *changes_down = round_changes(w->changes, rows, w->changes_down);
    multiply_down(a, weights_down, w->gradients, n, rows, on_diagonal, w->value_gradient, block > keys);
    multiply_down(a, changes_down, w->queries, n, rows, on_diagonal, w->key_gradient, block > keys);
    multiply_along(a, w->changes, w->keys, rows, n, on_diagonal, w->query_gradient + first * a->padded, keys > 0);
}

static void unpack_rows(const attention *a, const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        round_to_bf16(from + i * a->padded, a->d, to + i * 3 * a->width);
}

static void differentiate_keys(const attention *a, head_work *w, int64_t keys, uint16_t *out)
{
    const int64_t n = block_rows(a, keys), step = 3 * a->width;
    const uint16_t *first_key = w->head + keys * BLOCK * step + a->width;
    pack_columns(a, first_key, step, n, w->key_columns);
    pack_columns(a, first_key + a->width, step, n, w->value_columns);
    pack_rows(a, first_key, step, n, w->keys);
    for (int64_t block = keys; block < a->blocks; block++)
        differentiate_block(a, w, block, keys);
    unpack_rows(a, w->key_gradient, n, out + keys * BLOCK * step + a->width);
    unpack_rows(a, w->value_gradient, n, out + keys * BLOCK * step + 2 * a->width);
}

/* The product of two rows of bf16, in the order of td_dot. */
static float dot(const uint16_t *x, const uint16_t *y, int64_t n)
{
    v16 lanes = v16_set(0);
    float sums[TD_SUM_LANES];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = v16_fma(v16_load_bf16(x + i), v16_load_bf16(y + i), lanes);
    v16_store(sums, lanes);
    for (int lane = 0; i < n; i++, lane++)
        sums[lane] = fmaf(td_bf16_to_f32(x[i]), td_bf16_to_f32(y[i]), sums[lane]);
    return td_fold_lanes(sums);
}

static void differentiate_head(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t sample = task / a->heads, index = task % a->heads;
    const int64_t first = sample * a->positions * a->width + index * a->d;
    const int64_t at = sample * a->positions * 3 * a->width + index * a->d;
    const uint16_t *y = (const uint16_t *)a->call->inputs[OUTPUT].data + first;
    head_work w = head_work_at(a, a->scratch + slot * a->slot_floats);
    w.head = (const uint16_t *)a->qkv + at;
    w.dy = (const uint16_t *)a->call->inputs[GRADIENT].data + first;
    w.log_sum = (const float *)a->call->inputs[LOG_SUM].data + task * a->positions;
    uint16_t *out = (uint16_t *)a->call->outputs[0].data + at;
    for (int64_t i = 0; i < a->positions; i++)
        w.shares[i] = dot(w.dy + i * a->width, y + i * a->width, a->d);
    begin_products();
    for (int64_t keys = 0; keys < a->blocks; keys++)
        differentiate_keys(a, &w, keys, out);
    end_products();
    unpack_rows(a, w.query_gradient, a->positions, out);
}

static size_t gradient_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    const attention a = attention_of(call, &call->inputs[QKV]);
    const int64_t floats = slots_for(a.samples * a.heads) * head_floats(&a);
    return td_widened_scratch_bytes(call, (size_t)floats * sizeof(float));
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    const attention a = attention_of(call, &call->inputs[QKV]);
    return attention_run(a, team, state, a.positions > 0, head_floats(&a), differentiate_head);
}

extern const td_cpu_kernel TD_KERNEL(causal_attention_gradient_pairs);
const td_cpu_kernel TD_KERNEL(causal_attention_gradient_pairs) = {.op = "causal_attention_gradient",
                                                                  .supports = supports,
                                                                  .prepare = attention_prepare,
                                                                  .destroy = td_free,
                                                                  .scratch_bytes = gradient_scratch_bytes,
                                                                  .run = run_gradient};
