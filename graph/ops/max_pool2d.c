/* max_pool2d: the largest pixel of each window, and its gradient.
 *
 * Windows of kernel x kernel pixels, `stride` apart (0: the kernel), over images with `padding` pixels of minus infinity on
 * every side. Of equal pixels the first counts, row-major; a NaN counts as larger than any number. Where each largest pixel is
 * (row * width + column) is an output too, kept for the gradient, which adds dy there, in the order of the windows. */
#include <math.h>
#include <string.h>

#include "graph/ops/in_f32.h"
#include "graph/ops/windows.h"

static const td_attr_spec pool_attrs[] = {
    {.name = "kernel", .type = TD_ATTR_INT, .required = true, .help = "pixels of a window along each side"},
    {.name = "stride", .type = TD_ATTR_INT, .help = "pixels between windows; 0: the kernel"},
    {.name = "padding", .type = TD_ATTR_INT, .help = "pixels on every side that are never the largest"},
    {0}};

static td_status *pool_infer(td_infer *infer)
{
    TD_TRY(window_require_images(infer, 0));
    TD_TRY(window_require_int(infer, "kernel", 1));
    TD_TRY(window_require_int(infer, "stride", 0));
    TD_TRY(window_require_int(infer, "padding", 0));
    const int64_t kernel = td_attr_int(infer->attrs, infer->n_attrs, "kernel", 1),
                  padding = td_attr_int(infer->attrs, infer->n_attrs, "padding", 0),
                  stride = window_int(infer->attrs, infer->n_attrs, "stride", 1, kernel);
    if (padding > kernel / 2)
        return TD_SHAPE_ERROR(infer, "padding %lld is more than half the kernel %lld: some windows would hold no pixel",
                              (long long)padding, (long long)kernel);
    const td_shape *x = &infer->inputs[0].shape;
    if (x->dims[2].constant > INT32_MAX / x->dims[3].constant)
        return TD_SHAPE_ERROR(infer, "planes may have at most %d pixels", INT32_MAX);
    infer->outputs[0] = infer->inputs[0];
    td_shape *y = &infer->outputs[0].shape;
    TD_TRY(window_positions(infer, "height", x->dims[2].constant, kernel, stride, padding, 1, &y->dims[2]));
    TD_TRY(window_positions(infer, "width", x->dims[3].constant, kernel, stride, padding, 1, &y->dims[3]));
    infer->outputs[1] = infer->outputs[0];
    infer->outputs[1].dtype = TD_I32;
    return NULL;
}

static void pool_cost(const td_kernel_call *call, td_cost *out)
{
    const double kernel = (double)td_attr_int(call->attrs, call->n_attrs, "kernel", 1);
    td_cost_bytes(call, out);
    out->flops = kernel * kernel * (double)td_tensor_elements(&call->outputs[0]);
}

/* Where the largest pixel of the window with this first pixel (perhaps outside) is. */
static int32_t largest_of(const float *plane, int64_t height, int64_t width, int64_t top, int64_t left, int64_t kernel)
{
    int32_t best = -1;
    for (int64_t i = top; i < top + kernel; i++)
        for (int64_t j = left; j < left + kernel; j++) {
            if (i < 0 || j < 0 || i >= height || j >= width)
                continue;
            const int32_t at = (int32_t)(i * width + j);
            if (best < 0 || plane[at] > plane[best] || (isnan(plane[at]) && !isnan(plane[best])))
                best = at;
        }
    return best;
}

static td_status *pool_reference_f32(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t kernel = td_attr_int(call->attrs, call->n_attrs, "kernel", 1),
                  stride = window_int(call->attrs, call->n_attrs, "stride", 1, kernel),
                  padding = td_attr_int(call->attrs, call->n_attrs, "padding", 0);
    float *out = y->data;
    int32_t *index = call->outputs[1].data;
    for (int64_t p = 0; p < x->dims[0] * x->dims[1]; p++) {
        const float *plane = (const float *)x->data + p * x->dims[2] * x->dims[3];
        for (int64_t i = 0; i < y->dims[2]; i++)
            for (int64_t j = 0; j < y->dims[3]; j++) {
                *index = largest_of(plane, x->dims[2], x->dims[3], i * stride - padding, j * stride - padding, kernel);
                *out++ = plane[*index++];
            }
    }
    return NULL;
}

static td_status *pool_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, pool_reference_f32);
}

static td_status *pool_gradient(td_differentiate *d)
{
    const td_attr attrs[2] = {TD_INT("height", td_value_dim(d->inputs[0], 2)),
                              TD_INT("width", td_value_dim(d->inputs[0], 3))};
    d->input_gradients[0] = td_build2("max_pool2d_gradient", NULL, d->output_gradients[0], d->outputs[1], attrs, 2);
    return NULL;
}

const td_op td_op_max_pool2d = {
    .name = "max_pool2d",
    .summary = "the largest pixel of each window of images [N, C, H, W], and where it is",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}, {"index", TD_PORT_NO_GRADIENT}},
    .attrs = pool_attrs,
    .infer = pool_infer,
    .gradient = pool_gradient,
    .cost = pool_cost,
    .reference = pool_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

static const td_attr_spec gradient_attrs[] = {{.name = "height", .type = TD_ATTR_INT, .required = true, .help = "of x"},
                                              {.name = "width", .type = TD_ATTR_INT, .required = true, .help = "of x"},
                                              {0}};

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(window_require_images(infer, 0));
    TD_TRY(td_infer_require(infer, 1, TD_DENSE, TD_I32));
    TD_TRY(td_infer_same_shape(infer, 0, 1));
    TD_TRY(window_require_int(infer, "height", 1));
    TD_TRY(window_require_int(infer, "width", 1));
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape.dims[2] = td_dim_constant(td_attr_int(infer->attrs, infer->n_attrs, "height", 1));
    infer->outputs[0].shape.dims[3] = td_dim_constant(td_attr_int(infer->attrs, infer->n_attrs, "width", 1));
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    td_cost_bytes(call, out);
    out->flops = (double)td_tensor_elements(&call->inputs[0]);
}

/* An index outside its plane (which max_pool2d never makes) is passed over. */
static td_status *gradient_reference_f32(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    const int64_t windows = dy->dims[2] * dy->dims[3], pixels = dx->dims[2] * dx->dims[3];
    const float *from = dy->data;
    const int32_t *index = call->inputs[1].data;
    if (td_tensor_elements(dx))
        memset(dx->data, 0, (size_t)td_tensor_elements(dx) * sizeof(float));
    for (int64_t p = 0; p < dy->dims[0] * dy->dims[1]; p++)
        for (int64_t w = 0; w < windows; w++, from++, index++)
            if (*index >= 0 && *index < pixels)
                ((float *)dx->data)[p * pixels + *index] += *from;
    return NULL;
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, gradient_reference_f32);
}

const td_op td_op_max_pool2d_gradient = {
    .name = "max_pool2d_gradient",
    .summary = "gradient of max_pool2d's images: dy where the largest pixels were",
    .inputs = {{"dy", 0}, {"index", 0}},
    .outputs = {{"dx", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient itself",
    .cost = gradient_cost,
    .reference = gradient_reference,
};

/* ---- builder ------------------------------------------------------------------------------------------------------------- */

td_value td_max_pool2d(td_value x, int64_t kernel, int64_t stride, int64_t padding)
{
    if (!x.graph)
        return TD_NO_VALUE;
    const td_attr attrs[3] = {TD_INT("kernel", kernel), TD_INT("stride", stride), TD_INT("padding", padding)};
    td_value outputs[2];
    td_graph_add(x.graph, "max_pool2d", NULL, &x, 1, attrs, 3, outputs, 2);
    return outputs[0];
}
