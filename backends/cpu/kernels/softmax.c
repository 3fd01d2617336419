/* softmax along the last axis and its gradient from the output. Row sums are in double, in the lane order of base/sums.h. */
#include "backends/cpu/kernels/chunks.h"
#include "base/sums.h"

static int64_t last_dim(const td_tensor *t)
{
    return t->dims[t->rank - 1];
}

static bool supports(const td_kernel_call *call)
{
    return td_cpu_floats_only(call) && call->inputs[0].rank >= 1;
}

/* Adds n values to the lanes; all chunks but the last of a row are whole multiples of the lanes. */
static inline void add_to_lanes(double lanes[TD_SUM_LANES], const float *values, int64_t n)
{
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] += (double)values[i + lane];
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] += (double)values[i];
}

static inline void add_products_to_lanes(double lanes[TD_SUM_LANES], const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] += (double)a[i + lane] * (double)b[i + lane];
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] += (double)a[i] * (double)b[i];
}

static float largest(const td_tensor *x, int64_t begin, int64_t n)
{
    float most = -INFINITY, buffer[TD_CHUNK];
    for (int64_t at = 0; at < n; at += TD_CHUNK) {
        int64_t size = n - at < TD_CHUNK ? n - at : TD_CHUNK;
        const float *values = td_chunk_load(x, begin + at, size, buffer);
        float lanes[TD_SUM_LANES];
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] = -INFINITY;
        int64_t i = 0;
        for (; i + TD_SUM_LANES <= size; i += TD_SUM_LANES)
            for (int lane = 0; lane < TD_SUM_LANES; lane++)
                lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        for (; i < size; i++)
            lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            most = lanes[lane] > most ? lanes[lane] : most;
    }
    return most;
}

/* exp(x - most) of a chunk */
static const float *exponentials(const td_tensor *x, int64_t begin, int64_t n, float most, float *out)
{
    float buffer[TD_CHUNK];
    const float *values = td_chunk_load(x, begin, n, buffer);
    TD_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        out[i] = td_expf(values[i] - most);
    return out;
}

static void softmax_row(const td_tensor *x, const td_tensor *y, int64_t begin, int64_t n)
{
    float most = largest(x, begin, n), chunk[TD_CHUNK];
    double lanes[TD_SUM_LANES] = {0};
    bool in_place = y->dtype == TD_F32; /* the exponentials wait in y for their sum; else they are made twice */
    for (int64_t at = 0; at < n; at += TD_CHUNK) {
        int64_t size = n - at < TD_CHUNK ? n - at : TD_CHUNK;
        float *out = in_place ? (float *)y->data + begin + at : chunk;
        add_to_lanes(lanes, exponentials(x, begin + at, size, most, out), size);
    }
    float sum = (float)td_fold_lanes_double(lanes);
    for (int64_t at = 0; at < n; at += TD_CHUNK) {
        int64_t size = n - at < TD_CHUNK ? n - at : TD_CHUNK;
        float *out = td_chunk_target(y, begin + at, chunk);
        if (!in_place)
            exponentials(x, begin + at, size, most, out);
        for (int64_t i = 0; i < size; i++)
            out[i] = out[i] / sum;
        td_chunk_store(y, begin + at, size, out);
    }
}

static void rows_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    int64_t n = last_dim(&call->inputs[0]);
    for (int64_t row = begin; row < end; row++)
        softmax_row(&call->inputs[0], &call->outputs[0], row * n, n);
}

static void gradient_row(const td_kernel_call *call, int64_t begin, int64_t n)
{
    const td_tensor *y = &call->inputs[0], *dy = &call->inputs[1], *dx = &call->outputs[0];
    float a_buffer[TD_CHUNK], b_buffer[TD_CHUNK], out_buffer[TD_CHUNK];
    double lanes[TD_SUM_LANES] = {0};
    for (int64_t at = 0; at < n; at += TD_CHUNK) {
        int64_t size = n - at < TD_CHUNK ? n - at : TD_CHUNK;
        add_products_to_lanes(lanes, td_chunk_load(y, begin + at, size, a_buffer),
                              td_chunk_load(dy, begin + at, size, b_buffer), size);
    }
    float mean = (float)td_fold_lanes_double(lanes);
    for (int64_t at = 0; at < n; at += TD_CHUNK) {
        int64_t size = n - at < TD_CHUNK ? n - at : TD_CHUNK;
        const float *a = td_chunk_load(y, begin + at, size, a_buffer),
                    *b = td_chunk_load(dy, begin + at, size, b_buffer);
        float *out = td_chunk_target(dx, begin + at, out_buffer);
        TD_INDEPENDENT
        for (int64_t i = 0; i < size; i++)
            out[i] = a[i] * (b[i] - mean);
        td_chunk_store(dx, begin + at, size, out);
    }
}

static void gradient_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    int64_t n = last_dim(&call->inputs[0]);
    for (int64_t row = begin; row < end; row++)
        gradient_row(call, row * n, n);
}

static td_status *run_rows(const td_kernel_call *call, td_team *team, td_cpu_range_fn range)
{
    const td_tensor *x = &call->inputs[0];
    int64_t n = last_dim(x), rows = td_cpu_product(x, 0, x->rank - 1);
    td_cpu_for(team, n ? rows : 0, n ? 1 + TD_CPU_BLOCK / 4 / n : 1, range, (void *)(uintptr_t)call);
    return NULL;
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return run_rows(call, team, rows_range);
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return run_rows(call, team, gradient_range);
}

const td_cpu_kernel TD_KERNEL(softmax) = {.op = "softmax", .supports = supports, .run = run};
const td_cpu_kernel TD_KERNEL(softmax_gradient) = {.op = "softmax_gradient", .supports = supports, .run = run_gradient};
