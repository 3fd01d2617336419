/* gelu: x times the normal distribution function of x, exact (erf) or by the tanh formula; and its gradient from the input.
 * The formulas are in base/gelu.h. */
#include <string.h>

#include "base/gelu.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "form", .type = TD_ATTR_STRING, .s = "erf", .help = "\"erf\" or \"tanh\""},
    {0},
};

static bool uses_tanh(const td_attr *given, int32_t n)
{
    return strcmp(td_attr_string(given, n, "form", "erf"), "tanh") == 0;
}

static td_status *infer(td_infer *infer)
{
    const char *form = td_attr_string(infer->attrs, infer->n_attrs, "form", "erf");
    if (strcmp(form, "erf") != 0 && strcmp(form, "tanh") != 0)
        return TD_SHAPE_ERROR(infer, "form is \"%s\"; it must be \"erf\" or \"tanh\"", form);
    return td_infer_all_same(infer);
}

static td_status *gradient(td_differentiate *d)
{
    if (d->wanted[0])
        d->input_gradients[0] =
            td_build2("gelu_gradient", NULL, d->inputs[0], d->output_gradients[0], d->attrs, d->n_attrs);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 20.0 * (double)td_tensor_elements(&call->outputs[0]);
}

static td_status *reference(const td_kernel_call *call)
{
    bool tanh_form = uses_tanh(call->attrs, call->n_attrs);
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        float x = td_get_f32(&call->inputs[0], i);
        td_set_f32(&call->outputs[0], i, tanh_form ? td_gelu_tanh(x) : td_gelu_erf(x));
    }
    return NULL;
}

const td_op td_op_gelu = {
    .name = "gelu",
    .summary = "x times the normal distribution function of x",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .in_place = {{1, 1}},
    .reference = reference,
};

static td_status *reference_gradient(const td_kernel_call *call)
{
    bool tanh_form = uses_tanh(call->attrs, call->n_attrs);
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        float x = td_get_f32(&call->inputs[0], i), dy = td_get_f32(&call->inputs[1], i);
        td_set_f32(&call->outputs[0], i, dy * (tanh_form ? td_gelu_tanh_slope(x) : td_gelu_erf_slope(x)));
    }
    return NULL;
}

const td_op td_op_gelu_gradient = {
    .name = "gelu_gradient",
    .summary = "dy times the slope of gelu at x",
    .inputs = {{"x", 0}, {"dy", 0}},
    .outputs = {{"dx", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is a gradient itself",
    .cost = cost,
    .in_place = {{1, 2}, {1, 1}},
    .reference = reference_gradient,
};

td_value td_gelu(td_value x, bool tanh_form)
{
    return td_build1("gelu", NULL, x, (td_attr[]){TD_STRING("form", tanh_form ? "tanh" : "erf")}, 1);
}
