/* double: twice the input (a template: copy this file to graph/ops/<name>.c, change what it says, add TD_OP(<name>) to
 * ops.def, then `make check-op OP=<name>`). Say here what the op computes, over which axes, and where a formula comes from.
 *
 * What always holds for an op: the shape rule accepts or refuses with one clear line; the reference kernel is plain C, one
 * thread, fine with zero elements, in a fixed order; the gradient is built from ops; nothing here depends on a device. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

/* Attributes, each with its type, default and one line of help. Leave the list out when there are none. */
static const td_attr_spec attrs[] = {
    {.name = "negative", .type = TD_ATTR_BOOL, .help = "minus twice the input"},
    {0},
};

/* Shape rule: fill outputs[0..n_outputs) or refuse with TD_SHAPE_ERROR(infer, "what was found; the rule", ...). */
static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

/* Gradient: for each wanted input, ops that make its gradient from inputs, outputs and output gradients. An op without one
 * leaves `.gradient` out and says why in `.no_gradient`. */
static td_status *gradient(td_differentiate *d)
{
    bool negative = td_attr_int(d->attrs, d->n_attrs, "negative", 0) != 0;
    if (d->wanted[0])
        d->input_gradients[0] = td_scale(d->output_gradients[0], negative ? -2.0 : 2.0);
    return NULL;
}

/* Reference kernel: at actual extents. 16-bit floats pass through f32 (elements.h). */
static td_status *reference(const td_kernel_call *call)
{
    float factor = td_attr_int(call->attrs, call->n_attrs, "negative", 0) ? -2.0f : 2.0f;
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++)
        td_set_f32(&call->outputs[0], i, factor * td_get_f32(&call->inputs[0], i));
    return NULL;
}

const td_op td_op_double = {
    .name = "double",
    .summary = "twice the input",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .in_place = {{1, 1}}, /* output 0 may overwrite input 0 (both + 1) */
    .reference = reference,
};

/* Builder: declared in tandem/ops.h when users call it. */
td_value td_double(td_value x, bool negative)
{
    return td_build1("double", NULL, x, (td_attr[]){TD_FLAG("negative", negative)}, 1);
}
