/* Pass: what the replicas of a distributed job sum up: one node "workers/sum" takes the loss and the gradients of all parameters
 * that live here, in the order of the parameters' names, and whoever reads them reads its results. Gradients of served tables
 * are left out: their owners sum them (serve.c).
 *
 * Where an update waits for something about all gradients (clipping, steps that may be left out), "ps/offer" takes those of served
 * tables to their owners and brings back their squares.
 *
 * The sum takes part in every micro-batch, for its loss, and in a replica's last, for its gradients; its results are there in the
 * window's last (window.c). */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

typedef struct exchange {
    td_plan *plan;
    td_value *inputs, *outputs;
    int32_t *parameters; /* of inputs 1, 2, ... */
    int32_t n;           /* parameters */
} exchange;

static void list_parameters(exchange *e)
{
    const td_graph *graph = e->plan->graph;
    for (int32_t v = 0; v < e->plan->n_gradients; v++) {
        int32_t at = e->n;
        if (e->plan->gradients[v] < 0 || graph->values[v].served)
            continue;
        for (; at > 0 && strcmp(graph->values[e->parameters[at - 1]].name, graph->values[v].name) > 0; at--)
            e->parameters[at] = e->parameters[at - 1];
        e->parameters[at] = v;
        e->n++;
    }
}

static td_status *add_sum(exchange *e, int32_t replicas)
{
    td_plan *plan = e->plan;
    td_graph *graph = plan->graph;
    list_parameters(e);
    e->inputs[0] = (td_value){graph, plan->loss};
    for (int32_t i = 0; i < e->n; i++)
        e->inputs[1 + i] = (td_value){graph, plan->gradients[e->parameters[i]]};
    const td_attr attrs[2] = {TD_INT("outputs", 1 + e->n), TD_INT("replicas", replicas)};
    td_graph_add(graph, "rank_sum", "workers/sum", e->inputs, 1 + e->n, attrs, 2, e->outputs, 1 + e->n);
    if (graph->failed)
        return td_graph_check(graph);
    for (int32_t i = 0; i < e->n; i++) {
        graph->values[e->outputs[1 + i].id].parameter = e->parameters[i];
        plan->gradients[e->parameters[i]] = e->outputs[1 + i].id;
    }
    plan->loss = e->outputs[0].id;
    return NULL;
}

/* Served tables: their owners tell the squares of the sums that they have been offered. After the sum, on every rank, so that no
 * two of them wait for each other. */
static td_status *add_offer(exchange *e)
{
    enum { INPUTS = 3 };
    td_plan *plan = e->plan;
    td_graph *graph = plan->graph;
    td_value *inputs = NULL, *squares = NULL;
    int32_t n = 0;
    td_status *status = TD_NEW(inputs, INPUTS * plan->n_served + 1);
    if (!status)
        status = TD_NEW(squares, plan->n_served + 1);
    for (int32_t t = 0; t < plan->n_served && !status; t++) {
        const td_plan_served *served = &plan->served[t];
        if (plan->gradients[served->parameter] < 0)
            continue;
        inputs[INPUTS * n] = (td_value){graph, served->parameter};
        inputs[INPUTS * n + 1] = (td_value){graph, plan->gradients[served->parameter]};
        inputs[INPUTS * n + 2] = (td_value){graph, plan->keys[served->keys].value};
        n++;
    }
    const td_attr outputs = TD_INT("outputs", n);
    if (!status && n)
        td_graph_add(graph, "ps_offer", "ps/offer", inputs, INPUTS * n, &outputs, 1, squares, n);
    if (!status && graph->failed)
        status = td_graph_check(graph);
    if (!status && n)
        graph->nodes[graph->n_nodes - 1].after = plan->loss;
    for (int32_t t = 0, k = 0; t < plan->n_served && !status; t++)
        if (plan->gradients[plan->served[t].parameter] >= 0)
            plan->served[t].squares = squares[k++].id;
    plan->offers = n > 0;
    td_free(inputs);
    td_free(squares);
    return status;
}

td_status *td_pass_exchange(td_plan *plan, const td_plan_request *request)
{
    if (!plan->training || !plan->in_job)
        return NULL;
    exchange e = {.plan = plan};
    td_status *status = TD_NEW(e.inputs, plan->n_gradients + 2);
    if (!status)
        status = TD_NEW(e.outputs, plan->n_gradients + 2);
    if (!status)
        status = TD_NEW(e.parameters, plan->n_gradients + 1);
    plan->graph->phase = TD_BACKWARD;
    if (!status)
        status = add_sum(&e, plan->all_replicas);
    if (!status && td_options_wait_for_gradients(request->options))
        status = add_offer(&e);
    plan->graph->phase = TD_FORWARD;
    td_free(e.inputs);
    td_free(e.outputs);
    td_free(e.parameters);
    return status;
}
