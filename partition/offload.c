/* Pass: replicas of the parameters whose optimizer works on the host (place.c says which: td_plan_value.offloaded).
 *
 * Such a parameter and its state live on the host, where the update is made; the device's ops read a replica, "<parameter>@<device>",
 * which the store keeps there. After the update a refresh, a copy on the lane to the device, makes the replica what the parameter
 * is. Gradients cross by ordinary copies (copies.c).
 *
 * Always holds: between steps every replica equals its parameter bit for bit, so a step reads the same numbers wherever the update
 * is made. In a plan without updates the replicas are those that the store has already. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

static td_status *no_memory(const td_plan *plan, int32_t parameter)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the replica of \"%s\"", plan->graph->values[parameter].name);
}

static td_status *add_refresh(td_plan *plan, int32_t parameter, int32_t replica)
{
    td_graph *graph = plan->graph;
    const td_value inputs[2] = {{graph, parameter}, {graph, replica}};
    const char *device = plan->sites[plan->values[replica].device].name;
    char *name = td_format("%s/refresh@%s", graph->values[parameter].name, device);
    if (!name)
        return no_memory(plan, parameter);
    graph->phase = TD_UPDATE;
    td_graph_add(graph, "refresh", name, inputs, 2, NULL, 0, NULL, 0);
    td_free(name);
    graph->phase = TD_FORWARD;
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(td_plan_follow(plan));
    graph->nodes[graph->n_nodes - 1].delayed = graph->values[parameter].delayed;
    td_plan_node *node = &plan->nodes[graph->n_nodes - 1];
    node->device = plan->values[replica].device;
    node->lane = TD_QUEUE_TO_DEVICE;
    node->cause = td_format("\"%s\" is updated on %s and read on %s", graph->values[parameter].name,
                            plan->sites[plan->host].name, device);
    return node->cause ? NULL : no_memory(plan, parameter);
}

/* *out: the replica of a parameter on a site, made now if there is none yet. */
static td_status *replica_on(td_plan *plan, int32_t parameter, int32_t site, int32_t *replicas, int32_t *out)
{
    td_graph *graph = plan->graph;
    *out = replicas[site];
    if (*out >= 0)
        return NULL;
    const td_value_info *info = &graph->values[parameter];
    char *name = td_format("%s@%s", info->name, plan->sites[site].name);
    if (!name)
        return no_memory(plan, parameter);
    *out =
        td_graph_add_source(graph, TD_CLASS_REPLICA, TD_DENSE, name, info->dtype, info->shape, td_dim_constant(0)).id;
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    replicas[site] = *out;
    graph->values[*out].parameter = parameter;
    graph->values[*out].initial = graph->values[parameter].initial;
    TD_TRY(td_plan_follow(plan));
    plan->values[*out].device = site;
    return plan->training ? add_refresh(plan, parameter, *out) : NULL;
}

/* Ops of other devices read replicas of `parameter` from here on. `readers`: nodes in an order that depends on names alone. */
static td_status *replicate(td_plan *plan, const td_plan_request *request, int32_t parameter, const int32_t *readers,
                            int64_t n, int32_t *replicas)
{
    for (int32_t s = 0; s < plan->n_sites; s++)
        replicas[s] = -1;
    for (int64_t k = 0; k < n; k++) {
        int32_t site = plan->nodes[readers[k]].device;
        if (plan->graph->nodes[readers[k]].phase == TD_UPDATE || plan->sites[site].is_host)
            continue;
        for (int32_t i = 0; i < plan->graph->nodes[readers[k]].n_inputs; i++) {
            int32_t there = -1;
            if (plan->graph->nodes[readers[k]].inputs[i] != parameter)
                continue;
            if (!plan->training &&
                !request->replicated(request->home_context, plan->graph->values[parameter].name, site))
                continue;
            TD_TRY(replica_on(plan, parameter, site, replicas, &there));
            plan->graph->nodes[readers[k]].inputs[i] = there;
        }
    }
    return NULL;
}

static td_status *replicate_all(td_plan *plan, const td_plan_request *request, const int32_t *order, int32_t *replicas)
{
    int64_t n_nodes = plan->graph->n_nodes, n_values = plan->graph->n_values;
    for (int32_t v = 0; v < n_values; v++) {
        bool here = plan->graph->values[v].class == TD_CLASS_PARAMETER && plan->sites[plan->values[v].device].is_host;
        if (here && (plan->values[v].offloaded || (!plan->training && request->replicated)))
            TD_TRY(replicate(plan, request, v, order, n_nodes, replicas));
    }
    return NULL;
}

td_status *td_pass_offload(td_plan *plan, const td_plan_request *request)
{
    int32_t *order = NULL, *replicas = NULL;
    bool any = !plan->training && request->replicated;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        any = any || plan->values[v].offloaded;
    if (!any)
        return NULL;
    TD_TRY(td_graph_order(plan->graph, &order));
    td_status *status = TD_NEW(replicas, plan->n_sites + 1);
    if (!status)
        status = replicate_all(plan, request, order, replicas);
    td_free(order);
    td_free(replicas);
    return status;
}
