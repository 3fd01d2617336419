/* max_pool2d and its gradient, a run of planes at a time: as graph/ops/max_pool2d.c says. */
#include <math.h>
#include <string.h>

#include "backends/cpu/kernels/chunks.h"

typedef struct pool {
    const float *x;
    float *y;
    int32_t *index;
    int64_t height, width, rows, columns, kernel, stride, padding;
} pool;

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32);
}

/* Whether b comes after a as the largest so far. */
static inline bool is_larger(float b, float a)
{
    return b > a || (isnan(b) && !isnan(a));
}

/* Windows of 2 x 2 pixels that lie side by side: no edges, no inner loop. */
static void pool_pairs(const pool *p, const float *plane, float *restrict y, int32_t *restrict index)
{
    for (int64_t i = 0; i < p->rows; i++, y += p->columns, index += p->columns) {
        const int64_t first = 2 * i * p->width;
        const float *above = plane + first, *below = above + p->width;
        for (int64_t j = 0; j < p->columns; j++) {
            const float a = above[2 * j], b = above[2 * j + 1], c = below[2 * j], d = below[2 * j + 1];
            const bool right = is_larger(b, a), lower_right = is_larger(d, c);
            const float upper = right ? b : a, lower = lower_right ? d : c;
            const bool down = is_larger(lower, upper);
            const int64_t column = 2 * j + (down ? lower_right : right);
            y[j] = down ? lower : upper;
            index[j] = (int32_t)(first + column + (down ? p->width : 0));
        }
    }
}

static void pool_plane(const pool *p, const float *plane, float *y, int32_t *index)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            const int64_t top = i * p->stride - p->padding, left = j * p->stride - p->padding;
            int64_t best = -1;
            for (int64_t row = top < 0 ? 0 : top; row < top + p->kernel && row < p->height; row++)
                for (int64_t column = left < 0 ? 0 : left; column < left + p->kernel && column < p->width; column++)
                    if (best < 0 || is_larger(plane[row * p->width + column], plane[best]))
                        best = row * p->width + column;
            *y++ = plane[best];
            *index++ = (int32_t)best;
        }
}

static void pool_planes(void *context, int64_t begin, int64_t end)
{
    const pool *p = context;
    const bool pairs = p->kernel == 2 && p->stride == 2 && p->padding == 0;
    for (int64_t plane = begin; plane < end; plane++)
        (pairs ? pool_pairs : pool_plane)(p, p->x + plane * p->height * p->width, p->y + plane * p->rows * p->columns,
                                          p->index + plane * p->rows * p->columns);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    pool p = {.x = x->data,
              .y = y->data,
              .index = call->outputs[1].data,
              .height = x->dims[2],
              .width = x->dims[3],
              .rows = y->dims[2],
              .columns = y->dims[3],
              .kernel = td_cpu_attr_int(call, "kernel", 1),
              .stride = td_cpu_attr_int(call, "stride", 0),
              .padding = td_cpu_attr_int(call, "padding", 0)};
    p.stride = p.stride ? p.stride : p.kernel;
    td_cpu_for(team, td_cpu_product(x, 0, 2), 1 + TD_CPU_BLOCK / (p.height * p.width), pool_planes, &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(max_pool2d) = {.op = "max_pool2d", .supports = supports, .widens = true, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------------ */

static void scatter_planes(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const td_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    const int64_t windows = dy->dims[2] * dy->dims[3], pixels = dx->dims[2] * dx->dims[3];
    const float *from = (const float *)dy->data + begin * windows;
    const int32_t *index = (const int32_t *)call->inputs[1].data + begin * windows;
    float *to = (float *)dx->data + begin * pixels;
    memset(to, 0, (size_t)((end - begin) * pixels) * sizeof *to);
    for (int64_t plane = begin; plane < end; plane++, to += pixels)
        for (int64_t w = 0; w < windows; w++, from++, index++)
            if (*index >= 0 && *index < pixels)
                to[*index] += *from;
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *dx = &call->outputs[0];
    td_cpu_for(team, td_cpu_product(dx, 0, 2), 1 + TD_CPU_BLOCK / (dx->dims[2] * dx->dims[3]), scatter_planes,
               (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(max_pool2d_gradient) = {
    .op = "max_pool2d_gradient", .supports = supports, .widens = true, .run = run_gradient};
