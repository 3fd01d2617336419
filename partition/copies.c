/* Pass: a copy node for every value that another device needs: one per (value, destination), shared by all its consumers.
 *
 * Between two accelerators a value goes through the host: two copies. Devices whose memory is the host's need none. Copies of
 * inputs and of what may run early are double-buffered later (memory.c). Nothing else ever moves bytes.
 *
 * From here on every update waits for the loss to be on the host, or for what says that loss and gradients are finite, where there
 * is such a thing (overflow.c): a step that is not leaves parameters and state as they were (runtime/nonfinite.c). */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

/* Whether two devices address the same memory. */
static bool shares_memory(const td_plan *plan, int32_t a, int32_t b)
{
    return a == b || (plan->sites[a].is_host && plan->sites[b].is_host);
}

/* copied[v * n_sites + s]: the value that holds v on site s, or -1. Grows with the graph. */
typedef struct table {
    int32_t *copied;
    int64_t n_values; /* that it has room for */
} table;

static td_status *table_follow(td_plan *plan, table *t)
{
    if (plan->graph->n_values <= t->n_values)
        return NULL;
    int64_t values = plan->graph->n_values + t->n_values / 2;
    int64_t n = values * plan->n_sites, old = t->n_values * plan->n_sites;
    int32_t *copied = td_realloc(t->copied, (size_t)n, sizeof *copied);
    if (!copied)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the copies of a plan");
    memset(copied + old, 0xff, (size_t)(n - old) * sizeof *copied);
    t->copied = copied;
    t->n_values = values;
    return NULL;
}

static td_status *add_copy(td_plan *plan, table *t, int32_t value, int32_t to, int32_t *out_value)
{
    td_graph *graph = plan->graph;
    const td_value_info *info = &graph->values[value];
    int32_t from = plan->values[value].device;
    td_value x = {graph, value};
    const char *base = info->name, *at = info->class == TD_CLASS_STAGING ? strrchr(base, '@') : NULL;
    int length = at ? (int)(at - base) : (int)strlen(base);
    char *name = td_format("%.*s@%s", length, base, plan->sites[to].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a copy's name");
    graph->phase = info->producer >= 0 ? graph->nodes[info->producer].phase : TD_FORWARD;
    *out_value = td_graph_add1(graph, "copy", name, &x, 1, NULL, 0).id;
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(td_plan_follow(plan));
    TD_TRY(table_follow(plan, t));
    int32_t node = graph->values[*out_value].producer;
    bool to_host = plan->sites[to].is_host;
    plan->nodes[node].device = to_host ? from : to;
    plan->nodes[node].lane = to_host ? TD_QUEUE_TO_HOST : TD_QUEUE_TO_DEVICE;
    plan->nodes[node].cause = td_format("\"%s\" is needed on %s", graph->values[value].name, plan->sites[to].name);
    if (!plan->nodes[node].cause)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a copy's cause");
    plan->values[*out_value].device = to;
    graph->values[*out_value].class = TD_CLASS_STAGING;
    t->copied[(int64_t)value * plan->n_sites + to] = *out_value;
    return NULL;
}

/* *out_value: `value` on site `to`. */
static td_status *bring(td_plan *plan, table *t, int32_t value, int32_t to, int32_t *out_value)
{
    int32_t from = plan->values[value].device;
    *out_value = value;
    if (from < 0 || shares_memory(plan, from, to))
        return NULL;
    *out_value = t->copied[(int64_t)value * plan->n_sites + to];
    if (*out_value >= 0)
        return NULL;
    int32_t middle = value;
    if (!plan->sites[from].is_host && !plan->sites[to].is_host)
        TD_TRY(bring(plan, t, value, plan->host, &middle));
    TD_TRY(add_copy(plan, t, middle, to, out_value));
    t->copied[(int64_t)value * plan->n_sites + to] = *out_value; /* of the value, not only of its copy on the way */
    return NULL;
}

static td_status *bring_inputs(td_plan *plan, table *t, int32_t id)
{
    for (int32_t i = 0; i < plan->graph->nodes[id].n_inputs && plan->nodes[id].lane == TD_QUEUE_COMPUTE; i++) {
        int32_t value = plan->graph->nodes[id].inputs[i], there = -1;
        if (value < 0)
            continue;
        TD_TRY(bring(plan, t, value, plan->nodes[id].device, &there));
        plan->graph->nodes[id].inputs[i] = there;
    }
    return NULL;
}

/* What the caller reads after a step is on the host and made by the step: of an input or a parameter it gets a copy, made
 * before the parameter's update, for the next step may write the original while the caller looks. */
static td_status *bring_output(td_plan *plan, table *t, int32_t *value)
{
    td_graph *graph = plan->graph;
    TD_TRY(bring(plan, t, *value, plan->host, value));
    td_value x = {graph, *value};
    if (plan->values[*value].device < 0 || graph->values[td_graph_behind_views(graph, *value)].producer >= 0)
        return NULL;
    char *name = td_format("%s@output", graph->values[*value].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an output's name");
    int32_t before = td_name_map_get(&graph->value_names, name); /* the same value twice among the outputs */
    if (before >= 0 &&
        (graph->values[before].producer < 0 || graph->nodes[graph->values[before].producer].inputs[0] != *value))
        before = -1; /* a user's value of that name: adding ours says so */
    graph->phase = TD_FORWARD;
    *value = before >= 0 ? before : td_graph_add1(graph, "copy", name, &x, 1, NULL, 0).id;
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(td_plan_follow(plan));
    TD_TRY(table_follow(plan, t));
    td_plan_node *node = &plan->nodes[graph->values[*value].producer];
    node->device = plan->values[*value].device = plan->host;
    if (before < 0)
        node->cause = td_strdup("the caller reads it after the step");
    return node->cause ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a copy's cause");
}

static td_status *verify(const td_plan *plan)
{
    const td_graph *graph = plan->graph;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        bool copy = plan->nodes[n].lane != TD_QUEUE_COMPUTE;
        for (int32_t i = 0; i < node->n_inputs; i++) {
            int32_t device = node->inputs[i] < 0 ? -1 : plan->values[node->inputs[i]].device;
            if (!copy && device >= 0 && !shares_memory(plan, device, plan->nodes[n].device))
                return TD_ERROR(TD_INTERNAL, "copies: \"%s\" reads \"%s\" across devices", node->name,
                                graph->values[node->inputs[i]].name);
        }
        if (!copy)
            continue;
        int64_t from[3], to[3];
        td_value_bytes(graph, node->inputs[0], NULL, from);
        td_value_bytes(graph, td_copied_to(node), NULL, to);
        if (memcmp(from, to, sizeof from) != 0)
            return TD_ERROR(TD_INTERNAL, "copies: \"%s\" changes size", node->name);
    }
    return NULL;
}

/* What a step says of its loss is there before the step can be held: whoever looks at the overflow may look at the loss too. */
static void gate_updates(td_plan *plan)
{
    td_graph *graph = plan->graph;
    graph->sum_gate = plan->in_job ? -1 : plan->loss; /* a job's loss is made of the sums */
    graph->gate = plan->reports_overflow ? plan->outputs[plan->n_outputs - 1] : plan->loss;
    if (plan->reports_overflow)
        graph->nodes[graph->values[graph->gate].producer].after = plan->loss;
}

td_status *td_pass_copies(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    table t = {0};
    int32_t *order = NULL;
    int64_t n = plan->graph->n_nodes;
    TD_TRY(td_graph_order(plan->graph,
                          &order)); /* names of copies, not their numbers, must be alike for any creation order */
    td_status *status = table_follow(plan, &t);
    for (int64_t i = 0; i < n && !status; i++)
        status = bring_inputs(plan, &t, order[i]);
    for (int32_t i = 0; i < plan->n_outputs && !status; i++)
        status = bring_output(plan, &t, &plan->outputs[i]);
    if (!status && plan->loss >= 0)
        status = bring_output(plan, &t, &plan->loss);
    plan->graph->gated = !status && plan->training;
    if (!status)
        gate_updates(plan);
    td_free(order);
    td_free(t.copied);
    return status ? status : verify(plan);
}
