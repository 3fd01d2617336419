/* Pass: costs, ranks, and the sequence within each cluster.
 *
 * The rank of a node is the time from its start to the end of the step along the longest path, copies included (upward rank,
 * Topcuoglu et al. 2002). A lane takes its ready cluster of the highest rank; within a cluster nodes run by rank as far as
 * their edges allow, ties by name (but see is_prompt). The largest rank is the bound of a step. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

static double copy_seconds(const td_plan_site *site, int64_t bytes)
{
    double rate = site->properties.link_bytes_per_s > 0 ? site->properties.link_bytes_per_s : 1e10;
    return site->properties.link_latency_s + (double)bytes / rate;
}

static td_status *cost_of(td_plan *plan, int32_t id)
{
    td_plan_node *p = &plan->nodes[id];
    const td_node *node = &plan->graph->nodes[id];
    const td_plan_site *site = &plan->sites[p->device];
    td_kernel_call call;
    td_tensor *storage = NULL;
    TD_TRY(td_plan_call(plan->graph, id, NULL, &call, &storage));
    if (node->op->flags & TD_OP_VIEW) {
        p->seconds = 0;
    } else if (p->lane != TD_QUEUE_COMPUTE) {
        p->cost.bytes_read = p->cost.bytes_written = (double)td_tensor_bytes(&call.inputs[0]);
        p->seconds = copy_seconds(site, td_tensor_bytes(&call.inputs[0]));
    } else {
        p->cost = td_op_cost(node->op, &call);
        p->seconds = site->api->estimate_seconds ? site->api->estimate_seconds(site->device, &call)
                                                 : td_plan_estimate(site, &p->cost);
    }
    td_free(storage);
    return NULL;
}

/* For each node: what its rank is at least, from the step after; NULL: nothing. */
static void find_ranks(td_plan *plan, const td_edges *edges, const int32_t *order, const double *next)
{
    for (int64_t i = plan->graph->n_nodes - 1; i >= 0; i--) {
        int32_t a = order[i];
        double longest = next ? next[a] : 0;
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++)
            if (plan->nodes[edges->to[k]].rank > longest)
                longest = plan->nodes[edges->to[k]].rank;
        plan->nodes[a].rank = longest + plan->nodes[a].seconds;
    }
}

/* By rank the gradients of parameters come last, when nothing waits for them any more, and would keep what they read until then:
 * where backward computes again to save memory, they and whatever else reads what was computed again run first. So they do in a
 * job, and leave for the other ranks while backward goes on; but where tables are served, what they wait for is more urgent. */
static bool is_prompt(const td_graph *graph, const td_node *node)
{
    if (node->phase != TD_BACKWARD)
        return false;
    if (node->op->flags & TD_OP_REMOTE)
        return !strcmp(node->op->name, "rank_send");
    for (int32_t i = 0; i < node->n_outputs; i++)
        if (graph->values[node->outputs[i]].parameter >= 0)
            return true;
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t producer = node->inputs[i] < 0 ? -1 : graph->values[node->inputs[i]].producer;
        if (producer >= 0 && graph->nodes[producer].after >= 0)
            return true;
    }
    return false;
}

static void find_prompt(td_plan *plan)
{
    const td_graph *graph = plan->graph;
    const bool prompts = plan->n_recomputed || (plan->in_job && !plan->n_served);
    for (int32_t i = 0; i < graph->n_nodes; i++)
        plan->nodes[i].prompt = prompts && is_prompt(graph, &graph->nodes[i]);
    for (int32_t i = 0; i < graph->n_nodes;
         i++) { /* the loss, which nothing else waits for, leaves before all gradients */
        const td_node *node = &graph->nodes[i];
        const bool first = !strcmp(node->op->name, "rank_send") && node->inputs[0] < 0;
        if (first && graph->values[node->inputs[1]].producer >= 0)
            plan->nodes[graph->values[node->inputs[1]].producer].prompt = true;
    }
}

static void find_bound(td_plan *plan)
{
    for (int64_t n = 0; n < plan->graph->n_nodes; n++)
        if (plan->nodes[n].rank > plan->bound_s)
            plan->bound_s = plan->nodes[n].rank;
}

/* A refresh makes what forward of the next step reads: it, and the update before it, are as urgent as the first of those readers. */
static td_status *rank_refreshes(td_plan *plan, const td_edges *edges, const int32_t *order)
{
    double *reader = NULL, *next = NULL;
    bool any = false;
    TD_TRY(TD_NEW(reader, plan->graph->n_values + 1));
    td_status *status = TD_NEW(next, plan->graph->n_nodes + 1);
    for (int32_t n = 0; n < plan->graph->n_nodes && !status; n++)
        for (int32_t i = 0; i < plan->graph->nodes[n].n_inputs; i++) {
            int32_t value = plan->graph->nodes[n].inputs[i];
            value = value < 0 ? value : td_graph_behind_views(plan->graph, value);
            if (value >= 0 && plan->nodes[n].rank > reader[value])
                reader[value] = plan->nodes[n].rank;
        }
    for (int32_t n = 0; n < plan->graph->n_nodes && !status; n++) {
        const td_node *node = &plan->graph->nodes[n];
        bool refreshes = plan->nodes[n].lane == TD_QUEUE_TO_DEVICE && node->n_outputs == 0;
        next[n] = refreshes ? reader[td_graph_behind_views(plan->graph, td_copied_to(node))] : 0;
        any = any || refreshes;
    }
    if (any)
        find_ranks(plan, edges, order, next);
    td_free(reader);
    td_free(next);
    return status;
}

/* ---- sequence ------------------------------------------------------------------------------------------------------------------ */

typedef struct ready_heap {
    int32_t *items;
    int32_t n;
    const td_plan_node *nodes;
    const int32_t *name_rank;
} ready_heap;

static bool runs_before(const ready_heap *h, int32_t a, int32_t b)
{
    if (h->nodes[a].prompt != h->nodes[b].prompt)
        return h->nodes[a].prompt;
    if (h->nodes[a].rank != h->nodes[b].rank)
        return h->nodes[a].rank > h->nodes[b].rank;
    return h->name_rank[a] < h->name_rank[b];
}

static void push(ready_heap *h, int32_t item)
{
    int32_t i = h->n++;
    for (; i > 0 && runs_before(h, item, h->items[(i - 1) / 2]); i = (i - 1) / 2)
        h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = item;
}

static int32_t pop(ready_heap *h)
{
    int32_t top = h->items[0], item = h->items[--h->n], i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child + 1 < h->n && runs_before(h, h->items[child + 1], h->items[child]))
            child++;
        if (child >= h->n || !runs_before(h, h->items[child], item))
            break;
        h->items[i] = h->items[child];
        i = child;
    }
    h->items[i] = item;
    return top;
}

/* Kahn's algorithm over all nodes by rank; appending each node to its cluster keeps edges within clusters in order. */
static td_status *sequence_nodes(td_plan *plan, td_edges *edges, ready_heap *h)
{
    int64_t n = plan->graph->n_nodes;
    int32_t *fill = NULL;
    TD_TRY(TD_NEW(plan->sequence, n + 1));
    TD_TRY(TD_NEW(fill, plan->n_clusters + 1));
    for (int32_t c = 0, at = 0; c < plan->n_clusters; c++) {
        plan->clusters[c].first = fill[c] = at;
        at += plan->clusters[c].n;
    }
    for (int32_t i = 0; i < n; i++)
        if (!edges->indegree[i])
            push(h, i);
    while (h->n) {
        int32_t node = pop(h), cluster = plan->nodes[node].cluster;
        plan->nodes[node].position = fill[cluster] - plan->clusters[cluster].first;
        plan->sequence[fill[cluster]++] = node;
        for (int32_t k = edges->first[node]; k < edges->first[node + 1]; k++)
            if (--edges->indegree[edges->to[k]] == 0)
                push(h, edges->to[k]);
    }
    td_free(fill);
    return NULL;
}

/* ---- clusters ---------------------------------------------------------------------------------------------------------------------- */

/* Ranks were found as if each copy went alone. */
static td_status *finish_clusters(td_plan *plan)
{
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        td_cluster *cluster = &plan->clusters[c];
        for (int32_t i = 0; i < cluster->n; i++) {
            td_plan_node *p = &plan->nodes[plan->sequence[cluster->first + i]];
            if (p->lane != TD_QUEUE_COMPUTE && !td_plan_pays_latency(plan, p))
                p->seconds -= plan->sites[p->device].properties.link_latency_s;
            cluster->seconds += p->seconds;
            cluster->rank = p->rank > cluster->rank ? p->rank : cluster->rank;
        }
    }
    return td_plan_name_clusters(plan);
}

static td_status *verify(const td_plan *plan, const td_edges *edges)
{
    for (int32_t a = 0; a < plan->graph->n_nodes; a++)
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++) {
            const td_plan_node *p = &plan->nodes[a], *q = &plan->nodes[edges->to[k]];
            bool ordered = p->cluster == q->cluster ? p->position < q->position
                                                    : plan->chains[p->cluster].order < plan->chains[q->cluster].order;
            if (!ordered)
                return TD_ERROR(TD_INTERNAL, "order: \"%s\" must run before \"%s\"", plan->graph->nodes[a].name,
                                plan->graph->nodes[edges->to[k]].name);
        }
    return NULL;
}

td_status *td_pass_order(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    td_edges edges = {0};
    ready_heap h = {.nodes = plan->nodes};
    int32_t *order = NULL, *ranks = NULL;
    td_status *status = NULL;
    for (int32_t i = 0; i < plan->graph->n_nodes; i++)
        TD_TRY(cost_of(plan, i));
    TD_TRY_OR(status, done, td_graph_order(plan->graph, &order));
    TD_TRY_OR(status, done, td_graph_edges(plan->graph, &edges));
    TD_TRY_OR(status, done, td_graph_name_ranks(plan->graph, &ranks));
    TD_TRY_OR(status, done, TD_NEW(h.items, plan->graph->n_nodes + 1));
    h.name_rank = ranks;
    find_ranks(plan, &edges, order, NULL);
    find_bound(plan);
    TD_TRY_OR(status, done, rank_refreshes(plan, &edges, order));
    find_prompt(plan);
    TD_TRY_OR(status, done, sequence_nodes(plan, &edges, &h));
    TD_TRY_OR(status, done, finish_clusters(plan));
    TD_TRY_OR(status, done, verify(plan, &edges));
done:
    td_free(order);
    td_free(ranks);
    td_free(h.items);
    td_edges_deinit(&edges);
    return status;
}
