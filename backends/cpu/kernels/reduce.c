/* Sums over one axis, or neighbouring ones: reduce_sum, reduce_mean, reduce_to and bias_gradient; and the gradients of the
 * first two, which repeat along it. Each sum runs along its axis in order, in double, and is rounded once: columns are
 * summed side by side, never one column by several threads. */
#include "backends/cpu/kernels/chunks.h"
#include "base/prefetch.h"

/* x as [outer, size, inner], y as [outer, inner]. */
typedef struct reduction {
    const td_tensor *x, *y;
    int64_t outer, size, inner;
    bool mean;
} reduction;

enum { COLUMNS = 64, ROWS_AHEAD = 16 };

/* Asks for the columns of a row further down: rows lie further apart than the hardware foresees. */
TD_PREFETCHES void fetch_ahead(const reduction *r, int64_t row, int64_t column, int64_t n)
{
    const int64_t bytes = (int64_t)td_cpu_element_bytes(r->x);
    td_prefetch_row((const char *)r->x->data + ((row + ROWS_AHEAD) * r->inner + column) * bytes, n * bytes);
}

/* Columns [column, column + n) of one outer index. */
static void sum_columns(const reduction *r, int64_t outer, int64_t column, int64_t n)
{
    double sums[COLUMNS] = {0};
    float buffer[COLUMNS], result[COLUMNS];
    for (int64_t j = 0; j < r->size; j++) {
        const int64_t row = outer * r->size + j;
        const float *x = td_chunk_load(r->x, row * r->inner + column, n, buffer);
        fetch_ahead(r, row, column, n);
        for (int64_t i = 0; i < n; i++)
            sums[i] += (double)x[i];
    }
    for (int64_t i = 0; i < n; i++)
        result[i] = (float)(r->mean ? sums[i] / (double)r->size : sums[i]);
    int64_t at = outer * r->inner + column;
    if (r->y->dtype == TD_F32)
        memcpy((float *)r->y->data + at, result, (size_t)n * sizeof *result);
    td_chunk_store(r->y, at, n, result);
}

/* Along the last axis: one sum after another. */
static void sum_row(const reduction *r, int64_t outer)
{
    double sum = 0.0;
    float buffer[TD_CHUNK];
    for (int64_t at = 0; at < r->size; at += TD_CHUNK) {
        int64_t n = r->size - at < TD_CHUNK ? r->size - at : TD_CHUNK;
        const float *x = td_chunk_load(r->x, outer * r->size + at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i];
    }
    float result = (float)(r->mean ? sum / (double)r->size : sum);
    *td_chunk_target(r->y, outer, buffer) = result;
    td_chunk_store(r->y, outer, 1, &result);
}

/* Tasks: blocks of columns of each outer index. */
static void reduce_range(void *context, int64_t begin, int64_t end)
{
    const reduction *r = context;
    int64_t blocks = (r->inner + COLUMNS - 1) / COLUMNS;
    for (int64_t task = begin; task < end; task++) {
        int64_t column = task % blocks * COLUMNS;
        if (r->inner == 1)
            sum_row(r, task);
        else
            sum_columns(r, task / blocks, column, r->inner - column < COLUMNS ? r->inner - column : COLUMNS);
    }
}

static td_status *reduce(td_team *team, reduction r)
{
    int64_t tasks = r.outer * ((r.inner + COLUMNS - 1) / COLUMNS);
    int64_t work = r.size * (r.inner < COLUMNS ? r.inner : COLUMNS);
    td_cpu_for(team, tasks, 1 + TD_CPU_BLOCK / 4 / (1 + work), reduce_range, &r);
    return NULL;
}

static td_status *reduce_axes(const td_kernel_call *call, td_team *team, int32_t from, int32_t to, bool mean)
{
    const td_tensor *x = &call->inputs[0];
    return reduce(team, (reduction){x, &call->outputs[0], td_cpu_product(x, 0, from), td_cpu_product(x, from, to),
                                    td_cpu_product(x, to, x->rank), mean});
}

static td_status *run_sum(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    int32_t axis = (int32_t)td_cpu_attr_int(call, "axis", 0);
    return reduce_axes(call, team, axis, axis + 1, false);
}

static td_status *run_mean(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    int32_t axis = (int32_t)td_cpu_attr_int(call, "axis", 0);
    return reduce_axes(call, team, axis, axis + 1, true);
}

static td_status *run_bias_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return reduce_axes(call, team, 0, call->inputs[0].rank - 1, false);
}

/* One block of neighbouring axes; others run on the reference kernel. */
static bool supports_reduce_to(const td_kernel_call *call)
{
    const td_attr *axes = td_cpu_attr(call, "axes");
    if (!axes || axes->n_ints < 1 || !td_cpu_floats_only(call))
        return false;
    return axes->ints[axes->n_ints - 1] - axes->ints[0] == axes->n_ints - 1;
}

static td_status *run_reduce_to(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_attr *axes = td_cpu_attr(call, "axes");
    return reduce_axes(call, team, (int32_t)axes->ints[0], (int32_t)axes->ints[axes->n_ints - 1] + 1, false);
}

const td_cpu_kernel TD_KERNEL(reduce_sum) = {.op = "reduce_sum", .supports = td_cpu_floats_only, .run = run_sum};
const td_cpu_kernel TD_KERNEL(reduce_mean) = {.op = "reduce_mean", .supports = td_cpu_floats_only, .run = run_mean};
const td_cpu_kernel TD_KERNEL(bias_gradient) = {
    .op = "bias_gradient", .supports = td_cpu_floats_only, .run = run_bias_gradient};
const td_cpu_kernel TD_KERNEL(reduce_to) = {.op = "reduce_to", .supports = supports_reduce_to, .run = run_reduce_to};

/* ---- gradients: dy [outer, inner] repeated to dx [outer, size, inner] ------------------------------------------------------ */

/* Elements [begin, end) of dx row `row` = (outer, j), by chunks. */
static void repeat_row(const reduction *r, int64_t row)
{
    const td_tensor *dy = r->y, *dx = r->x;
    float buffer[TD_CHUNK], out_buffer[TD_CHUNK], size = (float)r->size;
    for (int64_t at = 0; at < r->inner; at += TD_CHUNK) {
        int64_t n = r->inner - at < TD_CHUNK ? r->inner - at : TD_CHUNK;
        const float *from = td_chunk_load(dy, row / r->size * r->inner + at, n, buffer);
        float *to = td_chunk_target(dx, row * r->inner + at, out_buffer);
        for (int64_t i = 0; i < n; i++)
            to[i] = r->mean ? from[i] / size : from[i];
        td_chunk_store(dx, row * r->inner + at, n, to);
    }
}

/* All of dx at one outer index, where inner is 1. */
static void fill_row(const reduction *r, int64_t outer)
{
    float one, out_buffer[TD_CHUNK], value = *td_chunk_load(r->y, outer, 1, &one);
    value = r->mean ? value / (float)r->size : value;
    for (int64_t at = 0; at < r->size; at += TD_CHUNK) {
        int64_t n = r->size - at < TD_CHUNK ? r->size - at : TD_CHUNK;
        float *to = td_chunk_target(r->x, outer * r->size + at, out_buffer);
        for (int64_t i = 0; i < n; i++)
            to[i] = value;
        td_chunk_store(r->x, outer * r->size + at, n, to);
    }
}

static void repeat_range(void *context, int64_t begin, int64_t end)
{
    const reduction *r = context;
    for (int64_t row = begin; row < end; row++) {
        if (r->inner == 1)
            fill_row(r, row);
        else
            repeat_row(r, row);
    }
}

static td_status *repeat(const td_kernel_call *call, td_team *team, bool mean)
{
    const td_tensor *dx = &call->outputs[0];
    int32_t axis = (int32_t)td_cpu_attr_int(call, "axis", 0);
    reduction r = {
        dx,  &call->inputs[0], td_cpu_product(dx, 0, axis), dx->dims[axis], td_cpu_product(dx, axis + 1, dx->rank),
        mean};
    if (td_cpu_elements(dx) == 0)
        return NULL;
    int64_t rows = r.inner == 1 ? r.outer : r.outer * r.size, width = r.inner == 1 ? r.size : r.inner;
    td_cpu_for(team, rows, 1 + TD_CPU_BLOCK / width, repeat_range, &r);
    return NULL;
}

static td_status *run_sum_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return repeat(call, team, false);
}

static td_status *run_mean_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return repeat(call, team, true);
}

const td_cpu_kernel TD_KERNEL(reduce_sum_gradient) = {
    .op = "reduce_sum_gradient", .supports = td_cpu_floats_only, .run = run_sum_gradient};
const td_cpu_kernel TD_KERNEL(reduce_mean_gradient) = {
    .op = "reduce_mean_gradient", .supports = td_cpu_floats_only, .run = run_mean_gradient};
