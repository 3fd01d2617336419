/* From a plan's nodes to prepared instructions with their addresses. See session.h. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/session.h"

void *td_session_address(const td_session *session, int32_t value, int32_t parity, int32_t buffer)
{
    const td_plan *plan = session->plan;
    int32_t root = td_plan_root(plan, value);
    const td_plan_value *v = &plan->values[root];
    int64_t begin = 0;
    for (int32_t view = value; view != root; view = plan->values[view].root)
        begin += plan->values[view].begin_bytes;
    switch (v->storage) {
    case TD_STORE:
        return (void *)((uintptr_t)session->store_entries[root]->tensor.data + (uintptr_t)begin);
    case TD_NUMBERS:
        return session->numbers[parity][root];
    case TD_ARENA:
        break;
    default:
        return NULL; /* bound to each batch */
    }
    int64_t offset = begin + v->offset + (v->doubled ? parity * v->block_bytes : 0);
    if (buffer > 0)
        offset += td_plan_align(v->bytes[0]);
    if (buffer > 1)
        offset += td_plan_align(v->bytes[1]);
    return (void *)((uintptr_t)session->arenas[v->device] + (uintptr_t)offset);
}

/* ---- instructions ---------------------------------------------------------------------------------------------------------- */

static void fill_addresses(const td_session *session, td_instruction *in, int32_t n)
{
    for (int32_t parity = 0; parity < TD_PARITIES; parity++)
        for (int32_t i = 0; i < n; i++) {
            td_tensor *t = &in->tensors[parity][i];
            if (in->values[i] < 0)
                continue;
            t->data = td_session_address(session, in->values[i], parity, 0);
            if (t->kind == TD_RAGGED || t->kind == TD_ROW_SPARSE)
                t->index = td_session_address(session, in->values[i], parity, 1);
            if (t->kind == TD_ROW_SPARSE)
                t->count = td_session_address(session, in->values[i], parity, 2);
        }
}

static td_status *bind_arguments(const td_session *session, td_instruction *in, const td_node *node)
{
    int32_t n = node->n_inputs + node->n_outputs;
    TD_TRY(TD_NEW(in->values, n + 1));
    for (int32_t i = 0; i < n; i++)
        in->values[i] = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
    for (int32_t parity = 0; parity < TD_PARITIES; parity++)
        TD_TRY(td_plan_call(session->plan->graph, in->node, NULL, &in->call[parity], &in->tensors[parity]));
    return NULL;
}

/* An op on a table whose rows are not simply in memory. */
static td_status *bind_table(const td_session *session, td_instruction *in, const td_node *node)
{
    const td_plan *plan = session->plan;
    for (int32_t i = 0; i < node->n_inputs; i++) {
        const td_store_entry *entry = node->inputs[i] < 0 ? NULL : session->store_entries[node->inputs[i]];
        int32_t ids = -1;
        if (!entry || !entry->table)
            continue;
        if (!td_plan_reads_rows(plan, node, i, &ids))
            return td_status_help(TD_ERROR(TD_UNSUPPORTED,
                                           "%s \"%s\" needs all of \"%s\", of which only rows are in memory",
                                           node->op->name, node->name, entry->name),
                                  "keep this table in memory: tables.storage=memory, or another tables.match");
        if (ids < 0)
            continue;
        int32_t table = plan->values[node->inputs[i]].table;
        in->table = entry->table;
        in->table_ids = ids;
        in->table_offset = td_attr_int(node->attrs, node->n_attrs, "offset", 0);
        in->table_write = table >= 0 && plan->tables[table].updated;
    }
    return NULL;
}

static td_status *bind_remote(td_session *session, td_instruction *in, const td_node *node)
{
    const bool may_ask = session->plan->training && session->plan->remote->asks_ahead;
    TD_TRY(TD_NEW(in->remote_tables, node->n_inputs + 1));
    if (may_ask && strcmp(node->op->name, "ps_pull") == 0)
        session->pull = in;
    in->asks_ahead = may_ask && (strcmp(node->op->name, "ps_push") == 0 || strcmp(node->op->name, "ps_offer") == 0);
    for (int32_t i = 0; i < node->n_inputs; i++) {
        const td_store_entry *entry = node->inputs[i] < 0 ? NULL : session->store_entries[node->inputs[i]];
        in->remote_tables[i] = entry && entry->is_remote ? entry->remote_table : -1;
    }
    return NULL;
}

static td_status *bind_instruction(td_session *session, td_instruction *in, int32_t node_id)
{
    const td_plan *plan = session->plan;
    const td_node *node = &plan->graph->nodes[node_id];
    const td_plan_node *p = &plan->nodes[node_id];
    const td_plan_site *site = &plan->sites[p->device];
    in->node = node_id;
    in->once = p->once;
    in->before_last = p->before_last;
    in->first = p->first;
    in->updates = node->phase == TD_UPDATE;
    in->delayed = node->delayed;
    in->speculates = node->speculates;
    in->guarded = (in->updates && !in->delayed && !in->speculates && !node->settles) ||
                  (node->op->flags & TD_OP_KEEPS && !plan->in_job);
    TD_TRY(bind_arguments(session, in, node));
    if (node->op->flags & TD_OP_VIEW)
        in->kind = TD_RUN_NOTHING;
    else if (p->lane != TD_QUEUE_COMPUTE)
        in->kind = TD_RUN_COPY;
    else if (node->host_function)
        in->kind = TD_RUN_HOST_CALL;
    else if (node->op->flags & TD_OP_REMOTE)
        in->kind = TD_RUN_REMOTE;
    if (in->kind == TD_RUN_NOTHING || in->kind == TD_RUN_HOST_CALL)
        return NULL;
    if (in->kind == TD_RUN_REMOTE)
        return bind_remote(session, in, node);
    if (in->kind == TD_RUN_COPY) {
        for (int32_t parity = 0; parity < TD_PARITIES; parity++)
            td_value_bytes(plan->graph, td_copied_to(node), NULL, in->copy_bytes[parity]);
        session->late_bytes += in->delayed ? in->copy_bytes[0][0] : 0;
        return NULL;
    }
    td_kernel_call at_capacity;
    td_tensor *storage = NULL;
    size_t scratch = 0;
    TD_TRY(bind_table(session, in, node));
    TD_TRY(td_plan_call(plan->graph, node_id, NULL, &at_capacity, &storage));
    td_status *status = site->api->kernel_prepare(site->device, &at_capacity, &in->kernel, &scratch);
    td_free(storage);
    return td_status_prefix(status, "%s \"%s\" on %s", node->op->name, node->name, site->name);
}

/* All arguments of a cluster's calls as those of one: inputs of all, then outputs of all. */
static td_status *concatenate(td_session *session, const td_cluster *cluster, td_instruction *in)
{
    const td_plan *plan = session->plan;
    int32_t n_inputs = 0, n_outputs = 0;
    for (int32_t i = 0; i < cluster->n; i++) {
        n_inputs += plan->graph->nodes[plan->sequence[cluster->first + i]].n_inputs;
        n_outputs += plan->graph->nodes[plan->sequence[cluster->first + i]].n_outputs;
    }
    TD_TRY(TD_NEW(in->values, n_inputs + n_outputs + 1));
    for (int32_t i = 0, input = 0, output = n_inputs; i < cluster->n; i++) {
        const td_node *node = &plan->graph->nodes[plan->sequence[cluster->first + i]];
        for (int32_t k = 0; k < node->n_inputs; k++)
            in->values[input++] = node->inputs[k];
        for (int32_t k = 0; k < node->n_outputs; k++)
            in->values[output++] = node->outputs[k];
    }
    for (int32_t parity = 0; parity < TD_PARITIES; parity++) {
        TD_TRY(TD_NEW(in->tensors[parity], n_inputs + n_outputs + 1));
        for (int32_t i = 0; i < n_inputs + n_outputs; i++)
            if (in->values[i] >= 0)
                td_value_tensor(plan->graph, in->values[i], NULL, &in->tensors[parity][i]);
        in->call[parity] = (td_kernel_call){.struct_size = sizeof in->call[parity],
                                            .op = "subgraph",
                                            .name = cluster->name,
                                            .inputs = in->tensors[parity],
                                            .outputs = in->tensors[parity] + n_inputs,
                                            .n_inputs = n_inputs,
                                            .n_outputs = n_outputs};
    }
    return NULL;
}

static bool has_update(const td_plan *plan, const td_cluster *cluster)
{
    for (int32_t i = 0; i < cluster->n; i++)
        if (plan->graph->nodes[plan->sequence[cluster->first + i]].phase == TD_UPDATE)
            return true;
    return false;
}

/* A sum that waits for the loss; in a job the loss is the window's, which is made of the sums. */
static bool has_sum(const td_plan *plan, const td_cluster *cluster)
{
    for (int32_t i = 0; i < cluster->n && !plan->in_job; i++)
        if (plan->graph->nodes[plan->sequence[cluster->first + i]].op->flags & TD_OP_KEEPS)
            return true;
    return false;
}

static bool makes_loss(const td_plan *plan, const td_cluster *cluster)
{
    int32_t producer = plan->loss < 0 ? -1 : plan->graph->values[plan->loss].producer;
    return producer >= 0 && plan->nodes[producer].cluster == (int32_t)(cluster - plan->clusters);
}

/* A device that runs a subgraph whole cannot be told, op by op, which rows to bring in. */
static td_status *check_delegate(const td_session *session, const td_cluster *cluster)
{
    const td_plan *plan = session->plan;
    for (int32_t i = 0; i < cluster->n; i++) {
        const td_node *node = &plan->graph->nodes[plan->sequence[cluster->first + i]];
        for (int32_t k = 0; k < node->n_inputs; k++) {
            const td_store_entry *entry = node->inputs[k] < 0 ? NULL : session->store_entries[node->inputs[k]];
            if (entry && entry->table)
                return TD_ERROR(TD_UNSUPPORTED,
                                "\"%s\" is not simply in memory, and its device runs \"%s\" as one kernel", entry->name,
                                cluster->name);
        }
    }
    return NULL;
}

static td_status *bind_delegate(td_session *session, const td_cluster *cluster, td_instruction *in)
{
    size_t scratch = 0;
    in->node = session->plan->sequence[cluster->first];
    in->updates = has_update(session->plan, cluster);
    in->once = session->plan->nodes[in->node].once;
    in->guarded = (in->updates || has_sum(session->plan, cluster)) && !makes_loss(session->plan, cluster);
    TD_TRY(check_delegate(session, cluster));
    TD_TRY(td_plan_delegate(session->plan, cluster, &in->kernel, &scratch));
    if (!in->kernel)
        return TD_ERROR(TD_INTERNAL, "subgraph \"%s\": its device took it over when planned, and declines now",
                        cluster->name);
    return concatenate(session, cluster, in);
}

static td_status *bind_cluster(td_session *session, int32_t index)
{
    const td_plan *plan = session->plan;
    const td_cluster *cluster = &plan->clusters[index];
    td_bound_cluster *bound = &session->clusters[index];
    bound->updates = has_update(plan, cluster);
    TD_TRY(TD_NEW(bound->instructions, cluster->n));
    if (cluster->delegated) {
        bound->n_instructions = 1;
        TD_TRY(bind_delegate(session, cluster, &bound->instructions[0]));
        bound->guarded = bound->instructions[0].guarded;
        return NULL;
    }
    for (int32_t i = 0; i < cluster->n; i++) {
        bound->n_instructions++;
        TD_TRY(bind_instruction(session, &bound->instructions[i], plan->sequence[cluster->first + i]));
        bound->delayed = bound->delayed || bound->instructions[i].delayed;
        bound->guarded = bound->guarded || bound->instructions[i].guarded;
    }
    return NULL;
}

static td_status *find_entries(td_session *session)
{
    const td_graph *graph = session->plan->graph;
    TD_TRY(TD_NEW(session->store_entries, graph->n_values + 1));
    for (int32_t v = 0; v < graph->n_values; v++) {
        if (session->plan->values[v].storage != TD_STORE)
            continue;
        td_store_entry *entry = td_store_entry_of(session->store, graph->values[v].name);
        if (!entry)
            return TD_ERROR(TD_NOT_FOUND, "the store has no \"%s\", which the plan needs", graph->values[v].name);
        td_tensor wanted;
        const td_tensor *found = &entry->tensor;
        td_value_tensor(graph, v, NULL, &wanted);
        if (found->dtype != wanted.dtype || found->rank != wanted.rank ||
            memcmp(found->dims, wanted.dims, sizeof wanted.dims) != 0)
            return TD_ERROR(TD_INVALID_ARGUMENT, "the store's \"%s\" has another shape or dtype than the plan's",
                            graph->values[v].name);
        if (entry->held != session->plan->values[v].held || entry->first != session->plan->values[v].first)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "the store has other elements of \"%s\" together than the plan: it is of a plan with "
                            "another offload.optimizer, or of another worker",
                            graph->values[v].name);
        if (entry->site != session->plan->values[v].device)
            return TD_ERROR(TD_INVALID_ARGUMENT, "the store has \"%s\" on %s, the plan on %s", graph->values[v].name,
                            session->machine->sites[entry->site].name,
                            session->machine->sites[session->plan->values[v].device].name);
        session->store_entries[v] = entry;
    }
    return NULL;
}

static td_status *allocate_numbers(td_session *session)
{
    const td_graph *graph = session->plan->graph;
    TD_TRY(TD_NEW(session->scalars, graph->n_values + 1));
    TD_TRY(TD_NEW(session->scalar_values, graph->n_values + 1));
    for (int32_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == TD_CLASS_SCALAR)
            session->scalar_values[session->n_scalar_values++] = v;
    for (int32_t parity = 0; parity < TD_PARITIES; parity++) {
        TD_TRY(TD_NEW(session->numbers[parity], graph->n_values + 1));
        TD_TRY(TD_NEW(session->parity_extents[parity], graph->n_extents + 1));
        for (int32_t v = 0; v < graph->n_values; v++)
            if (graph->values[v].class == TD_CLASS_SCALAR) {
                session->numbers[parity][v] = td_calloc((size_t)graph->values[v].n_scalars + 1, sizeof(double));
                if (!session->numbers[parity][v])
                    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for scalars");
            }
        for (int64_t e = 0; e < graph->n_extents; e++)
            session->parity_extents[parity][e] = graph->extents[e].capacity;
    }
    return TD_NEW(session->extents, graph->n_extents + 1);
}

td_status *td_session_bind(td_session *session)
{
    const td_plan *plan = session->plan;
    TD_TRY(find_entries(session));
    TD_TRY(allocate_numbers(session));
    TD_TRY(TD_NEW(session->arenas, plan->n_sites));
    TD_TRY(TD_NEW(session->outputs, plan->n_outputs + 1));
    TD_TRY(TD_NEW(session->clusters, plan->n_clusters + 1));
    for (int32_t c = 0; c < plan->n_clusters; c++)
        TD_TRY(bind_cluster(session, c));
    TD_TRY(td_session_bind_speculation(session));
    return td_session_bind_inputs(session);
}

/* Each compute lane's scratch lies at the end of its plan's part of the arena. */
static void bind_scratch(td_session *session, td_lane *lane)
{
    const td_plan_site *site = &session->plan->sites[lane->group->site];
    const td_plan_arena *arena = &session->plan->arenas[lane->group->site];
    int64_t offset = arena->bytes - arena->scratch_bytes * (site->lanes - lane->index);
    if (lane->group->kind == TD_QUEUE_COMPUTE && arena->scratch_bytes)
        lane->scratch = (void *)((uintptr_t)session->arenas[lane->group->site] + (uintptr_t)offset);
}

void td_session_follow_arenas(td_session *session)
{
    const td_plan *plan = session->plan;
    bool moved = !session->bound;
    for (int32_t s = 0; s < plan->n_sites; s++) {
        moved = moved || session->arenas[s] != session->store->arenas[s].memory;
        session->arenas[s] = session->store->arenas[s].memory;
    }
    if (!moved)
        return;
    for (int32_t c = 0; c < plan->n_clusters; c++)
        for (int32_t k = 0; k < session->clusters[c].n_instructions; k++) {
            td_instruction *in = &session->clusters[c].instructions[k];
            fill_addresses(session, in, in->call[0].n_inputs + in->call[0].n_outputs);
        }
    for (int32_t i = 0; i < session->n_lanes; i++)
        bind_scratch(session, &session->lanes[i]);
    for (int32_t parity = 0; plan->training && parity < TD_PARITIES; parity++)
        session->losses[parity] = td_session_address(session, plan->loss, parity, 0);
    for (int32_t parity = 0; plan->reports_overflow && parity < TD_PARITIES; parity++)
        session->overflows[parity] = td_session_address(session, plan->outputs[plan->n_outputs - 1], parity, 0);
    session->bound = true;
}

static void unbind_instruction(const td_session *session, td_instruction *in)
{
    const td_plan_site *site = &session->plan->sites[session->plan->nodes[in->node].device];
    if (in->kernel)
        site->api->kernel_release(site->device, in->kernel);
    for (int32_t parity = 0; parity < TD_PARITIES; parity++)
        td_free(in->tensors[parity]);
    td_free(in->values);
    td_free(in->remote_tables);
}

void td_session_unbind(td_session *session)
{
    const td_plan *plan = session->plan;
    for (int32_t c = 0; session->clusters && c < plan->n_clusters; c++) {
        for (int32_t i = 0; i < session->clusters[c].n_instructions; i++)
            unbind_instruction(session, &session->clusters[c].instructions[i]);
        td_free(session->clusters[c].instructions);
    }
    for (int32_t parity = 0; parity < TD_PARITIES; parity++) {
        for (int64_t v = 0; session->numbers[parity] && v < plan->graph->n_values; v++)
            td_free(session->numbers[parity][v]);
        td_free(session->numbers[parity]);
        td_free(session->parity_extents[parity]);
    }
    for (int64_t v = 0; session->scalars && v < plan->graph->n_values; v++)
        td_free(session->scalars[v]);
    td_free(session->scalars);
    td_free(session->scalar_values);
    td_free(session->extents);
    td_free(session->clusters);
    td_free(session->arenas);
    td_free(session->store_entries);
    td_free(session->inputs);
    td_free(session->arguments);
    td_free(session->outputs);
}
