/* What the kernels of causal attention share: where heads are, blocks of positions, and what becomes of the scores of a block, which
 * are f32 whatever is multiplied. Not a kernel: causal_attention.c says how the work is cut. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_H
#define TANDEM_BACKENDS_CPU_KERNELS_ATTENTION_H

#include <math.h>
#include <string.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/chunks.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/slots.h"
#include "base/math.h"
#include "base/memory.h"

enum { BLOCK = 64 };

enum { GRADIENT, QKV, OUTPUT, LOG_SUM }; /* inputs of the gradient */

typedef struct attention {
    const td_kernel_call *call;
    const void *qkv;
    int64_t samples, positions, heads, width, d;
    int64_t padded;              /* d, up to whole panels */
    int64_t blocks;              /* of positions */
    const int64_t *along, *down; /* offsets of neighbours, and of rows of a block */
    float scale;
    float *scratch;
    int64_t slot_floats;
} attention;

static inline attention attention_of(const td_kernel_call *call, const td_tensor *qkv)
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

/* Offsets 0, 1, 2, .. for a head's columns or a block, then 0, BLOCK, 2 BLOCK, .. for a block's rows. */
static inline td_status *attention_prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
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

/* A task for each head of each sample, times `pieces`; each slot with that much scratch. */
static inline td_status *attention_run(attention a, td_team *team, const int64_t *offsets, int64_t pieces,
                                       int64_t slot_floats, slots_task task)
{
    const int64_t tasks = a.samples * a.heads * pieces;
    a.along = offsets;
    a.down = offsets + (a.d > BLOCK ? a.d : BLOCK);
    a.slot_floats = slot_floats;
    if (tasks > 0)
        slots_run(team, tasks, slots_for(tasks), task, &a);
    return NULL;
}

static inline int64_t block_rows(const attention *a, int64_t block)
{
    const int64_t left = a->positions - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

/* What the diagonal allows to leave out: a query sees no key after it. */
typedef enum diagonal_rule {
    WHOLE,            /* nothing */
    COLUMNS_TO_ROW,   /* c[i][j] with j > i is not asked for */
    COLUMNS_FROM_ROW, /* c[i][j] with j < i is not asked for */
    TERMS_TO_ROW,     /* terms beyond the row are zero */
    TERMS_FROM_ROW    /* terms before the row are zero */
} diagonal_rule;

/* Columns of the next panel, of those that are left. */
static inline int64_t attention_panel(int64_t columns)
{
#ifdef PANEL_32
    if (columns >= 32)
        return 32;
#endif
    (void)columns;
    return 16;
}

/* c [rows, columns] (+)= a b, columns in whole panels. Which terms beside the diagonal, all of a zero, are left out must not depend on
 * the instruction set, for b may be infinite: pieces of rows are everywhere the same there. `p` has a, step, offset, b, b_leading, c, c_leading, add. Where entries of
 * panels are pairs of terms, those beside the diagonal are zero. */
static inline void attention_multiply(panel p, int64_t rows, int64_t columns, int64_t terms, diagonal_rule diagonal)
{
    const float *a = p.a, *b = p.b;
    const int64_t *offset = p.offset;
    float *c = p.c;
    for (int64_t column = 0, wide = 0; column < columns; column += wide) {
        const bool by_row = diagonal == TERMS_TO_ROW || diagonal == TERMS_FROM_ROW;
        wide = attention_panel(columns - column);
        const int64_t piece = panel_piece(rows, wide == 32 && !by_row ? PANEL_ROWS_32 : PANEL_ROWS_16);
        for (int64_t row = 0; row < rows; row += piece) {
            const int64_t n = rows - row < piece ? rows - row : piece;
            const int64_t begin = diagonal == TERMS_FROM_ROW ? row : 0;
            const int64_t end = diagonal == TERMS_TO_ROW && row + n < terms ? row + n : terms;
            if ((diagonal == COLUMNS_TO_ROW && column >= row + n) ||
                (diagonal == COLUMNS_FROM_ROW && column + wide <= row))
                continue;
            const int64_t first = PANEL_ENTRY_OF(begin);
            p.a = a + row * p.step;
            p.offset = offset + first;
            p.terms = PANEL_ENTRIES(end) - first;
            p.b = b + first * p.b_leading + column;
            p.c = c + row * p.c_leading + column;
#ifdef PANEL_32
            if (wide == 32) {
                panel_32(&p, n);
                continue;
            }
#endif
            panel_16(&p, n);
        }
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------------- */

/* The scratch of a block of queries. */
typedef struct query_block {
    float *columns, *values, *scores, *sums; /* [d, BLOCK], [BLOCK, padded], [BLOCK, BLOCK], [BLOCK, padded] */
    float *most, *total; /* [BLOCK]: so far, the largest score and the sum of exponentials below it */
} query_block;

static inline int64_t query_floats(const attention *a)
{
    return BLOCK * (a->d + 2 * a->padded + BLOCK + 2);
}

static inline query_block query_block_at(const attention *a, float *memory)
{
    query_block q = {.columns = memory, .values = memory + BLOCK * a->d};
    q.scores = q.values + BLOCK * a->padded;
    q.sums = q.scores + BLOCK * BLOCK;
    q.most = q.sums + BLOCK * a->padded;
    q.total = q.most + BLOCK;
    return q;
}

/* Scales the row's first `valid` scores, puts the others to minus infinity; returns the largest. */
static inline float scale_row(float *scores, int64_t valid, float scale)
{
    v16 most = v16_set(-INFINITY);
    for (int32_t j = 0, n = (int32_t)valid; j < BLOCK; j++) { /* counters as wide as floats vectorise best */
        const float score = scores[j] * scale;
        scores[j] = j < n ? score : -INFINITY;
    }
    for (int64_t j = 0; j < BLOCK; j += 16)
        most = v16_larger(v16_load(scores + j), most);
    return v16_largest(most);
}

static inline float sum_row(const float *x)
{
    v16 sums = v16_set(0);
    for (int64_t j = 0; j < BLOCK; j += 16)
        sums = v16_add(sums, v16_load(x + j));
    return v16_fold(sums);
}

/* A row's scores become weights below the largest so far; what was summed below a smaller one is scaled down. */
static inline void weigh_row(const attention *a, query_block *q, int64_t row, int64_t valid, bool first)
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

/* ---- gradient ------------------------------------------------------------------------------------------------------------ */

/* Of the scratch of a head: see causal_attention.c. Gradients of queries have room for whole blocks, which tiles write. */
static inline int64_t head_floats(const attention *a)
{
    return BLOCK * (2 * a->d + 5 * a->padded + 2 * BLOCK) + a->blocks * BLOCK * a->padded + a->positions;
}

/* From scores and dy . v to weights and the gradients of scores, one row; zero for keys that the query does not see. */
static inline void differentiate_row(float *restrict weights, float *restrict changes, int64_t valid, float scale,
                                     float log_sum, float share)
{
    for (int32_t j = 0, n = (int32_t)valid; j < BLOCK; j++) {
        const float weight = td_expf(fmaf(weights[j], scale, -log_sum));
        const float change = weight * (changes[j] - share) * scale;
        weights[j] = j < n ? weight : 0;
        changes[j] = j < n ? change : 0;
    }
}

#endif
