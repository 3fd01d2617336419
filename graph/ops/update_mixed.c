/* update_mixed: the whole of an optimizer's step on a 16-bit model in one pass over memory: the gradient in 16 bit (or f32) is
 * widened, the rule updates f32 parameters and states as its own op would, and the new parameters are copied out in 16 bit, rounded
 * to nearest. 28 bytes an element with Adam: the copy and the cast that would stand before and after the update cost 16 more.
 *
 * Rules that look at more than one element at a time (a norm of the whole parameter, one number for a row) have no such op. */
#include "graph/ops/update_rules.h"

enum { PARAMETER, GRADIENT, COEFFICIENTS, COPY, STATES, PIECE = 512 };

static const td_attr_spec attrs[] = {
    {.name = "rule", .type = TD_ATTR_STRING, .required = true, .help = "an optimizer whose elements are independent"},
    {0},
};

static bool is_narrow(td_dtype dtype)
{
    return dtype == TD_BF16 || dtype == TD_F16;
}

static bool is_elementwise(const td_rule *rule)
{
    bool by_element = !rule->whole_tensor && !rule->refuses_dense;
    for (const td_slot *slot = rule->slots; slot->name; slot++)
        by_element = by_element && !slot->per_row;
    return by_element;
}

static td_status *infer(td_infer *infer)
{
    const char *name = td_attr_string(infer->attrs, infer->n_attrs, "rule", "");
    const td_rule *rule = td_rule_find(name);
    const td_type *parameter = &infer->inputs[PARAMETER], *gradient = &infer->inputs[GRADIENT],
                  *copy = &infer->inputs[COPY];
    if (!rule)
        return TD_SHAPE_ERROR(infer, "there is no optimizer \"%s\"; did you mean \"%s\"?", name, td_rule_nearest(name));
    if (!is_elementwise(rule))
        return TD_SHAPE_ERROR(infer, "%s works on more than one element at a time", name);
    TD_TRY(td_infer_require(infer, PARAMETER, TD_DENSE, TD_F32));
    TD_TRY(update_require_coefficients(infer, COEFFICIENTS));
    if (gradient->kind != TD_DENSE || (gradient->dtype != TD_F32 && !is_narrow(gradient->dtype)))
        return TD_SHAPE_ERROR(infer, "the gradient must be dense, of f32, bf16 or f16");
    if (copy->kind != TD_DENSE || !is_narrow(copy->dtype))
        return TD_SHAPE_ERROR(infer, "the copy must be dense, of bf16 or f16");
    if (parameter->shape.rank < 1 || !td_shape_equal(&parameter->shape, &gradient->shape) ||
        !td_shape_equal(&parameter->shape, &copy->shape))
        return TD_SHAPE_ERROR(infer, "parameter, gradient and copy must have one shape");
    return update_require_states(infer, rule, STATES, &parameter->shape);
}

static void cost(const td_kernel_call *call, td_cost *out)
{
    double n = (double)td_tensor_elements(&call->inputs[PARAMETER]), states = call->n_inputs - STATES;
    *out = (td_cost){UPDATE_FLOPS * n, (double)td_tensor_bytes(&call->inputs[GRADIENT]) + 4 * n * (1 + states),
                     2 * n + 4 * n * (1 + states)};
}

static td_status *reference(const td_kernel_call *call)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    const td_tensor *gradient = &call->inputs[GRADIENT], *copy = &call->inputs[COPY];
    int64_t n = td_tensor_elements(&call->inputs[PARAMETER]);
    float wide[PIECE];
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        float *states[TD_MAX_SLOTS] = {NULL}, *parameter = (float *)call->inputs[PARAMETER].data + first;
        const float *from = wide;
        for (int32_t s = STATES; s < call->n_inputs; s++)
            states[s - STATES] = (float *)call->inputs[s].data + first;
        if (gradient->dtype == TD_F32)
            from = (const float *)gradient->data + first;
        else
            td_widen_row((const uint16_t *)gradient->data + first, gradient->dtype, count, wide);
        rule->reference(parameter, states, from, count, call->inputs[COEFFICIENTS].data);
        td_narrow_row_to_nearest(parameter, copy->dtype, count, (uint16_t *)copy->data + first);
    }
    return NULL;
}

const td_op td_op_update_mixed = {
    .name = "update_mixed",
    .summary = "an optimizer's step on f32 parameters, with gradients in and parameters out in 16 bit, in one pass",
    .inputs = {{"parameter", TD_PORT_WRITES},
               {"gradient", TD_PORT_NO_GRADIENT},
               {"coefficients", TD_PORT_NO_GRADIENT},
               {"copy", TD_PORT_WRITES},
               {"state", TD_PORT_WRITES | TD_PORT_VARIADIC | TD_PORT_OPTIONAL}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is an update",
    .cost = cost,
    .reference = reference,
};
