/* From a recipe to a graph, its steps in any valid order: see random_graph.h. */
#include "tests/support/random_graph.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "graph/op.h"

typedef struct builder {
    const random_recipe *recipe;
    td_graph *graph;
    random_build how;
    td_value values[RANDOM_VALUES];
} builder;

static td_value in(const builder *b, const random_step *step, int32_t index)
{
    return index < step->n_inputs ? b->values[step->inputs[index]] : TD_NO_VALUE;
}

static td_dim dim_of(const builder *b, random_dim dim)
{
    if (!dim.batch)
        return td_dim_constant(dim.n);
    td_dim batch = td_extent(b->graph, "B", b->recipe->batch);
    batch.multiple = dim.n;
    return batch;
}

static td_shape shape_of(const builder *b, int32_t rank, const random_dim *dims)
{
    td_dim all[RANDOM_RANK];
    for (int32_t i = 0; i < rank; i++)
        all[i] = dim_of(b, dims[i]);
    return td_shape_of(rank, all);
}

/* ---- sources -------------------------------------------------------------------------------------------------------------- */

static td_value build_bags(const builder *b, const random_step *step)
{
    char extent[RANDOM_NAME + 8];
    (void)snprintf(extent, sizeof extent, "N.%s", step->name);
    td_dim ids = td_extent(b->graph, extent, b->recipe->batch * 3);
    return td_input_ragged(b->graph, step->name, step->flag ? TD_I32 : TD_I64,
                           td_extent(b->graph, "B", b->recipe->batch), ids);
}

static td_value build_weights(const builder *b, const random_step *step)
{
    char extent[RANDOM_NAME + 8];
    const random_step *ids = &b->recipe->steps[b->recipe->values[step->inputs[0]].step];
    (void)snprintf(extent, sizeof extent, "N.%s", ids->name);
    return td_input(b->graph, step->name, TD_F32, TD_SHAPE(td_extent(b->graph, extent, b->recipe->batch * 3)));
}

static td_value build_source(const builder *b, const random_step *step)
{
    td_shape shape = shape_of(b, step->rank, step->shape);
    switch (step->kind) {
    case RANDOM_IDS:
        return td_input(b->graph, step->name, step->flag ? TD_I32 : TD_I64, shape);
    case RANDOM_BAGS:
        return build_bags(b, step);
    case RANDOM_WEIGHTS:
        return build_weights(b, step);
    case RANDOM_LABEL:
        return td_input(b->graph, step->name, step->flag ? TD_I64 : TD_F32, shape);
    case RANDOM_SCALAR:
        return td_scalar(b->graph, step->name, TD_F32, 1, &step->factor);
    case RANDOM_PARAMETER:
        return td_parameter(b->graph, step->name, TD_F32, shape, td_init_uniform(0.5));
    default:
        return td_input(b->graph, step->name, TD_F32, shape);
    }
}

/* ---- ops -------------------------------------------------------------------------------------------------------------------- */

static td_status *witness(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    random_witness *seen = context;
    for (int32_t i = 0; i < n_inputs; i++)
        seen->hash = td_hash_bytes(inputs[i].data, (size_t)td_tensor_bytes(&inputs[i]), seen->hash);
    *(float *)output->data = 1;
    seen->calls++;
    return NULL;
}

static td_value build_host_call(const builder *b, const random_step *step)
{
    td_value inputs[RANDOM_INPUTS];
    for (int32_t i = 0; i < step->n_inputs; i++)
        inputs[i] = in(b, step, i);
    return td_host_call(b->graph, witness, &b->how.witnesses[step - b->recipe->steps], step->n_inputs, inputs, TD_F32,
                        TD_SHAPE(1), step->name);
}

static td_value build_lookup(const builder *b, const random_step *step)
{
    td_embedding_options options = {
        .pooling = step->flag ? TD_MEAN : TD_SUM, .offset = step->a, .weights = in(b, step, 2)};
    if (step->kind == RANDOM_GATHER)
        return td_gather(in(b, step, 0), in(b, step, 1));
    return step->kind == RANDOM_EMBEDDING ? td_embedding(in(b, step, 0), in(b, step, 1), options)
                                          : td_embedding_bag_with(in(b, step, 0), in(b, step, 1), options);
}

static td_value build_many(const builder *b, const random_step *step)
{
    td_value inputs[RANDOM_INPUTS];
    for (int32_t i = 0; i < step->n_inputs; i++)
        inputs[i] = in(b, step, i);
    return step->kind == RANDOM_CONCAT ? td_concat(step->n_inputs, inputs, (int32_t)step->a)
                                       : td_dot_interaction(step->n_inputs, inputs);
}

static td_value build_transpose(const builder *b, const random_step *step)
{
    const int32_t permutation[RANDOM_RANK] = {0, 2, 1, 3};
    return td_transpose(in(b, step, 0), b->recipe->values[step->inputs[0]].rank, permutation);
}

static td_value build_elementwise(const builder *b, const random_step *step)
{
    td_value x = in(b, step, 0), y = in(b, step, 1);
    switch (step->kind) {
    case RANDOM_ADD:
        return td_add(x, y);
    case RANDOM_SUB:
        return td_sub(x, y);
    case RANDOM_MUL:
        return td_mul(x, y);
    case RANDOM_DIV:
        return td_div(x, y);
    case RANDOM_SCALE:
        return td_scale(x, step->factor);
    case RANDOM_SCALE_BY:
        return td_scale_by(x, y);
    case RANDOM_RELU:
        return td_relu(x);
    case RANDOM_GELU:
        return td_gelu(x, step->flag);
    case RANDOM_SIGMOID:
        return td_sigmoid(x);
    case RANDOM_TANH:
        return td_tanh(x);
    case RANDOM_SOFTMAX:
        return td_softmax(x);
    case RANDOM_DROPOUT:
        return td_dropout(x, step->factor);
    default:
        return td_copy(x);
    }
}

static td_value build_other(const builder *b, const random_step *step)
{
    td_value x = in(b, step, 0), y = in(b, step, 1);
    switch (step->kind) {
    case RANDOM_MATMUL:
        return td_matmul(x, y, step->flag, step->other);
    case RANDOM_SLICE:
        return td_slice(x, (int32_t)step->a, step->b, step->limit);
    case RANDOM_RESHAPE:
        return td_reshape(x, shape_of(b, step->rank, step->shape));
    case RANDOM_TRANSPOSE:
        return build_transpose(b, step);
    case RANDOM_REDUCE_SUM:
        return td_reduce_sum(x, (int32_t)step->a, step->flag);
    case RANDOM_REDUCE_MEAN:
        return td_reduce_mean(x, (int32_t)step->a, step->flag);
    case RANDOM_CONCAT:
    case RANDOM_DOT_INTERACTION:
        return build_many(b, step);
    case RANDOM_GATHER:
    case RANDOM_EMBEDDING:
    case RANDOM_EMBEDDING_BAG:
        return build_lookup(b, step);
    case RANDOM_BCE:
        return td_bce_with_logits(x, y);
    case RANDOM_MSE:
        return td_mse(x, y);
    case RANDOM_CROSS_ENTROPY:
        return td_softmax_cross_entropy(x, y);
    default:
        return build_elementwise(b, step);
    }
}

/* Ops that are named, and name their parameters, as they are made. */
static td_value build_layer(const builder *b, const random_step *step)
{
    td_value x = in(b, step, 0);
    switch (step->kind) {
    case RANDOM_LINEAR:
        return td_linear(x,
                         b->recipe->values[step->first_output].dims[b->recipe->values[step->first_output].rank - 1].n,
                         step->name);
    case RANDOM_LINEAR_WITH:
        return td_linear_with(x, in(b, step, 1), in(b, step, 2), step->name);
    case RANDOM_LAYER_NORM:
        return td_layer_norm(x, 1e-5, step->name);
    case RANDOM_CROSS_LAYER:
        return td_cross_layer(x, in(b, step, 1), step->name);
    default:
        return build_host_call(b, step);
    }
}

static bool is_layer(random_kind kind)
{
    return kind == RANDOM_LINEAR || kind == RANDOM_LINEAR_WITH || kind == RANDOM_LAYER_NORM ||
           kind == RANDOM_CROSS_LAYER || kind == RANDOM_HOST_CALL;
}

static void freeze(const builder *b, const random_step *step)
{
    static const char *const suffixes[] = {"", ".weight", ".bias"};
    if (step->reaches_loss && !step->frozen)
        return;
    bool layer = step->kind == RANDOM_LINEAR || step->kind == RANDOM_LAYER_NORM || step->kind == RANDOM_CROSS_LAYER;
    for (size_t i = layer; i < (layer ? 3u : 1u) && (layer || step->kind == RANDOM_PARAMETER); i++) {
        char name[RANDOM_NAME + 8];
        (void)snprintf(name, sizeof name, "%s%s", step->name, suffixes[i]);
        (void)td_freeze(td_graph_find(b->graph, name));
    }
}

/* "d3" is the fourth device. */
static bool has_target(const builder *b, const random_step *step)
{
    int32_t number = step->target[1] >= '1' && step->target[1] <= '9' ? step->target[1] - '0' : 0;
    return step->target[0] && number < b->how.devices;
}

static void build_step(builder *b, const random_step *step)
{
    td_value *out = &b->values[step->first_output];
    if (step->kind < RANDOM_LINEAR) {
        out[0] = build_source(b, step);
    } else if (step->kind == RANDOM_SPLIT) {
        td_split(in(b, step, 0), (int32_t)step->a, step->n_outputs, out);
        (void)td_name(out[0], step->name);
    } else if (is_layer(step->kind)) {
        out[0] = build_layer(b, step);
    } else {
        out[0] = td_name(build_other(b, step), step->name);
    }
    freeze(b, step);
    if (has_target(b, step))
        (void)td_target(out[0], step->target);
    for (int32_t i = 0; i < step->n_outputs; i++)
        if (b->recipe->values[step->first_output + i].output)
            td_output(out[i]);
}

/* ---- order -------------------------------------------------------------------------------------------------------------------- */

static bool is_ready(const random_recipe *recipe, const bool *done, int32_t s)
{
    bool ready = !done[s];
    for (int32_t i = 0; i < recipe->steps[s].n_inputs; i++)
        ready = ready && done[recipe->values[recipe->steps[s].inputs[i]].step];
    return ready;
}

/* The first ready step at or after `from`, around the end. */
static int32_t next_step(const random_recipe *recipe, const bool *done, int32_t from)
{
    int32_t s = from;
    while (!is_ready(recipe, done, s))
        s = (s + 1) % recipe->n_steps;
    return s;
}

td_graph *random_graph_build(const random_recipe *recipe, random_build how, td_value *out_loss)
{
    builder b = {.recipe = recipe, .how = how};
    bool done[RANDOM_STEPS] = {false};
    random_numbers r = {how.order};
    td_status *status = td_graph_create(&b.graph);
    *out_loss = TD_NO_VALUE;
    td_status_destroy(status);
    for (int32_t i = 0; !status && i < recipe->n_steps; i++) {
        int32_t from = how.order ? (int32_t)random_below(&r, recipe->n_steps) : 0;
        int32_t s = next_step(recipe, done, from);
        build_step(&b, &recipe->steps[s]);
        done[s] = true;
    }
    *out_loss = b.graph ? b.values[recipe->loss] : TD_NO_VALUE;
    return b.graph;
}
