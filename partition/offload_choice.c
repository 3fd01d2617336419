/* Which updates are made on the host: part of the pass place.
 *
 * A rule for an update decides alone. Of the others, offload.optimizer moves all (cpu), at least a share of their numbers (ratio), or
 * all but as many as the device has room for (auto; the planner tries how many: runtime/planning.c). What stays on the device is what
 * forward reads first: its gradients come last and it is needed again first, so its way to the host and back would be waited for. In
 * that order, which depends on the graph alone, one parameter lies where the share ends: it is split at a block (split.c) where its
 * update can be made in two places, and goes whole where not, which the plan says (td_plan.unsplit).
 *
 * What the workers of a job share (shard.h) is the host's, whatever offload.optimizer says: it travels between hosts. */
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "partition/place.h"
#include "partition/shard.h"

/* A rule that is meant for an update ("*" + "/update"): the first that matches its name, unless the parameter's name matches it too. */
static const td_option_entry *rule_of_update(const td_plan *plan, const td_plan_request *request, const td_node *update)
{
    const td_option_entry *own = td_place_rule_of(request, update->name);
    return own && !td_glob_match(own->match, plan->graph->values[td_plan_updated(plan, update)].name) ? own : NULL;
}

char *td_why_offloaded(const td_plan *plan, const td_plan_request *request, const td_node *update)
{
    const td_option_entry *rule = rule_of_update(plan, request, update);
    const td_train_options *options = request->options;
    if (td_plan_shard_of(plan, td_plan_updated(plan, update)))
        return td_strdup("ps.shard_optimizer shares its update out among the workers");
    if (rule)
        return td_format("%s says so", rule->cause);
    if (options->offload_optimizer == TD_OFFLOAD_AUTO)
        return td_strdup("offload.optimizer is auto, and its state does not fit beside the rest");
    return options->offload_ratio < 1 ? td_format("offload.optimizer is {ratio: %g}", options->offload_ratio)
                                      : td_strdup("offload.optimizer is cpu");
}

static td_status *refuse(const td_plan *plan, const td_node *update, const char *why)
{
    const char *parameter = plan->graph->values[update->inputs[0]].name;
    td_status *status =
        TD_ERROR(TD_UNSUPPORTED, "\"%s\" is read by rows on %s, so its update cannot be offloaded from there (%s)",
                 parameter, plan->sites[plan->values[update->inputs[0]].device].name, why);
    return td_status_help(status,
                          "try: offload.embedding: cpu, or a rule \"%s\" with target %s: the table is then updated "
                          "where it is looked up",
                          parameter, plan->sites[plan->host].name);
}

static bool takes_dense(const td_plan *plan, const td_node *update)
{
    return td_rule_find(update->op->name) && plan->graph->values[update->inputs[1]].kind == TD_DENSE;
}

static void offload(td_plan *plan, int32_t parameter)
{
    td_plan_value *value = &plan->values[parameter];
    value->offloaded = true;
    value->used_at = value->device;
    value->device = plan->host;
}

static td_status *apply_rule(td_plan *plan, const td_option_entry *rule, const td_node *update)
{
    const td_plan_value *parameter = &plan->values[update->inputs[0]];
    int32_t site = td_plan_find_site(plan->sites, plan->n_sites, plan->host, plan->standard, rule->value);
    if (site == parameter->device)
        return NULL;
    if (!plan->sites[site].is_host)
        return TD_ERROR(TD_UNSUPPORTED,
                        "%s puts \"%s\" on %s: an update runs where its parameter is read (%s) or on %s", rule->cause,
                        update->name, plan->sites[site].name, plan->sites[parameter->device].name,
                        plan->sites[plan->host].name);
    if (!takes_dense(plan, update))
        return refuse(plan, update, rule->cause);
    offload(plan, update->inputs[0]);
    return NULL;
}

/* Shared parameters are the host's. A rule may not say otherwise of one that this worker updates. */
static td_status *offload_shared(td_plan *plan, const td_plan_request *request)
{
    for (int32_t n = 0; n < plan->graph->n_nodes && plan->n_shards; n++) {
        const td_node *update = &plan->graph->nodes[n];
        if (!td_rule_find(update->op->name) || !td_plan_shard_of(plan, td_plan_updated(plan, update)))
            continue;
        const td_option_entry *rule = rule_of_update(plan, request, update);
        if (rule && !plan->sites[td_plan_find_site(plan->sites, plan->n_sites, plan->host, plan->standard, rule->value)]
                         .is_host)
            return td_status_help(TD_ERROR(TD_UNSUPPORTED,
                                           "%s puts \"%s\" on %s: what ps.shard_optimizer shares is updated on %s",
                                           rule->cause, update->name, rule->value, plan->sites[plan->host].name),
                                  "leave the rule or ps.shard_optimizer out");
    }
    for (int32_t i = 0; i < plan->n_shards; i++)
        if (!plan->sites[plan->values[plan->shards[i].parameter].device].is_host)
            offload(plan, plan->shards[i].parameter);
    return NULL;
}

/* ---- what offload.optimizer may move ------------------------------------------------------------------------------------------ */

typedef struct movable {
    int32_t parameter, update, depth; /* depth: of the first op that reads it */
    int64_t elements;
    const char *name;
} movable;

static int compare_movables(const void *a, const void *b)
{
    const movable *x = a, *y = b;
    return x->depth != y->depth ? (x->depth < y->depth ? -1 : 1) : strcmp(x->name, y->name);
}

/* What reads a parameter so and computes nothing of it, its cast to 16 bit or a view, is as near to it as all others are: who reads
 * what that gives counts. */
static bool is_looked_through(const td_node *node)
{
    return node->op->flags & TD_OP_VIEW || strcmp(node->op->name, "cast") == 0;
}

/* first[v]: the longest path, in edges, to the nearest forward op that reads parameter v. */
static td_status *find_depths(const td_plan *plan, int32_t *first)
{
    const td_graph *graph = plan->graph;
    td_edges edges = {0};
    int32_t *order = NULL, *depth = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, td_graph_edges(graph, &edges));
    TD_TRY_OR(status, done, td_graph_order(graph, &order));
    TD_TRY_OR(status, done, TD_NEW(depth, graph->n_nodes + 1));
    for (int64_t i = 0; i < graph->n_nodes; i++)
        for (int32_t k = edges.first[order[i]]; k < edges.first[order[i] + 1]; k++)
            if (depth[edges.to[k]] <= depth[order[i]])
                depth[edges.to[k]] = depth[order[i]] + 1;
    for (int64_t v = 0; v < graph->n_values; v++)
        first[v] = INT32_MAX;
    for (int64_t k = graph->n_nodes - 1; k >= 0; k--) { /* readers before what they read */
        const td_node *node = &graph->nodes[order[k]];
        int32_t at = is_looked_through(node) ? INT32_MAX : depth[order[k]];
        for (int32_t i = 0; is_looked_through(node) && i < node->n_outputs; i++)
            at = first[node->outputs[i]] < at ? first[node->outputs[i]] : at;
        for (int32_t i = 0; node->phase == TD_FORWARD && i < node->n_inputs; i++)
            if (node->inputs[i] >= 0 && at < first[node->inputs[i]])
                first[node->inputs[i]] = at;
    }
done:
    td_edges_deinit(&edges);
    td_free(order);
    td_free(depth);
    return status;
}

static int64_t elements_of(const td_plan *plan, int32_t value)
{
    td_tensor tensor;
    td_value_tensor(plan->graph, value, NULL, &tensor);
    return td_tensor_elements(&tensor);
}

/* How many of the movables, which are in order, stay on their device whole; *out_blocks: how many blocks of the next one may. */
static int32_t count_kept(const td_plan_request *request, const movable *all, int32_t n, int64_t *out_blocks)
{
    int64_t total = 0;
    int32_t count = 0;
    *out_blocks = request->keep_blocks;
    if (request->options->offload_optimizer == TD_OFFLOAD_AUTO)
        return request->keep < n ? (int32_t)request->keep : n;
    for (int32_t i = 0; i < n; i++)
        total += all[i].elements;
    int64_t room = (int64_t)((1 - request->options->offload_ratio) * (double)total + 1e-6); /* 0.4 of 10 is 4 */
    while (count < n && all[count].elements <= room)
        room -= all[count++].elements;
    *out_blocks = room / TD_BLOCK;
    return count;
}

/* Why the update of a parameter cannot be made in two places; NULL: it can. */
static const char *whole_because(const td_plan *plan, const movable *m)
{
    const td_node *update = &plan->graph->nodes[m->update];
    if (plan->graph->values[m->parameter].dtype != TD_F32)
        return "it has no f32 master (offload.master: none)";
    if (!td_rule_is_elementwise(td_rule_find(update->op->name)))
        return "its optimizer looks at more than one element at a time";
    if (update->delayed)
        return "its gradient waits for the next step (offload.delayed)";
    return plan->in_job ? "the ranks of a job share its update" : NULL;
}

/* The parameter where the share ends. */
static td_status *divide(td_plan *plan, const td_plan_request *request, const movable *m, int64_t blocks)
{
    const int64_t most = (m->elements - 1) / TD_BLOCK;
    const char *why = whole_because(plan, m);
    blocks = blocks < most ? blocks : most;
    plan->splits = why ? 0 : most;
    if (!why && blocks > 0) {
        plan->values[m->parameter].kept = true;
        plan->values[m->parameter].split = blocks * TD_BLOCK;
        return NULL;
    }
    offload(plan, m->parameter);
    if (!why || most <= 0 || (blocks <= 0 && request->options->offload_optimizer != TD_OFFLOAD_AUTO))
        return NULL;
    plan->unsplit = td_format("\"%s\" is offloaded whole: %s", m->name, why);
    return plan->unsplit ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for what is offloaded");
}

static td_status *move(td_plan *plan, const td_plan_request *request, movable *all, int32_t n)
{
    int32_t *first = NULL;
    TD_TRY(TD_NEW(first, plan->graph->n_values + 1));
    td_status *status = find_depths(plan, first);
    for (int32_t i = 0; i < n && !status; i++)
        all[i].depth = first[all[i].parameter];
    td_free(first);
    if (status)
        return status;
    qsort(all, (size_t)n, sizeof *all, compare_movables);
    plan->n_movable = n;
    int64_t blocks = 0;
    const int32_t kept = count_kept(request, all, n, &blocks);
    for (int32_t i = 0; i < kept; i++)
        plan->values[all[i].parameter].kept = true;
    for (int32_t i = kept + 1; i < n; i++)
        offload(plan, all[i].parameter);
    return kept < n ? divide(plan, request, &all[kept], blocks) : NULL;
}

static td_status *choose(td_plan *plan, const td_plan_request *request, movable *all, int32_t *out_n)
{
    td_offload how = request->options->offload_optimizer;
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *update = &plan->graph->nodes[n];
        if (update->phase != TD_UPDATE || !update->n_inputs || update->inputs[0] < 0 || /* a question to servers */
            plan->graph->values[update->inputs[0]].class != TD_CLASS_PARAMETER ||
            td_plan_shard_of(plan, update->inputs[0]) || plan->sites[plan->values[update->inputs[0]].device].is_host)
            continue;
        int32_t parameter = update->inputs[0];
        const td_option_entry *rule = rule_of_update(plan, request, update);
        if (rule)
            TD_TRY(apply_rule(plan, rule, update));
        if (rule || how == TD_OFFLOAD_NONE || (how == TD_OFFLOAD_AUTO && !takes_dense(plan, update)))
            continue;
        if (!takes_dense(plan, update))
            return refuse(plan, update, "offload.optimizer");
        all[(*out_n)++] = (movable){.parameter = parameter,
                                    .update = n,
                                    .elements = elements_of(plan, parameter),
                                    .name = plan->graph->values[parameter].name};
    }
    return NULL;
}

td_status *td_place_offloaded(td_plan *plan, const td_plan_request *request)
{
    movable *all = NULL;
    int32_t n = 0;
    TD_TRY(TD_NEW(all, plan->graph->n_nodes + 1));
    td_status *status = offload_shared(plan, request);
    if (!status)
        status = choose(plan, request, all, &n);
    if (!status && n)
        status = move(plan, request, all, n);
    td_free(all);
    for (int32_t v = 0; v < plan->graph->n_values && !status; v++)
        if (plan->graph->values[v].class == TD_CLASS_STATE)
            plan->values[v].device = plan->values[plan->graph->values[v].parameter].device;
    return status;
}
