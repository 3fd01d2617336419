/* split: an axis cut into equal parts; its gradient is a concat. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "axis", .type = TD_ATTR_INT, .required = true, .help = "which axis is cut"},
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "how many parts"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    int32_t axis = 0;
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    TD_TRY(td_infer_axis(infer, infer->inputs[0].shape.rank, &axis));
    int64_t n = td_attr_int(infer->attrs, infer->n_attrs, "outputs", 0);
    td_type part = infer->inputs[0];
    td_dim *dim = &part.shape.dims[axis];
    char text[160];
    if (n < 1 || n != infer->n_outputs || dim->constant % n != 0 || (dim->extent >= 0 && dim->multiple % n != 0))
        return TD_SHAPE_ERROR(infer, "x is %s; axis %d does not divide into %lld equal parts",
                              td_shape_text(infer->graph, &part.shape, text, sizeof text), (int)axis, (long long)n);
    dim->constant /= n;
    dim->multiple /= dim->extent >= 0 ? n : 1;
    for (int32_t i = 0; i < infer->n_outputs; i++)
        infer->outputs[i] = part;
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    if (!d->wanted[0])
        return NULL;
    td_value *parts = NULL;
    TD_TRY(TD_NEW(parts, d->n_outputs));
    for (int32_t i = 0; i < d->n_outputs; i++)
        parts[i] = d->output_gradients[i].id >= 0 ? d->output_gradients[i]
                                                  : td_build1("zeros_like", NULL, d->outputs[i], NULL, 0);
    d->input_gradients[0] = td_concat(d->n_outputs, parts, (int32_t)td_attr_int(d->attrs, d->n_attrs, "axis", 0));
    td_free(parts);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0];
    int32_t axis = (int32_t)td_attr_int(call->attrs, call->n_attrs, "axis", 0);
    int64_t outer = td_outer_elements(x, axis), inner = td_inner_elements(x, axis);
    int64_t part = x->dims[axis] / call->n_outputs;
    size_t bytes = (size_t)(part * inner) * td_dtype_bytes(x->dtype);
    for (int64_t o = 0; o < outer && bytes; o++)
        for (int32_t i = 0; i < call->n_outputs; i++)
            memcpy((char *)call->outputs[i].data + (size_t)o * bytes,
                   (const char *)x->data + (size_t)(o * call->n_outputs + i) * bytes, bytes);
    return NULL;
}

const td_op td_op_split = {
    .name = "split",
    .summary = "an axis cut into equal parts",
    .inputs = {{"x", 0}},
    .outputs = {{"y", TD_PORT_VARIADIC}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

void td_split(td_value x, int32_t axis, int32_t n, td_value *out)
{
    td_graph_add(x.graph, "split", NULL, &x, 1, (td_attr[]){TD_INT("axis", td_axis_of(x, axis)), TD_INT("outputs", n)},
                 2, out, n);
}
