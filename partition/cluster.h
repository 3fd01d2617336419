/* What the files of the cluster pass share: levels, and the two ways to cut a group of a device with several lanes. */
#ifndef TANDEM_PARTITION_CLUSTER_H
#define TANDEM_PARTITION_CLUSTER_H

#include "partition/plan.h"

typedef struct td_levels {
    int32_t *down, *up, *stage;
} td_levels;

/* Nodes of one (device, lane, down, up, stage), in topological order. */
typedef struct td_node_group {
    const int32_t *nodes;
    int64_t n;
} td_node_group;

/* One cluster ends before another begins. */
typedef struct td_cluster_pair {
    int32_t from, to;
} td_cluster_pair;

/* Links the clusters by the graph's edges and these pairs, anew; finds what reaches what. A cycle is an error. */
td_status *td_cluster_link(td_plan *plan, const td_cluster_pair *more, int64_t n_more) TD_MUST_USE;
/* stages.c: whether there are several, because the optimizer is offloaded or servers have it. */
bool td_cluster_is_staged(const td_plan *plan);
/* Fills stage[node], which comes as zeros; it never falls along an edge. `order`: topological. */
td_status *td_cluster_stages(const td_plan *plan, const td_edges *edges, const int32_t *order,
                             int32_t *stage) TD_MUST_USE;
/* Whether an edge from `before` stays within the group of `node`. */
bool td_cluster_inside(const td_plan *plan, const td_levels *levels, int32_t before, int32_t node);
/* Gives each node of the group a cluster: at most `most` of them. */
td_status *td_cluster_by_block(td_plan *plan, const td_edges *back, const td_levels *levels, td_node_group group,
                               int64_t most) TD_MUST_USE;

#endif
