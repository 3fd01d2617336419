/* Ops on tables that other ranks own: ps_pull brings the rows that a window names, ps_push takes their gradients to the owners,
 * who update. Made by the planner (partition/serve.c); they name all served tables at once, so a window's ids travel once.
 *
 * Where something must be known of all gradients before any is used (their norm, whether they are finite), ps_push is two ops:
 * ps_offer takes the gradients to the owners and brings back the sum of squares of each table's sum, without rounding
 * (graph/ops/clip.c); ps_apply has the owners scale them and update.
 *
 * `keys` are the window's distinct ids of a table, ascending. The rows come in their order, into room for as many as there may be, and lookups
 * read them by place. So the gradient of a table is the row-sparse gradient of its pulled rows, by place among the keys. The runtime runs both through
 * the job (runtime/remote.h); there is no kernel, and no reference: what is far away is not a function of the arguments. */
#include "base/exact.h"
#include "graph/op.h"

enum { PULL_INPUTS = 2, PUSH_INPUTS = 4, OFFER_INPUTS = 3, APPLY_INPUTS = 2 };
enum { SUM_WORDS = sizeof(td_exact) / sizeof(int64_t) };

static const td_attr_spec pull_attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "how many tables"}, {0}};

static td_status *require_table(const td_infer *infer, int32_t table, int32_t keys)
{
    const td_type *t = &infer->inputs[table], *k = &infer->inputs[keys];
    char text[128];
    if (t->kind != TD_DENSE || t->shape.rank != 2 || (t->dtype != TD_F32 && t->dtype != TD_F16 && t->dtype != TD_BF16))
        return TD_SHAPE_ERROR(infer, "a served table is [rows, dim] of f32, f16 or bf16, not %s",
                              td_shape_text(infer->graph, &t->shape, text, sizeof text));
    if (k->kind != TD_DENSE || k->dtype != TD_I64 || k->shape.rank != 1)
        return TD_SHAPE_ERROR(infer, "keys are i64 [n], not %s",
                              td_shape_text(infer->graph, &k->shape, text, sizeof text));
    return NULL;
}

static td_status *pull_infer(td_infer *infer)
{
    if (infer->n_inputs != PULL_INPUTS * infer->n_outputs)
        return TD_SHAPE_ERROR(infer, "%d inputs do not make %d tables", infer->n_inputs, infer->n_outputs);
    for (int32_t t = 0; t < infer->n_outputs; t++) {
        TD_TRY(require_table(infer, PULL_INPUTS * t, PULL_INPUTS * t + 1));
        const td_type *table = &infer->inputs[PULL_INPUTS * t];
        const int64_t most = td_dim_capacity(infer->graph, infer->inputs[PULL_INPUTS * t + 1].shape.dims[0]);
        const td_dim dims[2] = {td_dim_constant(most), table->shape.dims[1]};
        infer->outputs[t] = (td_type){.kind = TD_DENSE, .dtype = table->dtype, .shape = td_shape_of(2, dims)};
    }
    return NULL;
}

static td_status *pull_gradient(td_differentiate *d)
{
    for (int32_t t = 0; t < d->n_outputs; t++)
        if (d->wanted[PULL_INPUTS * t])
            d->input_gradients[PULL_INPUTS * t] = d->output_gradients[t];
    return NULL;
}

static void pull_cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t t = 0; t < call->n_outputs; t++) {
        out->bytes_read += (double)td_tensor_bytes(&call->inputs[PULL_INPUTS * t + 1]);
        out->bytes_written += (double)td_tensor_bytes(&call->outputs[t]);
    }
}

const td_op td_op_ps_pull = {
    .name = "ps_pull",
    .summary = "rows of tables that other ranks own, by key",
    .inputs = {{"table", 0}, {"keys", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .repeats = PULL_INPUTS,
    .outputs = {{"rows", TD_PORT_VARIADIC}},
    .attrs = pull_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = pull_infer,
    .gradient = pull_gradient,
    .cost = pull_cost,
};

static td_status *push_infer(td_infer *infer)
{
    for (int32_t i = 0; i < infer->n_inputs; i += PUSH_INPUTS) {
        TD_TRY(require_table(infer, i, i + 2));
        TD_TRY(td_infer_require(infer, i + 1, TD_ROW_SPARSE, TD_F32));
        if (infer->inputs[i + 3].kind != TD_SCALAR)
            return TD_SHAPE_ERROR(infer, "coefficients must be a scalar");
    }
    return NULL;
}

static void push_cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t i = 0; i < call->n_inputs; i += PUSH_INPUTS)
        out->bytes_read += (double)td_tensor_bytes(&call->inputs[i + 1]);
}

const td_op td_op_ps_push = {
    .name = "ps_push",
    .summary = "gradients of pulled rows, to their owners, who update",
    .inputs = {{"table", TD_PORT_WRITES},
               {"gradient", TD_PORT_NO_GRADIENT},
               {"keys", TD_PORT_NO_GRADIENT},
               {"coefficients", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .repeats = PUSH_INPUTS,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = push_infer,
    .no_gradient = "it is an update",
    .cost = push_cost,
};

static const td_attr_spec offer_attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "how many tables"}, {0}};

static td_status *offer_infer(td_infer *infer)
{
    if (infer->n_inputs != OFFER_INPUTS * infer->n_outputs)
        return TD_SHAPE_ERROR(infer, "%d inputs do not make %d tables", infer->n_inputs, infer->n_outputs);
    for (int32_t t = 0; t < infer->n_outputs; t++) {
        TD_TRY(require_table(infer, OFFER_INPUTS * t, OFFER_INPUTS * t + 2));
        TD_TRY(td_infer_require(infer, OFFER_INPUTS * t + 1, TD_ROW_SPARSE, TD_F32));
        infer->outputs[t] = (td_type){.kind = TD_DENSE, .dtype = TD_I64, .shape = TD_SHAPE(SUM_WORDS)};
        infer->outputs[t].entries = td_dim_constant(0);
    }
    return NULL;
}

static void offer_cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t i = 0; i < call->n_inputs; i += OFFER_INPUTS)
        out->bytes_read += (double)td_tensor_bytes(&call->inputs[i + 1]);
}

const td_op td_op_ps_offer = {
    .name = "ps_offer",
    .summary = "gradients of pulled rows, to their owners, who sum them and tell the squares",
    .inputs = {{"table", TD_PORT_NO_GRADIENT},
               {"gradient", TD_PORT_NO_GRADIENT},
               {"keys", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .repeats = OFFER_INPUTS,
    .outputs = {{"squares", TD_PORT_VARIADIC}},
    .attrs = offer_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = offer_infer,
    .no_gradient = "it is part of an update",
    .cost = offer_cost,
};

static td_status *apply_infer(td_infer *infer)
{
    if (infer->inputs[0].kind != TD_NONE)
        TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    for (int32_t i = 1; i < infer->n_inputs; i += APPLY_INPUTS)
        if (infer->inputs[i + 1].kind != TD_SCALAR)
            return TD_SHAPE_ERROR(infer, "coefficients must be a scalar");
    return NULL;
}

const td_op td_op_ps_apply = {
    .name = "ps_apply",
    .summary = "the owners' update by the gradients that they were offered, times a factor",
    .inputs = {{"factor", TD_PORT_OPTIONAL | TD_PORT_NO_GRADIENT},
               {"table", TD_PORT_WRITES},
               {"coefficients", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .repeats = APPLY_INPUTS,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = apply_infer,
    .no_gradient = "it is an update",
};
