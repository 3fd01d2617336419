/* early_update and settle_update: an update_mixed of one parameter in two parts: the step, made before it is known whether gradients are
 * clipped, and what comes of it once that is known (partition/speculate.c).
 *
 *   early    log = parameter, states;  the step with the gradient as it is
 *   settle   first not 0: parameter, states = log, where the early step was made     (the window is left out)
 *            else factor 1 and the early step was made: nothing                        (it was right)
 *            else: parameter, states = log where it was made; the step with factor * gradient
 *
 * `speculated` is not 0 where early_update runs in this window. A copy in 16 bit is an output of the early step, which settling writes
 * again where it steps; who reads it comes after that. The log has the parameter and each state one after the other, a multiple of 16
 * elements apart. The bits are those of update_mixed with the factor. */
#include "graph/ops/update_part.h"

enum { PIECE = 512 };

static const td_attr_spec attrs[] = {
    {.name = "rule", .type = TD_ATTR_STRING, .required = true, .help = "an optimizer whose elements are independent"},
    {.name = "copy", .type = TD_ATTR_STRING, .s = "", .help = "bf16 or f16: what the parameter is copied out in"},
    {.name = "outputs", .type = TD_ATTR_INT, .help = "of early_update: how many copies, 1 or none"},
    {0},
};

static int64_t log_stride(int64_t elements)
{
    return (elements + 15) / 16 * 16;
}

static td_status *infer_step(const td_infer *infer)
{
    const td_rule *rule = NULL;
    TD_TRY(mixed_require_rule(infer, &rule));
    if (infer->n_inputs < MIXED_INPUTS)
        return TD_SHAPE_ERROR(infer, "%d inputs; there must be at least %d", infer->n_inputs, (int)MIXED_INPUTS);
    TD_TRY(td_infer_require(infer, MIXED_PARAMETER, TD_DENSE, TD_F32));
    return mixed_require_part(infer, rule, 0);
}

static td_dim log_elements(const td_infer *infer)
{
    int64_t n = 1;
    for (int32_t i = 0; i < infer->inputs[MIXED_PARAMETER].shape.rank; i++)
        n *= td_dim_capacity(infer->graph, infer->inputs[MIXED_PARAMETER].shape.dims[i]);
    return td_dim_constant((1 + mixed_count_states(infer->inputs)) * log_stride(n));
}

/* The arrays that a step writes: the parameter, then its states; NULL: there are no more. */
static float *array_at(const td_kernel_call *call, int32_t k)
{
    const td_tensor *array = &call->inputs[k == 0 ? MIXED_PARAMETER : MIXED_STATES + k - 1];
    return k <= TD_MAX_SLOTS && array->kind != TD_NONE ? array->data : NULL;
}

static void step(const td_kernel_call *call, float factor, const td_tensor *copy)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    const int64_t n = td_tensor_elements(&call->inputs[MIXED_PARAMETER]);
    float gradient[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = n - at < PIECE ? n - at : PIECE;
        float *arrays[2 + TD_MAX_SLOTS] = {NULL};
        for (int32_t k = 0; k <= TD_MAX_SLOTS && array_at(call, k); k++)
            arrays[k] = array_at(call, k) + at;
        mixed_make_gradient(call->inputs, factor, at, count, gradient);
        rule->reference(arrays[0], arrays + 1, gradient, count, call->inputs[MIXED_COEFFICIENTS].data);
        if (copy)
            td_narrow_row_to_nearest(arrays[0], copy->dtype, count, (uint16_t *)copy->data + at);
    }
}

/* ---- early_update ---------------------------------------------------------------------------------------------------------- */

static td_status *early_infer(td_infer *infer)
{
    TD_TRY(infer_step(infer));
    const td_dim elements = log_elements(infer);
    const td_dtype dtype = mixed_copy_dtype(infer);
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(1, &elements)};
    infer->outputs[0].entries = td_dim_constant(0);
    if (infer->n_outputs != (dtype == TD_F32 ? 1 : 2))
        return TD_SHAPE_ERROR(infer, "%d outputs: a log, and a copy where it has a dtype", infer->n_outputs);
    if (dtype == TD_F32)
        return NULL;
    infer->outputs[1] = infer->inputs[MIXED_PARAMETER];
    infer->outputs[1].dtype = dtype;
    return NULL;
}

static void early_cost(const td_kernel_call *call, td_cost *out)
{
    const double n = (double)td_tensor_elements(&call->inputs[MIXED_PARAMETER]);
    double arrays = 0;
    while (arrays <= TD_MAX_SLOTS && call->inputs[arrays > 0 ? MIXED_STATES + (int32_t)arrays - 1 : 0].kind != TD_NONE)
        arrays++;
    *out = (td_cost){UPDATE_FLOPS * n,
                     (double)td_tensor_bytes(&call->inputs[MIXED_GRADIENT]) +
                         4 * n * (arrays + (call->inputs[MIXED_SUM].kind != TD_NONE)),
                     8 * n * arrays + (call->n_outputs > 1 ? 2 * n : 0)};
}

static td_status *early_reference(const td_kernel_call *call)
{
    const int64_t n = td_tensor_elements(&call->inputs[MIXED_PARAMETER]);
    for (int32_t k = 0; k <= TD_MAX_SLOTS && array_at(call, k) && n; k++)
        memcpy((float *)call->outputs[0].data + k * log_stride(n), array_at(call, k), (size_t)n * sizeof(float));
    step(call, 1, call->n_outputs > 1 ? &call->outputs[1] : NULL);
    return NULL;
}

#define PART_PORTS(flags)                                                                                              \
    {"parameter", TD_PORT_WRITES | (flags)}, {"gradient", TD_PORT_NO_GRADIENT},                                        \
        {"sum", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL}, {"micro", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},            \
        {"factor", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL}, {"coefficients", TD_PORT_NO_GRADIENT},                     \
        {"state", TD_PORT_WRITES | TD_PORT_OPTIONAL | (flags)},                                                        \
        {"state", TD_PORT_WRITES | TD_PORT_OPTIONAL | (flags)},                                                        \
    {                                                                                                                  \
        "state", TD_PORT_WRITES | TD_PORT_OPTIONAL | (flags)                                                           \
    }

const td_op td_op_early_update = {
    .name = "early_update",
    .summary = "an optimizer's step before its gradients are known to be within the norm, and a log that undoes it",
    .inputs = {PART_PORTS(0)},
    .outputs = {{"log", 0}, {"copy", TD_PORT_VARIADIC}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = early_infer,
    .no_gradient = "it is an update",
    .cost = early_cost,
    .reference = early_reference,
};

/* ---- settle_update --------------------------------------------------------------------------------------------------------- */

static td_status *settle_infer(td_infer *infer)
{
    TD_TRY(infer_step(infer));
    if (infer->n_inputs != SETTLE_INPUTS)
        return TD_SHAPE_ERROR(infer, "%d inputs; there must be %d", infer->n_inputs, (int)SETTLE_INPUTS);
    TD_TRY(td_infer_require(infer, MIXED_FACTOR, TD_DENSE, TD_F32)); /* not absent */
    TD_TRY(td_infer_require(infer, SETTLE_SPECULATED, TD_SCALAR, TD_F64));
    TD_TRY(td_infer_require(infer, SETTLE_FIRST, TD_DENSE, TD_I64));
    TD_TRY(td_infer_require(infer, SETTLE_LOG, TD_DENSE, TD_F32));
    const td_dim elements = log_elements(infer);
    if (infer->inputs[SETTLE_LOG].shape.rank != 1 || !td_dim_equal(infer->inputs[SETTLE_LOG].shape.dims[0], elements))
        return TD_SHAPE_ERROR(infer, "the log must have room for the parameter and its states");
    if (infer->inputs[SETTLE_COPY].kind != TD_NONE)
        TD_TRY(td_infer_require(infer, SETTLE_COPY, TD_DENSE, mixed_copy_dtype(infer)));
    return NULL;
}

/* Where the early step was right, which is what it is made for: next to nothing. */
static void settle_cost(const td_kernel_call *call, td_cost *out)
{
    (void)call;
    *out = (td_cost){0, sizeof(float) + sizeof(int64_t), 0};
}

static td_status *settle_reference(const td_kernel_call *call)
{
    const bool speculated = *(const double *)call->inputs[SETTLE_SPECULATED].data != 0;
    const float factor = *(const float *)call->inputs[MIXED_FACTOR].data;
    const bool left_out = *(const int64_t *)call->inputs[SETTLE_FIRST].data != 0;
    const int64_t n = td_tensor_elements(&call->inputs[MIXED_PARAMETER]);
    if (speculated && !left_out && factor == 1)
        return NULL;
    for (int32_t k = 0; k <= TD_MAX_SLOTS && array_at(call, k) && speculated && n; k++)
        memcpy(array_at(call, k), (const float *)call->inputs[SETTLE_LOG].data + k * log_stride(n),
               (size_t)n * sizeof(float));
    if (!left_out)
        step(call, factor, call->inputs[SETTLE_COPY].kind == TD_NONE ? NULL : &call->inputs[SETTLE_COPY]);
    return NULL;
}

const td_op td_op_settle_update = {
    .name = "settle_update",
    .summary = "what comes of an early step: it stays, is undone, or is made again with clipped gradients",
    .inputs = {PART_PORTS(TD_PORT_AFTER),
               {"speculated", TD_PORT_NO_GRADIENT},
               {"first", TD_PORT_NO_GRADIENT},
               {"log", TD_PORT_NO_GRADIENT},
               {"copy", TD_PORT_WRITES | TD_PORT_AFTER | TD_PORT_OPTIONAL}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = settle_infer,
    .no_gradient = "it is an update",
    .cost = settle_cost,
    .reference = settle_reference,
};
