/* Pass: replicas of the parameters whose optimizer works on the host (place.c says which: td_plan_value.offloaded).
 *
 * Such a parameter and its state live on the host, where the update is made; the device's ops read a replica, "<parameter>@<device>",
 * which the store keeps there. After the update a refresh, a copy on the lane to the device, makes the replica what the parameter
 * is. Gradients cross by ordinary copies (copies.c). Before that, what the host does with a gradient becomes one pass (fold.c).
 *
 * Where all that read a parameter are casts to 16 bit, the replica is in 16 bit and takes their place: two bytes a parameter, which the
 * update makes and the link carries once a step, however many micro-batches read it.
 *
 * Always holds: between steps every replica equals its parameter, rounded to the replica's dtype, bit for bit, so a step reads the same
 * numbers wherever the update is made. In a plan without updates the replicas are those that the store has already. */
#include <string.h>

#include "base/memory.h"
#include "partition/offload.h"
#include "partition/rewrite.h"

static td_status *no_memory(const td_plan *plan, int32_t parameter)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the replica of \"%s\"", plan->graph->values[parameter].name);
}

/* The parameter and what is known of it: see offload.h. */
typedef struct replicated {
    td_plan *plan;
    const td_plan_request *request;
    const td_folded *folded;
    int32_t parameter;
    td_dtype dtype;    /* of its replicas */
    int32_t *replicas; /* on each site, or -1 */
    int32_t *first,
        *reader; /* nodes that read parameter v, or a cast of it: reader[first[v]] .. reader[first[v + 1] - 1] */
} replicated;

/* From the parameter, or from the copy of it that the update has made in the replica's dtype. */
static td_status *add_refresh(const replicated *r, int32_t replica)
{
    td_plan *plan = r->plan;
    td_graph *graph = plan->graph;
    const int32_t parameter = r->parameter, copy = r->folded->copy[parameter];
    const td_value inputs[2] = {{graph, copy >= 0 ? copy : parameter}, {graph, replica}};
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

/* *out: the replica of the parameter on a site, made now if there is none yet. */
static td_status *replica_on(const replicated *r, int32_t site, int32_t *out)
{
    td_plan *plan = r->plan;
    td_graph *graph = plan->graph;
    *out = r->replicas[site];
    if (*out >= 0)
        return NULL;
    const td_value_info *info = &graph->values[r->parameter];
    char *name = td_format("%s@%s", info->name, plan->sites[site].name);
    if (!name)
        return no_memory(plan, r->parameter);
    *out = td_graph_add_source(graph, TD_CLASS_REPLICA, TD_DENSE, name, r->dtype, info->shape, td_dim_constant(0)).id;
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    r->replicas[site] = *out;
    graph->values[*out].parameter = r->parameter;
    graph->values[*out].initial = graph->values[r->parameter].initial;
    TD_TRY(td_plan_follow(plan));
    plan->values[*out].device = site;
    return plan->training ? add_refresh(r, *out) : NULL;
}

/* Whether an input of a node is the parameter, or its cast to the replica's dtype. */
static bool is_read(const replicated *r, int32_t value)
{
    if (value == r->parameter)
        return r->dtype == r->plan->graph->values[value].dtype;
    return value >= 0 && value < r->folded->n_values && r->folded->cast_of[value] == r->parameter;
}

/* The parameter that is read with a value: itself, or the one that it is a cast of; -1: none. */
static int32_t read_with(const replicated *r, int32_t value)
{
    if (value < 0 || value >= r->folded->n_values)
        return -1;
    if (r->folded->cast_of[value] >= 0)
        return r->folded->cast_of[value];
    return r->plan->graph->values[value].class == TD_CLASS_PARAMETER ? value : -1;
}

/* Readers by parameter; each parameter's in the graph's order, which depends on names alone. */
static td_status *find_readers(replicated *r)
{
    const td_graph *graph = r->plan->graph;
    int32_t *order = NULL;
    int64_t n = 0;
    TD_TRY(TD_NEW(r->first, graph->n_values + 2));
    TD_TRY(td_graph_order(graph, &order));
    for (int32_t k = 0; k < graph->n_nodes; k++)
        for (int32_t i = 0; i < graph->nodes[k].n_inputs; i++) {
            const int32_t parameter = read_with(r, graph->nodes[k].inputs[i]);
            n += parameter >= 0;
            if (parameter >= 0)
                r->first[parameter + 2]++;
        }
    td_status *status = TD_NEW(r->reader, n + 1);
    for (int64_t v = 1; v < graph->n_values; v++)
        r->first[v + 1] += r->first[v];
    for (int64_t k = 0; k < graph->n_nodes && !status; k++)
        for (int32_t i = 0; i < graph->nodes[order[k]].n_inputs; i++) {
            const int32_t parameter = read_with(r, graph->nodes[order[k]].inputs[i]);
            if (parameter >= 0)
                r->reader[r->first[parameter + 1]++] = order[k];
        }
    td_free(order);
    return status;
}

/* Ops of other devices read replicas of the parameter from here on. */
static td_status *replicate(const replicated *r)
{
    const td_plan *plan = r->plan;
    const td_plan_request *request = r->request;
    for (int32_t s = 0; s < plan->n_sites; s++)
        r->replicas[s] = -1;
    for (int32_t k = r->first[r->parameter]; k < r->first[r->parameter + 1]; k++) {
        const int32_t reader = r->reader[k], site = plan->nodes[reader].device;
        if (plan->graph->nodes[reader].phase == TD_UPDATE || plan->sites[site].is_host)
            continue;
        for (int32_t i = 0; i < plan->graph->nodes[reader].n_inputs; i++) {
            int32_t there = -1;
            if (!is_read(r, plan->graph->nodes[reader].inputs[i]))
                continue;
            if (!plan->training &&
                !request->replicated(request->home_context, plan->graph->values[r->parameter].name, site, r->dtype))
                continue;
            TD_TRY(replica_on(r, site, &there));
            plan->graph->nodes[reader].inputs[i] = there;
        }
    }
    return NULL;
}

static td_status *replicate_all(td_plan *plan, const td_plan_request *request, const td_folded *folded)
{
    replicated r = {.plan = plan, .request = request, .folded = folded};
    td_status *status = TD_NEW(r.replicas, plan->n_sites + 1);
    if (!status)
        status = find_readers(&r);
    for (int32_t v = 0; v < folded->n_values && !status; v++) {
        bool here = plan->graph->values[v].class == TD_CLASS_PARAMETER && plan->sites[plan->values[v].device].is_host;
        if (!here || !(plan->values[v].offloaded || (!plan->training && request->replicated)))
            continue;
        r.parameter = v;
        r.dtype = folded->dtype[v] == TD_F32 ? plan->graph->values[v].dtype : folded->dtype[v];
        status = replicate(&r);
    }
    td_free(r.replicas);
    td_free(r.first);
    td_free(r.reader);
    return status;
}

/* ---- what is left over ------------------------------------------------------------------------------------------------------- */

static bool is_unread(const td_plan *plan, const int32_t *uses, const td_node *node)
{
    static const char *const left_over[] = {"cast", "clip_gradient"};
    bool may_go = false;
    for (size_t i = 0; i < sizeof left_over / sizeof *left_over; i++)
        may_go = may_go || strcmp(node->op->name, left_over[i]) == 0;
    return may_go && !uses[node->outputs[0]] && !plan->graph->values[node->outputs[0]].is_output;
}

static void count_uses(const td_plan *plan, const bool *keep, int32_t *uses)
{
    memset(uses, 0, (size_t)plan->graph->n_values * sizeof *uses);
    for (int32_t n = 0; n < plan->graph->n_nodes; n++)
        for (int32_t i = 0; keep[n] && i < plan->graph->nodes[n].n_inputs; i++)
            if (plan->graph->nodes[n].inputs[i] >= 0)
                uses[plan->graph->nodes[n].inputs[i]]++;
    for (int32_t n = 0; n < plan->graph->n_nodes; n++)
        if (keep[n] && plan->graph->nodes[n].after >= 0)
            uses[plan->graph->nodes[n].after]++;
    for (int32_t i = 0; i < plan->n_outputs; i++)
        uses[plan->outputs[i]]++;
    if (plan->loss >= 0)
        uses[plan->loss]++;
}

/* The update of the parameter that a casting or clipping op was for does what it did. */
static td_status *note_left_over(td_plan *plan, const td_node *node)
{
    const td_value_info *made = &plan->graph->values[node->outputs[0]], *values = plan->graph->values;
    const int32_t parameter = made->parameter >= 0 ? made->parameter : node->inputs[0];
    char *update = td_format("%s/update", values[parameter].name);
    if (!update)
        return no_memory(plan, parameter);
    td_status *status = td_name_map_get(&plan->graph->node_names, update) >= 0 /* not where it only evaluates */
                            ? td_plan_note_rewrite(plan, TD_BY_OFFLOAD, node, update)
                            : NULL;
    td_free(update);
    return status;
}

/* Folded updates go, and the casts and clippings that nobody reads any more, one after the other. */
static td_status *drop_left_over(td_plan *plan, const td_folded *folded)
{
    const td_graph *graph = plan->graph;
    bool *keep = NULL, *keep_value = NULL, changed = true;
    int32_t *uses = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(keep, graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(keep_value, graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(uses, graph->n_values + 1));
    memset(keep_value, 1, (size_t)graph->n_values);
    for (int32_t n = 0; n < graph->n_nodes; n++)
        keep[n] = n >= folded->n_nodes || !folded->gone[n];
    while (changed) {
        changed = false;
        count_uses(plan, keep, uses);
        for (int32_t n = 0; n < graph->n_nodes; n++) {
            if (!keep[n] || !is_unread(plan, uses, &graph->nodes[n]))
                continue;
            TD_TRY_OR(status, done, note_left_over(plan, &graph->nodes[n]));
            keep[n] = keep_value[graph->nodes[n].outputs[0]] = false;
            changed = true;
        }
    }
    status = td_plan_compact(plan, keep, keep_value);
done:
    td_free(keep);
    td_free(keep_value);
    td_free(uses);
    return status;
}

td_status *td_pass_offload(td_plan *plan, const td_plan_request *request)
{
    td_folded folded = {0};
    bool any = !plan->training && request->replicated;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        any = any || plan->values[v].offloaded;
    if (!any)
        return NULL;
    td_status *status = td_fold_offloaded(plan, &folded);
    if (!status)
        status = replicate_all(plan, request, &folded);
    if (!status)
        status = drop_left_over(plan, &folded);
    td_folded_deinit(&folded);
    return status;
}
