/* The gradients of conv2d (conv2d.c): of its images, its filters, its bias. Sums are in the order of base/convolution.h; the
 * reference kernels say it term by term. */
#include "base/sums.h"
#include "graph/ops/convolve.h"
#include "graph/ops/in_f32.h"

static const td_attr_spec input_gradient_attrs[] = {
    CONVOLUTION_ATTRS,
    {.name = "height", .type = TD_ATTR_INT, .required = true, .help = "of x"},
    {.name = "width", .type = TD_ATTR_INT, .required = true, .help = "of x"},
    {0}};
static const td_attr_spec weight_gradient_attrs[] = {
    CONVOLUTION_ATTRS,
    {.name = "kernel_height", .type = TD_ATTR_INT, .required = true, .help = "of the weight"},
    {.name = "kernel_width", .type = TD_ATTR_INT, .required = true, .help = "of the weight"},
    {0}};

/* ---- conv2d_input_gradient ------------------------------------------------------------------------------------------------ */

static td_status *infer_input_gradient(td_infer *infer)
{
    td_convolution c;
    TD_TRY(window_require_images(infer, 0));
    TD_TRY(convolution_require_attrs(infer));
    TD_TRY(window_require_int(infer, "height", 1));
    TD_TRY(window_require_int(infer, "width", 1));
    convolution_read_attrs(infer->attrs, infer->n_attrs, &c);
    TD_TRY(convolution_require_weight(infer, 1, &c));
    const td_shape *dy = &infer->inputs[0].shape, *weight = &infer->inputs[1].shape;
    const int64_t height = td_attr_int(infer->attrs, infer->n_attrs, "height", 1),
                  width = td_attr_int(infer->attrs, infer->n_attrs, "width", 1);
    if (!td_dim_equal(dy->dims[1], weight->dims[0]) ||
        dy->dims[2].constant !=
            td_convolution_positions(height, weight->dims[2].constant, c.stride, c.padding, c.dilation) ||
        dy->dims[3].constant !=
            td_convolution_positions(width, weight->dims[3].constant, c.stride, c.padding, c.dilation))
        return TD_SHAPE_ERROR(infer, "dy is not what such windows make of %lld x %lld pixels", (long long)height,
                              (long long)width);
    infer->outputs[0] = infer->inputs[0];
    td_shape *dx = &infer->outputs[0].shape;
    dx->dims[1] = td_dim_constant(weight->dims[1].constant * c.groups);
    dx->dims[2] = td_dim_constant(height);
    dx->dims[3] = td_dim_constant(width);
    return NULL;
}

static void cost_input_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    convolution_flops(call, &call->outputs[0], &call->inputs[1], &call->inputs[0], out_cost);
}

/* dy at the output that reads padded input position (row, column) through the tap before it; zero if there is none. */
static float gradient_at(const td_convolution *c, const float *plane, int64_t row, int64_t column)
{
    if (row < 0 || column < 0 || row % c->stride || column % c->stride)
        return 0;
    return pixel_at(plane, c->out_height, c->out_width, row / c->stride, column / c->stride);
}

/* Terms by output channel, then tap. */
static float input_pixel_gradient(const td_convolution *c, const float *dy, const float *weight, int64_t channel,
                                  int64_t i, int64_t j)
{
    const int64_t taps = c->kernel_height * c->kernel_width, group = channel / c->in;
    chunked_sum sum = {0};
    for (int64_t o = group * c->out; o < (group + 1) * c->out; o++)
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t row = i + c->padding - tap / c->kernel_width * c->dilation;
            const int64_t column = j + c->padding - tap % c->kernel_width * c->dilation;
            add_term(&sum, gradient_at(c, dy + o * td_convolution_pixels(c), row, column),
                     weight[(o * c->in + channel % c->in) * taps + tap]);
        }
    return sum_of(&sum);
}

static td_status *reference_input_gradient_f32(const td_kernel_call *call)
{
    const td_convolution c = convolution_of(call, &call->outputs[0], &call->inputs[1], &call->inputs[0]);
    float *dx = call->outputs[0].data;
    for (int64_t n = 0; n < c.batch; n++) {
        const float *dy = (const float *)call->inputs[0].data + n * c.groups * c.out * td_convolution_pixels(&c);
        for (int64_t channel = 0; channel < c.groups * c.in; channel++)
            for (int64_t p = 0; p < c.height * c.width; p++)
                *dx++ = input_pixel_gradient(&c, dy, call->inputs[1].data, channel, p / c.width, p % c.width);
    }
    return NULL;
}

static td_status *reference_input_gradient(const td_kernel_call *call)
{
    return td_reference_in_f32(call, reference_input_gradient_f32);
}

const td_op td_op_conv2d_input_gradient = {
    .name = "conv2d_input_gradient",
    .summary = "gradient of conv2d's images",
    .inputs = {{"dy", 0}, {"weight", 0}},
    .outputs = {{"dx", 0}},
    .attrs = input_gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_input_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_input_gradient,
    .reference = reference_input_gradient,
};

/* ---- conv2d_weight_gradient ------------------------------------------------------------------------------------------------ */

static td_status *infer_weight_gradient(td_infer *infer)
{
    td_convolution c;
    TD_TRY(window_require_images(infer, 0));
    TD_TRY(window_require_images(infer, 1));
    TD_TRY(td_infer_same_dtype(infer, 0, 1));
    TD_TRY(convolution_require_attrs(infer));
    TD_TRY(window_require_int(infer, "kernel_height", 1));
    TD_TRY(window_require_int(infer, "kernel_width", 1));
    convolution_read_attrs(infer->attrs, infer->n_attrs, &c);
    const td_shape *dy = &infer->inputs[0].shape, *x = &infer->inputs[1].shape;
    const int64_t rows = td_attr_int(infer->attrs, infer->n_attrs, "kernel_height", 1),
                  columns = td_attr_int(infer->attrs, infer->n_attrs, "kernel_width", 1);
    if (!td_dim_equal(dy->dims[0], x->dims[0]) || dy->dims[1].constant % c.groups || x->dims[1].constant % c.groups ||
        dy->dims[2].constant != td_convolution_positions(x->dims[2].constant, rows, c.stride, c.padding, c.dilation) ||
        dy->dims[3].constant != td_convolution_positions(x->dims[3].constant, columns, c.stride, c.padding, c.dilation))
        return TD_SHAPE_ERROR(infer, "dy is not what windows of %lld x %lld make of x", (long long)rows,
                              (long long)columns);
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape = TD_SHAPE(dy->dims[1].constant, x->dims[1].constant / c.groups, rows, columns);
    return NULL;
}

static void cost_weight_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    convolution_flops(call, &call->inputs[1], &call->outputs[0], &call->inputs[0], out_cost);
}

/* What one sample adds to the gradient of a tap: chunks of pixels. */
static void add_sample(const td_convolution *c, const float *dy, const float *plane, int64_t tap, chunked_sum *sum)
{
    const int64_t top = tap / c->kernel_width * c->dilation - c->padding,
                  left = tap % c->kernel_width * c->dilation - c->padding;
    for (int64_t i = 0; i < c->out_height; i++)
        for (int64_t j = 0; j < c->out_width; j++)
            add_term(sum, pixel_at(plane, c->height, c->width, i * c->stride + top, j * c->stride + left), *dy++);
    (void)sum_of(sum);
}

static float tap_gradient(const td_convolution *c, const float *dy, const float *x, int64_t o, int64_t channel,
                          int64_t tap)
{
    const int64_t samples = td_convolution_cut(c), pixels = td_convolution_pixels(c);
    float total = 0;
    for (int64_t begin = 0; begin < c->batch; begin += samples) {
        chunked_sum part = {0};
        for (int64_t n = begin; n < begin + samples && n < c->batch; n++)
            add_sample(c, dy + (n * c->groups * c->out + o) * pixels,
                       x + ((n * c->groups + o / c->out) * c->in + channel) * c->height * c->width, tap, &part);
        total = begin ? total + part.total : part.total;
    }
    return total;
}

static td_status *reference_weight_gradient_f32(const td_kernel_call *call)
{
    const td_convolution c = convolution_of(call, &call->inputs[1], &call->outputs[0], &call->inputs[0]);
    float *dw = call->outputs[0].data;
    for (int64_t o = 0; o < c.groups * c.out; o++)
        for (int64_t channel = 0; channel < c.in; channel++)
            for (int64_t tap = 0; tap < c.kernel_height * c.kernel_width; tap++)
                *dw++ = tap_gradient(&c, call->inputs[0].data, call->inputs[1].data, o, channel, tap);
    return NULL;
}

static td_status *reference_weight_gradient(const td_kernel_call *call)
{
    return td_reference_in_f32(call, reference_weight_gradient_f32);
}

const td_op td_op_conv2d_weight_gradient = {
    .name = "conv2d_weight_gradient",
    .summary = "gradient of conv2d's filters, summed over samples and pixels",
    .inputs = {{"dy", 0}, {"x", 0}},
    .outputs = {{"dw", 0}},
    .attrs = weight_gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_weight_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_weight_gradient,
    .reference = reference_weight_gradient,
};

/* ---- conv2d_bias_gradient --------------------------------------------------------------------------------------------------- */

static td_status *infer_bias_gradient(td_infer *infer)
{
    TD_TRY(window_require_images(infer, 0));
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape = TD_SHAPE(infer->inputs[0].shape.dims[1]);
    return NULL;
}

static void cost_bias_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = (double)td_tensor_elements(&call->inputs[0]);
}

/* Each plane's sum (base/sums.h), these in double in the order of the samples. */
static td_status *reference_bias_gradient_f32(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0];
    const int64_t pixels = dy->dims[2] * dy->dims[3], channels = dy->dims[1];
    for (int64_t o = 0; o < channels; o++) {
        double sum = 0;
        for (int64_t n = 0; n < dy->dims[0]; n++)
            sum += (double)td_sum((const float *)dy->data + (n * channels + o) * pixels, pixels);
        ((float *)call->outputs[0].data)[o] = (float)sum;
    }
    return NULL;
}

static td_status *reference_bias_gradient(const td_kernel_call *call)
{
    return td_reference_in_f32(call, reference_bias_gradient_f32);
}

const td_op td_op_conv2d_bias_gradient = {
    .name = "conv2d_bias_gradient",
    .summary = "sums of each channel over samples and pixels",
    .inputs = {{"dy", 0}},
    .outputs = {{"db", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer_bias_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_bias_gradient,
    .reference = reference_bias_gradient,
};
