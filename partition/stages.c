/* Stages: where the subgraphs of a plan with an offloaded optimizer, or of a job's worker, are cut, so that gradients leave while
 * backward still runs and parameters come back in the order in which the next forward needs them.
 *
 *     depth      1    2    3    4  |  5    6    7    8
 *     accel      dX3  dX2  dW3     |  dW2  dX1  dW1        a cluster ends at a cut, and its gradients may leave
 *     to host              .......copy 3...  copy 2, 1
 *
 * A cut is a depth (the longest path to a node, in edges): forward is cut where a bucket of bytes of replicas has been read,
 * backward where a bucket of gradients has been made. An accelerator's node is in the stage of its depth, any other in the latest
 * stage of what it waits for. So the stage never falls along an edge, which is what keeps clusters convex and their quotient
 * acyclic (cluster.c). Without anything offloaded and outside of a job there is one stage. */
#include <string.h>

#include "base/memory.h"
#include "partition/cluster.h"
#include "partition/shard.h"

enum { BUCKETS = 16, LEAST_BUCKET_BYTES = 64 << 10, MOST_BUCKET_BYTES = 8 << 20 };

/* What crosses because of a node, in bytes by depth: gradients that it makes, or replicas that nobody of less depth reads. */
typedef struct crossing {
    int64_t *gradients, *parameters; /* of each depth */
    int64_t total_gradients, total_parameters;
    int32_t n_depths;
} crossing;

bool td_cluster_is_staged(const td_plan *plan)
{
    return (plan->in_job && plan->training) || td_plan_is_offloading(plan);
}

static bool on_accelerator(const td_plan *plan, int32_t node)
{
    return plan->nodes[node].lane == TD_QUEUE_COMPUTE && !plan->sites[plan->nodes[node].device].is_host;
}

static int32_t find_depths(const td_plan *plan, const td_edges *edges, const int32_t *order, int32_t *depth)
{
    int32_t deepest = 0;
    memset(depth, 0, (size_t)plan->graph->n_nodes * sizeof *depth);
    for (int64_t i = 0; i < plan->graph->n_nodes; i++) {
        int32_t a = order[i];
        deepest = depth[a] > deepest ? depth[a] : deepest;
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++)
            if (depth[edges->to[k]] <= depth[a])
                depth[edges->to[k]] = depth[a] + 1;
    }
    return deepest + 1;
}

static int64_t bytes_of(const td_plan *plan, int32_t value)
{
    int64_t bytes[3];
    td_value_bytes(plan->graph, value, NULL, bytes);
    return bytes[0] + bytes[1] + bytes[2];
}

/* A gradient leaves by a copy of a value that backward made. */
static void add_gradient(const td_plan *plan, int32_t copy, const int32_t *depth, crossing *c)
{
    const td_node *node = &plan->graph->nodes[copy];
    if (plan->nodes[copy].lane != TD_QUEUE_TO_HOST)
        return;
    int32_t made = td_graph_behind_views(plan->graph, node->inputs[0]);
    int32_t maker = plan->graph->values[made].producer;
    if (maker < 0 || plan->graph->nodes[maker].phase != TD_BACKWARD)
        return;
    c->gradients[depth[maker]] += bytes_of(plan, node->inputs[0]);
    c->total_gradients += bytes_of(plan, node->inputs[0]);
}

/* first[v]: the least depth at which a replica is read. */
static void find_first_reads(const td_plan *plan, const int32_t *depth, int32_t *first)
{
    memset(first, 0xff, (size_t)plan->graph->n_values * sizeof *first);
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs; i++) {
            int32_t value = node->inputs[i] < 0 ? -1 : td_graph_behind_views(plan->graph, node->inputs[i]);
            if (value < 0 || plan->graph->values[value].class != TD_CLASS_REPLICA || td_node_writes(node, i) ||
                plan->values[value].first)
                continue;
            if (first[value] < 0 || depth[n] < first[value])
                first[value] = depth[n];
        }
    }
}

static td_status *find_crossing(const td_plan *plan, const int32_t *depth, crossing *c)
{
    int32_t *first = NULL;
    TD_TRY(TD_NEW(c->gradients, c->n_depths + 1));
    TD_TRY(TD_NEW(c->parameters, c->n_depths + 1));
    TD_TRY(TD_NEW(first, plan->graph->n_values + 1));
    for (int32_t n = 0; n < plan->graph->n_nodes; n++)
        add_gradient(plan, n, depth, c);
    find_first_reads(plan, depth, first);
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (first[v] >= 0) {
            c->parameters[first[v]] += bytes_of(plan, v);
            c->total_parameters += bytes_of(plan, v);
        }
    td_free(first);
    return NULL;
}

static int64_t bucket_of(int64_t total)
{
    int64_t bucket = total / BUCKETS;
    return bucket < LEAST_BUCKET_BYTES ? LEAST_BUCKET_BYTES : bucket > MOST_BUCKET_BYTES ? MOST_BUCKET_BYTES : bucket;
}

/* stage_at[d]: the stage of an accelerator's nodes of depth d. */
static void cut(const crossing *c, int32_t *stage_at)
{
    int64_t gradients = 0, parameters = 0;
    for (int32_t d = 0, stage = 0; d < c->n_depths; d++) {
        stage_at[d] = stage;
        gradients += c->gradients[d];
        parameters += c->parameters[d];
        bool full = gradients >= bucket_of(c->total_gradients) || parameters >= bucket_of(c->total_parameters);
        stage += full;
        gradients = full ? 0 : gradients;
        parameters = full ? 0 : parameters;
    }
}

static void give_stages(const td_plan *plan, const td_edges *edges, const int32_t *order, const int32_t *depth,
                        const int32_t *stage_at, int32_t *stage)
{
    for (int64_t i = 0; i < plan->graph->n_nodes; i++) {
        int32_t a = order[i];
        if (on_accelerator(plan, a))
            stage[a] = stage_at[depth[a]];
        for (int32_t k = edges->first[a]; k < edges->first[a + 1]; k++)
            if (stage[edges->to[k]] < stage[a])
                stage[edges->to[k]] = stage[a];
    }
}

/* Whether a node comes before a job's workers gather what they have updated of several parameters (gather.c). */
static bool is_gathered(const td_plan *plan, const td_node *node, int32_t parameter)
{
    return td_plan_shard_of(plan, parameter) && strcmp(node->op->name, "copy_out") != 0 &&
           strcmp(node->op->name, "refresh") != 0;
}

/* The parameter of a node that comes after all gradients have been looked at: its clipping, its update, its refresh. -1: none. */
static int32_t parameter_after_clip(const td_plan *plan, const td_node *node)
{
    if (node->speculates) /* comes as soon as its gradient */
        return -1;
    int32_t parameter = td_plan_updated(plan, node);
    if (parameter < 0 && strcmp(node->op->name, "clip_gradient") == 0)
        parameter = plan->graph->values[node->outputs[0]].parameter;
    return parameter >= 0 && plan->values[parameter].offloaded && !is_gathered(plan, node, parameter) ? parameter : -1;
}

/* The norm, and whether all are finite, is known when all gradients have come, so what follows is all of one stage: it is cut by
 * where forward reads the parameters instead. No edge leads from what follows it for one parameter to that of another. */
static td_status *cut_by_need(const td_plan *plan, const int32_t *depth, const int32_t *stage_at, int32_t n_depths,
                              int32_t *stage)
{
    int32_t *first = NULL, *need = NULL, n_stages = stage_at[n_depths - 1] + 2;
    TD_TRY(TD_NEW(first, plan->graph->n_values + 1));
    td_status *status = TD_NEW(need, plan->graph->n_values + 1);
    if (!status)
        find_first_reads(plan, depth, first);
    for (int32_t v = 0; v < plan->graph->n_values && !status; v++)
        if (first[v] >= 0)
            need[plan->graph->values[v].parameter] = stage_at[first[v]];
    for (int32_t n = 0; n < plan->graph->n_nodes && !status; n++) {
        int32_t parameter = parameter_after_clip(plan, &plan->graph->nodes[n]);
        stage[n] = stage[n] * n_stages + (parameter < 0 ? 0 : need[parameter]);
    }
    td_free(first);
    td_free(need);
    return status;
}

td_status *td_cluster_stages(const td_plan *plan, const td_edges *edges, const int32_t *order, int32_t *stage)
{
    crossing c = {0};
    int32_t *depth = NULL, *stage_at = NULL;
    td_status *status = NULL;
    if (!td_cluster_is_staged(plan))
        return NULL;
    TD_TRY_OR(status, done, TD_NEW(depth, plan->graph->n_nodes + 1));
    c.n_depths = find_depths(plan, edges, order, depth);
    TD_TRY_OR(status, done, find_crossing(plan, depth, &c));
    TD_TRY_OR(status, done, TD_NEW(stage_at, c.n_depths + 1));
    cut(&c, stage_at);
    give_stages(plan, edges, order, depth, stage_at, stage);
    if (plan->reports_norm || plan->reports_overflow || plan->delayed)
        status = cut_by_need(plan, depth, stage_at, c.n_depths, stage);
done:
    td_free(depth);
    td_free(stage_at);
    td_free(c.gradients);
    td_free(c.parameters);
    return status;
}
