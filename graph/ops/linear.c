/* linear: x W^T + b, perhaps with a relu on top, and the gradients of weight and bias. That of x: linear_input_gradient.c.
 *
 * Reference sums run over the inner dimension in order, in double, rounded once: products of two floats are exact there,
 * so the same bits come from any compiler and instruction set. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

/* ---- linear ----------------------------------------------------------------------------------------------------------- */

static const td_attr_spec attrs[] = {
    {.name = "relu", .type = TD_ATTR_BOOL, .help = "negative results become 0"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    const td_type *x = &infer->inputs[0], *weight = &infer->inputs[1], *bias = &infer->inputs[2];
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_dense(infer, 1, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 1));
    char found[160], wanted[160];
    if (x->shape.rank < 1 || weight->shape.rank != 2 ||
        !td_dim_equal(x->shape.dims[x->shape.rank - 1], weight->shape.dims[1]))
        return TD_SHAPE_ERROR(infer,
                              "x is %s and weight is %s; weight must be [out, in] with in = the last dimension of x",
                              td_shape_text(infer->graph, &x->shape, found, sizeof found),
                              td_shape_text(infer->graph, &weight->shape, wanted, sizeof wanted));
    infer->outputs[0] = *x;
    infer->outputs[0].shape.dims[x->shape.rank - 1] = weight->shape.dims[0];
    if (infer->n_inputs < 3 || bias->kind == TD_NONE)
        return NULL;
    TD_TRY(td_infer_dense(infer, 2, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 2));
    if (bias->shape.rank != 1 || !td_dim_equal(bias->shape.dims[0], weight->shape.dims[0]))
        return TD_SHAPE_ERROR(infer, "bias is %s and weight is %s; bias must be [out]",
                              td_shape_text(infer->graph, &bias->shape, found, sizeof found),
                              td_shape_text(infer->graph, &weight->shape, wanted, sizeof wanted));
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    td_value dy = d->output_gradients[0];
    if (td_attr_int(d->attrs, d->n_attrs, "relu", 0))
        dy = td_build2("relu_gradient", NULL, d->outputs[0], dy, NULL, 0);
    if (d->wanted[0]) {
        const td_value inputs[3] = {dy, d->inputs[1], {d->graph, -1}};
        d->input_gradients[0] = td_graph_add1(d->graph, "linear_input_gradient", NULL, inputs, 3, NULL, 0);
    }
    if (d->wanted[1])
        d->input_gradients[1] = td_build2("linear_weight_gradient", NULL, dy, d->inputs[0], NULL, 0);
    if (d->n_inputs > 2 && d->wanted[2])
        d->input_gradients[2] = td_build1("bias_gradient", NULL, dy, NULL, 0);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 2.0 * (double)td_tensor_elements(&call->outputs[0]) * (double)td_tensor_last(&call->inputs[0]);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
    const td_tensor *bias = call->n_inputs > 2 && call->inputs[2].kind != TD_NONE ? &call->inputs[2] : NULL;
    const bool relu = td_attr_int(call->attrs, call->n_attrs, "relu", 0) != 0;
    int64_t rows = td_tensor_rows(x), in = td_tensor_last(x), out = weight->dims[0];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t o = 0; o < out; o++) {
            double sum = bias ? (double)td_get_f32(bias, o) : 0.0;
            for (int64_t i = 0; i < in; i++)
                sum += (double)td_get_f32(x, row * in + i) * (double)td_get_f32(weight, o * in + i);
            td_set_f32(y, row * out + o, relu && sum < 0.0 ? 0.0f : (float)sum);
        }
    return NULL;
}

const td_op td_op_linear = {
    .name = "linear",
    .summary = "x W^T + b over the last axis",
    .inputs = {{"x", 0}, {"weight", 0}, {"bias", TD_PORT_OPTIONAL}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

/* ---- linear_weight_gradient --------------------------------------------------------------------------------------------- */

static td_status *infer_weight_gradient(td_infer *infer)
{
    const td_shape *dy = &infer->inputs[0].shape, *x = &infer->inputs[1].shape;
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_dense(infer, 1, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 1));
    bool equal = dy->rank == x->rank && dy->rank >= 1;
    for (int32_t i = 0; equal && i + 1 < dy->rank; i++)
        equal = td_dim_equal(dy->dims[i], x->dims[i]);
    char left[160], right[160];
    if (!equal)
        return TD_SHAPE_ERROR(infer, "dy is %s and x is %s; all dimensions but the last must be equal",
                              td_shape_text(infer->graph, dy, left, sizeof left),
                              td_shape_text(infer->graph, x, right, sizeof right));
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape = TD_SHAPE(dy->dims[dy->rank - 1], x->dims[x->rank - 1]);
    return NULL;
}

static void cost_weight_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 2.0 * (double)td_tensor_elements(&call->outputs[0]) * (double)td_tensor_rows(&call->inputs[0]);
}

static td_status *reference_weight_gradient(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *x = &call->inputs[1], *dw = &call->outputs[0];
    int64_t rows = td_tensor_rows(x), out = td_tensor_last(dy), in = td_tensor_last(x);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (int64_t row = 0; row < rows; row++)
                sum += (double)td_get_f32(dy, row * out + o) * (double)td_get_f32(x, row * in + i);
            td_set_f32(dw, o * in + i, (float)sum);
        }
    return NULL;
}

const td_op td_op_linear_weight_gradient = {
    .name = "linear_weight_gradient",
    .summary = "dy^T x, summed over all leading axes: [out, in]",
    .inputs = {{"dy", 0}, {"x", 0}},
    .outputs = {{"dw", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer_weight_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_weight_gradient,
    .reference = reference_weight_gradient,
};

/* ---- bias_gradient -------------------------------------------------------------------------------------------------------- */

static td_status *infer_bias_gradient(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    const td_shape *dy = &infer->inputs[0].shape;
    if (dy->rank < 1)
        return TD_SHAPE_ERROR(infer, "dy is []; it needs at least one dimension");
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape = TD_SHAPE(dy->dims[dy->rank - 1]);
    return NULL;
}

static void cost_bias_gradient(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = (double)td_tensor_elements(&call->inputs[0]);
}

static td_status *reference_bias_gradient(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *db = &call->outputs[0];
    int64_t rows = td_tensor_rows(dy), out = td_tensor_last(dy);
    for (int64_t o = 0; o < out; o++) {
        double sum = 0.0;
        for (int64_t row = 0; row < rows; row++)
            sum += (double)td_get_f32(dy, row * out + o);
        td_set_f32(db, o, (float)sum);
    }
    return NULL;
}

const td_op td_op_bias_gradient = {
    .name = "bias_gradient",
    .summary = "column sums over all leading axes, rows in order",
    .inputs = {{"dy", 0}},
    .outputs = {{"db", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer_bias_gradient,
    .no_gradient = "it is a gradient itself",
    .cost = cost_bias_gradient,
    .reference = reference_bias_gradient,
};

/* ---- builders ---------------------------------------------------------------------------------------------------------------- */

static td_value add_linear(td_value x, td_value weight, td_value bias, const char *name)
{
    td_graph *graph = x.graph;
    char *node_name = name ? td_format("%s/linear", name) : NULL;
    if (name && !node_name) {
        td_graph_fail(graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name"));
        return TD_NO_VALUE;
    }
    td_value y = td_graph_add1(graph, "linear", node_name, (td_value[]){x, weight, bias}, 3, NULL, 0);
    td_free(node_name);
    return y;
}

td_value td_linear_with(td_value x, td_value weight, td_value bias, const char *name)
{
    return x.graph ? add_linear(x, weight, bias, name) : TD_NO_VALUE;
}

td_value td_linear(td_value x, int64_t out, const char *name)
{
    td_graph *graph = x.graph;
    if (!graph || td_graph_failed(graph))
        return TD_NO_VALUE;
    td_shape shape = td_value_shape(x);
    if (x.id < 0 || shape.rank < 1 || shape.dims[shape.rank - 1].extent >= 0) {
        td_graph_fail(graph, TD_ERROR(TD_INVALID_ARGUMENT,
                                      "linear %s: the last dimension of x (\"%s\") must be a constant: it is the "
                                      "width of the weight",
                                      name ? name : "", td_value_name(x)));
        return TD_NO_VALUE;
    }
    if (!name) {
        td_graph_fail(graph,
                      TD_ERROR(TD_INVALID_ARGUMENT, "linear: a name is needed, its parameters are called after it"));
        return TD_NO_VALUE;
    }
    int64_t in = td_value_dim(x, -1);
    td_initializer initial = td_init_uniform(in > 0 ? 1.0 / sqrt((double)in) : 0.0);
    char *weight_name = td_format("%s.weight", name), *bias_name = td_format("%s.bias", name);
    td_value y = TD_NO_VALUE;
    if (!weight_name || !bias_name) {
        td_graph_fail(graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name"));
    } else {
        td_dtype dtype = td_value_dtype(x);
        td_value weight = td_parameter(graph, weight_name, dtype, TD_SHAPE(out, in), initial);
        td_value bias = td_parameter(graph, bias_name, dtype, TD_SHAPE(out), initial);
        y = add_linear(x, weight, bias, name);
    }
    td_free(weight_name);
    td_free(bias_name);
    return y;
}
