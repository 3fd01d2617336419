/* avg_pool2d and its gradient, a run of planes at a time: as graph/ops/avg_pool2d.c says. */
#include <string.h>

#include "backends/cpu/kernels/chunks.h"

typedef struct pool {
    const float *from;
    float *to;
    int64_t height, width, rows, columns, kernel, stride, padding;
    bool count_padding;
} pool;

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32);
}

static pool pool_of(const td_kernel_call *call, const td_tensor *x, const td_tensor *y)
{
    pool p = {.from = call->inputs[0].data,
              .to = call->outputs[0].data,
              .height = x->dims[2],
              .width = x->dims[3],
              .rows = y->dims[2],
              .columns = y->dims[3],
              .kernel = td_cpu_attr_int(call, "kernel", 1),
              .stride = td_cpu_attr_int(call, "stride", 0),
              .padding = td_cpu_attr_int(call, "padding", 0),
              .count_padding = td_cpu_attr_bool(call, "count_padding", true)};
    p.stride = p.stride ? p.stride : p.kernel;
    return p;
}

/* The part of a window that lies in the image, and what its mean divides by. */
typedef struct window {
    int64_t top, bottom, left, right;
    float count;
} window;

static window window_at(const pool *p, int64_t i, int64_t j)
{
    window w = {.top = i * p->stride - p->padding, .left = j * p->stride - p->padding};
    w.bottom = w.top + p->kernel < p->height ? w.top + p->kernel : p->height;
    w.right = w.left + p->kernel < p->width ? w.left + p->kernel : p->width;
    w.top = w.top > 0 ? w.top : 0;
    w.left = w.left > 0 ? w.left : 0;
    w.count = (float)(p->count_padding ? p->kernel * p->kernel : (w.bottom - w.top) * (w.right - w.left));
    return w;
}

static void mean_planes(void *context, int64_t begin, int64_t end)
{
    const pool *p = context;
    float *y = p->to + begin * p->rows * p->columns;
    for (int64_t at = begin * p->rows * p->columns; at < end * p->rows * p->columns; at++) {
        const float *plane = p->from + at / (p->rows * p->columns) * p->height * p->width;
        const window w = window_at(p, at / p->columns % p->rows, at % p->columns);
        float sum = 0;
        for (int64_t i = w.top; i < w.bottom; i++)
            for (int64_t j = w.left; j < w.right; j++)
                sum += plane[i * p->width + j];
        *y++ = sum / w.count;
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    pool p = pool_of(call, &call->inputs[0], &call->outputs[0]);
    td_cpu_for(team, td_cpu_product(&call->inputs[0], 0, 2), 1 + TD_CPU_BLOCK / (p.height * p.width), mean_planes, &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(avg_pool2d) = {.op = "avg_pool2d", .supports = supports, .widens = true, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------------ */

static void spread_planes(void *context, int64_t begin, int64_t end)
{
    const pool *p = context;
    const float *dy = p->from + begin * p->rows * p->columns;
    memset(p->to + begin * p->height * p->width, 0, (size_t)((end - begin) * p->height * p->width) * sizeof *p->to);
    for (int64_t at = begin * p->rows * p->columns; at < end * p->rows * p->columns; at++) {
        float *plane = p->to + at / (p->rows * p->columns) * p->height * p->width;
        const window w = window_at(p, at / p->columns % p->rows, at % p->columns);
        const float share = *dy++ / w.count;
        for (int64_t i = w.top; i < w.bottom; i++)
            for (int64_t j = w.left; j < w.right; j++)
                plane[i * p->width + j] += share;
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    pool p = pool_of(call, &call->outputs[0], &call->inputs[0]);
    td_cpu_for(team, td_cpu_product(&call->outputs[0], 0, 2), 1 + TD_CPU_BLOCK / (p.height * p.width), spread_planes,
               &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(avg_pool2d_gradient) = {
    .op = "avg_pool2d_gradient", .supports = supports, .widens = true, .run = run_gradient};
