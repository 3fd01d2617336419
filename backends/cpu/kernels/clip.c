/* gradient_squares and clip_gradient: as graph/ops/clip.c says. Tasks sum whole blocks or rows into an exact sum each; these
 * are added up without rounding, so their number changes nothing. */
#include <string.h>

#include "backends/cpu/kernels/seen_gradient.h"
#include "base/exact.h"

enum { MOST_TASKS = 32, TASK_BLOCKS = 32 };

/* Pieces whose squares are added in double: blocks of a dense gradient, rows of a row-sparse one. */
typedef struct pieces {
    td_seen_gradient seen;
    int64_t elements, piece, n, per_task;
    td_exact *sums;
} pieces;

static bool supports(const td_kernel_call *call)
{
    return call->inputs[0].dtype == TD_F32;
}

static bool supports_squares(const td_kernel_call *call)
{
    return td_cpu_is_float(&call->inputs[0]) || td_cpu_is(&call->inputs[0], TD_ROW_SPARSE, TD_F32);
}

static int64_t row_elements(const td_tensor *t)
{
    return td_cpu_product(t, 1, t->rank);
}

/* At capacity a row-sparse gradient has as many rows as it has room for. */
static pieces pieces_of(const td_tensor *t, int64_t rows)
{
    pieces p = {.seen = {.gradient = t, .factor = 1}, .elements = td_cpu_elements(t), .piece = TD_EXACT_BLOCK};
    if (t->kind == TD_ROW_SPARSE) {
        p.piece = row_elements(t);
        p.elements = rows * p.piece;
    }
    p.n = p.piece ? p.elements / p.piece + (p.elements % p.piece != 0) : 0;
    p.per_task = (p.n + MOST_TASKS - 1) / MOST_TASKS;
    if (p.per_task * p.piece < TASK_BLOCKS * TD_EXACT_BLOCK && p.piece)
        p.per_task = (TASK_BLOCKS * TD_EXACT_BLOCK + p.piece - 1) / p.piece;
    return p;
}

static int64_t tasks_of(const pieces *p)
{
    return p->n ? (p->n + p->per_task - 1) / p->per_task : 0;
}

/* A block of a dense gradient in f32, with the sum that it belongs to: where it lies, or made in `buffer`. */
static const float *load_block(const pieces *p, int64_t at, int64_t n, float *buffer)
{
    if (p->seen.gradient->dtype == TD_F32 && !p->seen.sum)
        return (const float *)p->seen.gradient->data + at;
    for (int64_t i = 0; i < n; i += TD_CHUNK) {
        const int64_t count = n - i < TD_CHUNK ? n - i : TD_CHUNK;
        (void)td_seen_gradient_load(&p->seen, at + i, count, buffer + i);
    }
    return buffer;
}

static void sum_pieces(void *context, int64_t begin, int64_t end)
{
    const pieces *p = context;
    const bool rows = p->seen.gradient->kind == TD_ROW_SPARSE;
    float buffer[TD_EXACT_BLOCK];
    td_exact *sum = &p->sums[begin / p->per_task];
    td_exact_clear(sum);
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * p->piece, left = p->elements - at, n = left < p->piece ? left : p->piece;
        const float *piece = rows ? (const float *)p->seen.gradient->data + at : load_block(p, at, n, buffer);
        td_exact_add(sum, td_sum_squares(piece, n));
    }
}

static size_t squares_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)call;
    (void)state;
    return MOST_TASKS * sizeof(td_exact);
}

static td_status *run_squares(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *gradient = &call->inputs[0];
    pieces p = pieces_of(gradient, gradient->kind == TD_ROW_SPARSE ? *(const int64_t *)gradient->count : 0);
    p.sums = call->scratch;
    if (call->n_inputs > 2)
        p.seen.sum = td_earlier_sum(&call->inputs[1], &call->inputs[2]);
    td_cpu_for(team, p.n, p.per_task, sum_pieces, &p);
    td_exact total;
    td_exact_clear(&total);
    for (int64_t task = 0; task < tasks_of(&p); task++)
        td_exact_add_sum(&total, &p.sums[task]);
    (void)td_exact_round(&total); /* moves the carries up: then equal sums are equal words */
    memcpy(call->outputs[0].data, &total, sizeof total);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gradient_squares) = {
    .op = "gradient_squares", .supports = supports_squares, .scratch_bytes = squares_scratch_bytes, .run = run_squares};

/* ---- clip_gradient ------------------------------------------------------------------------------------------------------- */

typedef struct scaling {
    const float *from;
    float *to;
    float factor;
} scaling;

static void scale_range(void *context, int64_t begin, int64_t end)
{
    const scaling *s = context;
    const float *from = s->from;
    float *to = s->to;
    const float factor = s->factor;
    TD_INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        to[i] = factor * from[i];
}

/* A factor of one leaves numbers as they are: in place there is nothing to do then. */
static td_status *run_clip(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *in = &call->inputs[0], *out = &call->outputs[0];
    const bool sparse = in->kind == TD_ROW_SPARSE;
    const int64_t rows = sparse ? *(const int64_t *)in->count : 0;
    scaling s = {.from = in->data, .to = out->data, .factor = *(const float *)call->inputs[1].data};
    if (s.factor != 1 || s.from != s.to)
        td_cpu_for(team, sparse ? rows * row_elements(in) : td_cpu_elements(in), TD_CPU_BLOCK, scale_range, &s);
    if (!sparse || out->index == in->index)
        return NULL;
    if (rows)
        memcpy(out->index, in->index, (size_t)rows * sizeof(int64_t));
    *(int64_t *)out->count = rows;
    return NULL;
}

const td_cpu_kernel TD_KERNEL(clip_gradient) = {.op = "clip_gradient", .supports = supports, .run = run_clip};
