/* What a plan needs, and what the optimizer's rules made of the rest: dropping nodes, and the record of those that went. */
#include <string.h>

#include "base/memory.h"
#include "partition/rewrite.h"

/* ---- dropping ------------------------------------------------------------------------------------------------------------ */

typedef struct marks {
    bool *keep, *keep_value;
    int32_t *stack;
    int64_t n_stack;
} marks;

static void keep_node(marks *m, int32_t node)
{
    if (node < 0 || m->keep[node])
        return;
    m->keep[node] = true;
    m->stack[m->n_stack++] = node;
}

static void mark_roots(const td_plan *plan, const bool *gone, marks *m)
{
    const td_graph *graph = plan->graph;
    for (int32_t i = -1; i < plan->n_outputs; i++) {
        int32_t value = i < 0 ? plan->loss : plan->outputs[i];
        if (value < 0)
            continue;
        m->keep_value[value] = true;
        keep_node(m, graph->values[value].producer);
    }
    const int32_t scalars[] = {plan->seed, plan->random, plan->micro, plan->divisor};
    for (size_t k = 0; k < sizeof scalars / sizeof *scalars; k++)
        if (scalars[k] >= 0)
            m->keep_value[scalars[k]] = true;
    for (int32_t n = 0; n < graph->n_nodes; n++)
        if (!gone[n] && (graph->nodes[n].phase == TD_UPDATE || (plan->training && graph->nodes[n].host_function)))
            keep_node(m, n);
}

static void mark_needed(const td_plan *plan, const bool *gone, marks *m)
{
    const td_graph *graph = plan->graph;
    mark_roots(plan, gone, m);
    while (m->n_stack) {
        const td_node *node = &graph->nodes[m->stack[--m->n_stack]];
        for (int32_t i = 0; i < node->n_outputs; i++)
            m->keep_value[node->outputs[i]] = true;
        for (int32_t i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i] < 0)
                continue;
            m->keep_value[node->inputs[i]] = true;
            keep_node(m, graph->values[node->inputs[i]].producer);
        }
    }
}

/* Placement, where there is one already, follows the new numbers. `n_nodes`, `n_values`: what the maps hold. */
static void move_places(td_plan *plan, const int32_t *map, int64_t n_values, const int32_t *node_map, int64_t n_nodes)
{
    for (int64_t n = 0; n < plan->nodes_capacity && n < n_nodes; n++) {
        td_plan_node node = plan->nodes[n];
        plan->nodes[n] = (td_plan_node){.device = -1, .cluster = -1};
        if (node_map[n] >= 0)
            plan->nodes[node_map[n]] = node;
        else
            td_free(node.cause);
    }
    for (int64_t v = 0; v < plan->values_capacity && v < n_values; v++) {
        td_plan_value value = plan->values[v];
        plan->values[v] = (td_plan_value){.device = -1, .root = -1, .table = -1};
        if (map[v] >= 0)
            plan->values[map[v]] = value;
        else
            td_free(value.cause);
    }
}

td_status *td_plan_drop_unneeded(td_plan *plan, const bool *gone)
{
    td_graph *graph = plan->graph;
    td_status *status = NULL;
    int64_t n_values = graph->n_values, n_nodes = graph->n_nodes;
    marks m = {0};
    int32_t *map = NULL, *node_map = NULL;
    TD_TRY_OR(status, done, TD_NEW(m.keep, graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(m.keep_value, graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(m.stack, graph->n_nodes + 1));
    mark_needed(plan, gone, &m);
    TD_TRY_OR(status, done, td_graph_prune(graph, m.keep, m.keep_value, &map, &node_map));
    move_places(plan, map, n_values, node_map, n_nodes);
    td_plan_renumber(plan, map);
    td_free(plan->gradients); /* by old numbers; nothing after this asks */
    plan->gradients = NULL;
    plan->n_gradients = 0;
done:
    td_free(m.keep);
    td_free(m.keep_value);
    td_free(m.stack);
    td_free(map);
    td_free(node_map);
    return status;
}

/* ---- the record ----------------------------------------------------------------------------------------------------------- */

td_status *td_plan_note_rewrite(td_plan *plan, int32_t rule, const td_node *node, const char *into)
{
    TD_TRY(td_grow(&plan->rewritten, &plan->rewritten_capacity, plan->n_rewritten, sizeof *plan->rewritten));
    td_plan_rewritten *entry = &plan->rewritten[plan->n_rewritten];
    *entry = (td_plan_rewritten){td_strdup(node->name), td_strdup(into), node->op, rule};
    plan->n_rewritten++; /* from here on the plan frees it */
    if (rule != TD_BY_OFFLOAD)
        plan->rewrites[rule]++;
    if (!entry->name || !entry->into)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for what became of \"%s\"", node->name);
    return td_name_map_put(&plan->rewritten_names, entry->name, (int32_t)plan->n_rewritten - 1);
}

const td_plan_rewritten *td_plan_find_rewritten(const td_plan *plan, const char *name)
{
    int32_t index = td_name_map_get(&plan->rewritten_names, name);
    return index < 0 ? NULL : &plan->rewritten[index];
}
