/* Pass: nodes become clusters (subgraphs), each run in sequence by one lane.
 *
 * Merging whatever is connected can go wrong:
 *
 *     a (cpu) -> b (accel) -> c (cpu)        a and c in one cluster: it would wait for b, and b for it.
 *       \_____________________^
 *
 * So every node gets two levels: how many times a path from a source to it changes lane, at most (`down`), and likewise from
 * it to an end (`up`). Along an edge within a lane neither level goes the wrong way; along an edge that changes lane `down`
 * grows and `up` falls. Hence any grouping within equal (lane, down, up) keeps the quotient acyclic and each cluster convex.
 * `up` keeps what another lane waits for apart from what nobody waits for: the gradient of a host table leaves before the
 * dense layers' own updates are made.
 *
 * Where the optimizer is offloaded, stages (stages.c) cut these groups further; a stage never falls along an edge either.
 *
 * The early parts of lookups (early.c) are kept apart too: they must not wait for the table's update.
 *
 * On a device with one lane all of such a group runs as one cluster (copies: up to a bucket of bytes). With several lanes,
 * chains stay apart, so that independent branches run at the same time; more than MOST_CHAINS of them are bundled
 * (cluster_blocks.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/cluster.h"

enum { COPY_BUCKET_BYTES = 8 << 20, MOST_CHAINS = 1024 };

static bool same_lane(const td_plan *plan, int32_t a, int32_t b)
{
    return plan->nodes[a].device == plan->nodes[b].device && plan->nodes[a].lane == plan->nodes[b].lane;
}

static void find_levels(const td_plan *plan, const td_edges *edges, const int32_t *order, td_levels *l)
{
    int64_t n = plan->graph->n_nodes;
    for (int64_t i = 0; i < n; i++) {
        int32_t a = order[i];
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++) {
            int32_t b = edges->to[k], level = l->down[a] + !same_lane(plan, a, b);
            l->down[b] = level > l->down[b] ? level : l->down[b];
        }
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        int32_t a = order[i];
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++) {
            int32_t b = edges->to[k], level = l->up[b] + !same_lane(plan, a, b);
            l->up[a] = level > l->up[a] ? level : l->up[a];
        }
    }
}

/* ---- grouping ---------------------------------------------------------------------------------------------------------------- */

typedef struct group_key {
    int32_t device, lane, down, up, stage;
    /* 0: an early part of a lookup, which must not wait for what the others wait for; nothing leads into it */
    int32_t late;
    int32_t node; /* the place in the topological order */
} group_key;

static int compare_keys(const void *a, const void *b)
{
    const group_key *x = a, *y = b;
    const int32_t left[] = {x->down, x->device, x->lane, -x->up, x->stage, x->late, x->node},
                  right[] = {y->down, y->device, y->lane, -y->up, y->stage, y->late, y->node};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

static bool same_group(const group_key *a, const group_key *b)
{
    return a->device == b->device && a->lane == b->lane && a->down == b->down && a->up == b->up &&
           a->stage == b->stage && a->late == b->late;
}

static int64_t copied_bytes(const td_plan *plan, int32_t node)
{
    int64_t bytes[3];
    td_value_bytes(plan->graph, td_copied_to(&plan->graph->nodes[node]), NULL, bytes);
    return bytes[0] + bytes[1] + bytes[2];
}

/* One cluster per group, copies cut into buckets. */
static void by_group(td_plan *plan, td_node_group group)
{
    int64_t bytes = 0;
    int32_t cluster = plan->n_clusters++;
    for (int64_t i = 0; i < group.n; i++) {
        int32_t node = group.nodes[i];
        if (plan->nodes[node].lane != TD_QUEUE_COMPUTE) {
            int64_t more = copied_bytes(plan, node);
            if (bytes && bytes + more > COPY_BUCKET_BYTES) {
                cluster = plan->n_clusters++;
                bytes = 0;
            }
            bytes += more;
        }
        plan->nodes[node].cluster = cluster;
    }
}

bool td_cluster_inside(const td_plan *plan, const td_levels *l, int32_t before, int32_t node)
{
    return same_lane(plan, before, node) && l->down[before] == l->down[node] && l->up[before] == l->up[node] &&
           l->stage[before] == l->stage[node] && plan->nodes[before].early != TD_EARLY_FIRST;
}

/* Chains: a node joins the cluster of its predecessors in the group when they are all in one cluster and it is the first to
 * follow that cluster's last node. Edges within the group then enter a cluster only at its first node. */
static void by_chain(td_plan *plan, const td_edges *back, const td_levels *l, td_node_group group, int32_t *last)
{
    for (int64_t i = 0; i < group.n; i++) {
        int32_t node = group.nodes[i], joined = -1;
        bool one = true, follows_last = false;
        for (int32_t k = back->first[node]; k < back->first[node + 1]; k++) {
            int32_t before = back->to[k];
            if (!td_cluster_inside(plan, l, before, node))
                continue;
            one = one && (joined < 0 || joined == plan->nodes[before].cluster);
            joined = plan->nodes[before].cluster;
            follows_last = follows_last || last[joined] == before;
        }
        int32_t cluster = joined >= 0 && one && follows_last ? joined : plan->n_clusters++;
        plan->nodes[node].cluster = cluster;
        last[cluster] = node;
    }
}

static td_status *by_chain_or_block(td_plan *plan, const td_edges *back, const td_levels *l, td_node_group group,
                                    int32_t *last)
{
    int32_t before = plan->n_clusters;
    by_chain(plan, back, l, group, last);
    if (plan->n_clusters - before <= MOST_CHAINS)
        return NULL;
    plan->n_clusters = before;
    return td_cluster_by_block(plan, back, l, group, MOST_CHAINS);
}

static td_status *reverse(const td_edges *edges, int64_t n, td_edges *out)
{
    *out = (td_edges){0};
    TD_TRY(TD_NEW(out->first, n + 2));
    TD_TRY(TD_NEW(out->to, edges->first[n] + 1));
    TD_TRY(TD_NEW(out->indegree, n + 1));
    for (int32_t k = 0; k < edges->first[n]; k++)
        out->first[edges->to[k] + 1]++;
    for (int64_t i = 0; i < n; i++) {
        out->first[i + 1] += out->first[i];
        out->indegree[i] = out->first[i]; /* used as the fill position */
    }
    for (int32_t a = 0; a < n; a++)
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++)
            out->to[out->indegree[edges->to[k]]++] = a;
    return NULL;
}

static td_status *group_nodes(td_plan *plan, const td_edges *edges, const int32_t *order, const td_levels *l)
{
    int64_t n = plan->graph->n_nodes;
    group_key *keys = NULL;
    int32_t *last = NULL, *nodes = NULL;
    td_edges back = {0};
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(keys, n + 1));
    TD_TRY_OR(status, done, TD_NEW(last, n + 1));
    TD_TRY_OR(status, done, TD_NEW(nodes, n + 1));
    TD_TRY_OR(status, done, reverse(edges, n, &back));
    for (int32_t i = 0; i < n; i++) {
        const td_plan_node *p = &plan->nodes[order[i]];
        keys[i] = (group_key){p->device,
                              (int32_t)p->lane,
                              l->down[order[i]],
                              l->up[order[i]],
                              l->stage[order[i]],
                              p->early != TD_EARLY_FIRST,
                              i};
    }
    qsort(keys, (size_t)n, sizeof *keys, compare_keys);
    for (int64_t i = 0; i < n; i++)
        nodes[i] = order[keys[i].node];
    for (int64_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && same_group(&keys[begin], &keys[end]); end++)
            ;
        bool chains = keys[begin].lane == TD_QUEUE_COMPUTE && plan->sites[keys[begin].device].lanes > 1;
        td_node_group group = {nodes + begin, end - begin};
        if (chains)
            TD_TRY_OR(status, done, by_chain_or_block(plan, &back, l, group, last));
        else
            by_group(plan, group);
    }
done:
    td_free(keys);
    td_free(last);
    td_free(nodes);
    td_edges_deinit(&back);
    return status;
}

/* ---- the quotient -------------------------------------------------------------------------------------------------------------- */

static int compare_pairs(const void *a, const void *b)
{
    const td_cluster_pair *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Adds each distinct pair to `after` of from and `before` of to. */
static td_status *link_pairs(td_plan *plan, const td_cluster_pair *pairs, int64_t n)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++) {
            if (i && compare_pairs(&pairs[i - 1], &pairs[i]) == 0)
                continue;
            td_cluster *a = &plan->clusters[pairs[i].from], *b = &plan->clusters[pairs[i].to];
            if (pass) {
                a->after[a->n_after] = pairs[i].to;
                b->before[b->n_before] = pairs[i].from;
            }
            a->n_after++;
            b->n_before++;
        }
        for (int32_t c = 0; !pass && c < plan->n_clusters; c++) {
            td_cluster *cluster = &plan->clusters[c];
            TD_TRY(TD_NEW(cluster->after, cluster->n_after + 1));
            TD_TRY(TD_NEW(cluster->before, cluster->n_before + 1));
            cluster->n_after = cluster->n_before = 0;
        }
    }
    return NULL;
}

static td_status *make_clusters(td_plan *plan)
{
    TD_TRY(TD_NEW(plan->clusters, plan->n_clusters + 1));
    for (int32_t i = 0; i < plan->graph->n_nodes; i++) {
        td_cluster *cluster = &plan->clusters[plan->nodes[i].cluster];
        cluster->device = plan->nodes[i].device;
        cluster->lane = plan->nodes[i].lane;
        cluster->n++;
    }
    return NULL;
}

/* Forgets what an earlier call found. */
static void unlink_clusters(td_plan *plan)
{
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        td_cluster *cluster = &plan->clusters[c];
        td_free(cluster->before);
        td_free(cluster->after);
        cluster->before = cluster->after = NULL;
        cluster->n_before = cluster->n_after = 0;
    }
    td_free(plan->chains);
    td_free(plan->reach);
    plan->chains = NULL;
    plan->reach = NULL;
    plan->n_chains = plan->n_known_chains = 0;
}

td_status *td_cluster_link(td_plan *plan, const td_cluster_pair *more, int64_t n_more)
{
    int64_t n = plan->graph->n_nodes, count = 0;
    td_edges edges = {0};
    td_cluster_pair *pairs = NULL;
    td_status *status = NULL;
    unlink_clusters(plan);
    TD_TRY_OR(status, done, td_graph_edges(plan->graph, &edges));
    TD_TRY_OR(status, done, TD_NEW(pairs, edges.first[n] + n_more + 1));
    for (int32_t a = 0; a < n; a++)
        for (int32_t k = edges.first[a]; k < edges.first[a + 1]; k++)
            if (plan->nodes[a].cluster != plan->nodes[edges.to[k]].cluster)
                pairs[count++] = (td_cluster_pair){plan->nodes[a].cluster, plan->nodes[edges.to[k]].cluster};
    for (int64_t i = 0; i < n_more; i++)
        pairs[count++] = more[i];
    qsort(pairs, (size_t)count, sizeof *pairs, compare_pairs);
    TD_TRY_OR(status, done, link_pairs(plan, pairs, count));
    status = td_plan_find_reach(plan);
done:
    td_edges_deinit(&edges);
    td_free(pairs);
    return status;
}

td_status *td_pass_cluster(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    td_edges edges = {0};
    td_levels l = {0};
    int32_t *order = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, td_graph_order(plan->graph, &order));
    TD_TRY_OR(status, done, td_graph_edges(plan->graph, &edges));
    TD_TRY_OR(status, done, TD_NEW(l.down, plan->graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(l.up, plan->graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(l.stage, plan->graph->n_nodes + 1));
    find_levels(plan, &edges, order, &l);
    TD_TRY_OR(status, done, td_cluster_stages(plan, &edges, order, l.stage));
    TD_TRY_OR(status, done, group_nodes(plan, &edges, order, &l));
    TD_TRY_OR(status, done, make_clusters(plan));
    status = td_cluster_link(plan, NULL, 0);
done:
    td_free(order);
    td_free(l.down);
    td_free(l.up);
    td_free(l.stage);
    td_edges_deinit(&edges);
    return status;
}
