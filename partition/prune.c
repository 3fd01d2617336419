/* Taking nodes out of a graph: what is kept is renumbered in its old order, names stay. */
#include <string.h>

#include "base/memory.h"
#include "partition/shard.h"

static void drop_node(td_graph *graph, td_node *node)
{
    td_name_map_remove(&graph->node_names, node->name);
    td_node_deinit(node);
}

static td_status *compact_values(td_graph *graph, const bool *keep_value, int32_t *map)
{
    int64_t n = 0;
    for (int64_t v = 0; v < graph->n_values; v++) {
        td_value_info *info = &graph->values[v];
        map[v] = keep_value[v] ? (int32_t)n : -1;
        if (!keep_value[v]) {
            td_name_map_remove(&graph->value_names, info->name);
            td_free(info->name);
            td_free(info->scalars);
            continue;
        }
        graph->values[n] = *info;
        TD_TRY(
            td_name_map_put(&graph->value_names, graph->values[n].name, (int32_t)n)); /* replaces: cannot fail midway */
        n++;
    }
    graph->n_values = n;
    return NULL;
}

static td_status *compact_nodes(td_graph *graph, const bool *keep, const int32_t *map, int32_t *node_map)
{
    int64_t n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        td_node *node = &graph->nodes[i];
        node_map[i] = keep[i] ? (int32_t)n : -1;
        if (!keep[i]) {
            drop_node(graph, node);
            continue;
        }
        for (int32_t k = 0; k < node->n_inputs; k++)
            node->inputs[k] = node->inputs[k] < 0 ? -1 : map[node->inputs[k]];
        for (int32_t k = 0; k < node->n_outputs; k++)
            node->outputs[k] = map[node->outputs[k]];
        node->after = node->after < 0 ? -1 : map[node->after]; /* what is gone cannot be waited for */
        graph->nodes[n] = *node;
        TD_TRY(td_name_map_put(&graph->node_names, graph->nodes[n].name, (int32_t)n));
        n++;
    }
    graph->n_nodes = n;
    for (int64_t i = 0; i < n; i++)
        if (graph->nodes[i].forward >= 0)
            graph->nodes[i].forward = node_map[graph->nodes[i].forward];
    for (int64_t v = 0; v < graph->n_values; v++) {
        td_value_info *info = &graph->values[v];
        info->producer = info->producer < 0 ? -1 : node_map[info->producer];
        info->parameter = info->parameter < 0 ? -1 : map[info->parameter];
    }
    return NULL;
}

td_status *td_graph_prune(td_graph *graph, const bool *keep, const bool *keep_value, int32_t **out_map,
                          int32_t **out_node_map)
{
    int32_t *map = NULL, *node_map = NULL;
    *out_map = *out_node_map = NULL;
    TD_TRY(TD_NEW(map, graph->n_values + 1));
    td_status *status = TD_NEW(node_map, graph->n_nodes + 1);
    if (!status)
        status = compact_values(graph, keep_value, map);
    if (!status)
        status = compact_nodes(graph, keep, map, node_map);
    if (status) {
        td_free(map);
        td_free(node_map);
        return status;
    }
    *out_map = map;
    *out_node_map = node_map;
    return NULL;
}

void td_plan_renumber(td_plan *plan, const int32_t *map)
{
    int32_t *const ids[] = {&plan->loss, &plan->seed, &plan->random, &plan->micro, &plan->divisor, &plan->speculate};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        *ids[i] = *ids[i] < 0 ? -1 : map[*ids[i]];
    if (plan->graph->gated) {
        plan->graph->gate = map[plan->graph->gate];
        plan->graph->sum_gate = plan->graph->sum_gate < 0 ? -1 : map[plan->graph->sum_gate];
    }
    for (int32_t i = 0; i < plan->n_outputs; i++)
        plan->outputs[i] = map[plan->outputs[i]];
    for (int32_t i = 0; i < plan->n_shards; i++)
        plan->shards[i].parameter = map[plan->shards[i].parameter];
    for (int32_t i = 0; i < plan->n_groups; i++) {
        td_plan_group *group = &plan->groups[i];
        group->coefficients = group->coefficients < 0 ? -1 : map[group->coefficients];
        group->pending = group->pending < 0 ? -1 : map[group->pending];
    }
}

/* Each subgraph's number of nodes. */
static void count_clusters(td_plan *plan, const bool *keep)
{
    for (int32_t i = 0; i < plan->n_clusters; i++)
        plan->clusters[i].n = 0;
    for (int64_t i = 0; i < plan->graph->n_nodes && plan->n_clusters; i++)
        plan->clusters[plan->nodes[i].cluster].n += keep[i];
}

td_status *td_plan_compact(td_plan *plan, const bool *keep, const bool *keep_value)
{
    int32_t *map = NULL, *node_map = NULL;
    int64_t n_nodes = plan->graph->n_nodes, n_values = plan->graph->n_values, n = 0;
    count_clusters(plan, keep);
    TD_TRY(td_graph_prune(plan->graph, keep, keep_value, &map, &node_map));
    td_free(node_map);
    for (int64_t i = 0; i < n_nodes; i++) {
        td_plan_node node = plan->nodes[i];
        plan->nodes[i] = (td_plan_node){.device = -1, .cluster = -1};
        if (keep[i])
            plan->nodes[n++] = node;
        else
            td_free(node.cause);
    }
    for (int64_t v = 0; v < n_values; v++) {
        td_plan_value value = plan->values[v];
        value.root = value.root < 0 ? -1 : map[value.root];
        plan->values[v] = (td_plan_value){.device = -1, .root = -1, .table = -1};
        if (map[v] >= 0)
            plan->values[map[v]] = value;
        else
            td_free(value.cause);
    }
    td_plan_renumber(plan, map);
    td_free(map);
    return NULL;
}

int32_t td_plan_updated(const td_plan *plan, const td_node *node)
{
    int32_t first = node->phase == TD_UPDATE && node->n_inputs ? node->inputs[0] : -1;
    if (first < 0)
        return -1;
    const td_value_info *info = &plan->graph->values[first];
    return info->class == TD_CLASS_PARAMETER ? first : info->parameter;
}
