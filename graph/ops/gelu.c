/* gelu: x times the normal distribution function of x, exact (erf) or by the tanh formula; and its gradient from the input.
 *
 * Hendrycks and Gimpel, "Gaussian error linear units", 2016. erf: x/2 (1 + erf(x / sqrt 2)). tanh: x/2 (1 + tanh u),
 * u = sqrt(2/pi) (x + 0.044715 x^3). */
#include <string.h>

#include "base/math.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "form", .type = TD_ATTR_STRING, .s = "erf", .help = "\"erf\" or \"tanh\""},
    {0},
};

static const float sqrt_half = 0.70710678118654752f, sqrt_two_over_pi = 0.79788456080286536f,
                   one_over_sqrt_two_pi = 0.39894228040143268f, cubic = 0.044715f;

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

static float gelu_erf(float x)
{
    return 0.5f * x * (1.0f + td_erff(x * sqrt_half));
}

static float gelu_tanh(float x)
{
    float u = sqrt_two_over_pi * (x + cubic * (x * x * x));
    return 0.5f * x * (1.0f + td_tanhf(u));
}

/* d/dx of gelu_erf: Phi(x) + x phi(x). */
static float slope_erf(float x)
{
    float distribution = 0.5f * (1.0f + td_erff(x * sqrt_half));
    float density = one_over_sqrt_two_pi * td_expf(-0.5f * (x * x));
    return distribution + x * density;
}

static float slope_tanh(float x)
{
    float u = sqrt_two_over_pi * (x + cubic * (x * x * x));
    float t = td_tanhf(u);
    float du = sqrt_two_over_pi * (1.0f + 3.0f * cubic * (x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * ((1.0f - t * t) * du);
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
        td_set_f32(&call->outputs[0], i, tanh_form ? gelu_tanh(x) : gelu_erf(x));
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
        td_set_f32(&call->outputs[0], i, dy * (tanh_form ? slope_tanh(x) : slope_erf(x)));
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
