/* conv2d: a filter bank over images (cross-correlation, as the field calls convolution). Its gradients are in
 * conv2d_gradients.c.
 *
 *     y[n, o, i, j] = bias[o] + sum over c, k, l of x[n, c, i s + k d - p, j s + l d - p] * weight[o, c, k, l]
 *
 * with stride s, dilation d, padding p of zeros on every side, and channels in groups that do not see each other. Sums are in
 * the order of base/convolution.h; the reference kernels say it term by term. */
#include <math.h>

#include "base/memory.h"
#include "graph/ops/convolve.h"
#include "graph/ops/in_f32.h"

static const td_attr_spec conv2d_attrs[] = {CONVOLUTION_ATTRS, {0}};

/* ---- conv2d ------------------------------------------------------------------------------------------------------------ */

static td_status *infer(td_infer *infer)
{
    td_convolution c;
    TD_TRY(window_require_images(infer, 0));
    TD_TRY(convolution_require_attrs(infer));
    convolution_read_attrs(infer->attrs, infer->n_attrs, &c);
    TD_TRY(convolution_require_weight(infer, 1, &c));
    const td_shape *x = &infer->inputs[0].shape, *weight = &infer->inputs[1].shape;
    char left[160], right[160];
    if (x->dims[1].constant % c.groups != 0 || x->dims[1].constant / c.groups != weight->dims[1].constant)
        return TD_SHAPE_ERROR(infer, "x is %s and weight is %s in %lld groups; the channels of x must be groups * in",
                              td_shape_text(infer->graph, x, left, sizeof left),
                              td_shape_text(infer->graph, weight, right, sizeof right), (long long)c.groups);
    infer->outputs[0] = infer->inputs[0];
    td_shape *y = &infer->outputs[0].shape;
    y->dims[1] = weight->dims[0];
    TD_TRY(window_positions(infer, "height", x->dims[2].constant, weight->dims[2].constant, c.stride, c.padding,
                            c.dilation, &y->dims[2]));
    TD_TRY(window_positions(infer, "width", x->dims[3].constant, weight->dims[3].constant, c.stride, c.padding,
                            c.dilation, &y->dims[3]));
    if (infer->n_inputs < 3 || infer->inputs[2].kind == TD_NONE)
        return NULL;
    TD_TRY(td_infer_dense(infer, 2, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 2));
    const td_shape *bias = &infer->inputs[2].shape;
    if (bias->rank != 1 || !td_dim_equal(bias->dims[0], weight->dims[0]))
        return TD_SHAPE_ERROR(infer, "bias is %s and weight is %s; bias must be [out]",
                              td_shape_text(infer->graph, bias, left, sizeof left),
                              td_shape_text(infer->graph, weight, right, sizeof right));
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    const td_value dy = d->output_gradients[0], x = d->inputs[0], weight = d->inputs[1];
    td_convolution c;
    convolution_read_attrs(d->attrs, d->n_attrs, &c);
    td_attr attrs[6] = {TD_INT("stride", c.stride),           TD_INT("padding", c.padding),
                        TD_INT("dilation", c.dilation),       TD_INT("groups", c.groups),
                        TD_INT("height", td_value_dim(x, 2)), TD_INT("width", td_value_dim(x, 3))};
    if (d->wanted[0])
        d->input_gradients[0] = td_build2("conv2d_input_gradient", NULL, dy, weight, attrs, 6);
    attrs[4] = TD_INT("kernel_height", td_value_dim(weight, 2));
    attrs[5] = TD_INT("kernel_width", td_value_dim(weight, 3));
    if (d->wanted[1])
        d->input_gradients[1] = td_build2("conv2d_weight_gradient", NULL, dy, x, attrs, 6);
    if (d->n_inputs > 2 && d->wanted[2])
        d->input_gradients[2] = td_build1("conv2d_bias_gradient", NULL, dy, NULL, 0);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    convolution_flops(call, &call->inputs[0], &call->inputs[1], &call->outputs[0], out_cost);
}

/* Output pixel (i, j) of channel o (of all groups) of a sample, without bias. */
static float pixel_of(const td_convolution *c, const float *sample, const float *weight, int64_t o, int64_t i,
                      int64_t j)
{
    chunked_sum sum = {0};
    const float *w = weight + o * td_convolution_taps(c);
    for (int64_t channel = 0; channel < c->in; channel++) {
        const float *plane = sample + (o / c->out * c->in + channel) * c->height * c->width;
        for (int64_t tap = 0; tap < c->kernel_height * c->kernel_width; tap++) {
            const int64_t row = i * c->stride + tap / c->kernel_width * c->dilation - c->padding;
            const int64_t column = j * c->stride + tap % c->kernel_width * c->dilation - c->padding;
            add_term(&sum, pixel_at(plane, c->height, c->width, row, column), *w++);
        }
    }
    return sum_of(&sum);
}

static td_status *reference_f32(const td_kernel_call *call)
{
    const td_convolution c = convolution_of(call, &call->inputs[0], &call->inputs[1], &call->outputs[0]);
    const float *bias = call->n_inputs > 2 && call->inputs[2].kind != TD_NONE ? call->inputs[2].data : NULL;
    const int64_t pixels = td_convolution_pixels(&c), channels = c.groups * c.out;
    float *y = call->outputs[0].data;
    for (int64_t n = 0; n < c.batch; n++) {
        const float *sample = (const float *)call->inputs[0].data + n * c.groups * c.in * c.height * c.width;
        for (int64_t o = 0; o < channels; o++)
            for (int64_t p = 0; p < pixels; p++) {
                const float sum = pixel_of(&c, sample, call->inputs[1].data, o, p / c.out_width, p % c.out_width);
                *y++ = bias ? sum + bias[o] : sum;
            }
    }
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, reference_f32);
}

const td_op td_op_conv2d = {
    .name = "conv2d",
    .summary = "convolution of images [N, C, H, W] with filters [out, in, rows, columns]",
    .inputs = {{"x", 0}, {"weight", 0}, {"bias", TD_PORT_OPTIONAL}},
    .outputs = {{"y", 0}},
    .attrs = conv2d_attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

/* ---- builders ---------------------------------------------------------------------------------------------------------------- */

td_value td_conv2d_with(td_value x, td_value weight, td_value bias, td_conv2d_options options, const char *name)
{
    if (!x.graph)
        return TD_NO_VALUE;
    char *node = name ? td_format("%s/conv2d", name) : NULL;
    if (name && !node) {
        td_graph_fail(x.graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name"));
        return TD_NO_VALUE;
    }
    const td_attr attrs[4] = {TD_INT("stride", options.stride ? options.stride : 1), TD_INT("padding", options.padding),
                              TD_INT("dilation", options.dilation ? options.dilation : 1),
                              TD_INT("groups", options.groups ? options.groups : 1)};
    const td_value y = td_graph_add1(x.graph, "conv2d", node, (td_value[]){x, weight, bias}, 3, attrs, 4);
    td_free(node);
    return y;
}

td_value td_conv2d(td_value x, int64_t channels, int64_t kernel, td_conv2d_options options, const char *name)
{
    td_graph *graph = x.graph;
    if (!graph || td_graph_failed(graph))
        return TD_NO_VALUE;
    const td_shape shape = td_value_shape(x);
    const int64_t groups = options.groups ? options.groups : 1;
    if (!name || shape.rank != 4 || shape.dims[1].extent >= 0 || groups < 1 || shape.dims[1].constant % groups) {
        td_graph_fail(graph,
                      TD_ERROR(TD_INVALID_ARGUMENT,
                               "conv2d %s: it needs a name, and x (\"%s\") as [samples, channels, height, width] "
                               "with channels a multiple of its %lld groups",
                               name ? name : "", td_value_name(x), (long long)groups));
        return TD_NO_VALUE;
    }
    const int64_t in = shape.dims[1].constant / groups;
    const td_initializer initial = td_init_uniform(in * kernel > 0 ? 1 / sqrt((double)(in * kernel * kernel)) : 0);
    char *weight_name = td_format("%s.weight", name), *bias_name = td_format("%s.bias", name);
    td_value y = TD_NO_VALUE;
    if (!weight_name || !bias_name) {
        td_graph_fail(graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name"));
    } else {
        const td_value weight =
            td_parameter(graph, weight_name, TD_F32, TD_SHAPE(channels, in, kernel, kernel), initial);
        const td_value bias =
            options.no_bias ? TD_NO_VALUE : td_parameter(graph, bias_name, TD_F32, TD_SHAPE(channels), initial);
        y = td_conv2d_with(x, weight, bias, options, name);
    }
    td_free(weight_name);
    td_free(bias_name);
    return y;
}
