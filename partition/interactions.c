/* Vectors of an interaction side by side: a part of pass group (see grouping.h).
 *
 * dot_interaction reads, sample by sample, a vector of each of its inputs, and its gradient writes as many: with a table for
 * each of 26 columns those are 26 arrays, at distances that are often powers of two and so fall onto the same few cache sets.
 * Where lookups of the subgraph make most of the vectors, and nothing else reads these, the interaction gets one value:
 *
 *     lookup a, lookup b, x -> dot_interaction       becomes   lookup a, lookup b, x -> concat -> dot_interaction
 *     dot_interaction_gradient -> da, db, dx         becomes   dot_interaction_gradient -> slices da, db, dx
 *
 * The concat is then made by the lookups themselves, and the updates of tables read their columns of the gradient where they
 * lie (group.c). Each number is computed as it was. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "partition/grouping.h"

typedef struct interaction {
    int32_t node, gradient; /* gradient: -1 where there is none */
    int64_t dim;
} interaction;

/* ---- which ---------------------------------------------------------------------------------------------------------------- */

static bool is_op(const grouping *g, int32_t id, const char *op)
{
    return g->keep[id] && strcmp(g->graph->nodes[id].op->name, op) == 0;
}

/* The gradient node of an interaction: of the same vectors, in the same subgraph. False: there is one, but not such a one. */
static bool find_gradient(const grouping *g, interaction *x)
{
    const td_node *node = &g->graph->nodes[x->node];
    x->gradient = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const td_node *other = &g->graph->nodes[i];
        if (!is_op(g, i, "dot_interaction_gradient") || other->forward != x->node)
            continue;
        if (x->gradient >= 0 || other->n_inputs != node->n_inputs + 1 || other->n_outputs != node->n_inputs ||
            memcmp(other->inputs + 1, node->inputs, (size_t)node->n_inputs * sizeof *node->inputs) != 0 ||
            g->plan->nodes[i].cluster != g->plan->nodes[x->node].cluster)
            return false;
        x->gradient = i;
    }
    return true;
}

static bool is_read_by_caller(const grouping *g, int32_t value)
{
    bool read = g->graph->values[value].is_output;
    for (int32_t k = 0; k < g->plan->n_outputs; k++)
        read = read || g->plan->outputs[k] == value;
    return read;
}

/* How often the interaction and its gradient read each vector. */
static int32_t reads(const interaction *x)
{
    return x->gradient >= 0 ? 2 : 1;
}

/* A lookup of the same subgraph makes this vector, and only the interaction and its gradient read it. */
static bool is_own_lookup(const grouping *g, const interaction *x, int32_t value)
{
    int32_t producer = g->graph->values[value].producer;
    return producer >= 0 && g->uses[value] == reads(x) && !is_read_by_caller(g, value) &&
           g->plan->nodes[producer].cluster == g->plan->nodes[x->node].cluster && td_grouping_may_join(g, producer);
}

/* Whether a concat may read this vector before any lookup of the subgraph has run, as it does once they make it. */
static bool may_take_columns(const grouping *g, const interaction *x, int32_t value)
{
    int32_t producer = g->graph->values[value].producer;
    return producer < 0 || g->plan->nodes[producer].cluster != g->plan->nodes[x->node].cluster ||
           !g->after_lookup[producer];
}

static bool pays(const grouping *g, interaction *x)
{
    const td_node *node = &g->graph->nodes[x->node];
    const td_dim dim = g->graph->values[node->inputs[0]].shape.dims[1];
    int32_t lookups = 0;
    if (td_attr_int(node->attrs, node->n_attrs, "dim", 0) || dim.extent >= 0 || dim.constant < 1 ||
        g->plan->nodes[x->node].lane != TD_QUEUE_COMPUTE || !find_gradient(g, x))
        return false;
    x->dim = dim.constant;
    for (int32_t i = 0; i < node->n_inputs; i++) {
        bool own = is_own_lookup(g, x, node->inputs[i]);
        if (!own && !may_take_columns(g, x, node->inputs[i]))
            return false;
        lookups += own;
    }
    return lookups > 1 && 2 * lookups >= node->n_inputs;
}

/* ---- how ------------------------------------------------------------------------------------------------------------------ */

/* A node with these inputs like another, named after it; *out -1: its device cannot run it. */
static td_status *add(grouping *g, const char *op, const char *suffix, int32_t like, const int32_t *inputs,
                      int32_t n_inputs, const td_attr *attrs, int32_t n_attrs, int32_t *out)
{
    char *name = td_format("%s/%s", g->graph->nodes[like].name, suffix);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an interaction");
    td_parts_clear(&g->parts);
    for (int32_t i = 0; i < n_inputs; i++)
        g->parts.inputs[g->parts.n_inputs++] = (td_value){g->graph, inputs[i]};
    td_status *status = td_grouping_add_named(g, op, name, like, attrs, n_attrs, 1, out);
    td_free(name);
    if (!status && *out >= 0)
        g->plan->values[g->graph->nodes[*out].outputs[0]].device = g->plan->nodes[*out].device;
    return status;
}

/* The nodes that read and write all vectors at once; false where a device cannot run one of them. */
static td_status *add_nodes(grouping *g, const interaction *x, int32_t *concat, int32_t *forward, int32_t *backward,
                            bool *out_added)
{
    const td_node *node = &g->graph->nodes[x->node];
    const td_attr axis = TD_INT("axis", 1), attrs[] = {TD_INT("dim", x->dim), TD_INT("outputs", 1)};
    *out_added = false;
    TD_TRY(add(g, "concat", "vectors", x->node, node->inputs, node->n_inputs, &axis, 1, concat));
    if (*concat < 0)
        return NULL;
    const int32_t vectors = g->graph->nodes[*concat].outputs[0];
    TD_TRY(add(g, "dot_interaction", "side_by_side", x->node, &vectors, 1, attrs, 1, forward));
    if (*forward >= 0 && x->gradient >= 0) {
        const int32_t inputs[2] = {g->graph->nodes[x->gradient].inputs[0], vectors};
        TD_TRY(add(g, "dot_interaction_gradient", "side_by_side", x->gradient, inputs, 2, attrs, 2, backward));
    }
    *out_added = *forward >= 0 && (x->gradient < 0 || *backward >= 0);
    const int32_t added[] = {*concat, *forward, *backward};
    for (int32_t i = 0; i < 3 && !*out_added; i++)
        if (added[i] >= 0)
            g->keep[added[i]] = false;
    return NULL;
}

/* The new node goes by the old one's name. */
static void replace(grouping *g, int32_t old, int32_t made)
{
    td_node *a = &g->graph->nodes[old], *b = &g->graph->nodes[made];
    char *name = a->name;
    a->name = b->name;
    b->name = name;
    b->forward = a->forward;
    td_grouping_drop(g, old);
}

/* Each old gradient becomes a slice of the new one. */
static td_status *slice_gradients(grouping *g, const interaction *x, int32_t backward)
{
    const int32_t whole = g->graph->nodes[backward].outputs[0];
    for (int32_t i = 0; i < g->graph->nodes[x->gradient].n_outputs; i++) {
        char suffix[32];
        int32_t old = g->graph->nodes[x->gradient].outputs[i], slice = -1;
        const td_attr attrs[] = {TD_INT("axis", 1), TD_INT("begin", i * x->dim), TD_INT("size", x->dim)};
        (void)snprintf(suffix, sizeof suffix, "vector.%d", (int)i);
        TD_TRY(add(g, "slice", suffix, backward, &whole, 1, attrs, 3, &slice));
        if (slice < 0)
            return TD_ERROR(TD_INTERNAL, "group: a device that runs interactions runs no slice");
        td_grouping_take_over(g, slice, 0, old);
    }
    return NULL;
}

static td_status *replace_gradient(grouping *g, const interaction *x, int32_t backward, int32_t forward)
{
    const int32_t whole = g->graph->nodes[backward].outputs[0];
    replace(g, x->gradient, backward);
    g->graph->nodes[backward].forward = forward;
    g->after_lookup[backward] = g->keep_value[whole] = true;
    return slice_gradients(g, x, backward);
}

static td_status *put_side_by_side(grouping *g, const interaction *x)
{
    int32_t concat = -1, forward = -1, backward = -1;
    bool added = false;
    TD_TRY(add_nodes(g, x, &concat, &forward, &backward, &added));
    if (!added)
        return NULL;
    const td_node *node = &g->graph->nodes[x->node];
    const int32_t vectors = g->graph->nodes[concat].outputs[0], result = node->outputs[0];
    for (int32_t i = 0; i < node->n_inputs; i++)
        g->uses[node->inputs[i]] -= reads(x);
    g->keep_value[vectors] = g->after_lookup[concat] = g->after_lookup[forward] = true;
    replace(g, x->node, forward);
    td_grouping_take_over(g, forward, 0, result);
    return backward < 0 ? NULL : replace_gradient(g, x, backward, forward);
}

td_status *td_group_interactions(grouping *g)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        interaction x = {.node = i};
        if (is_op(g, i, "dot_interaction") && pays(g, &x))
            TD_TRY(put_side_by_side(g, &x));
    }
    g->n_nodes = g->graph->n_nodes;
    return NULL;
}
