/* layer_norm: (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (Ba et al. 2016), biased variance,
 * and its gradient.
 *
 * The mean and the reciprocal deviation of each row are outputs too, kept for the gradient. Sums over a row are in the order
 * of base/sums.h. Gradients of weight and bias: rows in blocks of TD_SUM_ROWS, ascending within a block (from zero,
 * one fma or addition each), then block sums in order: as many threads as there are blocks may share them. */
#include <math.h>

#include "base/memory.h"
#include "base/sums.h"
#include "graph/ops/in_f32.h"
#include "graph/ops/rules.h"

static const td_attr_spec norm_attrs[] = {
    {.name = "epsilon", .type = TD_ATTR_FLOAT, .f = 1e-5, .help = "added to the variance"}, {0}};

/* Input `index` is f32 [n] with n the last dimension of `x`. */
static td_status *require_row(const td_infer *infer, int32_t index, int32_t like)
{
    const td_shape *x = &infer->inputs[like].shape;
    TD_TRY(td_infer_dense(infer, index, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, like, index));
    const td_shape *shape = &infer->inputs[index].shape;
    char have[128], want[128];
    if (shape->rank == 1 && td_dim_equal(shape->dims[0], x->dims[x->rank - 1]))
        return NULL;
    return TD_SHAPE_ERROR(infer, "%s does not fit the last axis of %s",
                          td_shape_text(infer->graph, shape, have, sizeof have),
                          td_shape_text(infer->graph, x, want, sizeof want));
}

static td_status *norm_infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    const td_shape *x = &infer->inputs[0].shape;
    if (x->rank < 1)
        return TD_SHAPE_ERROR(infer, "it needs at least one axis");
    TD_TRY(require_row(infer, 1, 0));
    if (infer->n_inputs > 2 && infer->inputs[2].kind != TD_NONE)
        TD_TRY(require_row(infer, 2, 0));
    const double epsilon = td_attr_float(infer->attrs, infer->n_attrs, "epsilon", 1e-5);
    if (!(epsilon >= 0))
        return TD_SHAPE_ERROR(infer, "epsilon %g must not be negative", epsilon);
    td_type statistic = infer->inputs[0];
    statistic.dtype = TD_F32;
    statistic.shape.rank--;
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[1] = infer->outputs[2] = statistic;
    return NULL;
}

static void norm_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->inputs[0]);
    *out = (td_cost){7 * (double)td_tensor_elements(&call->inputs[0]),
                     bytes + 2 * (double)td_tensor_bytes(&call->inputs[1]),
                     bytes + 2 * (double)td_tensor_bytes(&call->outputs[1])};
}

static td_status *norm_reference_f32(const td_kernel_call *call)
{
    const int64_t rows = td_tensor_rows(&call->inputs[0]), n = td_tensor_last(&call->inputs[0]);
    const float epsilon = (float)td_attr_float(call->attrs, call->n_attrs, "epsilon", 1e-5);
    const float *weight = call->inputs[1].data;
    const float *bias = call->n_inputs > 2 && call->inputs[2].kind != TD_NONE ? call->inputs[2].data : NULL;
    float *means = call->outputs[1].data, *reciprocals = call->outputs[2].data;
    for (int64_t row = 0; row < rows && n > 0; row++) {
        const float *x = (const float *)call->inputs[0].data + row * n;
        float *y = (float *)call->outputs[0].data + row * n;
        const float mean = td_sum(x, n) / (float)n;
        float lanes[TD_SUM_LANES] = {0};
        for (int64_t i = 0; i < n; i++)
            lanes[i % TD_SUM_LANES] = fmaf(x[i] - mean, x[i] - mean, lanes[i % TD_SUM_LANES]);
        const float reciprocal = 1.0f / sqrtf(td_fold_lanes(lanes) / (float)n + epsilon);
        for (int64_t i = 0; i < n; i++)
            y[i] = fmaf((x[i] - mean) * reciprocal, weight[i], bias ? bias[i] : 0);
        means[row] = mean;
        reciprocals[row] = reciprocal;
    }
    return NULL;
}

static td_status *norm_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, norm_reference_f32);
}

static td_status *norm_gradient(td_differentiate *d)
{
    const td_value inputs[5] = {d->output_gradients[0], d->inputs[0], d->inputs[1], d->outputs[1], d->outputs[2]};
    td_value gradients[3];
    td_graph_add(d->graph, "layer_norm_gradient", NULL, inputs, 5, NULL, 0, gradients, 3);
    for (int32_t i = 0; i < d->n_inputs; i++)
        d->input_gradients[i] = gradients[i];
    return NULL;
}

const td_op td_op_layer_norm = {
    .name = "layer_norm",
    .summary = "normalised over the last axis, times weight, plus bias if there is one",
    .inputs = {{"x", 0}, {"weight", 0}, {"bias", TD_PORT_OPTIONAL}},
    .outputs = {{"output", 0}, {"mean", TD_PORT_NO_GRADIENT}, {"reciprocal_deviation", TD_PORT_NO_GRADIENT}},
    .attrs = norm_attrs,
    .infer = norm_infer,
    .gradient = norm_gradient,
    .cost = norm_cost,
    .in_place = {{1, 1}},
    .reference = norm_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

enum { GRADIENT, INPUT, WEIGHT, MEAN, RECIPROCAL };

static td_status *gradient_infer(td_infer *infer)
{
    for (int32_t i = 0; i < MEAN; i++)
        TD_TRY(td_infer_dense(infer, i, TD_FLOATS));
    for (int32_t i = MEAN; i < infer->n_inputs; i++)
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_F32));
    TD_TRY(td_infer_same_dtype(infer, INPUT, GRADIENT));
    const td_shape *x = &infer->inputs[INPUT].shape;
    if (x->rank < 1 || !td_shape_equal(x, &infer->inputs[GRADIENT].shape))
        return TD_SHAPE_ERROR(infer, "gradient and input must be of one shape");
    TD_TRY(require_row(infer, WEIGHT, INPUT));
    td_shape statistic = *x;
    statistic.rank--;
    if (!td_shape_equal(&statistic, &infer->inputs[MEAN].shape) ||
        !td_shape_equal(&statistic, &infer->inputs[RECIPROCAL].shape))
        return TD_SHAPE_ERROR(infer, "mean and reciprocal deviation must be one number per row");
    infer->outputs[0] = infer->inputs[INPUT];
    infer->outputs[1] = infer->outputs[2] = infer->inputs[WEIGHT];
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->inputs[INPUT]),
                 row = (double)td_tensor_bytes(&call->inputs[WEIGHT]);
    *out = (td_cost){12 * (double)td_tensor_elements(&call->inputs[INPUT]), 2 * bytes + row, bytes + 2 * row};
}

/* With h = (x - mean) r and g = gradient * weight: r (g - mean(g) - h mean(g h)). */
static void row_gradient(const float *gradient, const float *x, const float *weight, float mean, float reciprocal,
                         int64_t n, float *out)
{
    float sums[TD_SUM_LANES] = {0}, products[TD_SUM_LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float g = gradient[i] * weight[i], h = (x[i] - mean) * reciprocal;
        sums[i % TD_SUM_LANES] += g;
        products[i % TD_SUM_LANES] = fmaf(g, h, products[i % TD_SUM_LANES]);
    }
    const float mean_g = td_fold_lanes(sums) / (float)n, mean_gh = td_fold_lanes(products) / (float)n;
    for (int64_t i = 0; i < n; i++) {
        const float g = gradient[i] * weight[i], h = (x[i] - mean) * reciprocal;
        out[i] = reciprocal * fmaf(-h, mean_gh, g - mean_g);
    }
}

/* Column i of the gradients of weight and bias. */
static void column_gradient(const td_kernel_call *call, int64_t rows, int64_t n, int64_t i, float *out_weight,
                            float *out_bias)
{
    const float *gradient = call->inputs[GRADIENT].data, *x = call->inputs[INPUT].data;
    const float *means = call->inputs[MEAN].data, *reciprocals = call->inputs[RECIPROCAL].data;
    *out_weight = *out_bias = 0;
    for (int64_t begin = 0; begin < rows; begin += TD_SUM_ROWS) {
        float weight = 0, bias = 0;
        for (int64_t row = begin; row < rows && row < begin + TD_SUM_ROWS; row++) {
            const float h = (x[row * n + i] - means[row]) * reciprocals[row];
            weight = fmaf(gradient[row * n + i], h, weight);
            bias += gradient[row * n + i];
        }
        *out_weight += weight;
        *out_bias += bias;
    }
}

static td_status *gradient_reference_f32(const td_kernel_call *call)
{
    const int64_t rows = td_tensor_rows(&call->inputs[INPUT]), n = td_tensor_last(&call->inputs[INPUT]);
    const float *means = call->inputs[MEAN].data, *reciprocals = call->inputs[RECIPROCAL].data;
    /* Columns first: the rows' gradient may overwrite `gradient`. */
    for (int64_t i = 0; i < n; i++)
        column_gradient(call, rows, n, i, (float *)call->outputs[1].data + i, (float *)call->outputs[2].data + i);
    for (int64_t row = 0; row < rows && n > 0; row++)
        row_gradient((const float *)call->inputs[GRADIENT].data + row * n,
                     (const float *)call->inputs[INPUT].data + row * n, call->inputs[WEIGHT].data, means[row],
                     reciprocals[row], n, (float *)call->outputs[0].data + row * n);
    return NULL;
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, gradient_reference_f32);
}

const td_op td_op_layer_norm_gradient = {
    .name = "layer_norm_gradient",
    .summary = "gradients of layer_norm's input, weight and bias",
    .inputs = {{"gradient", 0}, {"x", 0}, {"weight", 0}, {"mean", 0}, {"reciprocal_deviation", 0}},
    .outputs = {{"x_gradient", 0}, {"weight_gradient", 0}, {"bias_gradient", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .in_place = {{1, 1}},
    .reference = gradient_reference,
};

/* ---- builder ------------------------------------------------------------------------------------------------------------- */

/* The parameter `name`.`suffix` [n], constant. */
static td_value row_parameter(td_graph *graph, const char *name, const char *suffix, td_dim n, double value)
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

td_value td_layer_norm_with(td_value x, td_value weight, td_value bias, double epsilon, const char *name)
{
    if (!x.graph || td_graph_failed(x.graph))
        return TD_NO_VALUE;
    char *node = td_format("%s/layer_norm", name);
    if (!node) {
        td_graph_fail(x.graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory naming layer norm %s", name));
        return TD_NO_VALUE;
    }
    const td_value inputs[3] = {x, weight, bias};
    const td_attr attrs[1] = {TD_FLOAT("epsilon", epsilon)};
    td_value outputs[3];
    td_graph_add(x.graph, "layer_norm", node, inputs, 3, attrs, 1, outputs, 3);
    td_free(node);
    return outputs[0];
}

td_value td_layer_norm(td_value x, double epsilon, const char *name)
{
    if (!x.graph || td_graph_failed(x.graph))
        return TD_NO_VALUE;
    const td_shape shape = td_value_shape(x);
    if (shape.rank < 1) {
        td_graph_fail(x.graph, TD_ERROR(TD_INVALID_ARGUMENT, "layer_norm %s: it needs at least one axis", name));
        return TD_NO_VALUE;
    }
    const td_dim last = shape.dims[shape.rank - 1];
    const td_value weight = row_parameter(x.graph, name, "weight", last, 1);
    return td_layer_norm_with(x, weight, row_parameter(x.graph, name, "bias", last, 0), epsilon, name);
}
