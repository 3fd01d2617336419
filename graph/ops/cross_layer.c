/* cross_layer: the crossing of DCN-v2 (Wang et al. 2021), x0 * inner + x, where inner = W x + b is a linear op before it.
 *
 * The builder adds both nodes. Elementwise, one fma. The gradient of x is the output's gradient itself; the linear op adds
 * what flows through W. */
#include <math.h>

#include "base/memory.h"
#include "graph/op.h"

enum { X0, X, INNER };

static td_status *require_alike(const td_infer *infer)
{
    for (int32_t i = 0; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_F32));
        char have[128], want[128];
        if (!td_shape_equal(&infer->inputs[i].shape, &infer->inputs[0].shape))
            return TD_SHAPE_ERROR(infer, "its inputs must be of one shape, not %s and %s",
                                  td_shape_text(infer->graph, &infer->inputs[0].shape, want, sizeof want),
                                  td_shape_text(infer->graph, &infer->inputs[i].shape, have, sizeof have));
    }
    return NULL;
}

static td_status *cross_infer(td_infer *infer)
{
    TD_TRY(require_alike(infer));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static void cross_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->outputs[0]);
    *out = (td_cost){2 * bytes / 4, 3 * bytes, bytes};
}

static td_status *cross_reference(const td_kernel_call *call)
{
    const float *x0 = call->inputs[X0].data, *x = call->inputs[X].data, *inner = call->inputs[INNER].data;
    float *out = call->outputs[0].data;
    for (int64_t i = 0; i < td_tensor_elements(&call->outputs[0]); i++)
        out[i] = fmaf(x0[i], inner[i], x[i]);
    return NULL;
}

static td_status *cross_gradient(td_differentiate *d)
{
    const td_value inputs[3] = {d->output_gradients[0], d->inputs[X0], d->inputs[INNER]};
    td_value gradients[2];
    td_graph_add(d->graph, "cross_layer_gradient", NULL, inputs, 3, NULL, 0, gradients, 2);
    d->input_gradients[X0] = gradients[0];
    d->input_gradients[INNER] = gradients[1];
    d->input_gradients[X] = d->output_gradients[0];
    return NULL;
}

const td_op td_op_cross_layer = {
    .name = "cross_layer",
    .summary = "x0 * inner + x, the crossing of DCN-v2",
    .inputs = {{"x0", 0}, {"x", 0}, {"inner", 0}},
    .outputs = {{"output", 0}},
    .infer = cross_infer,
    .gradient = cross_gradient,
    .cost = cross_cost,
    .in_place = {{1, INNER + 1}, {1, X + 1}},
    .reference = cross_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(require_alike(infer));
    infer->outputs[0] = infer->outputs[1] = infer->inputs[0];
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->outputs[0]);
    *out = (td_cost){2 * bytes / 4, 3 * bytes, 2 * bytes};
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const float *gradient = call->inputs[0].data, *x0 = call->inputs[1].data, *inner = call->inputs[2].data;
    float *x0_gradient = call->outputs[0].data, *inner_gradient = call->outputs[1].data;
    for (int64_t i = 0; i < td_tensor_elements(&call->outputs[0]); i++) {
        x0_gradient[i] = gradient[i] * inner[i];
        inner_gradient[i] = gradient[i] * x0[i];
    }
    return NULL;
}

const td_op td_op_cross_layer_gradient = {
    .name = "cross_layer_gradient",
    .summary = "gradients of cross_layer's x0 and inner",
    .inputs = {{"gradient", 0}, {"x0", 0}, {"inner", 0}},
    .outputs = {{"x0_gradient", 0}, {"inner_gradient", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = gradient_reference,
};

td_value td_cross_layer(td_value x0, td_value x, const char *name)
{
    if (!x.graph)
        return TD_NO_VALUE;
    char *node = td_format("%s/cross_layer", name);
    if (!node) {
        td_graph_fail(x.graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory naming cross layer %s", name));
        return TD_NO_VALUE;
    }
    const td_value inputs[3] = {x0, x, td_linear(x, td_value_dim(x, -1), name)};
    const td_value out = td_graph_add1(x.graph, "cross_layer", node, inputs, 3, NULL, 0);
    td_free(node);
    return out;
}
