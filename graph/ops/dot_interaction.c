/* dot_interaction: dot products of all pairs of n vectors, sample by sample (DLRM, Naumov et al. 2019), and its gradient.
 *
 * Output column of the pair (i, j), j < i, is i (i - 1) / 2 + j. Each product runs over the elements in ascending order,
 * one fma each, from zero: an order that vectorises over pairs. Gradient of vector i: over j != i ascending, one fma of the
 * pair's gradient and vector j each, from zero: vectorises over elements. */
#include <math.h>

#include "base/memory.h"
#include "graph/op.h"

static int64_t pairs_of(int64_t n)
{
    return n * (n - 1) / 2;
}

static int64_t column_of(int64_t i, int64_t j)
{
    return i > j ? pairs_of(i) + j : pairs_of(j) + i;
}

/* Inputs [first, n_inputs) are f32 [batch, dim], all alike, at least one. */
static td_status *require_vectors(const td_infer *infer, int32_t first)
{
    if (infer->n_inputs <= first)
        return TD_SHAPE_ERROR(infer, "there are no vectors");
    for (int32_t i = first; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_F32));
        const td_shape *shape = &infer->inputs[i].shape;
        char have[128], want[128];
        if (shape->rank != 2)
            return TD_SHAPE_ERROR(infer, "vector %d is %s, it must be [batch, dim]", i - first,
                                  td_shape_text(infer->graph, shape, have, sizeof have));
        if (!td_shape_equal(shape, &infer->inputs[first].shape))
            return TD_SHAPE_ERROR(infer, "vector %d is %s, vector 0 is %s; all must be alike", i - first,
                                  td_shape_text(infer->graph, shape, have, sizeof have),
                                  td_shape_text(infer->graph, &infer->inputs[first].shape, want, sizeof want));
    }
    return NULL;
}

static td_status *interaction_infer(td_infer *infer)
{
    TD_TRY(require_vectors(infer, 0));
    const td_dim dims[2] = {infer->inputs[0].shape.dims[0], td_dim_constant(pairs_of(infer->n_inputs))};
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(2, dims)};
    return NULL;
}

static void interaction_cost(const td_kernel_call *call, td_cost *out)
{
    const double written = (double)td_tensor_bytes(&call->outputs[0]);
    *out = (td_cost){2 * written / 4 * (double)call->inputs[0].dims[1],
                     call->n_inputs * (double)td_tensor_bytes(&call->inputs[0]), written};
}

static td_status *interaction_reference(const td_kernel_call *call)
{
    const int64_t batch = call->inputs[0].dims[0], dim = call->inputs[0].dims[1], pairs = pairs_of(call->n_inputs);
    for (int64_t sample = 0; sample < batch; sample++) {
        float *out = (float *)call->outputs[0].data + sample * pairs;
        for (int32_t i = 1; i < call->n_inputs; i++) {
            const float *a = (const float *)call->inputs[i].data + sample * dim;
            for (int32_t j = 0; j < i; j++) {
                const float *b = (const float *)call->inputs[j].data + sample * dim;
                float dot = 0;
                for (int64_t k = 0; k < dim; k++)
                    dot = fmaf(a[k], b[k], dot);
                out[column_of(i, j)] = dot;
            }
        }
    }
    return NULL;
}

static td_status *interaction_gradient(td_differentiate *d)
{
    td_value *inputs = NULL;
    TD_TRY(TD_NEW(inputs, d->n_inputs + 1));
    inputs[0] = d->output_gradients[0];
    for (int32_t i = 0; i < d->n_inputs; i++)
        inputs[i + 1] = d->inputs[i];
    const td_attr attrs[1] = {TD_INT("outputs", d->n_inputs)};
    td_graph_add(d->graph, "dot_interaction_gradient", NULL, inputs, d->n_inputs + 1, attrs, 1, d->input_gradients,
                 d->n_inputs);
    td_free(inputs);
    return NULL;
}

const td_op td_op_dot_interaction = {
    .name = "dot_interaction",
    .summary = "dot products of all pairs of n vectors, below the diagonal: -> [batch, n (n - 1) / 2]",
    .inputs = {{"vectors", TD_PORT_VARIADIC}},
    .outputs = {{"output", 0}},
    .infer = interaction_infer,
    .gradient = interaction_gradient,
    .cost = interaction_cost,
    .reference = interaction_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

static const td_attr_spec gradient_attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "number of vectors"}, {0}};

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    TD_TRY(require_vectors(infer, 1));
    const int32_t n = infer->n_inputs - 1;
    const td_dim dims[2] = {infer->inputs[1].shape.dims[0], td_dim_constant(pairs_of(n))};
    const td_shape expected = td_shape_of(2, dims);
    char have[128], want[128];
    if (!td_shape_equal(&infer->inputs[0].shape, &expected))
        return TD_SHAPE_ERROR(infer, "the gradient is %s, it must be %s",
                              td_shape_text(infer->graph, &infer->inputs[0].shape, have, sizeof have),
                              td_shape_text(infer->graph, &expected, want, sizeof want));
    if (infer->n_outputs != n)
        return TD_SHAPE_ERROR(infer, "outputs is %d, it must be the number of vectors, %d", infer->n_outputs, n);
    for (int32_t i = 0; i < n; i++)
        infer->outputs[i] = infer->inputs[i + 1];
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const double pairs = (double)td_tensor_bytes(&call->inputs[0]), vectors = (double)td_tensor_bytes(&call->inputs[1]);
    *out = (td_cost){4 * pairs / 4 * (double)call->inputs[1].dims[1], pairs + call->n_outputs * vectors,
                     call->n_outputs * vectors};
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const td_tensor *vectors = call->inputs + 1;
    const int32_t n = call->n_outputs;
    const int64_t batch = vectors[0].dims[0], dim = vectors[0].dims[1], pairs = pairs_of(n);
    for (int64_t sample = 0; sample < batch; sample++) {
        const float *gradient = (const float *)call->inputs[0].data + sample * pairs;
        for (int32_t i = 0; i < n; i++) {
            float *out = (float *)call->outputs[i].data + sample * dim;
            for (int64_t k = 0; k < dim; k++)
                out[k] = 0;
            for (int32_t j = 0; j < n; j++) {
                const float *b = (const float *)vectors[j].data + sample * dim;
                for (int64_t k = 0; i != j && k < dim; k++)
                    out[k] = fmaf(gradient[column_of(i, j)], b[k], out[k]);
            }
        }
    }
    return NULL;
}

const td_op td_op_dot_interaction_gradient = {
    .name = "dot_interaction_gradient",
    .summary = "gradients of dot_interaction's vectors",
    .inputs = {{"gradient", 0}, {"vectors", TD_PORT_VARIADIC}},
    .outputs = {{"vector_gradients", TD_PORT_VARIADIC}},
    .attrs = gradient_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = gradient_cost,
    .reference = gradient_reference,
};

td_value td_dot_interaction(int32_t n, const td_value *vectors)
{
    return td_graph_add1(n > 0 ? vectors[0].graph : NULL, "dot_interaction", NULL, vectors, n, NULL, 0);
}
