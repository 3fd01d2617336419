/* Pass: the graph made smaller without changing a bit of what it computes.
 *
 * An embedding's row-sparse gradient that only its update reads is never made: gradient and update become one
 * "embedding_update", which sums duplicates and updates each touched row in one pass. Relu and its gradient become part of
 * the products before them (fuse_linear.c). Then whatever neither a loss, an
 * output, an update nor a host function needs is dropped. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

/* ---- fusing ------------------------------------------------------------------------------------------------------------------ */

static td_status *count_uses(const td_graph *graph, int32_t **out_uses)
{
    int32_t *uses = NULL;
    TD_TRY(TD_NEW(uses, graph->n_values + 1));
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] >= 0)
                uses[graph->nodes[n].inputs[i]]++;
    *out_uses = uses;
    return NULL;
}

static bool is_lookup_gradient(const td_node *node)
{
    return strcmp(node->op->name, "embedding_gradient") == 0 || strcmp(node->op->name, "embedding_bag_gradient") == 0;
}

/* Adds the fused node in the place of `update` and the gradient op before it. */
static td_status *fuse(td_plan *plan, int32_t update, int32_t gradient)
{
    td_graph *graph = plan->graph;
    const td_node *u = &graph->nodes[update], *g = &graph->nodes[gradient];
    enum { TABLE, OUTPUT_GRADIENT, IDS, WEIGHTS, COEFFICIENTS, SLOTS };
    td_value inputs[SLOTS + TD_MAX_SLOTS];
    int32_t n_slots = u->n_inputs - 3;
    inputs[TABLE] = (td_value){graph, u->inputs[0]};
    inputs[OUTPUT_GRADIENT] = (td_value){graph, g->inputs[1]};
    inputs[IDS] = (td_value){graph, g->inputs[0]};
    inputs[WEIGHTS] = (td_value){graph, g->n_inputs > 2 ? g->inputs[2] : -1};
    inputs[COEFFICIENTS] = (td_value){graph, u->inputs[2]};
    for (int32_t i = 0; i < n_slots; i++)
        inputs[SLOTS + i] = (td_value){graph, u->inputs[3 + i]};
    const td_attr attrs[] = {TD_STRING("rule", u->op->name),
                             TD_STRING("pooling", td_attr_string(g->attrs, g->n_attrs, "pooling", "none")),
                             TD_INT("offset", td_attr_int(g->attrs, g->n_attrs, "offset", 0))};
    char *name = td_format("%s_rows", u->name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a fused update");
    td_graph_add(graph, "embedding_update", name, inputs, SLOTS + n_slots, attrs, 3, NULL, 0);
    td_free(name);
    return graph->failed ? td_graph_check(graph) : NULL;
}

static td_status *fuse_all(td_plan *plan, const td_plan_request *request, bool *replaced, int64_t n_nodes)
{
    int32_t *uses = NULL;
    TD_TRY(count_uses(plan->graph, &uses));
    td_fuse_linear(plan, request, uses, replaced);
    td_status *status = NULL;
    for (int32_t n = 0; n < n_nodes && !status; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (node->phase != TD_UPDATE || node->n_inputs < 3 || node->inputs[1] < 0)
            continue;
        int32_t gradient = plan->graph->values[node->inputs[1]].producer;
        if (gradient < 0 || uses[node->inputs[1]] != 1 || !is_lookup_gradient(&plan->graph->nodes[gradient]))
            continue;
        status = fuse(plan, n, gradient);
        replaced[n] = replaced[gradient] = true;
    }
    td_free(uses);
    return status;
}

/* ---- dropping ------------------------------------------------------------------------------------------------------------------ */

static bool is_root(const td_plan *plan, const td_node *node)
{
    for (int32_t i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] == plan->loss)
            return true;
        for (int32_t k = 0; k < plan->n_outputs; k++)
            if (plan->outputs[k] == node->outputs[i])
                return true;
    }
    return node->phase == TD_UPDATE || (plan->training && node->host_function);
}

static td_status *mark_needed(const td_plan *plan, const bool *replaced, bool *keep, bool *keep_value)
{
    const td_graph *graph = plan->graph;
    int32_t *order = NULL;
    for (int32_t i = 0; i < plan->n_outputs; i++)
        keep_value[plan->outputs[i]] = true;
    for (int64_t v = 0; v < graph->n_values; v++)
        keep_value[v] = keep_value[v] || v == plan->seed || v == plan->random;
    TD_TRY(TD_NEW(order, graph->n_nodes + 1));
    int64_t n_stack = 0;
    for (int32_t n = 0; n < graph->n_nodes; n++)
        if (!replaced[n] && is_root(plan, &graph->nodes[n])) {
            keep[n] = true;
            order[n_stack++] = n;
        }
    while (n_stack) {
        const td_node *node = &graph->nodes[order[--n_stack]];
        for (int32_t i = 0; i < node->n_outputs; i++)
            keep_value[node->outputs[i]] = true;
        for (int32_t i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i] < 0)
                continue;
            keep_value[node->inputs[i]] = true;
            int32_t producer = graph->values[node->inputs[i]].producer;
            if (producer >= 0 && !keep[producer]) {
                keep[producer] = true;
                order[n_stack++] = producer;
            }
        }
    }
    td_free(order);
    return NULL;
}

td_status *td_pass_optimize(td_plan *plan, const td_plan_request *request)
{
    td_graph *graph = plan->graph;
    td_status *status = NULL;
    bool *replaced = NULL, *keep = NULL, *keep_value = NULL;
    int32_t *map = NULL;
    int64_t n_nodes = graph->n_nodes;
    plan->random = td_graph_find(graph, "step.random").id;
    graph->phase = TD_UPDATE;
    TD_TRY_OR(status, done, TD_NEW(replaced, 2 * n_nodes + 1)); /* every node may get one fused successor */
    TD_TRY_OR(status, done, fuse_all(plan, request, replaced, n_nodes));
    TD_TRY_OR(status, done, TD_NEW(keep, graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(keep_value, graph->n_values + 1));
    TD_TRY_OR(status, done, mark_needed(plan, replaced, keep, keep_value));
    TD_TRY_OR(status, done, td_graph_prune(graph, keep, keep_value, &map));
    td_plan_renumber(plan, map);
    td_free(plan->gradients); /* by old numbers; nothing after this pass asks */
    plan->gradients = NULL;
    plan->n_gradients = 0;
done:
    td_free(replaced);
    td_free(keep);
    td_free(keep_value);
    td_free(map);
    return status;
}
