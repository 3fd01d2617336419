/* Pass: what runs once a window. Sums of gradients (TD_OP_KEEPS) take part in every micro-batch, or in all but a window's last
 * (fold.c); what reads them, what reads that, and every update run in the last alone. Nothing else changes: the order of a
 * micro-batch is that of a step, with those left out. And what a whole window amounts to: the longest one's bytes copied and seconds.
 *
 * In a job, the ranks' sums and pushes take part in every micro-batch, and what reads the sums runs in the last; rows are pulled
 * in the first, for the whole window. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

static bool is_op(const td_op *op, const char *name)
{
    return strcmp(op->name, name) == 0;
}

static bool reads_sum(const td_plan *plan, const td_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t producer = node->inputs[i] < 0 ? -1 : plan->graph->values[node->inputs[i]].producer;
        if (producer < 0)
            continue;
        const td_op *op = plan->graph->nodes[producer].op;
        if (plan->nodes[producer].once || op->flags & TD_OP_KEEPS || is_op(op, "rank_sum") || is_op(op, "ps_offer"))
            return true;
    }
    return false;
}

td_status *td_pass_window(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    int32_t *order = NULL;
    if (plan->micro < 0)
        return NULL;
    TD_TRY(td_graph_order(plan->graph, &order));
    for (int64_t i = 0; i < plan->graph->n_nodes; i++) {
        const td_node *node = &plan->graph->nodes[order[i]];
        bool remote = node->op->flags & TD_OP_REMOTE && !is_op(node->op, "ps_apply") &&
                      !is_op(node->op, "rank_combine") && !is_op(node->op, "rank_gather");
        plan->nodes[order[i]].once = !remote && (node->phase == TD_UPDATE || reads_sum(plan, node));
        plan->nodes[order[i]].first = is_op(node->op, "ps_pull");
    }
    td_free(order);
    return NULL;
}

/* ---- what a window amounts to ---------------------------------------------------------------------------------------------- */

static int64_t micro_batches_before_last(const td_plan *plan)
{
    return (int64_t)plan->replicas * plan->most_accumulated - 1;
}

int64_t td_plan_runs(const td_plan *plan, int32_t node)
{
    const td_plan_node *p = &plan->nodes[node];
    const int64_t before_last = micro_batches_before_last(plan);
    return p->once || p->first ? 1 : p->before_last ? before_last : 1 + before_last;
}

/* Of a micro-batch that ends its window, or does not. */
static double cluster_seconds(const td_plan *plan, const td_cluster *cluster, bool ends_window)
{
    double seconds = cluster->seconds;
    for (int32_t i = 0; i < cluster->n; i++) {
        const td_plan_node *node = &plan->nodes[plan->sequence[cluster->first + i]];
        if (ends_window ? node->before_last : node->once)
            seconds -= node->seconds;
    }
    return seconds > 0 ? seconds : 0;
}

static double queued_seconds(const td_plan *plan, int32_t site, td_queue_kind lane, bool ends_window)
{
    double seconds = 0;
    for (int32_t c = 0; c < plan->n_clusters; c++)
        if (plan->clusters[c].device == site && plan->clusters[c].lane == lane)
            seconds += cluster_seconds(plan, &plan->clusters[c], ends_window);
    return seconds / (lane == TD_QUEUE_COMPUTE ? plan->sites[site].lanes : 1);
}

/* No step can be shorter than its critical path, nor than the work queued on its busiest lane. Micro-batches overlap, so those
 * that do not end their window are bound by their lanes alone. */
static double step_bound(const td_plan *plan, bool ends_window)
{
    double bound = ends_window ? plan->bound_s : 0;
    for (int32_t site = 0; site < plan->n_sites; site++)
        for (int lane = TD_QUEUE_COMPUTE; lane <= TD_QUEUE_TO_HOST; lane++) {
            double queued = queued_seconds(plan, site, (td_queue_kind)lane, ends_window);
            bound = queued > bound ? queued : bound;
        }
    return bound;
}

double td_plan_busy_seconds(const td_plan *plan, int32_t site)
{
    int32_t lanes = plan->sites[site].lanes;
    return lanes * (queued_seconds(plan, site, TD_QUEUE_COMPUTE, true) +
                    (double)micro_batches_before_last(plan) * queued_seconds(plan, site, TD_QUEUE_COMPUTE, false));
}

void td_plan_copy_bytes_of(const td_plan *plan, const int64_t *extents, bool ends_window, int64_t *out_to_device,
                           int64_t *out_to_host)
{
    *out_to_device = *out_to_host = 0;
    for (int64_t i = 0; i < plan->graph->n_nodes; i++) {
        int64_t bytes[3];
        if (plan->nodes[i].lane == TD_QUEUE_COMPUTE || (plan->nodes[i].once && !ends_window))
            continue;
        td_value_bytes(plan->graph, td_copied_to(&plan->graph->nodes[i]), extents, bytes);
        *(plan->nodes[i].lane == TD_QUEUE_TO_HOST ? out_to_host : out_to_device) += bytes[0] + bytes[1] + bytes[2];
    }
}

void td_plan_copy_bytes(const td_plan *plan, const int64_t *extents, int64_t *out_to_device, int64_t *out_to_host)
{
    td_plan_copy_bytes_of(plan, extents, true, out_to_device, out_to_host);
}

int64_t td_plan_accumulated_bytes(const td_plan *plan, int32_t site)
{
    int64_t bytes = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (plan->values[v].lasting && plan->values[v].device == site)
            bytes += plan->values[v].block_bytes;
    return bytes;
}

void td_plan_sum_window(const td_plan *plan, td_plan_summary *summary)
{
    int64_t to_device = 0, to_host = 0, more = micro_batches_before_last(plan);
    summary->step_bound_s = step_bound(plan, true);
    td_plan_copy_bytes(plan, NULL, &summary->to_device_bytes_per_step, &summary->to_host_bytes_per_step);
    summary->micro_batches = 1 + more;
    if (!more)
        return;
    td_plan_copy_bytes_of(plan, NULL, false, &to_device, &to_host);
    summary->to_device_bytes_per_step += more * to_device;
    summary->to_host_bytes_per_step += more * to_host;
    summary->step_bound_s += (double)more * step_bound(plan, false);
    for (int32_t site = 0; site < plan->n_sites; site++)
        summary->accumulated_bytes += td_plan_accumulated_bytes(plan, site);
}
