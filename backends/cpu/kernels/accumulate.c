/* accumulate and its kin: as graph/ops/accumulate.c says. A list of rows is merged with what is added by their numbers alone,
 * on one thread; the sums are then made side by side. */
#include <string.h>

#include "backends/cpu/kernels/chunks.h"

enum { BEGINS, FIRST_REPLICA, ENDS };
enum { ROWS_PER_TASK = 64 };

static bool says(const td_kernel_call *call, int32_t number)
{
    return ((const double *)call->inputs[1].data)[number] != 0;
}

/* ---- dense -------------------------------------------------------------------------------------------------------------- */

typedef struct dense_work {
    const td_tensor *from;
    float *sum;
    bool first;
} dense_work;

static void fold_range(void *context, int64_t begin, int64_t end)
{
    const dense_work *work = context;
    float buffer[TD_CHUNK];
    for (int64_t at = begin; at < end; at += TD_CHUNK) {
        const int64_t n = end - at < TD_CHUNK ? end - at : TD_CHUNK;
        const float *restrict from = td_chunk_load(work->from, at, n, buffer);
        float *restrict sum = work->sum + at;
        if (work->first)
            memcpy(sum, from, (size_t)n * sizeof *sum);
        else
            for (int64_t i = 0; i < n; i++)
                sum[i] += from[i];
    }
}

static void fold(td_team *team, bool first, const td_tensor *from, const td_tensor *to)
{
    dense_work work = {from, to->data, first};
    td_cpu_for(team, td_cpu_elements(to), TD_CPU_BLOCK, fold_range, &work);
}

static bool supports_dense(const td_kernel_call *call)
{
    return td_cpu_is_float(&call->inputs[0]) && td_cpu_is(&call->outputs[0], TD_DENSE, TD_F32);
}

static td_status *run_dense(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    fold(team, says(call, BEGINS), &call->inputs[0], &call->outputs[0]);
    return NULL;
}

static td_status *run_dense_replicas(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    fold(team, says(call, BEGINS), &call->inputs[0], &call->outputs[1]);
    if (says(call, ENDS))
        fold(team, says(call, FIRST_REPLICA), &call->outputs[1], &call->outputs[0]);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(accumulate) = {.op = "accumulate", .supports = supports_dense, .run = run_dense};
const td_cpu_kernel TD_KERNEL(accumulate_replicas) = {
    .op = "accumulate_replicas", .supports = supports_dense, .run = run_dense_replicas};

/* ---- row-sparse ---------------------------------------------------------------------------------------------------------- */

/* What is added: entry i of it is place[i] of the list, which is new from `old` on. */
typedef struct rows_work {
    const float *from;
    const int64_t *from_order; /* NULL: entry i is i */
    float *sum;
    int64_t *place, old, elements;
} rows_work;

static void add_rows(void *context, int64_t begin, int64_t end)
{
    const rows_work *work = context;
    const int64_t n = work->elements;
    for (int64_t i = begin; i < end; i++) {
        const float *restrict from = work->from + (work->from_order ? work->from_order[i] : i) * n;
        float *restrict sum = work->sum + work->place[i] * n;
        if (work->place[i] >= work->old)
            memcpy(sum, from, (size_t)n * sizeof *sum);
        else
            for (int64_t k = 0; k < n; k++)
                sum[k] += from[k];
    }
}

/* The place of each added row; those that are new get the next places, in turn. Returns how many rows the list has then. */
static int64_t find_places(const rows_work *work, const int64_t *from_rows, int64_t n_from, const int64_t *rows,
                           const int64_t *order)
{
    int64_t n = work->old;
    for (int64_t i = 0, at = 0; i < n_from; i++) {
        const int64_t row = from_rows[work->from_order ? work->from_order[i] : i];
        while (at < work->old && rows[order[at]] < row)
            at++;
        work->place[i] = at < work->old && rows[order[at]] == row ? order[at] : n++;
    }
    return n;
}

/* The order with the new rows in it, from its end on, so that it moves within its own memory. */
static void merge_order(const rows_work *work, int64_t n_from, int64_t *rows, int64_t *order, int64_t n)
{
    int64_t at = work->old - 1;
    for (int64_t i = n_from - 1, to = n - 1; i >= 0; i--) {
        if (work->place[i] < work->old)
            continue;
        while (at >= 0 && rows[order[at]] > rows[work->place[i]])
            order[to--] = order[at--];
        order[to--] = work->place[i];
    }
}

static void fold_rows(td_team *team, int64_t *place, bool first, const td_tensor *from, const int64_t *from_order,
                      const td_tensor *to, const td_tensor *order)
{
    int64_t *rows = to->index, n_from = *(const int64_t *)from->count;
    const int64_t *from_rows = from->index;
    rows_work work = {.from = from->data,
                      .from_order = from_order,
                      .sum = to->data,
                      .place = place,
                      .old = first ? 0 : *(const int64_t *)to->count,
                      .elements = td_cpu_product(to, 1, to->rank)};
    int64_t n = find_places(&work, from_rows, n_from, rows, order->data);
    for (int64_t i = 0; i < n_from; i++)
        rows[place[i]] = from_rows[from_order ? from_order[i] : i];
    merge_order(&work, n_from, rows, order->data, n);
    *(int64_t *)to->count = n;
    td_cpu_for(team, n_from, ROWS_PER_TASK, add_rows, &work);
}

static bool supports_rows(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_ROW_SPARSE, TD_F32);
}

/* A place per added row. */
static size_t rows_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    int64_t most = call->inputs[0].entries;
    if (call->n_outputs > 2 && call->outputs[2].entries > most)
        most = call->outputs[2].entries;
    return (size_t)most * sizeof(int64_t);
}

static td_status *run_rows(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    fold_rows(team, call->scratch, says(call, BEGINS), &call->inputs[0], NULL, &call->outputs[0], &call->outputs[1]);
    return NULL;
}

static td_status *run_replica_rows(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *accumulated = &call->outputs[2], *order = &call->outputs[3];
    fold_rows(team, call->scratch, says(call, BEGINS), &call->inputs[0], NULL, accumulated, order);
    if (says(call, ENDS))
        fold_rows(team, call->scratch, says(call, FIRST_REPLICA), accumulated, order->data, &call->outputs[0],
                  &call->outputs[1]);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(accumulate_rows) = {
    .op = "accumulate_rows", .supports = supports_rows, .scratch_bytes = rows_scratch_bytes, .run = run_rows};
const td_cpu_kernel TD_KERNEL(accumulate_replica_rows) = {.op = "accumulate_replica_rows",
                                                          .supports = supports_rows,
                                                          .scratch_bytes = rows_scratch_bytes,
                                                          .run = run_replica_rows};
