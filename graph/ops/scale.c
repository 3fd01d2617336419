/* scale: x times a number fixed in the graph. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "factor", .type = TD_ATTR_FLOAT, .required = true, .help = "rounded to f32 before it multiplies"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    return td_infer_all_same(infer);
}

static td_status *gradient(td_differentiate *d)
{
    if (d->wanted[0])
        d->input_gradients[0] = td_scale(d->output_gradients[0], td_attr_float(d->attrs, d->n_attrs, "factor", 1.0));
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    float factor = (float)td_attr_float(call->attrs, call->n_attrs, "factor", 1.0);
    int64_t n = td_tensor_elements(y);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(y, i, td_get_f32(x, i) * factor);
    return NULL;
}

const td_op td_op_scale = {
    .name = "scale",
    .summary = "x times a fixed number",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .in_place = {{1, 1}},
    .reference = reference,
};

td_value td_scale(td_value x, double factor)
{
    return td_build1("scale", NULL, x, (td_attr[]){TD_FLOAT("factor", factor)}, 1);
}
