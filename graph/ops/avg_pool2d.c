/* avg_pool2d: the mean of each window, and its gradient.
 *
 * Windows of kernel x kernel pixels, `stride` apart (0: the kernel), over images with `padding` zeros on every side. A mean is
 * over all pixels of the window, zeros of the padding included, or (count_padding false) over those inside the image alone.
 * Sums are row-major from zero. The gradient of a pixel sums, in the order of the windows, their dy over their counts. */
#include <string.h>

#include "graph/ops/in_f32.h"
#include "graph/ops/windows.h"

static const td_attr_spec pool_attrs[] = {
    {.name = "kernel", .type = TD_ATTR_INT, .required = true, .help = "pixels of a window along each side"},
    {.name = "stride", .type = TD_ATTR_INT, .help = "pixels between windows; 0: the kernel"},
    {.name = "padding", .type = TD_ATTR_INT, .help = "zeros on every side"},
    {.name = "count_padding", .type = TD_ATTR_BOOL, .i = 1, .help = "a mean counts the zeros of the padding"},
    {0}};
static const td_attr_spec gradient_attrs[] = {
    {.name = "kernel", .type = TD_ATTR_INT, .required = true, .help = "pixels of a window along each side"},
    {.name = "stride", .type = TD_ATTR_INT, .help = "pixels between windows; 0: the kernel"},
    {.name = "padding", .type = TD_ATTR_INT, .help = "zeros on every side"},
    {.name = "count_padding", .type = TD_ATTR_BOOL, .i = 1, .help = "a mean counts the zeros of the padding"},
    {.name = "height", .type = TD_ATTR_INT, .required = true, .help = "of x"},
    {.name = "width", .type = TD_ATTR_INT, .required = true, .help = "of x"},
    {0}};

typedef struct pool {
    int64_t kernel, stride, padding;
    bool count_padding;
    int64_t height, width, rows, columns; /* of x, of y */
} pool;

static void read_pool(const td_attr *attrs, int32_t n, pool *out)
{
    *out = (pool){.kernel = td_attr_int(attrs, n, "kernel", 1), .padding = td_attr_int(attrs, n, "padding", 0)};
    out->stride = window_int(attrs, n, "stride", 1, out->kernel);
    out->count_padding = td_attr_int(attrs, n, "count_padding", 1) != 0;
}

static td_status *require_pool(const td_infer *infer, pool *out)
{
    TD_TRY(window_require_images(infer, 0));
    TD_TRY(window_require_int(infer, "kernel", 1));
    TD_TRY(window_require_int(infer, "stride", 0));
    TD_TRY(window_require_int(infer, "padding", 0));
    read_pool(infer->attrs, infer->n_attrs, out);
    if (out->padding > out->kernel / 2)
        return TD_SHAPE_ERROR(infer, "padding %lld is more than half the kernel %lld: some windows would hold no pixel",
                              (long long)out->padding, (long long)out->kernel);
    return NULL;
}

/* Pixels of the image in a window: rows [top, bottom), columns [left, right), and what the mean divides by. */
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

static void pool_cost(const td_kernel_call *call, td_cost *out)
{
    const double kernel = (double)td_attr_int(call->attrs, call->n_attrs, "kernel", 1);
    const td_tensor *y = strcmp(call->op, "avg_pool2d") == 0 ? &call->outputs[0] : &call->inputs[0];
    td_cost_bytes(call, out);
    out->flops = kernel * kernel * (double)td_tensor_elements(y);
}

static td_status *pool_infer(td_infer *infer)
{
    pool p;
    TD_TRY(require_pool(infer, &p));
    const td_shape *x = &infer->inputs[0].shape;
    infer->outputs[0] = infer->inputs[0];
    td_shape *y = &infer->outputs[0].shape;
    TD_TRY(window_positions(infer, "height", x->dims[2].constant, p.kernel, p.stride, p.padding, 1, &y->dims[2]));
    return window_positions(infer, "width", x->dims[3].constant, p.kernel, p.stride, p.padding, 1, &y->dims[3]);
}

static pool pool_of(const td_kernel_call *call, const td_tensor *x, const td_tensor *y)
{
    pool p;
    read_pool(call->attrs, call->n_attrs, &p);
    p.height = x->dims[2];
    p.width = x->dims[3];
    p.rows = y->dims[2];
    p.columns = y->dims[3];
    return p;
}

static float mean_of(const float *plane, int64_t width, const window *w)
{
    float sum = 0;
    for (int64_t i = w->top; i < w->bottom; i++)
        for (int64_t j = w->left; j < w->right; j++)
            sum += plane[i * width + j];
    return sum / w->count;
}

static td_status *pool_reference_f32(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0];
    const pool p = pool_of(call, x, &call->outputs[0]);
    float *y = call->outputs[0].data;
    for (int64_t plane = 0; plane < x->dims[0] * x->dims[1]; plane++)
        for (int64_t i = 0; i < p.rows; i++)
            for (int64_t j = 0; j < p.columns; j++) {
                const window w = window_at(&p, i, j);
                *y++ = mean_of((const float *)x->data + plane * p.height * p.width, p.width, &w);
            }
    return NULL;
}

static td_status *pool_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, pool_reference_f32);
}

static td_status *pool_gradient(td_differentiate *d)
{
    pool p;
    read_pool(d->attrs, d->n_attrs, &p);
    const td_attr attrs[6] = {TD_INT("kernel", p.kernel),
                              TD_INT("stride", p.stride),
                              TD_INT("padding", p.padding),
                              TD_FLAG("count_padding", p.count_padding),
                              TD_INT("height", td_value_dim(d->inputs[0], 2)),
                              TD_INT("width", td_value_dim(d->inputs[0], 3))};
    d->input_gradients[0] = td_build1("avg_pool2d_gradient", NULL, d->output_gradients[0], attrs, 6);
    return NULL;
}

const td_op td_op_avg_pool2d = {
    .name = "avg_pool2d",
    .summary = "the mean of each window of images [N, C, H, W]",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = pool_attrs,
    .infer = pool_infer,
    .gradient = pool_gradient,
    .cost = pool_cost,
    .reference = pool_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

static td_status *gradient_infer(td_infer *infer)
{
    pool p;
    TD_TRY(require_pool(infer, &p));
    TD_TRY(window_require_int(infer, "height", 1));
    TD_TRY(window_require_int(infer, "width", 1));
    const int64_t height = td_attr_int(infer->attrs, infer->n_attrs, "height", 1),
                  width = td_attr_int(infer->attrs, infer->n_attrs, "width", 1);
    const td_shape *dy = &infer->inputs[0].shape;
    if (dy->dims[2].constant != td_convolution_positions(height, p.kernel, p.stride, p.padding, 1) ||
        dy->dims[3].constant != td_convolution_positions(width, p.kernel, p.stride, p.padding, 1))
        return TD_SHAPE_ERROR(infer, "dy is not what such windows make of %lld x %lld pixels", (long long)height,
                              (long long)width);
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape.dims[2] = td_dim_constant(height);
    infer->outputs[0].shape.dims[3] = td_dim_constant(width);
    return NULL;
}

static void spread(float *plane, int64_t width, const window *w, float share)
{
    for (int64_t i = w->top; i < w->bottom; i++)
        for (int64_t j = w->left; j < w->right; j++)
            plane[i * width + j] += share;
}

static td_status *gradient_reference_f32(const td_kernel_call *call)
{
    const td_tensor *dx = &call->outputs[0];
    const pool p = pool_of(call, dx, &call->inputs[0]);
    const float *dy = call->inputs[0].data;
    if (td_tensor_elements(dx))
        memset(dx->data, 0, (size_t)td_tensor_elements(dx) * sizeof(float));
    for (int64_t plane = 0; plane < dx->dims[0] * dx->dims[1]; plane++)
        for (int64_t i = 0; i < p.rows; i++)
            for (int64_t j = 0; j < p.columns; j++) {
                const window w = window_at(&p, i, j);
                spread((float *)dx->data + plane * p.height * p.width, p.width, &w, *dy++ / w.count);
            }
    return NULL;
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, gradient_reference_f32);
}

const td_op td_op_avg_pool2d_gradient = {
    .name = "avg_pool2d_gradient",
    .summary = "gradient of avg_pool2d's images",
    .inputs = {{"dy", 0}},
    .outputs = {{"dx", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient itself",
    .cost = pool_cost,
    .reference = gradient_reference,
};

/* ---- builder ------------------------------------------------------------------------------------------------------------- */

td_value td_avg_pool2d(td_value x, int64_t kernel, int64_t stride, int64_t padding, bool count_padding)
{
    const td_attr attrs[4] = {TD_INT("kernel", kernel), TD_INT("stride", stride), TD_INT("padding", padding),
                              TD_FLAG("count_padding", count_padding)};
    return td_build1("avg_pool2d", NULL, x, attrs, 4);
}
