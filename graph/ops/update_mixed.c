/* update_mixed: the whole of an optimizer's step on parameters that are updated in one place and read in another, in one pass over
 * memory, for several parameters at once. Of each part
 *
 *     g = gradient, widened to f32;  g = sum + g, unless the window begins with it;  g = factor * g
 *     the rule updates the f32 parameter and its states with g, as its own op would
 *     copy = the parameter rounded to 16 bit, to nearest
 *
 * where sum (of a window's earlier micro-batches, with `micro`: graph/ops/accumulate.c) and factor (of clipping) may be absent, and the
 * copies are made where the attribute "copy" names their dtype. 28 bytes an element with Adam and gradients in 16 bit, 4 more with a
 * sum: ops of their own would go over memory again each. The bits are those of such ops in that order.
 *
 * A parameter may be in 16 bit itself (no master): it is widened, updated and rounded, to nearest or as its part of "rounding" says
 * (base/rows16.h), and no copy is made.
 *
 * Rules that look at more than one element at a time (a norm of the whole parameter, one number for a row) have no such op. Made by the
 * planner (partition/fold.c, partition/chunk.c). */
#include "graph/ops/update_part.h"

enum { PIECE = 512 };

static const td_attr_spec attrs[] = {
    {.name = "rule", .type = TD_ATTR_STRING, .required = true, .help = "an optimizer whose elements are independent"},
    {.name = "copy", .type = TD_ATTR_STRING, .s = "", .help = "bf16 or f16: what the parameters are copied out in"},
    {.name = "rounding",
     .type = TD_ATTR_INTS,
     .help = "of each part in 16 bit: 0 to nearest, else the key of stochastic rounding"},
    {.name = "outputs", .type = TD_ATTR_INT, .help = "how many copies: one for each part, or none"},
    {.name = "names", .type = TD_ATTR_STRING, .help = "of the parts, for messages, with spaces between"},
    {0},
};

static bool is_narrow(td_dtype dtype)
{
    return dtype == TD_BF16 || dtype == TD_F16;
}

static td_status *check_part(const td_infer *infer, const td_rule *rule, int32_t first)
{
    const td_type *parameter = &infer->inputs[first + MIXED_PARAMETER];
    const char *copy = td_attr_string(infer->attrs, infer->n_attrs, "copy", "");
    if (parameter->kind != TD_DENSE || (parameter->dtype != TD_F32 && (!is_narrow(parameter->dtype) || *copy)))
        return TD_SHAPE_ERROR(infer, "the parameter must be dense, of f32; of bf16 or f16 without a copy");
    return mixed_require_part(infer, rule, first);
}

static td_status *infer(td_infer *infer)
{
    const char *copy = td_attr_string(infer->attrs, infer->n_attrs, "copy", "");
    const td_rule *rule = NULL;
    const td_dtype dtype = mixed_copy_dtype(infer);
    TD_TRY(mixed_require_rule(infer, &rule));
    if (infer->n_inputs < MIXED_INPUTS || infer->n_inputs % MIXED_INPUTS)
        return TD_SHAPE_ERROR(infer, "%d inputs; there must be %d for each part", infer->n_inputs, (int)MIXED_INPUTS);
    if (*copy && dtype == TD_F32)
        return TD_SHAPE_ERROR(infer, "copies of \"%s\"; they may be bf16 or f16", copy);
    const int32_t parts = infer->n_inputs / MIXED_INPUTS;
    const td_attr *rounding = td_attr_find(infer->attrs, infer->n_attrs, "rounding");
    if (rounding && rounding->n_ints && rounding->n_ints != parts)
        return TD_SHAPE_ERROR(infer, "rounding has %d numbers for %d parts", rounding->n_ints, parts);
    if (infer->n_outputs != (*copy ? parts : 0))
        return TD_SHAPE_ERROR(infer, "%d copies of %d parameters", infer->n_outputs, parts);
    for (int32_t p = 0; p < parts; p++) {
        TD_TRY(check_part(infer, rule, p * MIXED_INPUTS));
        if (!*copy)
            continue;
        infer->outputs[p] = infer->inputs[p * MIXED_INPUTS];
        infer->outputs[p].dtype = dtype;
    }
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t first = 0; first < call->n_inputs; first += MIXED_INPUTS) {
        const td_tensor *part = &call->inputs[first];
        double n = (double)td_tensor_elements(&part[MIXED_PARAMETER]),
               kept = part[MIXED_PARAMETER].dtype == TD_F32 ? 1 : 0.5;
        for (int32_t s = 0; s < TD_MAX_SLOTS; s++)
            kept += part[MIXED_STATES + s].kind != TD_NONE;
        out->flops += UPDATE_FLOPS * n;
        out->bytes_read +=
            (double)td_tensor_bytes(&part[MIXED_GRADIENT]) + 4 * n * (kept + (part[MIXED_SUM].kind != TD_NONE));
        out->bytes_written += (call->n_outputs ? 2 * n : 0) + 4 * n * kept;
    }
}

static void update_part(const td_rule *rule, const td_tensor *part, const td_tensor *copy, int64_t rounding)
{
    const td_dtype dtype = part[MIXED_PARAMETER].dtype;
    const int64_t n = td_tensor_elements(&part[MIXED_PARAMETER]);
    const float factor = part[MIXED_FACTOR].kind == TD_NONE ? 1 : *(const float *)part[MIXED_FACTOR].data;
    float gradient[PIECE];
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        float *states[TD_MAX_SLOTS] = {NULL}, wide[PIECE];
        float *parameter = dtype == TD_F32 ? (float *)part[MIXED_PARAMETER].data + first : wide;
        uint16_t *narrow = (uint16_t *)part[MIXED_PARAMETER].data + first;
        if (dtype != TD_F32)
            td_widen_row(narrow, dtype, count, wide);
        for (int32_t s = 0; s < TD_MAX_SLOTS; s++)
            states[s] = part[MIXED_STATES + s].kind == TD_NONE ? NULL : (float *)part[MIXED_STATES + s].data + first;
        mixed_make_gradient(part, factor, first, count, gradient);
        rule->reference(parameter, states, gradient, count, part[MIXED_COEFFICIENTS].data);
        if (dtype != TD_F32)
            td_narrow_row(wide, dtype, first, count, rounding, td_update_of(part[MIXED_COEFFICIENTS].data), narrow);
        if (copy)
            td_narrow_row_to_nearest(parameter, copy->dtype, count, (uint16_t *)copy->data + first);
    }
}

static td_status *reference(const td_kernel_call *call)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    const td_attr *rounding = td_attr_find(call->attrs, call->n_attrs, "rounding");
    for (int32_t p = 0; p < call->n_inputs / MIXED_INPUTS; p++)
        update_part(rule, &call->inputs[p * MIXED_INPUTS], call->n_outputs ? &call->outputs[p] : NULL,
                    rounding && p < rounding->n_ints ? rounding->ints[p] : 0);
    return NULL;
}

const td_op td_op_update_mixed = {
    .name = "update_mixed",
    .summary = "optimizer steps in one pass: gradients in 16 bit in, their last sum, clipping, updates, parameters in "
               "16 bit out",
    .inputs = {{"parameter", TD_PORT_WRITES},
               {"gradient", TD_PORT_NO_GRADIENT},
               {"sum", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"micro", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"factor", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"coefficients", TD_PORT_NO_GRADIENT},
               {"state", TD_PORT_WRITES | TD_PORT_OPTIONAL},
               {"state", TD_PORT_WRITES | TD_PORT_OPTIONAL},
               {"state", TD_PORT_WRITES | TD_PORT_OPTIONAL | TD_PORT_VARIADIC}},
    .repeats = MIXED_INPUTS,
    .outputs = {{"copy", TD_PORT_VARIADIC}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is an update",
    .cost = cost,
    .reference = reference,
};
