/* Pass: what forward ops write (batch_norm's running statistics) becomes part of the update.
 *
 *     batch_norm -> running_mean        becomes   running_mean -> hold -> batch_norm writes what is held -> commit -> running_mean
 *
 * The held copy is made where a window begins and moves in each of its micro-batches; "<state>/commit" is an update, so it runs
 * once a window, waits for what says that loss and gradients are finite, and does nothing where the window is left out. The bits are
 * those of writing the state itself. After placing: both are where the op is. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

static td_status *no_memory(const td_plan *plan, int32_t state)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for \"%s\"", plan->graph->values[state].name);
}

/* The node that was added last belongs to `state`, beside `like`. */
static td_status *place_beside(td_plan *plan, int32_t state, int32_t like)
{
    TD_TRY(td_plan_follow(plan));
    td_plan_node *node = &plan->nodes[plan->graph->n_nodes - 1];
    node->device = plan->nodes[like].device;
    node->cause =
        td_format("beside \"%s\", which writes \"%s\"", plan->graph->nodes[like].name, plan->graph->values[state].name);
    return node->cause ? NULL : no_memory(plan, state);
}

static td_status *add_hold(td_plan *plan, int32_t state, int32_t writer, td_value *out_held)
{
    td_graph *graph = plan->graph;
    const td_value inputs[2] = {{graph, state}, {graph, plan->micro}};
    char *name = td_format("%s/hold", graph->values[state].name);
    if (!name)
        return no_memory(plan, state);
    graph->phase = TD_FORWARD;
    *out_held = td_graph_add1(graph, "hold", name, inputs, plan->micro >= 0 ? 2 : 1, NULL, 0);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(place_beside(plan, state, writer));
    plan->values[out_held->id].device = plan->nodes[writer].device;
    return NULL;
}

static td_status *add_commit(td_plan *plan, int32_t state, int32_t writer, td_value held)
{
    td_graph *graph = plan->graph;
    const td_value inputs[2] = {{graph, state}, held};
    char *name = td_format("%s/commit", graph->values[state].name);
    if (!name)
        return no_memory(plan, state);
    graph->phase = TD_UPDATE;
    td_graph_add(graph, "commit", name, inputs, 2, NULL, 0, NULL, 0);
    graph->phase = TD_FORWARD;
    td_free(name);
    return graph->failed ? td_graph_check(graph) : place_beside(plan, state, writer);
}

td_status *td_pass_running(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    const int64_t n = plan->graph->n_nodes;
    for (int32_t id = 0; plan->training && id < n; id++) {
        if (plan->graph->nodes[id].phase != TD_FORWARD || plan->graph->nodes[id].host_function)
            continue;
        for (int32_t i = 0; i < plan->graph->nodes[id].n_inputs; i++) {
            const int32_t state = plan->graph->nodes[id].inputs[i];
            td_value held;
            if (!td_node_writes(&plan->graph->nodes[id], i) || plan->graph->values[state].class != TD_CLASS_PARAMETER)
                continue;
            TD_TRY(add_hold(plan, state, id, &held));
            plan->graph->nodes[id].inputs[i] = held.id;
            TD_TRY(add_commit(plan, state, id, held));
        }
    }
    return NULL;
}
