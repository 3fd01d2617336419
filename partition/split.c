/* Pass: the one parameter of which offload.optimizer moves a part (offload_choice.c says which: td_plan_value.split).
 *
 *     gradient -> adam(W, gradient, m, v)                                                becomes, of N elements with n on the device,
 *     gradient -> part [0, n) -> adam(part of W, part, part of m, part of v)             on the device
 *              -> part [n, N) -> (copy) -> update_mixed(W/rest@cpu, rest, m/rest@cpu, ..) on the host
 *                                          -> refresh_part(W/rest@cpu, part [n, N) of W)
 *
 * W stays whole where it is read; its state is in two places. What comes before the update (sums, norms, clipping) is of the whole
 * gradient, where it was. n is a multiple of TD_BLOCK, and rules that work element by element alone are split, so the bits are those
 * of one update. Between steps W/rest@cpu equals the last N - n elements of W. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/update_part.h"
#include "partition/plan.h"

typedef struct splitting {
    td_plan *plan;
    td_graph *graph;
    int32_t parameter, update;
    int64_t here, elements; /* those updated on the device, and all */
} splitting;

static td_status *no_memory(const splitting *s)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the two updates of \"%s\"",
                    s->graph->values[s->parameter].name);
}

/* The node that was added last. */
static td_status *place_last(const splitting *s, int32_t device, td_queue_kind lane, const char *cause)
{
    TD_TRY(td_plan_follow(s->plan));
    td_plan_node *p = &s->plan->nodes[s->graph->n_nodes - 1];
    p->device = device;
    p->lane = lane;
    p->cause = td_strdup(cause);
    return p->cause ? NULL : no_memory(s);
}

/* *out: the elements [0, here) of a value, or the rest. Whoever makes the value says when that may be. */
static td_status *add_part(const splitting *s, int32_t value, bool rest, td_value *out)
{
    td_graph *graph = s->graph;
    const td_value x = {graph, value};
    const td_attr attrs[] = {TD_INT("begin", rest ? s->here : 0),
                             TD_INT("size", rest ? s->elements - s->here : s->here)};
    const int32_t producer = graph->values[value].producer;
    char *name = td_format("%s/%s", graph->values[value].name, rest ? "rest" : "first");
    if (!name)
        return no_memory(s);
    graph->phase = producer < 0 ? TD_UPDATE : graph->nodes[producer].phase;
    *out = td_graph_add1(graph, "part", name, &x, 1, attrs, 2);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    const int32_t device = s->plan->values[s->parameter].device;
    TD_TRY(place_last(s, device, TD_QUEUE_COMPUTE, "a view, where its input is"));
    s->plan->values[out->id].device = device;
    graph->values[out->id].class =
        graph->values[value].class == TD_CLASS_GRADIENT ? TD_CLASS_GRADIENT : TD_CLASS_ACTIVATION;
    graph->values[out->id].parameter = s->parameter;
    return NULL;
}

/* *out: what the host has of a parameter or state, from element `here` on. */
static td_status *add_rest(const splitting *s, int32_t value, td_value *out)
{
    td_graph *graph = s->graph;
    const td_shape shape = {.rank = 1, .dims = {td_dim_constant(s->elements - s->here)}};
    /* Not "W@cpu": a copy of W for an op there is called that (copies.c). */
    char *name = td_format("%s/rest@%s", graph->values[value].name, s->plan->sites[s->plan->host].name);
    if (!name)
        return no_memory(s);
    *out = td_graph_add_source(graph, TD_CLASS_REPLICA, TD_DENSE, name, TD_F32, shape, td_dim_constant(0));
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    graph->values[out->id].parameter = value;
    graph->values[out->id].initial = graph->values[value].initial;
    TD_TRY(td_plan_follow(s->plan));
    s->plan->values[out->id].device = s->plan->host;
    s->plan->values[out->id].first = s->here;
    return NULL;
}

/* *out_updated: the host's part of the parameter, which this update writes. */
static td_status *add_host_update(const splitting *s, td_value *out_updated)
{
    td_graph *graph = s->graph;
    td_plan *plan = s->plan;
    td_value inputs[MIXED_INPUTS];
    for (int32_t i = 0; i < MIXED_INPUTS; i++)
        inputs[i] = TD_NO_VALUE;
    TD_TRY(add_rest(s, s->parameter, &inputs[MIXED_PARAMETER]));
    TD_TRY(add_part(s, graph->nodes[s->update].inputs[1], true, &inputs[MIXED_GRADIENT]));
    inputs[MIXED_COEFFICIENTS] = (td_value){graph, graph->nodes[s->update].inputs[2]};
    for (int32_t k = 3; k < graph->nodes[s->update].n_inputs; k++)
        TD_TRY(add_rest(s, graph->nodes[s->update].inputs[k], &inputs[MIXED_STATES + k - 3]));
    const int64_t rounding = 0;
    const td_attr attrs[] = {TD_INTS("rounding", &rounding, 1), TD_STRING("rule", graph->nodes[s->update].op->name),
                             TD_STRING("copy", ""), TD_INT("outputs", 0)};
    const char *host = plan->sites[plan->host].name;
    char *name = td_format("%s@%s", graph->nodes[s->update].name, host);
    char *cause = td_format("offload.optimizer moves the last %lld of its %lld elements",
                            (long long)(s->elements - s->here), (long long)s->elements);
    td_status *status = name && cause ? NULL : no_memory(s);
    graph->phase = TD_UPDATE;
    if (!status)
        td_graph_add(graph, "update_mixed", name, inputs, MIXED_INPUTS, attrs, 4, NULL, 0);
    if (!status)
        status = graph->failed ? td_graph_check(graph) : place_last(s, plan->host, TD_QUEUE_COMPUTE, cause);
    td_free(name);
    td_free(cause);
    *out_updated = inputs[MIXED_PARAMETER];
    return status;
}

static td_status *add_refresh(const splitting *s, td_value updated)
{
    td_graph *graph = s->graph;
    const int32_t device = s->plan->values[s->parameter].device;
    td_value inputs[] = {updated, TD_NO_VALUE};
    TD_TRY(add_part(s, s->parameter, true, &inputs[1]));
    char *name = td_format("%s/refresh@%s", graph->values[s->parameter].name, s->plan->sites[device].name);
    if (!name)
        return no_memory(s);
    graph->phase = TD_UPDATE;
    td_graph_add(graph, "refresh_part", name, inputs, 2, NULL, 0, NULL, 0);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    return place_last(s, device, TD_QUEUE_TO_DEVICE, "a part of it is updated on the host");
}

/* The update's own node keeps its name, and the first elements. */
static td_status *narrow_update(const splitting *s)
{
    for (int32_t i = 0; i < s->graph->nodes[s->update].n_inputs; i++) {
        const int32_t value = s->graph->nodes[s->update].inputs[i];
        td_value first = TD_NO_VALUE;
        if (i == 2) /* the coefficients */
            continue;
        TD_TRY(add_part(s, value, false, &first));
        s->graph->nodes[s->update].inputs[i] = first.id;
        if (i > 2)
            s->plan->values[value].held = s->here;
    }
    return NULL;
}

static td_status *split(td_plan *plan, int32_t update)
{
    td_graph *graph = plan->graph;
    td_value updated = TD_NO_VALUE;
    td_tensor tensor;
    splitting s = {.plan = plan, .graph = graph, .update = update, .parameter = graph->nodes[update].inputs[0]};
    td_value_tensor(graph, s.parameter, NULL, &tensor);
    s.elements = td_tensor_elements(&tensor);
    s.here = plan->values[s.parameter].split;
    td_status *status = add_host_update(&s, &updated);
    if (!status)
        status = add_refresh(&s, updated);
    if (!status)
        status = narrow_update(&s);
    graph->phase = TD_FORWARD;
    return status;
}

td_status *td_pass_split(td_plan *plan, const td_plan_request *request)
{
    const int64_t n_nodes = plan->graph->n_nodes;
    (void)request;
    for (int32_t n = 0; n < n_nodes && plan->training; n++) {
        const td_node *node = &plan->graph->nodes[n];
        const int32_t parameter = node->phase == TD_UPDATE && td_rule_find(node->op->name) ? node->inputs[0] : -1;
        if (parameter >= 0 && plan->values[parameter].split)
            TD_TRY(split(plan, n));
    }
    return NULL;
}
