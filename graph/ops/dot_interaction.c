/* dot_interaction: dot products of all pairs of n vectors, sample by sample (DLRM, Naumov et al. 2019), and its gradient.
 *
 * Output column of the pair (i, j), j < i, is i (i - 1) / 2 + j. Each product runs over the elements in ascending order,
 * one fma each, from zero: an order that vectorises over pairs. Gradient of vector i: over j != i ascending, one fma of the
 * pair's gradient and vector j each, from zero: vectorises over elements.
 *
 * An input is one vector [batch, dim]; or, where the attribute "dim" says how long a vector is, any number of them side by
 * side, [batch, m dim], as lookups and concat leave them. Vectors are counted through all inputs. */
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

/* ---- vectors within inputs --------------------------------------------------------------------------------------------- */

/* Inputs [first, n_inputs) are f32 [batch, a multiple of dim] (all alike without the attribute), at least one. */
static td_status *require_vectors(const td_infer *infer, int32_t first, int64_t *out_vectors)
{
    const int64_t dim = td_attr_int(infer->attrs, infer->n_attrs, "dim", 0);
    *out_vectors = 0;
    if (infer->n_inputs <= first)
        return TD_SHAPE_ERROR(infer, "there are no vectors");
    for (int32_t i = first; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_F32));
        const td_shape *shape = &infer->inputs[i].shape, *one = &infer->inputs[first].shape;
        char have[128], want[128];
        (void)td_shape_text(infer->graph, shape, have, sizeof have);
        if (shape->rank != 2)
            return TD_SHAPE_ERROR(infer, "vector %d is %s, it must be [batch, dim]", i - first, have);
        if (!(dim ? td_dim_equal(shape->dims[0], one->dims[0]) : td_shape_equal(shape, one)))
            return TD_SHAPE_ERROR(infer, "vector %d is %s, vector 0 is %s; all must be alike", i - first, have,
                                  td_shape_text(infer->graph, one, want, sizeof want));
        if (dim < 0 || (dim && (shape->dims[1].extent >= 0 || shape->dims[1].constant % dim)))
            return TD_SHAPE_ERROR(infer, "input %d is %s, it must be [batch, a multiple of dim = %lld]", i - first,
                                  have, (long long)dim);
        *out_vectors += dim ? shape->dims[1].constant / dim : 1;
    }
    return NULL;
}

/* Walks through the vectors of tensors at one sample: the next one's elements. */
typedef struct vector_walk {
    const td_tensor *tensors;
    int64_t sample, dim, input, column;
} vector_walk;

static vector_walk walk_vectors(const td_kernel_call *call, const td_tensor *tensors, int64_t sample)
{
    const int64_t dim = td_attr_int(call->attrs, call->n_attrs, "dim", 0);
    return (vector_walk){tensors, sample, dim ? dim : tensors[0].dims[1], 0, 0};
}

static float *next_vector(vector_walk *walk)
{
    while (walk->dim && walk->column + walk->dim > walk->tensors[walk->input].dims[1]) {
        walk->input++;
        walk->column = 0;
    }
    const td_tensor *t = &walk->tensors[walk->input];
    float *vector = (float *)t->data + walk->sample * t->dims[1] + walk->column;
    walk->column += walk->dim;
    return vector;
}

/* ---- forward ----------------------------------------------------------------------------------------------------------- */

static const td_attr_spec attrs[] = {
    {.name = "dim",
     .type = TD_ATTR_INT,
     .help = "elements of a vector, where inputs hold several side by side; default: each input is one vector"},
    {0}};

static td_status *interaction_infer(td_infer *infer)
{
    int64_t n = 0;
    TD_TRY(require_vectors(infer, 0, &n));
    const td_dim dims[2] = {infer->inputs[0].shape.dims[0], td_dim_constant(pairs_of(n))};
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(2, dims)};
    return NULL;
}

/* How many vectors `tensors` hold. */
static int64_t count_vectors(const td_kernel_call *call, const td_tensor *tensors, int32_t n)
{
    const int64_t dim = td_attr_int(call->attrs, call->n_attrs, "dim", 0);
    int64_t vectors = 0;
    for (int32_t i = 0; i < n; i++)
        vectors += dim ? tensors[i].dims[1] / dim : 1;
    return vectors;
}

static int64_t bytes_of(const td_tensor *tensors, int32_t n)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < n; i++)
        bytes += td_tensor_bytes(&tensors[i]);
    return bytes;
}

static void interaction_cost(const td_kernel_call *call, td_cost *out)
{
    const double written = (double)td_tensor_bytes(&call->outputs[0]);
    *out = (td_cost){2 * written / 4 * (double)walk_vectors(call, call->inputs, 0).dim,
                     (double)bytes_of(call->inputs, call->n_inputs), written};
}

static float dot(const float *a, const float *b, int64_t dim)
{
    float sum = 0;
    for (int64_t k = 0; k < dim; k++)
        sum = fmaf(a[k], b[k], sum);
    return sum;
}

static td_status *interaction_reference(const td_kernel_call *call)
{
    const int64_t n = count_vectors(call, call->inputs, call->n_inputs), pairs = pairs_of(n);
    for (int64_t sample = 0; sample < call->outputs[0].dims[0]; sample++) {
        float *out = (float *)call->outputs[0].data + sample * pairs;
        vector_walk walk = walk_vectors(call, call->inputs, sample);
        for (int64_t i = 0; i < n; i++) {
            const float *a = next_vector(&walk);
            vector_walk before = walk_vectors(call, call->inputs, sample);
            for (int64_t j = 0; j < i; j++)
                out[column_of(i, j)] = dot(a, next_vector(&before), before.dim);
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
    const int64_t dim = td_attr_int(d->attrs, d->n_attrs, "dim", 0);
    const td_attr attrs_of_gradient[2] = {TD_INT("outputs", d->n_inputs), TD_INT("dim", dim)};
    td_graph_add(d->graph, "dot_interaction_gradient", NULL, inputs, d->n_inputs + 1, attrs_of_gradient, dim ? 2 : 1,
                 d->input_gradients, d->n_inputs);
    td_free(inputs);
    return NULL;
}

const td_op td_op_dot_interaction = {
    .name = "dot_interaction",
    .summary = "dot products of all pairs of n vectors, below the diagonal: -> [batch, n (n - 1) / 2]",
    .inputs = {{"vectors", TD_PORT_VARIADIC}},
    .outputs = {{"output", 0}},
    .attrs = attrs,
    .infer = interaction_infer,
    .gradient = interaction_gradient,
    .cost = interaction_cost,
    .reference = interaction_reference,
};

/* ---- gradient ---------------------------------------------------------------------------------------------------------- */

static const td_attr_spec gradient_attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "number of inputs with vectors"},
    {.name = "dim", .type = TD_ATTR_INT, .help = "as of dot_interaction"},
    {0}};

static td_status *gradient_infer(td_infer *infer)
{
    int64_t vectors = 0;
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    TD_TRY(require_vectors(infer, 1, &vectors));
    const int32_t n = infer->n_inputs - 1;
    const td_dim dims[2] = {infer->inputs[1].shape.dims[0], td_dim_constant(pairs_of(vectors))};
    const td_shape expected = td_shape_of(2, dims);
    char have[128], want[128];
    if (!td_shape_equal(&infer->inputs[0].shape, &expected))
        return TD_SHAPE_ERROR(infer, "the gradient is %s, it must be %s",
                              td_shape_text(infer->graph, &infer->inputs[0].shape, have, sizeof have),
                              td_shape_text(infer->graph, &expected, want, sizeof want));
    if (infer->n_outputs != n)
        return TD_SHAPE_ERROR(infer, "outputs is %d, it must be the number of inputs with vectors, %d",
                              infer->n_outputs, n);
    for (int32_t i = 0; i < n; i++)
        infer->outputs[i] = infer->inputs[i + 1];
    return NULL;
}

static void gradient_cost(const td_kernel_call *call, td_cost *out)
{
    const double pairs = (double)td_tensor_bytes(&call->inputs[0]);
    const double vectors = (double)bytes_of(call->outputs, call->n_outputs);
    *out = (td_cost){4 * pairs / 4 * (double)walk_vectors(call, call->outputs, 0).dim, pairs + vectors, vectors};
}

/* Of vector i at one sample, whose pairs' gradients are given. */
static void gradient_of_vector(const td_kernel_call *call, int64_t sample, int64_t n, int64_t i, const float *pairs,
                               float *out)
{
    vector_walk walk = walk_vectors(call, call->inputs + 1, sample);
    for (int64_t k = 0; k < walk.dim; k++)
        out[k] = 0;
    for (int64_t j = 0; j < n; j++) {
        const float *vector = next_vector(&walk);
        for (int64_t k = 0; i != j && k < walk.dim; k++)
            out[k] = fmaf(pairs[column_of(i, j)], vector[k], out[k]);
    }
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const int64_t n = count_vectors(call, call->outputs, call->n_outputs);
    for (int64_t sample = 0; sample < call->inputs[1].dims[0]; sample++) {
        const float *pairs = (const float *)call->inputs[0].data + sample * pairs_of(n);
        vector_walk walk = walk_vectors(call, call->outputs, sample);
        for (int64_t i = 0; i < n; i++)
            gradient_of_vector(call, sample, n, i, pairs, next_vector(&walk));
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
