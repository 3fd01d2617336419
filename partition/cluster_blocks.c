/* Groups with too many chains to be a cluster each: thousands of tiny ops would cost more to hand out than to run.
 *
 * Nodes have a depth within the group (the longest path of its edges that leads to them). The group is cut into blocks of
 * consecutive depths, and within a block what is connected is put together, bundle by bundle, until each lane has about two.
 * An edge never leads to a lower block, and none leads from one bundle of a block to another. So the quotient is acyclic, and
 * a path that leaves a bundle has left its block for good: bundles are convex. */
#include <string.h>

#include "base/memory.h"
#include "partition/cluster.h"

enum { BUNDLES_PER_LANE = 2 };

typedef struct blocks {
    td_plan *plan;
    const td_edges *back;
    const td_levels *levels;
    td_node_group group;
    int32_t *depth;  /* of each node of the graph */
    int32_t *parent; /* of each node: towards the first of its component */
    int32_t *size;   /* of each component */
    int32_t *bundle; /* of each component: its cluster, or -1 */
    int32_t n_depths, depths_per_block, bundles;
} blocks;

static int32_t block_of(const blocks *b, int32_t node)
{
    return b->depth[node] / b->depths_per_block;
}

static void find_depths(blocks *b)
{
    for (int64_t i = 0; i < b->group.n; i++) {
        int32_t node = b->group.nodes[i];
        for (int32_t k = b->back->first[node]; k < b->back->first[node + 1]; k++) {
            int32_t before = b->back->to[k];
            if (td_cluster_inside(b->plan, b->levels, before, node) && b->depth[before] + 1 > b->depth[node])
                b->depth[node] = b->depth[before] + 1;
        }
        b->n_depths = b->depth[node] + 1 > b->n_depths ? b->depth[node] + 1 : b->n_depths;
    }
}

static int32_t component_of(blocks *b, int32_t node)
{
    while (b->parent[node] != node) {
        b->parent[node] = b->parent[b->parent[node]];
        node = b->parent[node];
    }
    return node;
}

static void connect(blocks *b)
{
    for (int64_t i = 0; i < b->group.n; i++) {
        int32_t node = b->group.nodes[i];
        b->parent[node] = node;
        b->size[node] = 1;
        b->bundle[node] = -1;
        for (int32_t k = b->back->first[node]; k < b->back->first[node + 1]; k++) {
            int32_t before = b->back->to[k];
            if (!td_cluster_inside(b->plan, b->levels, before, node) || block_of(b, before) != block_of(b, node))
                continue;
            int32_t x = component_of(b, before), y = component_of(b, node);
            if (x == y)
                continue;
            b->parent[y] = x;
            b->size[x] += b->size[y];
        }
    }
}

/* Nodes by block, in topological order within each: begin[k] .. begin[k + 1]. */
static void sort_by_block(const blocks *b, int32_t *begin, int32_t n_blocks, int32_t *sorted)
{
    for (int64_t i = 0; i < b->group.n; i++)
        begin[block_of(b, b->group.nodes[i]) + 1]++;
    for (int32_t k = 0; k < n_blocks; k++)
        begin[k + 1] += begin[k];
    for (int64_t i = 0; i < b->group.n; i++)
        sorted[begin[block_of(b, b->group.nodes[i])]++] = b->group.nodes[i];
    for (int32_t k = n_blocks; k > 0; k--)
        begin[k] = begin[k - 1];
    begin[0] = 0;
}

/* Each component goes to the bundle that has least so far. */
static void fill_bundles(blocks *b, const int32_t *nodes, int32_t n, int64_t *loads)
{
    int32_t first = b->plan->n_clusters, opened = 0;
    memset(loads, 0, (size_t)b->bundles * sizeof *loads);
    for (int32_t i = 0; i < n; i++) {
        int32_t component = component_of(b, nodes[i]), least = 0;
        for (int32_t k = 1; b->bundle[component] < 0 && k < b->bundles; k++)
            least = loads[k] < loads[least] ? k : least;
        if (b->bundle[component] < 0) {
            b->bundle[component] = first + least;
            loads[least] += b->size[component];
            opened = least + 1 > opened ? least + 1 : opened;
        }
        b->plan->nodes[nodes[i]].cluster = b->bundle[component];
    }
    b->plan->n_clusters += opened;
}

static td_status *cut(blocks *b, int64_t most)
{
    int32_t *begin = NULL, *sorted = NULL;
    int64_t *loads = NULL;
    td_status *status = NULL;
    int64_t most_blocks = most / b->bundles > 0 ? most / b->bundles : 1;
    b->depths_per_block = (int32_t)((b->n_depths + most_blocks - 1) / most_blocks);
    int32_t n_blocks = (b->n_depths + b->depths_per_block - 1) / b->depths_per_block;
    TD_TRY_OR(status, done, TD_NEW(begin, n_blocks + 2));
    TD_TRY_OR(status, done, TD_NEW(sorted, b->group.n + 1));
    TD_TRY_OR(status, done, TD_NEW(loads, b->bundles));
    connect(b);
    sort_by_block(b, begin, n_blocks, sorted);
    for (int32_t k = 0; k < n_blocks; k++)
        fill_bundles(b, sorted + begin[k], begin[k + 1] - begin[k], loads);
done:
    td_free(begin);
    td_free(sorted);
    td_free(loads);
    return status;
}

td_status *td_cluster_by_block(td_plan *plan, const td_edges *back, const td_levels *levels, td_node_group group,
                               int64_t most)
{
    blocks b = {.plan = plan, .back = back, .levels = levels, .group = group};
    td_status *status = NULL;
    int64_t n = plan->graph->n_nodes;
    b.bundles = BUNDLES_PER_LANE * plan->sites[plan->nodes[group.nodes[0]].device].lanes;
    TD_TRY_OR(status, done, TD_NEW(b.depth, n + 1));
    TD_TRY_OR(status, done, TD_NEW(b.parent, n + 1));
    TD_TRY_OR(status, done, TD_NEW(b.size, n + 1));
    TD_TRY_OR(status, done, TD_NEW(b.bundle, n + 1));
    find_depths(&b);
    status = cut(&b, most);
done:
    td_free(b.depth);
    td_free(b.parent);
    td_free(b.size);
    td_free(b.bundle);
    return status;
}
