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
#include "graph/ops/elements.h"
#include "graph/ops/update_rules.h"

enum {
    PARAMETER,
    GRADIENT,
    SUM,
    MICRO,
    FACTOR,
    COEFFICIENTS,
    STATES,
    PART_INPUTS = STATES + TD_MAX_SLOTS,
    PIECE = 512
};
enum { MICRO_NUMBERS = 3 };

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

static td_dtype copy_dtype(const td_attr *list, int32_t n)
{
    const char *name = td_attr_string(list, n, "copy", "");
    return strcmp(name, "bf16") == 0 ? TD_BF16 : strcmp(name, "f16") == 0 ? TD_F16 : TD_F32;
}

static int32_t count_states(const td_type *part)
{
    int32_t n = 0;
    while (n < TD_MAX_SLOTS && part[STATES + n].kind != TD_NONE)
        n++;
    return n;
}

static td_status *check_sum(const td_infer *infer, int32_t first)
{
    const td_type *sum = &infer->inputs[first + SUM], *micro = &infer->inputs[first + MICRO],
                  *factor = &infer->inputs[first + FACTOR];
    if ((sum->kind == TD_NONE) != (micro->kind == TD_NONE))
        return TD_SHAPE_ERROR(infer, "a sum of micro-batches and how far the window is come together");
    if (sum->kind != TD_NONE) {
        TD_TRY(td_infer_require(infer, first + SUM, TD_DENSE, TD_F32));
        TD_TRY(td_infer_require(infer, first + MICRO, TD_SCALAR, TD_F64));
        if (!td_shape_equal(&sum->shape, &infer->inputs[first].shape))
            return TD_SHAPE_ERROR(infer, "the sum must have the parameter's shape");
        if (micro->shape.rank != 1 || !td_dim_is(micro->shape.dims[0], MICRO_NUMBERS))
            return TD_SHAPE_ERROR(infer, "micro must be %d numbers", (int)MICRO_NUMBERS);
    }
    if (factor->kind == TD_NONE)
        return NULL;
    TD_TRY(td_infer_require(infer, first + FACTOR, TD_DENSE, TD_F32));
    if (factor->shape.rank != 1 || !td_dim_is(factor->shape.dims[0], 1))
        return TD_SHAPE_ERROR(infer, "the factor must be one number");
    return NULL;
}

static td_status *check_part(const td_infer *infer, const td_rule *rule, int32_t first)
{
    const td_type *part = &infer->inputs[first], *parameter = &part[PARAMETER], *gradient = &part[GRADIENT];
    const char *copy = td_attr_string(infer->attrs, infer->n_attrs, "copy", "");
    if (parameter->kind != TD_DENSE || (parameter->dtype != TD_F32 && (!is_narrow(parameter->dtype) || *copy)))
        return TD_SHAPE_ERROR(infer, "the parameter must be dense, of f32; of bf16 or f16 without a copy");
    TD_TRY(update_require_coefficients(infer, first + COEFFICIENTS));
    if (gradient->kind != TD_DENSE || (gradient->dtype != TD_F32 && !is_narrow(gradient->dtype)))
        return TD_SHAPE_ERROR(infer, "the gradient must be dense, of f32, bf16 or f16");
    if (parameter->shape.rank < 1 || !td_shape_equal(&parameter->shape, &gradient->shape))
        return TD_SHAPE_ERROR(infer, "parameter and gradient must have one shape");
    TD_TRY(check_sum(infer, first));
    td_infer states = *infer; /* the rule's own number of them, without what this op leaves absent */
    states.n_inputs = first + STATES + count_states(part);
    return update_require_states(&states, rule, first + STATES, &parameter->shape);
}

static td_status *infer(td_infer *infer)
{
    const char *name = td_attr_string(infer->attrs, infer->n_attrs, "rule", "");
    const char *copy = td_attr_string(infer->attrs, infer->n_attrs, "copy", "");
    const td_rule *rule = td_rule_find(name);
    const td_dtype dtype = copy_dtype(infer->attrs, infer->n_attrs);
    if (!rule)
        return TD_SHAPE_ERROR(infer, "there is no optimizer \"%s\"; did you mean \"%s\"?", name, td_rule_nearest(name));
    if (!td_rule_is_elementwise(rule))
        return TD_SHAPE_ERROR(infer, "%s works on more than one element at a time", name);
    if (infer->n_inputs < PART_INPUTS || infer->n_inputs % PART_INPUTS)
        return TD_SHAPE_ERROR(infer, "%d inputs; there must be %d for each part", infer->n_inputs, (int)PART_INPUTS);
    if (*copy && dtype == TD_F32)
        return TD_SHAPE_ERROR(infer, "copies of \"%s\"; they may be bf16 or f16", copy);
    const int32_t parts = infer->n_inputs / PART_INPUTS;
    const td_attr *rounding = td_attr_find(infer->attrs, infer->n_attrs, "rounding");
    if (rounding && rounding->n_ints && rounding->n_ints != parts)
        return TD_SHAPE_ERROR(infer, "rounding has %d numbers for %d parts", rounding->n_ints, parts);
    if (infer->n_outputs != (*copy ? parts : 0))
        return TD_SHAPE_ERROR(infer, "%d copies of %d parameters", infer->n_outputs, parts);
    for (int32_t p = 0; p < parts; p++) {
        TD_TRY(check_part(infer, rule, p * PART_INPUTS));
        if (!*copy)
            continue;
        infer->outputs[p] = infer->inputs[p * PART_INPUTS];
        infer->outputs[p].dtype = dtype;
    }
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t first = 0; first < call->n_inputs; first += PART_INPUTS) {
        const td_tensor *part = &call->inputs[first];
        double n = (double)td_tensor_elements(&part[PARAMETER]), kept = part[PARAMETER].dtype == TD_F32 ? 1 : 0.5;
        for (int32_t s = 0; s < TD_MAX_SLOTS; s++)
            kept += part[STATES + s].kind != TD_NONE;
        out->flops += UPDATE_FLOPS * n;
        out->bytes_read += (double)td_tensor_bytes(&part[GRADIENT]) + 4 * n * (kept + (part[SUM].kind != TD_NONE));
        out->bytes_written += (call->n_outputs ? 2 * n : 0) + 4 * n * kept;
    }
}

/* The gradient that the rule is to see, of elements first .. first + n - 1. */
static void make_gradient(const td_tensor *part, int64_t first, int64_t n, float *out)
{
    const float *sum = part[SUM].kind == TD_NONE ? NULL : (const float *)part[SUM].data + first;
    const float *factor = part[FACTOR].kind == TD_NONE ? NULL : part[FACTOR].data;
    const bool begins = sum && ((const double *)part[MICRO].data)[0] != 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = td_get_f32(&part[GRADIENT], first + i);
        if (sum && !begins)
            out[i] = sum[i] + out[i];
        if (factor)
            out[i] = *factor * out[i];
    }
}

static void update_part(const td_rule *rule, const td_tensor *part, const td_tensor *copy, int64_t rounding)
{
    const td_dtype dtype = part[PARAMETER].dtype;
    const int64_t n = td_tensor_elements(&part[PARAMETER]);
    float gradient[PIECE];
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        float *states[TD_MAX_SLOTS] = {NULL}, wide[PIECE];
        float *parameter = dtype == TD_F32 ? (float *)part[PARAMETER].data + first : wide;
        uint16_t *narrow = (uint16_t *)part[PARAMETER].data + first;
        if (dtype != TD_F32)
            td_widen_row(narrow, dtype, count, wide);
        for (int32_t s = 0; s < TD_MAX_SLOTS; s++)
            states[s] = part[STATES + s].kind == TD_NONE ? NULL : (float *)part[STATES + s].data + first;
        make_gradient(part, first, count, gradient);
        rule->reference(parameter, states, gradient, count, part[COEFFICIENTS].data);
        if (dtype != TD_F32)
            td_narrow_row(wide, dtype, first, count, rounding, td_update_of(part[COEFFICIENTS].data), narrow);
        if (copy)
            td_narrow_row_to_nearest(parameter, copy->dtype, count, (uint16_t *)copy->data + first);
    }
}

static td_status *reference(const td_kernel_call *call)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    const td_attr *rounding = td_attr_find(call->attrs, call->n_attrs, "rounding");
    for (int32_t p = 0; p < call->n_inputs / PART_INPUTS; p++)
        update_part(rule, &call->inputs[p * PART_INPUTS], call->n_outputs ? &call->outputs[p] : NULL,
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
    .repeats = PART_INPUTS,
    .outputs = {{"copy", TD_PORT_VARIADIC}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is an update",
    .cost = cost,
    .reference = reference,
};
