/* Pass: parameters that the workers of a job update a stretch each of (shard.h) are made whole again on all: one node "workers/gather.k"
 * for each bucket, after its updates and before the next forward.
 *
 *     adam(W1/share, ...) -> workers/gather.1 (writes W1, W2) -> next forward
 *     adam(W2/share, ...) ->
 *
 * It writes into memory of the host, which is where such parameters are (offload_choice.c). */
#include <string.h>

#include "base/memory.h"
#include "partition/shard.h"

/* `inputs`: what the bucket before has left, then this one's parameters. */
static td_status *add_gather(td_plan *plan, const td_value *inputs, int32_t n, int32_t bucket, td_value *out_gathered)
{
    td_graph *graph = plan->graph;
    const td_attr *bounds = NULL;
    for (int32_t i = 0; i < graph->n_nodes && !bounds; i++)
        if (strcmp(graph->nodes[i].op->name, "rank_send") == 0 &&
            td_attr_int(graph->nodes[i].attrs, graph->nodes[i].n_attrs, "bucket", 0) == bucket)
            bounds = td_attr_find(graph->nodes[i].attrs, graph->nodes[i].n_attrs, "bounds");
    if (!bounds)
        return TD_ERROR(TD_INTERNAL, "nobody knows the stretches of bucket %d", bucket);
    const td_attr attrs[] = {TD_INT("bucket", bucket), TD_INTS("bounds", bounds->ints, bounds->n_ints)};
    char *name = td_format("workers/gather.%d", bucket);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan");
    td_graph_add(graph, "rank_gather", name, inputs, n, attrs, 2, out_gathered, 1);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    TD_TRY(td_plan_follow(plan));
    td_plan_node *p = &plan->nodes[graph->n_nodes - 1];
    p->device = plan->values[out_gathered->id].device = plan->host;
    p->cause = td_strdup("what other ranks send comes to the host");
    return p->cause ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan");
}

td_status *td_pass_gather(td_plan *plan, const td_plan_request *request)
{
    td_value *inputs = NULL, gathered = TD_NO_VALUE;
    td_status *status = NULL;
    (void)request;
    if (!plan->n_shards)
        return NULL;
    TD_TRY(TD_NEW(inputs, plan->n_shards + 1));
    plan->graph->phase = TD_UPDATE;
    for (int32_t s = 0, n = 1; s < plan->n_shards && !status; s++) {
        const td_plan_shard *shard = &plan->shards[s];
        inputs[0] = gathered;
        inputs[n++] = (td_value){plan->graph, shard->parameter};
        if (!plan->sites[plan->values[shard->parameter].device].is_host)
            status = TD_ERROR(TD_INTERNAL, "a shared parameter is not on the host");
        if (status || (s + 1 < plan->n_shards && plan->shards[s + 1].bucket == shard->bucket))
            continue;
        status = add_gather(plan, inputs, n, shard->bucket, &gathered);
        n = 1;
    }
    plan->graph->phase = TD_FORWARD;
    td_free(inputs);
    return status;
}
