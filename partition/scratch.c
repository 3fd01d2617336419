/* Pass: what kernels need for themselves, and what each device holds in all.
 *
 * Every kernel is asked for its scratch at capacity (a device that takes a whole subgraph over is asked for that). Each
 * compute lane gets one block as large as the largest of its device, behind the values in the arena. */
#include "base/memory.h"
#include "partition/plan.h"

static td_status *ask_scratch(td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    td_plan_node *p = &plan->nodes[id];
    const td_plan_site *site = &plan->sites[p->device];
    if (p->lane != TD_QUEUE_COMPUTE || node->op->flags & (TD_OP_VIEW | TD_OP_REMOTE) || node->host_function)
        return NULL;
    td_kernel_call call;
    td_tensor *storage = NULL;
    td_kernel *kernel = NULL;
    TD_TRY(td_plan_call(plan->graph, id, NULL, &call, &storage));
    td_status *status = site->api->kernel_prepare(site->device, &call, &kernel, &p->scratch_bytes);
    td_free(storage);
    if (status)
        return td_status_prefix(status, "%s \"%s\" on %s", node->op->name, node->name, site->name);
    site->api->kernel_release(site->device, kernel);
    return NULL;
}

/* A delegated cluster is one kernel: its scratch is its first node's. */
static td_status *ask_delegate(td_plan *plan, td_cluster *cluster)
{
    const td_plan_site *site = &plan->sites[cluster->device];
    td_kernel *kernel = NULL;
    size_t scratch = 0;
    TD_TRY(td_plan_delegate(plan, cluster, &kernel, &scratch));
    cluster->delegated = kernel != NULL;
    if (kernel) {
        plan->nodes[plan->sequence[cluster->first]].scratch_bytes = scratch;
        site->api->kernel_release(site->device, kernel);
    }
    return NULL;
}

static td_status *add_scratch(td_plan *plan)
{
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        td_cluster *cluster = &plan->clusters[c];
        TD_TRY(ask_delegate(plan, cluster));
        for (int32_t i = 0; i < cluster->n && !cluster->delegated; i++)
            TD_TRY(ask_scratch(plan, plan->sequence[cluster->first + i]));
    }
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        td_plan_arena *arena = &plan->arenas[plan->nodes[n].device];
        int64_t bytes = td_plan_align((int64_t)plan->nodes[n].scratch_bytes);
        arena->scratch_bytes = bytes > arena->scratch_bytes ? bytes : arena->scratch_bytes;
    }
    for (int32_t s = 0; s < plan->n_sites; s++)
        plan->arenas[s].bytes =
            td_plan_align(plan->arenas[s].bytes) + plan->arenas[s].scratch_bytes * plan->sites[s].lanes;
    return NULL;
}

static void add_store(td_plan *plan, const td_plan_request *request)
{
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        if (plan->values[v].storage != TD_STORE)
            continue;
        td_plan_arena *arena = &plan->arenas[plan->values[v].device];
        bool parameter = !td_plan_is_state(plan, v);
        *(parameter ? &arena->parameter_bytes : &arena->state_bytes) += plan->values[v].bytes[0];
        int32_t table = plan->values[v].table;
        if (table < 0 || plan->tables[table].storage == TD_TABLE_MEMORY)
            arena->store_bytes += plan->values[v].block_bytes;
    }
    plan->arenas[plan->host].store_bytes += plan->paging.resident_bytes + plan->paging.overhead_bytes;
    for (int32_t s = 0; request->held && s < plan->n_sites; s++) {
        int64_t held = request->held(request->home_context, s);
        plan->arenas[s].store_bytes = held > plan->arenas[s].store_bytes ? held : plan->arenas[s].store_bytes;
    }
}

td_status *td_pass_scratch(td_plan *plan, const td_plan_request *request)
{
    TD_TRY(add_scratch(plan));
    add_store(plan, request);
    return NULL;
}
