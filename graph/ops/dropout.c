/* dropout: keeps each element with probability 1 - rate and scales it by 1 / (1 - rate); the identity in evaluation.
 *
 * Nothing random is stored. Whether an element is kept is a function (Philox) of the seed, this node's name, the update, the
 * sample's index in the update's window and the element's place in the sample, so neither devices, threads nor the cutting of
 * a window into micro-batches matter, and the gradient makes the same mask again. These come in the scalar `random`, i64[3]:
 * {seed, update, index of the batch's first sample}; an update below 0, or no scalar, means evaluation. The graph's scalar of
 * this kind is called "step.random". */

#include "base/philox.h"
#include "graph/ops/in_f32.h"
#include "graph/ops/rules.h"

enum { SEED, UPDATE, FIRST_SAMPLE, N_RANDOM };

#define DROPOUT_ATTRS                                                                                                  \
    {.name = "rate", .type = TD_ATTR_FLOAT, .required = true, .help = "probability that an element becomes 0"},        \
    {                                                                                                                  \
        .name = "rows_per_sample", .type = TD_ATTR_INT, .i = 1,                                                        \
        .help = "how many steps of the first axis are one sample"                                                      \
    }

static const td_attr_spec dropout_attrs[] = {
    DROPOUT_ATTRS,
    {.name = "forward",
     .type = TD_ATTR_STRING,
     .help = "name that the mask follows from, where it is not the node's own"},
    {0}};
static const td_attr_spec gradient_attrs[] = {
    DROPOUT_ATTRS,
    {.name = "forward", .type = TD_ATTR_STRING, .required = true, .help = "name of the dropout node"},
    {0}};

static td_status *dropout_infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    const double rate = td_attr_float(infer->attrs, infer->n_attrs, "rate", 0);
    if (!(rate >= 0 && rate < 1))
        return TD_SHAPE_ERROR(infer, "rate %g must be at least 0 and below 1", rate);
    if (td_attr_int(infer->attrs, infer->n_attrs, "rows_per_sample", 1) < 1)
        return TD_SHAPE_ERROR(infer, "rows_per_sample must be at least 1");
    if (infer->n_inputs > 1 && infer->inputs[1].kind != TD_NONE) {
        TD_TRY(td_infer_require(infer, 1, TD_SCALAR, TD_I64));
        if (infer->inputs[1].shape.rank != 1 || !td_dim_is(infer->inputs[1].shape.dims[0], N_RANDOM))
            return TD_SHAPE_ERROR(infer, "random must be three numbers: seed, update, first sample");
    }
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static void dropout_cost(const td_kernel_call *call, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->inputs[0]);
    *out = (td_cost){30 * (double)td_tensor_elements(&call->inputs[0]), bytes, bytes};
}

/* Element i of a tensor belongs to sample i / per_sample of the batch; four elements of a sample share a block of bits. */
static td_status *dropout_reference_f32(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0];
    const int64_t *random = call->n_inputs > 1 && call->inputs[1].kind != TD_NONE ? call->inputs[1].data : NULL;
    const bool training = random && random[UPDATE] >= 0;
    const double rate = td_attr_float(call->attrs, call->n_attrs, "rate", 0);
    const float scale = (float)(1 / (1 - rate));
    const char *name = td_attr_string(call->attrs, call->n_attrs, "forward", call->name);
    const td_philox_key key = td_philox_key_of(training ? (uint64_t)random[SEED] : 0, "dropout", name);
    const int64_t n = td_tensor_elements(x), rows = x->rank ? x->dims[0] : 1;
    const int64_t per_sample = rows ? n / rows * td_attr_int(call->attrs, call->n_attrs, "rows_per_sample", 1) : 1;
    for (int64_t i = 0; i < n; i++) {
        const float in = ((const float *)x->data)[i];
        float *out = (float *)call->outputs[0].data + i;
        *out = in;
        if (!training)
            continue;
        const int64_t sample = random[FIRST_SAMPLE] + i / per_sample, element = i % per_sample;
        uint32_t bits[4];
        td_philox_block(key, (uint64_t)(sample * ((per_sample + 3) / 4) + element / 4), (uint64_t)random[UPDATE], bits);
        *out = td_philox_uniform(bits[element % 4]) < (float)rate ? 0 : in * scale;
    }
    return NULL;
}

static td_status *dropout_reference(const td_kernel_call *call)
{
    return td_reference_in_f32(call, dropout_reference_f32);
}

static td_status *dropout_gradient(td_differentiate *d)
{
    const td_value inputs[2] = {d->output_gradients[0], d->n_inputs > 1 ? d->inputs[1] : TD_NO_VALUE};
    const td_attr attrs[3] = {TD_FLOAT("rate", td_attr_float(d->attrs, d->n_attrs, "rate", 0)),
                              TD_INT("rows_per_sample", td_attr_int(d->attrs, d->n_attrs, "rows_per_sample", 1)),
                              TD_STRING("forward", td_attr_string(d->attrs, d->n_attrs, "forward", d->name))};
    d->input_gradients[0] = td_graph_add1(d->graph, "dropout_gradient", NULL, inputs, 2, attrs, 3);
    return NULL;
}

const td_op td_op_dropout = {
    .name = "dropout",
    .summary = "zeroes elements with probability rate and scales the others by 1 / (1 - rate); off in evaluation",
    .inputs = {{"x", 0}, {"random", TD_PORT_OPTIONAL | TD_PORT_NO_GRADIENT}},
    .outputs = {{"output", 0}},
    .attrs = dropout_attrs,
    .flags = TD_OP_NAMED,
    .infer = dropout_infer,
    .gradient = dropout_gradient,
    .cost = dropout_cost,
    .in_place = {{1, 1}},
    .reference = dropout_reference,
};

const td_op td_op_dropout_gradient = {
    .name = "dropout_gradient",
    .summary = "gradient of dropout's input: the same mask again",
    .inputs = {{"gradient", 0}, {"random", TD_PORT_OPTIONAL | TD_PORT_NO_GRADIENT}},
    .outputs = {{"x_gradient", 0}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = dropout_infer,
    .no_gradient = "it is a gradient",
    .cost = dropout_cost,
    .in_place = {{1, 1}},
    .reference = dropout_reference,
};

/* ---- builder -------------------------------------------------------------------------------------------------------------- */

td_value td_dropout(td_value x, double rate)
{
    if (!x.graph || td_graph_failed(x.graph))
        return TD_NO_VALUE;
    const td_value inputs[2] = {x, td_step_random(x.graph)};
    const td_shape shape = td_value_shape(x);
    const bool several = shape.rank && shape.dims[0].extent >= 0 && shape.dims[0].constant == 0;
    const td_attr attrs[2] = {TD_FLOAT("rate", rate), TD_INT("rows_per_sample", several ? shape.dims[0].multiple : 1)};
    return td_graph_add1(x.graph, "dropout", NULL, inputs, 2, attrs, 2);
}
