/* causal_attention and its gradient, a block of queries against a block of keys at a time (Dao et al. 2022): no matrix of all
 * scores is ever in memory. Blocks begin at multiples of BLOCK whatever the team, and are taken in ascending order, so bits
 * depend on the shape alone; products are panels (panel.h): one fma per term, ascending.
 *
 * A task of the forward pass is one block of queries of one head of one sample; of the gradient, a head of a sample: the
 * gradients of its keys and values are summed over blocks of queries, those of its queries over blocks of keys. */
#include <math.h>
#include <string.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/chunks.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/slots.h"
#include "base/math.h"
#include "base/memory.h"
#include "base/prefetch.h"

enum { BLOCK = 64 };

enum { GRADIENT, QKV, OUTPUT, LOG_SUM }; /* inputs of the gradient */

typedef struct attention {
    const td_kernel_call *call;
    const float *qkv;
    int64_t samples, positions, heads, width, d;
    int64_t padded;              /* d, up to whole panels */
    int64_t blocks;              /* of positions */
    const int64_t *along, *down; /* offsets of neighbours, and of rows of a block */
    float scale;
    float *scratch;
    int64_t slot_floats;
} attention;

static attention attention_of(const td_kernel_call *call, const td_tensor *qkv)
{
    attention a = {.call = call,
                   .qkv = qkv->data,
                   .samples = qkv->dims[0],
                   .positions = qkv->dims[1],
                   .heads = td_cpu_attr_int(call, "heads", 1),
                   .width = qkv->dims[2] / 3,
                   .scratch = call->scratch};
    a.d = a.width / a.heads;
    a.padded = (a.d + 15) / 16 * 16;
    a.blocks = (a.positions + BLOCK - 1) / BLOCK;
    a.scale = 1.0f / sqrtf((float)a.d);
    return a;
}

static bool supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

/* Offsets 0, 1, 2, .. for a head's columns or a block, then 0, BLOCK, 2 BLOCK, .. for a block's rows. */
static td_status *prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    (void)engine;
    const td_tensor *qkv = &call->inputs[strcmp(call->op, "causal_attention") == 0 ? 0 : QKV];
    const attention a = attention_of(call, qkv);
    const int64_t n = a.d > BLOCK ? a.d : BLOCK;
    int64_t *offsets = NULL;
    TD_TRY(TD_NEW(offsets, n + BLOCK));
    for (int64_t i = 0; i < n; i++)
        offsets[i] = i;
    for (int64_t i = 0; i < BLOCK; i++)
        offsets[n + i] = i * BLOCK;
    *out_state = offsets;
    return NULL;
}

static void bind_offsets(attention *a, const int64_t *offsets)
{
    a->along = offsets;
    a->down = offsets + (a->d > BLOCK ? a->d : BLOCK);
}

static int64_t block_rows(const attention *a, int64_t block)
{
    const int64_t left = a->positions - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

/* What the diagonal allows to leave out: a query sees no key after it. */
typedef enum diagonal_rule {
    WHOLE,          /* nothing */
    COLUMNS_TO_ROW, /* c[i][j] with j > i is not asked for */
    TERMS_TO_ROW,   /* terms beyond the row are zero */
    TERMS_FROM_ROW  /* terms before the row are zero */
} diagonal_rule;

/* c [rows, columns] (+)= a b, columns in whole panels. `p` has a, step, offset, b, b_leading, c, c_leading, add. */
static void multiply(panel p, int64_t rows, int64_t columns, int64_t terms, diagonal_rule diagonal)
{
    const float *a = p.a, *b = p.b;
    const int64_t *offset = p.offset;
    float *c = p.c;
    const int64_t piece = panel_piece(rows, PANEL_ROWS_16);
    for (int64_t column = 0; column < columns; column += 16)
        for (int64_t row = 0; row < rows; row += piece) {
            const int64_t n = rows - row < piece ? rows - row : piece;
            const int64_t begin = diagonal == TERMS_FROM_ROW ? row : 0;
            const int64_t end = diagonal == TERMS_TO_ROW && row + n < terms ? row + n : terms;
            if (diagonal == COLUMNS_TO_ROW && column >= row + n)
                continue;
            p.a = a + row * p.step;
            p.offset = offset + begin;
            p.terms = end - begin;
            p.b = b + begin * p.b_leading + column;
            p.c = c + row * p.c_leading + column;
            panel_16(&p, n);
        }
}

/* Asks for rows [n, d], `leading` apart, to come as near as the second cache: the hardware does not foresee them. */
TD_PREFETCHES void fetch_rows(const attention *a, const float *from, int64_t leading, int64_t n)
{
    enum { LINE_FLOATS = TD_PREFETCH_LINE / sizeof(float) };
    for (int64_t i = 0; i < n; i++)
        for (int64_t column = 0; column < a->d; column += LINE_FLOATS)
            __builtin_prefetch(from + i * leading + column, 0, 2);
}

/* Rows [n, d], `leading` apart, as [BLOCK, padded]; and as their transpose [d, BLOCK]. Zeros beyond them. */
static void pack_rows(const attention *a, const float *from, int64_t leading, int64_t n, float *to)
{
    memset(to, 0, (size_t)(BLOCK * a->padded) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * a->padded, from + i * leading, (size_t)a->d * sizeof *to);
}

static void pack_columns(const attention *a, const float *from, int64_t leading, int64_t n, float *to)
{
    if (n < BLOCK)
        memset(to, 0, (size_t)(BLOCK * a->d) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int64_t column = 0; column < a->d; column++)
            to[column * BLOCK + i] = from[i * leading + column];
}

/* scores [rows, BLOCK] = rows of x, `step` apart, times a packed [d, BLOCK]. */
static void multiply_scores(const attention *a, const float *x, int64_t step, const float *packed, int64_t rows,
                            bool on_diagonal, float *scores)
{
    const panel p = {
        .a = x, .step = step, .offset = a->along, .b = packed, .b_leading = BLOCK, .c = scores, .c_leading = BLOCK};
    multiply(p, rows, BLOCK, a->d, on_diagonal ? COLUMNS_TO_ROW : WHOLE);
}

/* ---- forward ----------------------------------------------------------------------------------------------------------- */

/* The scratch of a block of queries. */
typedef struct query_block {
    float *keys, *values, *scores, *sums; /* [d, BLOCK], [BLOCK, padded], [BLOCK, BLOCK], [BLOCK, padded] */
    float *most, *total;                  /* [BLOCK]: so far, the largest score and the sum of exponentials below it */
} query_block;

static int64_t query_floats(const attention *a)
{
    return BLOCK * (a->d + 2 * a->padded + BLOCK + 2);
}

static query_block query_block_at(const attention *a, float *memory)
{
    query_block q = {.keys = memory, .values = memory + BLOCK * a->d};
    q.scores = q.values + BLOCK * a->padded;
    q.sums = q.scores + BLOCK * BLOCK;
    q.most = q.sums + BLOCK * a->padded;
    q.total = q.most + BLOCK;
    return q;
}

/* Scales the row's first `valid` scores, puts the others to minus infinity; returns the largest. */
static float scale_row(float *scores, int64_t valid, float scale)
{
    float lanes[16];
    for (int lane = 0; lane < 16; lane++)
        lanes[lane] = -INFINITY;
    for (int32_t j = 0, n = (int32_t)valid; j < BLOCK; j++) { /* counters as wide as floats vectorise best */
        const float score = scores[j] * scale;
        scores[j] = j < n ? score : -INFINITY;
    }
    for (int64_t j = 0; j < BLOCK; j += 16)
        for (int lane = 0; lane < 16; lane++)
            lanes[lane] = scores[j + lane] > lanes[lane] ? scores[j + lane] : lanes[lane];
    float most = lanes[0];
    for (int lane = 1; lane < 16; lane++)
        most = lanes[lane] > most ? lanes[lane] : most;
    return most;
}

static float sum_row(const float *x)
{
    v16 sums = v16_set(0);
    for (int64_t j = 0; j < BLOCK; j += 16)
        sums = v16_add(sums, v16_load(x + j));
    return v16_fold(sums);
}

/* A row's scores become weights below the largest so far; what was summed below a smaller one is scaled down. */
static void weigh_row(const attention *a, query_block *q, int64_t row, int64_t valid, bool first)
{
    float *scores = q->scores + row * BLOCK;
    const float of_block = scale_row(scores, valid, a->scale), before = first ? -INFINITY : q->most[row];
    const float most = of_block > before ? of_block : before;
    for (int32_t j = 0; j < BLOCK; j++) /* e^-infinity is 0 */
        scores[j] = td_expf(scores[j] - most);
    const float sum = sum_row(scores);
    q->most[row] = most;
    if (first) {
        q->total[row] = sum;
        return;
    }
    const float shrink = td_expf(before - most);
    float *sums = q->sums + row * a->padded;
    q->total[row] = fmaf(q->total[row], shrink, sum);
    for (int64_t column = 0; column < a->padded; column++)
        sums[column] *= shrink;
}

static void attend_to_block(const attention *a, query_block *q, const float *queries, const float *head, int64_t block,
                            int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width;
    const float *first_key = head + keys * BLOCK * step + a->width;
    pack_columns(a, first_key, step, n, q->keys);
    pack_rows(a, first_key + a->width, step, n, q->values);
    if (keys < block) {
        fetch_rows(a, first_key + BLOCK * step, step, block_rows(a, keys + 1));
        fetch_rows(a, first_key + BLOCK * step + a->width, step, block_rows(a, keys + 1));
    }
    multiply_scores(a, queries, step, q->keys, rows, keys == block, q->scores);
    for (int64_t row = 0; row < rows; row++)
        weigh_row(a, q, row, keys == block ? row + 1 : n, keys == 0);
    const panel p = {.a = q->scores,
                     .step = BLOCK,
                     .offset = a->along,
                     .b = q->values,
                     .b_leading = a->padded,
                     .c = q->sums,
                     .c_leading = a->padded,
                     .add = keys > 0};
    multiply(p, rows, a->padded, n, keys == block ? TERMS_TO_ROW : WHOLE);
}

static void attend(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t block = task % a->blocks, row = task / a->blocks, sample = row / a->heads, index = row % a->heads;
    const float *head = a->qkv + sample * a->positions * 3 * a->width + index * a->d;
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
    attention a = attention_of(call, &call->inputs[0]);
    const int64_t tasks = a.samples * a.heads * a.blocks;
    bind_offsets(&a, state);
    a.slot_floats = query_floats(&a);
    if (tasks > 0)
        slots_run(team, tasks, slots_for(tasks), attend, &a);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(causal_attention) = {.op = "causal_attention",
                                                   .supports = supports,
                                                   .widens = true,
                                                   .prepare = prepare,
                                                   .destroy = td_free,
                                                   .scratch_bytes = scratch_bytes,
                                                   .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------ */

/* The scratch of a head. */
typedef struct head_work {
    const float *head, *dy, *log_sum;          /* q, k and v are 3 width apart, dy width */
    float *keys, *key_columns, *value_columns; /* packed, of a block of keys */
    float *queries, *gradients;                /* packed, of a block of queries: q and dy */
    float *weights, *changes;                  /* [BLOCK, BLOCK]: p, ds */
    float *key_gradient, *value_gradient;      /* [BLOCK, padded] */
    float *shares, *query_gradient;            /* [positions]: dy . y; [positions, padded] */
} head_work;

static int64_t head_floats(const attention *a)
{
    return BLOCK * (2 * a->d + 5 * a->padded + 2 * BLOCK) + a->positions * (a->padded + 1);
}

static head_work head_work_at(const attention *a, float *memory)
{
    const int64_t panel_floats = BLOCK * a->padded, column_floats = BLOCK * a->d;
    head_work w = {.key_columns = memory, .value_columns = memory + column_floats};
    w.keys = w.value_columns + column_floats;
    w.queries = w.keys + panel_floats;
    w.gradients = w.queries + panel_floats;
    w.key_gradient = w.gradients + panel_floats;
    w.value_gradient = w.key_gradient + panel_floats;
    w.weights = w.value_gradient + panel_floats;
    w.changes = w.weights + BLOCK * BLOCK;
    w.query_gradient = w.changes + BLOCK * BLOCK;
    w.shares = w.query_gradient + a->positions * a->padded;
    return w;
}

/* From scores and dy . v to weights and the gradients of scores, one row; zero for keys that the query does not see. */
static void differentiate_row(float *restrict weights, float *restrict changes, int64_t valid, float scale,
                              float log_sum, float share)
{
    for (int32_t j = 0, n = (int32_t)valid; j < BLOCK; j++) {
        const float weight = td_expf(fmaf(weights[j], scale, -log_sum));
        const float change = weight * (changes[j] - share) * scale;
        weights[j] = j < n ? weight : 0;
        changes[j] = j < n ? change : 0;
    }
}

/* The contributions of one block of queries and one of keys. */
static void differentiate_block(const attention *a, head_work *w, int64_t block, int64_t keys)
{
    const int64_t rows = block_rows(a, block), n = block_rows(a, keys), step = 3 * a->width, first = block * BLOCK;
    const float *queries = w->head + first * step, *dy = w->dy + first * a->width;
    const bool on_diagonal = keys == block;
    pack_rows(a, queries, step, rows, w->queries);
    pack_rows(a, dy, a->width, rows, w->gradients);
    multiply_scores(a, queries, step, w->key_columns, rows, on_diagonal, w->weights);
    multiply_scores(a, dy, a->width, w->value_columns, rows, on_diagonal, w->changes);
    for (int64_t row = 0; row < rows; row++)
        differentiate_row(w->weights + row * BLOCK, w->changes + row * BLOCK, on_diagonal ? row + 1 : n, a->scale,
                          w->log_sum[first + row], w->shares[first + row]);
    panel p = {.step = 1, .offset = a->down, .b_leading = a->padded, .c_leading = a->padded, .add = block > keys};
    p.a = w->weights;
    p.b = w->gradients;
    p.c = w->value_gradient;
    multiply(p, n, a->padded, rows, on_diagonal ? TERMS_FROM_ROW : WHOLE);
    p.a = w->changes;
    p.b = w->queries;
    p.c = w->key_gradient;
    multiply(p, n, a->padded, rows, on_diagonal ? TERMS_FROM_ROW : WHOLE);
    p.step = BLOCK;
    p.offset = a->along;
    p.b = w->keys;
    p.c = w->query_gradient + first * a->padded;
    p.add = keys > 0;
    multiply(p, rows, a->padded, n, on_diagonal ? TERMS_TO_ROW : WHOLE);
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
    pack_rows(a, first_key, step, n, w->keys);
    for (int64_t block = keys; block < a->blocks; block++)
        differentiate_block(a, w, block, keys);
    unpack_rows(a, w->key_gradient, n, out + keys * BLOCK * step + a->width);
    unpack_rows(a, w->value_gradient, n, out + keys * BLOCK * step + 2 * a->width);
}

static void differentiate_head(const void *context, int64_t task, int64_t slot)
{
    const attention *a = context;
    const int64_t sample = task / a->heads, index = task % a->heads;
    const int64_t first = sample * a->positions * a->width + index * a->d;
    const int64_t at = sample * a->positions * 3 * a->width + index * a->d;
    const float *y = (const float *)a->call->inputs[OUTPUT].data + first;
    head_work w = head_work_at(a, a->scratch + slot * a->slot_floats);
    w.head = a->qkv + at;
    w.dy = (const float *)a->call->inputs[GRADIENT].data + first;
    w.log_sum = (const float *)a->call->inputs[LOG_SUM].data + task * a->positions;
    float *out = (float *)a->call->outputs[0].data + at;
    for (int64_t i = 0; i < a->positions; i++)
        w.shares[i] = v16_dot(w.dy + i * a->width, y + i * a->width, a->d);
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
    attention a = attention_of(call, &call->inputs[QKV]);
    const int64_t tasks = a.positions > 0 ? a.samples * a.heads : 0;
    bind_offsets(&a, state);
    a.slot_floats = head_floats(&a);
    if (tasks > 0)
        slots_run(team, tasks, slots_for(tasks), differentiate_head, &a);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(causal_attention_gradient) = {.op = "causal_attention_gradient",
                                                            .supports = supports,
                                                            .widens = true,
                                                            .prepare = prepare,
                                                            .destroy = td_free,
                                                            .scratch_bytes = gradient_scratch_bytes,
                                                            .run = run_gradient};
