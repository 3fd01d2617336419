/* One op per optimizer rule: updates a parameter and its states in place from a dense or a row-sparse gradient.
 *
 * The rules themselves are in optim/. A row-sparse gradient acts once on each of its rows, whatever it holds there
 * (zeros too), and on no other row; its rows are distinct, so their order does not matter. Rules that cannot work so
 * refuse. */
#include "graph/ops/update_rules.h"

enum { PARAMETER, GRADIENT, COEFFICIENTS, STATES };

static const td_attr_spec attrs[] = {UPDATE_ROUNDING_ATTR, {0}};

static td_status *infer_update(td_infer *infer)
{
    const td_rule *rule = td_rule_find(infer->op);
    const td_type *parameter = &infer->inputs[PARAMETER], *gradient = &infer->inputs[GRADIENT];
    const bool narrow = parameter->dtype == TD_BF16 || parameter->dtype == TD_F16;
    if (parameter->kind != TD_DENSE || (parameter->dtype != TD_F32 && !narrow))
        return TD_SHAPE_ERROR(infer, "the parameter must be dense, of f32, bf16 or f16");
    if (narrow && gradient->kind == TD_DENSE && !td_rule_is_elementwise(rule))
        return TD_SHAPE_ERROR(infer, "a parameter of %s takes a row-sparse gradient only: keep it in f32",
                              td_dtype_name(parameter->dtype));
    if (gradient->kind != TD_DENSE && gradient->kind != TD_ROW_SPARSE)
        return TD_SHAPE_ERROR(infer, "the gradient must be dense or row-sparse");
    const char *refusal = gradient->kind == TD_DENSE ? rule->refuses_dense : rule->refuses_row_sparse;
    if (refusal)
        return TD_SHAPE_ERROR(infer, "%s takes no %s gradient: %s", rule->name,
                              gradient->kind == TD_DENSE ? "dense" : "row-sparse", refusal);
    TD_TRY(td_infer_require(infer, GRADIENT, gradient->kind, TD_F32));
    char have[128], want[128];
    if (parameter->shape.rank < 1 || !td_shape_equal(&parameter->shape, &gradient->shape))
        return TD_SHAPE_ERROR(infer, "the gradient is %s, the parameter %s; they must agree",
                              td_shape_text(infer->graph, &gradient->shape, have, sizeof have),
                              td_shape_text(infer->graph, &parameter->shape, want, sizeof want));
    TD_TRY(update_require_coefficients(infer, COEFFICIENTS));
    return update_require_states(infer, rule, STATES, &parameter->shape);
}

static void cost_update(const td_kernel_call *call, td_cost *out)
{
    const td_rule *rule = td_rule_find(call->op);
    const td_tensor *gradient = &call->inputs[GRADIENT];
    update_target target = update_bind(rule, call, COEFFICIENTS, STATES);
    double rows = (double)(gradient->kind == TD_ROW_SPARSE ? gradient->entries : gradient->dims[0]);
    double state_bytes = rows * update_row_bytes(rule, target.dtype, target.n_states, target.dim);
    *out = (td_cost){UPDATE_FLOPS * rows * (double)target.dim, state_bytes + (double)td_tensor_bytes(gradient),
                     state_bytes};
}

static bool has_per_row_state(const td_rule *rule)
{
    for (const td_slot *slot = rule->slots; slot->name; slot++)
        if (slot->per_row)
            return true;
    return false;
}

static td_status *reference_update(const td_kernel_call *call)
{
    const td_rule *rule = td_rule_find(call->op);
    const td_tensor *gradient = &call->inputs[GRADIENT];
    update_target target = update_bind(rule, call, COEFFICIENTS, STATES);
    const float *values = gradient->data;
    int64_t elements = td_tensor_elements(&call->inputs[PARAMETER]);
    if (gradient->kind == TD_ROW_SPARSE) {
        const int64_t *rows = gradient->index;
        for (int64_t i = 0; i < *(const int64_t *)gradient->count; i++)
            TD_TRY(update_row(&target, rows[i], values + i * target.dim));
        return NULL;
    }
    if (rule->whole_tensor)
        return rule->reference_tensor(target.parameter, target.states, values, elements, target.coefficients);
    if (!has_per_row_state(rule) && target.dtype == TD_F32) {
        rule->reference(target.parameter, target.states, values, elements, target.coefficients);
        return NULL;
    }
    for (int64_t row = 0; row < call->inputs[PARAMETER].dims[0]; row++)
        TD_TRY(update_row(&target, row, values + row * target.dim));
    return NULL;
}

#define TD_OPTIMIZER(rule)                                                                                             \
    const td_op td_op_##rule = {                                                                                       \
        .name = #rule,                                                                                                 \
        .summary = "optimizer: updates a parameter and its states from its gradient",                                  \
        .inputs = {{"parameter", TD_PORT_WRITES},                                                                      \
                   {"gradient", TD_PORT_NO_GRADIENT},                                                                  \
                   {"coefficients", TD_PORT_NO_GRADIENT},                                                              \
                   {"state", TD_PORT_WRITES | TD_PORT_VARIADIC | TD_PORT_OPTIONAL}},                                   \
        .attrs = attrs,                                                                                                \
        .infer = infer_update,                                                                                         \
        .no_gradient = "it is an update",                                                                              \
        .cost = cost_update,                                                                                           \
        .reference = reference_update,                                                                                 \
    };
#include "optim/optimizers.def"
#undef TD_OPTIMIZER
