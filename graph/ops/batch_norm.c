/* batch_norm: (x - mean) / sqrt(variance + epsilon) * weight + bias per channel (axis 1), over samples and pixels (Ioffe and
 * Szegedy 2015), and its gradient.
 *
 * In training the statistics are the batch's (biased variance), and the running ones, which the op writes, move towards them:
 * running += momentum * (statistic - running), with the unbiased variance. In evaluation the running ones are used and not
 * written. Which of the two it is says the scalar `random` (graph/ops/dropout.c): an update below 0, or no scalar, means
 * evaluation; so does an empty batch. Statistics are f32; a plane's sums are in the order of base/sums.h, those of the samples
 * are added in double, in order. Mean and reciprocal deviation are outputs too, kept for the gradient. */
#include <math.h>

#include "base/memory.h"
#include "base/sums.h"
#include "graph/ops/in_f32.h"
#include "graph/ops/rules.h"

enum { X, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VARIANCE, RANDOM };
enum { UPDATE = 1 }; /* of the scalar's numbers */

static const td_attr_spec norm_attrs[] = {
    {.name = "epsilon", .type = TD_ATTR_FLOAT, .f = 1e-5, .help = "added to the variance"},
    {.name = "momentum", .type = TD_ATTR_FLOAT, .f = 0.1, .help = "what a batch weighs in the running statistics"},
    {0}};

/* Input `index` is floats [samples, channels, ..], all but the samples constant. */
static td_status *require_channels(const td_infer *infer, int32_t index)
{
    TD_TRY(td_infer_dense(infer, index, TD_FLOATS));
    const td_shape *x = &infer->inputs[index].shape;
    bool fits = x->rank >= 2;
    for (int32_t axis = 1; axis < x->rank; axis++)
        fits = fits && x->dims[axis].extent < 0 && x->dims[axis].constant > 0;
    char text[160];
    if (!fits)
        return TD_SHAPE_ERROR(infer, "%s is %s; it must be [samples, channels, ..], all but the samples constant",
                              td_infer_port(infer, index), td_shape_text(infer->graph, x, text, sizeof text));
    return NULL;
}

static td_status *require_per_channel(const td_infer *infer, int32_t index, const td_shape *x, td_dtype dtype)
{
    TD_TRY(td_infer_require(infer, index, TD_DENSE, dtype));
    const td_shape *shape = &infer->inputs[index].shape;
    if (shape->rank == 1 && td_dim_equal(shape->dims[0], x->dims[1]))
        return NULL;
    char have[128], want[128];
    return TD_SHAPE_ERROR(infer, "%s is %s; it must be one number for each channel of %s", td_infer_port(infer, index),
                          td_shape_text(infer->graph, shape, have, sizeof have),
                          td_shape_text(infer->graph, x, want, sizeof want));
}

static td_status *require_random(const td_infer *infer, int32_t index)
{
    if (infer->n_inputs <= index || infer->inputs[index].kind == TD_NONE)
        return NULL;
    TD_TRY(td_infer_require(infer, index, TD_SCALAR, TD_I64));
    if (infer->inputs[index].shape.rank != 1 || !td_dim_is(infer->inputs[index].shape.dims[0], 3))
        return TD_SHAPE_ERROR(infer, "random must be three numbers: seed, update, first sample");
    return NULL;
}

static td_status *norm_infer(td_infer *infer)
{
    TD_TRY(require_channels(infer, X));
    for (int32_t i = WEIGHT; i <= RUNNING_VARIANCE; i++)
        TD_TRY(
            require_per_channel(infer, i, &infer->inputs[X].shape, i < RUNNING_MEAN ? infer->inputs[X].dtype : TD_F32));
    TD_TRY(require_random(infer, RANDOM));
    const double epsilon = td_attr_float(infer->attrs, infer->n_attrs, "epsilon", 1e-5),
                 momentum = td_attr_float(infer->attrs, infer->n_attrs, "momentum", 0.1);
    if (!(epsilon >= 0))
        return TD_SHAPE_ERROR(infer, "epsilon %g must not be negative", epsilon);
    if (!(momentum >= 0 && momentum <= 1))
        return TD_SHAPE_ERROR(infer, "momentum %g must be from 0 to 1", momentum);
    infer->outputs[0] = infer->inputs[X];
    infer->outputs[1] = infer->outputs[2] = infer->inputs[RUNNING_MEAN];
    return NULL;
}

static void norm_cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 7 * (double)td_tensor_elements(&call->inputs[X]);
}

/* A channel's planes: one of `pixels` numbers for each sample, `step` apart. */
typedef struct channel {
    int64_t samples, pixels, step, first;
} channel;

static channel channel_of(const td_tensor *x, int64_t index)
{
    channel c = {.samples = x->dims[0], .pixels = 1};
    for (int32_t axis = 2; axis < x->rank; axis++)
        c.pixels *= x->dims[axis];
    c.step = x->dims[1] * c.pixels;
    c.first = index * c.pixels;
    return c;
}

static bool is_training(const td_kernel_call *call, int32_t random)
{
    const int64_t *numbers =
        call->n_inputs > random && call->inputs[random].kind != TD_NONE ? call->inputs[random].data : NULL;
    return numbers && numbers[UPDATE] >= 0 && call->inputs[0].dims[0] > 0;
}

static float mean_of(const channel *c, const float *x)
{
    double sum = 0;
    for (int64_t n = 0; n < c->samples; n++)
        sum += (double)td_sum(x + c->first + n * c->step, c->pixels);
    return (float)(sum / (double)(c->samples * c->pixels));
}

static double squares_of(const channel *c, const float *x, float mean)
{
    double sum = 0;
    for (int64_t n = 0; n < c->samples; n++) {
        const float *plane = x + c->first + n * c->step;
        float lanes[TD_SUM_LANES] = {0};
        for (int64_t i = 0; i < c->pixels; i++)
            lanes[i % TD_SUM_LANES] = fmaf(plane[i] - mean, plane[i] - mean, lanes[i % TD_SUM_LANES]);
        sum += (double)td_fold_lanes(lanes);
    }
    return sum;
}

/* The batch's statistics of a channel; the running ones follow. */
static void train_channel(const td_kernel_call *call, const channel *c, int64_t index, float *out_mean,
                          float *out_variance)
{
    const float momentum = (float)td_attr_float(call->attrs, call->n_attrs, "momentum", 0.1);
    const double n = (double)(c->samples * c->pixels);
    float *running_mean = (float *)call->inputs[RUNNING_MEAN].data + index;
    float *running_variance = (float *)call->inputs[RUNNING_VARIANCE].data + index;
    *out_mean = mean_of(c, call->inputs[X].data);
    const double squares = squares_of(c, call->inputs[X].data, *out_mean);
    *out_variance = (float)(squares / n);
    *running_mean = fmaf(momentum, *out_mean - *running_mean, *running_mean);
    *running_variance = fmaf(momentum, (float)(squares / (n > 1 ? n - 1 : 1)) - *running_variance, *running_variance);
}

static td_status *norm_reference_f32(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[X];
    const float epsilon = (float)td_attr_float(call->attrs, call->n_attrs, "epsilon", 1e-5);
    for (int64_t index = 0; index < x->dims[1]; index++) {
        const channel c = channel_of(x, index);
        float mean = ((const float *)call->inputs[RUNNING_MEAN].data)[index];
        float variance = ((const float *)call->inputs[RUNNING_VARIANCE].data)[index];
        if (is_training(call, RANDOM))
            train_channel(call, &c, index, &mean, &variance);
        const float reciprocal = 1.0f / sqrtf(variance + epsilon);
        const float weight = ((const float *)call->inputs[WEIGHT].data)[index],
                    bias = ((const float *)call->inputs[BIAS].data)[index];
        for (int64_t n = 0; n < c.samples; n++)
            for (int64_t i = c.first + n * c.step; i < c.first + n * c.step + c.pixels; i++)
                ((float *)call->outputs[0].data)[i] =
                    fmaf((((const float *)x->data)[i] - mean) * reciprocal, weight, bias);
        ((float *)call->outputs[1].data)[index] = mean;
        ((float *)call->outputs[2].data)[index] = reciprocal;
    }
    return NULL;
}

static td_status *norm_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, norm_reference_f32);
}

static td_status *norm_gradient(td_differentiate *d)
{
    const td_value inputs[6] = {d->output_gradients[0], d->inputs[X],
                                d->inputs[WEIGHT],      d->outputs[1],
                                d->outputs[2],          d->n_inputs > RANDOM ? d->inputs[RANDOM] : TD_NO_VALUE};
    td_graph_add(d->graph, "batch_norm_gradient", NULL, inputs, 6, NULL, 0, d->input_gradients, 3);
    return NULL;
}

const td_op td_op_batch_norm = {
    .name = "batch_norm",
    .summary =
        "normalised per channel over samples and pixels, times weight, plus bias; running statistics in evaluation",
    .inputs = {{"x", 0},
               {"weight", 0},
               {"bias", 0},
               {"running_mean", TD_PORT_WRITES | TD_PORT_NO_GRADIENT},
               {"running_variance", TD_PORT_WRITES | TD_PORT_NO_GRADIENT},
               {"random", TD_PORT_OPTIONAL | TD_PORT_NO_GRADIENT}},
    .outputs = {{"output", 0}, {"mean", TD_PORT_NO_GRADIENT}, {"reciprocal_deviation", TD_PORT_NO_GRADIENT}},
    .attrs = norm_attrs,
    .infer = norm_infer,
    .gradient = norm_gradient,
    .cost = norm_cost,
    .reference = norm_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

enum { GRADIENT, INPUT, GAIN, MEAN, RECIPROCAL, GRADIENT_RANDOM };

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(require_channels(infer, GRADIENT));
    TD_TRY(require_channels(infer, INPUT));
    TD_TRY(td_infer_same_shape(infer, GRADIENT, INPUT));
    TD_TRY(td_infer_same_dtype(infer, GRADIENT, INPUT));
    for (int32_t i = GAIN; i <= RECIPROCAL; i++)
        TD_TRY(require_per_channel(infer, i, &infer->inputs[INPUT].shape,
                                   i == GAIN ? infer->inputs[INPUT].dtype : TD_F32));
    TD_TRY(require_random(infer, GRADIENT_RANDOM));
    infer->outputs[0] = infer->inputs[INPUT];
    infer->outputs[1] = infer->outputs[2] = infer->inputs[GAIN];
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 10 * (double)td_tensor_elements(&call->inputs[INPUT]);
}

/* Sums of dy, and of dy times the normalised x: the gradients of bias and weight. */
static void gradient_sums(const channel *c, const float *dy, const float *x, float mean, float reciprocal,
                          double *out_dy, double *out_product)
{
    *out_dy = *out_product = 0;
    for (int64_t n = 0; n < c->samples; n++) {
        const int64_t at = c->first + n * c->step;
        float lanes[TD_SUM_LANES] = {0};
        for (int64_t i = 0; i < c->pixels; i++)
            lanes[i % TD_SUM_LANES] = fmaf(dy[at + i], (x[at + i] - mean) * reciprocal, lanes[i % TD_SUM_LANES]);
        *out_product += (double)td_fold_lanes(lanes);
        *out_dy += (double)td_sum(dy + at, c->pixels);
    }
}

/* With h the normalised x: dx = weight r (dy - mean(dy) - h mean(dy h)); in evaluation weight r dy. */
static td_status *gradient_reference_f32(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[INPUT];
    const float *dy = call->inputs[GRADIENT].data, *data = x->data;
    for (int64_t index = 0; index < x->dims[1]; index++) {
        const channel c = channel_of(x, index);
        const float mean = ((const float *)call->inputs[MEAN].data)[index],
                    reciprocal = ((const float *)call->inputs[RECIPROCAL].data)[index],
                    factor = ((const float *)call->inputs[GAIN].data)[index] * reciprocal;
        const double count = is_training(call, GRADIENT_RANDOM) ? (double)(c.samples * c.pixels) : INFINITY;
        double sum, product;
        gradient_sums(&c, dy, data, mean, reciprocal, &sum, &product);
        const float mean_dy = (float)(sum / count), mean_product = (float)(product / count);
        for (int64_t n = 0; n < c.samples; n++)
            for (int64_t i = c.first + n * c.step; i < c.first + n * c.step + c.pixels; i++)
                ((float *)call->outputs[0].data)[i] =
                    factor * fmaf(-((data[i] - mean) * reciprocal), mean_product, dy[i] - mean_dy);
        ((float *)call->outputs[1].data)[index] = (float)product;
        ((float *)call->outputs[2].data)[index] = (float)sum;
    }
    return NULL;
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, gradient_reference_f32);
}

const td_op td_op_batch_norm_gradient = {
    .name = "batch_norm_gradient",
    .summary = "gradients of batch_norm's input, weight and bias",
    .inputs = {{"gradient", 0},
               {"x", 0},
               {"weight", 0},
               {"mean", 0},
               {"reciprocal_deviation", 0},
               {"random", TD_PORT_OPTIONAL | TD_PORT_NO_GRADIENT}},
    .outputs = {{"x_gradient", 0}, {"weight_gradient", 0}, {"bias_gradient", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = gradient_reference,
};

/* ---- builder ------------------------------------------------------------------------------------------------------------- */

/* The parameter `name`.`suffix` [n], constant. */
static td_value channel_parameter(td_graph *graph, const char *name, const char *suffix, td_dim n, double value)
{
    char *full = td_format("%s.%s", name, suffix);
    if (!full) {
        td_graph_fail(graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory naming %s.%s", name, suffix));
        return TD_NO_VALUE;
    }
    const td_value parameter = td_parameter(graph, full, TD_F32, td_shape_of(1, &n), td_init_constant(value));
    td_free(full);
    return parameter;
}

td_value td_batch_norm(td_value x, double epsilon, double momentum, const char *name)
{
    if (!x.graph || td_graph_failed(x.graph))
        return TD_NO_VALUE;
    td_graph *graph = x.graph;
    const td_shape shape = td_value_shape(x);
    char *node = name ? td_format("%s/batch_norm", name) : NULL;
    if (!node || shape.rank < 2) {
        td_graph_fail(graph, name && !node
                                 ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory naming batch norm %s", name)
                                 : TD_ERROR(TD_INVALID_ARGUMENT,
                                            "batch_norm %s: it needs a name, and x as [samples, channels, ..]",
                                            name ? name : ""));
        td_free(node);
        return TD_NO_VALUE;
    }
    const td_dim channels = shape.dims[1];
    const td_value inputs[6] = {x,
                                channel_parameter(graph, name, "weight", channels, 1),
                                channel_parameter(graph, name, "bias", channels, 0),
                                td_freeze(channel_parameter(graph, name, "running_mean", channels, 0)),
                                td_freeze(channel_parameter(graph, name, "running_variance", channels, 1)),
                                td_step_random(graph)};
    const td_attr attrs[2] = {TD_FLOAT("epsilon", epsilon), TD_FLOAT("momentum", momentum)};
    td_value outputs[3];
    td_graph_add(graph, "batch_norm", node, inputs, 6, attrs, 2, outputs, 3);
    td_free(node);
    return outputs[0];
}
