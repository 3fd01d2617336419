/* Pass: row-level early lookup. Where steps overlap, a lookup on the host that feeds an accelerator becomes lookup_early (may
 * run before the table's update of the step before, for bags that share no row with that batch) and lookup_rest (after it).
 *
 * Only where it is exact and can gain: ids and weights are inputs of the batch (the early part waits for nothing of its own
 * step: see cluster.c), the table is read by this lookup alone and written by its fused update of the same ids; and, left to choose, the accelerators have more to do than the host, which has to find
 * the shared rows on top. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

/* Estimated seconds of all nodes on the host, and of the busiest accelerator. */
static td_status *estimate_busy(const td_plan *plan, double *out_host, double *out_accelerator)
{
    double *busy = NULL;
    TD_TRY(TD_NEW(busy, plan->n_sites));
    td_status *status = NULL;
    for (int32_t n = 0; n < plan->graph->n_nodes && !status; n++) {
        const td_plan_site *site = &plan->sites[plan->nodes[n].device];
        td_kernel_call call;
        td_tensor *storage = NULL;
        status = td_plan_call(plan->graph, n, NULL, &call, &storage);
        if (status)
            break;
        td_cost cost = td_op_cost(plan->graph->nodes[n].op, &call);
        busy[plan->nodes[n].device] += td_plan_estimate(site, &cost);
        td_free(storage);
    }
    *out_host = *out_accelerator = 0;
    for (int32_t s = 0; s < plan->n_sites; s++)
        if (plan->sites[s].is_host)
            *out_host += busy[s];
        else if (busy[s] > *out_accelerator)
            *out_accelerator = busy[s];
    td_free(busy);
    return status;
}

static bool feeds_an_accelerator(const td_plan *plan, int32_t value)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++)
        for (int32_t i = 0; i < plan->graph->nodes[n].n_inputs; i++)
            if (plan->graph->nodes[n].inputs[i] == value && !plan->sites[plan->nodes[n].device].is_host)
                return true;
    return false;
}

/* All other nodes that touch the table: exactly one, its fused update from the same ids. */
static bool table_is_this_lookups_alone(const td_plan *plan, int32_t lookup)
{
    const td_graph *graph = plan->graph;
    int32_t table = graph->nodes[lookup].inputs[0], ids = graph->nodes[lookup].inputs[1], updates = 0;
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        bool touches = false;
        for (int32_t i = 0; i < node->n_inputs; i++)
            touches = touches || node->inputs[i] == table;
        if (n == lookup || !touches)
            continue;
        if (strcmp(node->op->name, "embedding_update") != 0 || node->inputs[2] != ids)
            return false;
        updates++;
    }
    return updates == 1;
}

static bool is_input(const td_plan *plan, int32_t value)
{
    return plan->graph->values[value].class == TD_CLASS_INPUT;
}

static bool may_split(const td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    if (!td_op_is_lookup(node->op) || !plan->sites[plan->nodes[id].device].is_host || node->inputs[1] < 0)
        return false;
    if (node->n_inputs > 2 && node->inputs[2] >= 0 && !is_input(plan, node->inputs[2]))
        return false;
    return plan->graph->values[node->inputs[0]].class == TD_CLASS_PARAMETER && is_input(plan, node->inputs[1]) &&
           feeds_an_accelerator(plan, node->outputs[0]) && table_is_this_lookups_alone(plan, id);
}

/* "ids@previous": the same input of the batch before. One per input. */
static td_status *previous_of(td_plan *plan, int32_t ids, td_value *out)
{
    td_graph *graph = plan->graph;
    const td_value_info *info = &graph->values[ids];
    char *name = td_format("%s@previous", info->name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an early lookup");
    *out = td_graph_find(graph, name);
    bool found = out->id >= 0 && plan->values[out->id].storage == TD_PREVIOUS; /* not a user's value of that name */
    if (!found)
        *out = td_graph_add_source(graph, TD_CLASS_INPUT, info->kind, name, info->dtype, info->shape, info->entries);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(td_plan_follow(plan));
    plan->values[out->id].storage = TD_PREVIOUS;
    plan->values[out->id].root = ids;
    plan->values[out->id].device = plan->host;
    return NULL;
}

static td_status *add_early_part(td_plan *plan, int32_t id, const td_attr attrs[2], td_value out[3])
{
    td_graph *graph = plan->graph;
    const td_node *node = &graph->nodes[id];
    td_value inputs[4] = {{graph, node->inputs[0]},
                          {graph, node->inputs[1]},
                          TD_NO_VALUE,
                          {graph, node->n_inputs > 2 ? node->inputs[2] : -1}};
    int32_t device = plan->nodes[id].device;
    TD_TRY(previous_of(plan, node->inputs[1], &inputs[2]));
    char *name = td_format("%s/early", graph->nodes[id].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an early lookup");
    graph->phase = TD_FORWARD;
    td_graph_add(graph, "lookup_early", name, inputs, 4, attrs, 2, out, 3);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(td_plan_follow(plan));
    td_plan_node *early = &plan->nodes[graph->values[out[0].id].producer];
    early->device = device;
    early->early = TD_EARLY_FIRST;
    early->cause = td_strdup("it looks up rows that the update of the step before does not touch");
    for (int32_t i = 0; i < 3; i++)
        plan->values[out[i].id].device = device;
    return early->cause ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an early lookup");
}

/* The lookup's own node becomes the rest: its name, its output and whoever reads that stay. */
static td_status *turn_into_rest(td_plan *plan, int32_t id, const td_value parts[3], const char *pooling)
{
    td_node *node = &plan->graph->nodes[id];
    int32_t *inputs = NULL;
    td_attr *attrs = NULL;
    TD_TRY(TD_NEW(inputs, 5));
    const int32_t all[5] = {node->inputs[0], node->inputs[1], parts[0].id, parts[1].id,
                            node->n_inputs > 2 ? node->inputs[2] : -1};
    memcpy(inputs, all, sizeof all);
    td_free(node->inputs);
    node->inputs = inputs;
    node->n_inputs = 5;
    node->op = td_op_find("lookup_rest");
    plan->nodes[id].early = TD_EARLY_REST;
    if (td_attr_find(node->attrs, node->n_attrs, "pooling"))
        return NULL;
    attrs = td_realloc(node->attrs, (size_t)node->n_attrs + 1, sizeof *attrs);
    if (!attrs)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an early lookup");
    node->attrs = attrs;
    attrs[node->n_attrs] = (td_attr){.key = td_strdup("pooling"), .type = TD_ATTR_STRING, .s = td_strdup(pooling)};
    node->n_attrs++;
    return attrs[node->n_attrs - 1].key && attrs[node->n_attrs - 1].s
               ? NULL
               : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an early lookup");
}

static td_status *split(td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    char *pooling = td_strdup(td_attr_string(node->attrs, node->n_attrs, "pooling", "none"));
    td_value parts[3];
    if (!pooling)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an early lookup");
    const td_attr attrs[2] = {TD_STRING("pooling", pooling),
                              TD_INT("offset", td_attr_int(node->attrs, node->n_attrs, "offset", 0))};
    td_status *status = add_early_part(plan, id, attrs, parts);
    if (!status)
        status = turn_into_rest(plan, id, parts, pooling);
    td_free(pooling);
    return status;
}

td_status *td_pass_early(td_plan *plan, const td_plan_request *request)
{
    double host = 0, accelerator = 0;
    int64_t n = plan->graph->n_nodes;
    const td_train_options *options = request->options;
    if (!plan->training || options->no_pipeline || options->early_lookup == TD_OFF)
        return NULL;
    if (plan->micro >= 0 && options->early_lookup == TD_ON)
        return td_status_help(
            TD_ERROR(TD_UNSUPPORTED, "early lookup knows the rows of one batch, and an update has those of up to %d",
                     plan->replicas * plan->most_accumulated),
            "set train.early_lookup: auto; lookups of a window's other batches wait for no update anyway");
    if (plan->micro >= 0)
        return NULL;
    TD_TRY(estimate_busy(plan, &host, &accelerator));
    if (options->early_lookup == TD_AUTO && host >= accelerator)
        return NULL;
    for (int32_t id = 0; id < n; id++)
        if (may_split(plan, id)) {
            TD_TRY(split(plan, id));
            plan->early_lookup = true;
        }
    return NULL;
}
