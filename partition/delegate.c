/* Handing a whole cluster to its device: for backends that compile subgraphs (third-party delegates). */
#include "base/memory.h"
#include "partition/plan.h"

/* Values are told apart by numbers in the place of addresses. */
static void number_values(const td_node *node, td_tensor *tensors)
{
    for (int32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        int32_t value = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        tensors[i].data = value < 0 ? NULL : (void *)((uintptr_t)value + 1);
    }
}

static bool may_delegate(const td_plan *plan, const td_cluster *cluster)
{
    if (cluster->lane != TD_QUEUE_COMPUTE || !plan->sites[cluster->device].api->compile_subgraph)
        return false;
    for (int32_t i = 0; i < cluster->n; i++)
        if (plan->graph->nodes[plan->sequence[cluster->first + i]].host_function ||
            plan->graph->nodes[plan->sequence[cluster->first + i]].delayed ||
            plan->graph->nodes[plan->sequence[cluster->first + i]].speculates ||
            plan->graph->nodes[plan->sequence[cluster->first + i]].settles ||
            plan->graph->nodes[plan->sequence[cluster->first + i]].op->flags & TD_OP_REMOTE ||
            plan->nodes[plan->sequence[cluster->first + i]].before_last ||
            plan->nodes[plan->sequence[cluster->first + i]].once != plan->nodes[plan->sequence[cluster->first]].once)
            return false;
    return true;
}

td_status *td_plan_delegate(const td_plan *plan, const td_cluster *cluster, td_kernel **out_kernel,
                            size_t *out_scratch_bytes)
{
    const td_plan_site *site = &plan->sites[cluster->device];
    td_kernel_call *calls = NULL;
    td_tensor **storage = NULL;
    td_status *status = NULL;
    *out_kernel = NULL;
    *out_scratch_bytes = 0;
    if (!may_delegate(plan, cluster))
        return NULL;
    TD_TRY_OR(status, done, TD_NEW(calls, cluster->n));
    TD_TRY_OR(status, done, TD_NEW(storage, cluster->n));
    for (int32_t i = 0; i < cluster->n; i++) {
        int32_t node = plan->sequence[cluster->first + i];
        TD_TRY_OR(status, done, td_plan_call(plan->graph, node, NULL, &calls[i], &storage[i]));
        number_values(&plan->graph->nodes[node], storage[i]);
    }
    status = site->api->compile_subgraph(site->device, calls, cluster->n, out_kernel, out_scratch_bytes);
    status = td_status_prefix(status, "subgraph \"%s\" on %s", cluster->name, site->name);
done:
    for (int32_t i = 0; storage && i < cluster->n; i++)
        td_free(storage[i]);
    td_free(storage);
    td_free(calls);
    return status;
}
