/* row_sparse_add and row_sparse_add_dense. Merging finds where each row comes from; the sums are then made side by side. */
#include <string.h>

#include "backends/cpu/kernel.h"

enum { ROWS_PER_TASK = 64 };

static int64_t row_elements(const td_tensor *t)
{
    return td_cpu_product(t, 1, t->rank);
}

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_ROW_SPARSE, TD_F32) && td_cpu_is(&call->inputs[1], TD_ROW_SPARSE, TD_F32);
}

/* One pair of entries (or -1) per row of the sum. */
static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return (size_t)(call->inputs[0].entries + call->inputs[1].entries) * 2 * sizeof(int64_t);
}

typedef struct add_work {
    const float *a, *b;
    float *out;
    const int64_t *rows; /* row_sparse_add_dense */
    int64_t (*pairs)[2]; /* row_sparse_add */
    int64_t elements;
} add_work;

static void add_rows(void *context, int64_t begin, int64_t end)
{
    const add_work *work = context;
    for (int64_t r = begin; r < end; r++) {
        const int64_t from_a = work->pairs[r][0], from_b = work->pairs[r][1], n = work->elements;
        float *restrict out = work->out + r * n;
        if (from_a < 0 || from_b < 0) {
            memcpy(out, from_b < 0 ? work->a + from_a * n : work->b + from_b * n, (size_t)n * sizeof *out);
            continue;
        }
        const float *a = work->a + from_a * n, *b = work->b + from_b * n;
        for (int64_t k = 0; k < n; k++)
            out[k] = a[k] + b[k];
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1], *out = &call->outputs[0];
    const int64_t *a_rows = a->index, *b_rows = b->index, n_a = *(int64_t *)a->count, n_b = *(int64_t *)b->count;
    add_work work = {
        .a = a->data, .b = b->data, .out = out->data, .pairs = call->scratch, .elements = row_elements(out)};
    int64_t *rows = out->index, n = 0;
    for (int64_t i = 0, j = 0; i < n_a || j < n_b; n++) {
        const bool from_a = i < n_a && (j == n_b || a_rows[i] <= b_rows[j]);
        const bool from_b = j < n_b && (i == n_a || b_rows[j] <= a_rows[i]);
        rows[n] = from_a ? a_rows[i] : b_rows[j];
        work.pairs[n][0] = from_a ? i++ : -1;
        work.pairs[n][1] = from_b ? j++ : -1;
    }
    *(int64_t *)out->count = n;
    td_cpu_for(team, n, ROWS_PER_TASK, add_rows, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(row_sparse_add) = {
    .op = "row_sparse_add", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};

/* ---- to a dense one ------------------------------------------------------------------------------------------------------- */

static bool supports_dense(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32) && td_cpu_is(&call->inputs[1], TD_ROW_SPARSE, TD_F32);
}

static void copy_range(void *context, int64_t begin, int64_t end)
{
    const add_work *work = context;
    memcpy(work->out + begin, work->a + begin, (size_t)(end - begin) * sizeof(float));
}

static void add_into_rows(void *context, int64_t begin, int64_t end)
{
    const add_work *work = context;
    for (int64_t r = begin; r < end; r++) {
        const float *restrict from = work->b + r * work->elements;
        float *restrict row = work->out + work->rows[r] * work->elements;
        for (int64_t k = 0; k < work->elements; k++)
            row[k] += from[k];
    }
}

static td_status *run_dense(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *dense = &call->inputs[0], *sparse = &call->inputs[1], *out = &call->outputs[0];
    add_work work = {
        .a = dense->data, .b = sparse->data, .out = out->data, .rows = sparse->index, .elements = row_elements(out)};
    if (out->data != dense->data)
        td_cpu_for(team, td_cpu_elements(out), TD_CPU_BLOCK, copy_range, &work);
    td_cpu_for(team, *(int64_t *)sparse->count, ROWS_PER_TASK, add_into_rows, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(row_sparse_add_dense) = {
    .op = "row_sparse_add_dense", .supports = supports_dense, .run = run_dense};
