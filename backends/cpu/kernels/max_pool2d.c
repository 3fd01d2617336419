/* max_pool2d and its gradient, a run of planes at a time: as graph/ops/max_pool2d.c says. */
#include <math.h>
#include <string.h>

#include "backends/cpu/kernels/chunks.h"
#include "backends/cpu/kernels/vectors.h"

typedef struct pool {
    const float *x;
    float *y;
    int32_t *index;
    int64_t height, width, rows, columns, kernel, stride, padding;
} pool;

/* Planes of a block: with blocks as large as elementwise work has, a batch of small planes would be cut unevenly. */
static inline int64_t planes_of(int64_t pixels)
{
    return 1 + TD_CPU_BLOCK / 4 / pixels;
}

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32);
}

/* Whether b comes after a as the largest so far. */
static inline bool is_larger(float b, float a)
{
    return (b > a) | ((b != b) & (a == a)); /* no branch: nobody can foresee it */
}

/* The second if `second`, without a branch, and so that a loop of these becomes one of vectors. */
static inline int32_t index_of(bool second, int32_t a, int32_t b)
{
    return a ^ ((a ^ b) & -(int32_t)second);
}
static inline float pixel_of(bool second, float a, float b)
{
    int32_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    bits_a = index_of(second, bits_a, bits_b);
    memcpy(&a, &bits_a, sizeof a);
    return a;
}

enum { WINDOWS = 16 }; /* at a time */

/* The first 2 n pixels, at most 32. */
static inline void load_pairs(const float *from, int64_t n, float *to)
{
    v16_store(to, v16_load_first(from, 2 * n));
    v16_store(to + 16, n > 8 ? v16_load_first(from + 16, 2 * n - 16) : v16_set(0));
}

/* n <= WINDOWS windows of 2 x 2 pixels that lie side by side; `at`: the first one's first pixel of its plane. */
static inline void pool_pairs(const float *plane, int32_t width, int32_t at, int64_t n, float *y, int32_t *index)
{
    float above[2 * WINDOWS], below[2 * WINDOWS], largest[WINDOWS];
    int32_t where[WINDOWS];
    load_pairs(plane + at, n, above);
    load_pairs(plane + at + width, n, below);
    for (int32_t j = 0; j < WINDOWS; j++) {
        const float a = above[2 * j], b = above[2 * j + 1], c = below[2 * j], d = below[2 * j + 1];
        const bool right = is_larger(b, a), lower_right = is_larger(d, c);
        const float upper = pixel_of(right, a, b), lower = pixel_of(lower_right, c, d);
        const bool down = is_larger(lower, upper);
        largest[j] = pixel_of(down, upper, lower);
        where[j] = at + 2 * j + index_of(down, right, width + lower_right);
    }
    v16_store_first(y, v16_load(largest), n);
    v16_store_first((float *)index, v16_load((const float *)where), n);
}

static void pool_plane_of_pairs(const pool *p, const float *plane, float *y, int32_t *index)
{
    for (int64_t i = 0; i < p->rows; i++, y += p->columns, index += p->columns)
        for (int64_t j = 0; j < p->columns; j += WINDOWS) {
            const int64_t n = p->columns - j < WINDOWS ? p->columns - j : WINDOWS;
            pool_pairs(plane, (int32_t)p->width, (int32_t)(2 * (i * p->width + j)), n, y + j, index + j);
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
        (pairs ? pool_plane_of_pairs : pool_plane)(p, p->x + plane * p->height * p->width,
                                                   p->y + plane * p->rows * p->columns,
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
    td_cpu_for(team, td_cpu_product(x, 0, 2), planes_of(p.height * p.width), pool_planes, &p);
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
    td_cpu_for(team, td_cpu_product(dx, 0, 2), planes_of(dx->dims[2] * dx->dims[3]), scatter_planes,
               (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(max_pool2d_gradient) = {
    .op = "max_pool2d_gradient", .supports = supports, .widens = true, .run = run_gradient};
