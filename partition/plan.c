/* Building a plan: runs the passes in order, keeps a dump of each, and holds the helpers that several passes share. */
#include "partition/shard.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/memory.h"
#include "partition/describe.h"

static const td_pass passes[] = {
#define TD_PASS(name, summary) {#name, summary, td_pass_##name},
#include "partition/passes.def"
#undef TD_PASS
};
enum { N_PASSES = sizeof passes / sizeof *passes };

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

td_plan *td_plan_retain(td_plan *plan)
{
    (void)__atomic_add_fetch(&plan->references, 1, __ATOMIC_RELAXED);
    return plan;
}

static void cluster_deinit(td_cluster *cluster)
{
    td_free(cluster->name);
    td_free(cluster->before);
    td_free(cluster->after);
    td_free(cluster->across);
    td_free(cluster->within);
}

void td_plan_release(td_plan *plan)
{
    if (!plan || __atomic_sub_fetch(&plan->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (int64_t i = 0; i < plan->nodes_capacity; i++)
        td_free(plan->nodes[i].cause);
    for (int64_t i = 0; i < plan->values_capacity; i++)
        td_free(plan->values[i].cause);
    for (int32_t i = 0; plan->clusters && i < plan->n_clusters; i++)
        cluster_deinit(&plan->clusters[i]);
    for (int32_t i = 0; i < plan->n_groups; i++)
        td_free(plan->groups[i].match);
    for (int32_t i = 0; plan->dumps && i < N_PASSES; i++)
        td_free(plan->dumps[i]);
    for (int64_t i = 0; i < plan->n_watched; i++)
        td_free(plan->watched[i]);
    td_free(plan->watched);
    for (int64_t i = 0; i < plan->n_rewritten; i++) {
        td_free(plan->rewritten[i].name);
        td_free(plan->rewritten[i].into);
    }
    for (int64_t i = 0; i < plan->n_idle_rules; i++)
        td_free(plan->idle_rules[i]);
    td_free(plan->idle_rules);
    td_name_map_deinit(&plan->rewritten_names);
    td_free(plan->rewritten);
    td_free(plan->rewrites);
    td_free(plan->dumps);
    td_free(plan->groups);
    td_free(plan->clusters);
    td_free(plan->nodes);
    td_free(plan->values);
    td_free(plan->outputs);
    for (int32_t i = 0; i < plan->n_output_names; i++)
        td_free(plan->output_names[i]);
    td_free(plan->output_names);
    td_free(plan->gradients);
    td_free(plan->sequence);
    td_free(plan->reach);
    td_free(plan->chains);
    td_free(plan->arenas);
    td_free(plan->tables);
    td_free(plan->ledger);
    td_free(plan->without);
    td_plan_drop_served(plan);
    td_plan_drop_shards(plan);
    td_free(plan->paging.path);
    td_free(plan->unsplit);
    td_free(plan->changes.items);
    td_free(plan->sites);
    td_free(plan->key);
    td_graph_destroy(plan->graph);
    if (plan->owner_release)
        plan->owner_release(plan->owner);
    td_free(plan);
}

td_status *td_plan_follow(td_plan *plan)
{
    const td_graph *graph = plan->graph;
    if (plan->nodes_capacity < graph->n_nodes) {
        int64_t room = graph->n_nodes + plan->nodes_capacity / 2;
        td_plan_node *nodes = td_realloc(plan->nodes, (size_t)room, sizeof *nodes);
        if (!nodes)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan of %lld nodes", (long long)graph->n_nodes);
        for (int64_t i = plan->nodes_capacity; i < room; i++)
            nodes[i] = (td_plan_node){.device = -1, .cluster = -1};
        plan->nodes = nodes;
        plan->nodes_capacity = room;
    }
    if (plan->values_capacity < graph->n_values) {
        int64_t room = graph->n_values + plan->values_capacity / 2;
        td_plan_value *values = td_realloc(plan->values, (size_t)room, sizeof *values);
        if (!values)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan of %lld values", (long long)graph->n_values);
        for (int64_t i = plan->values_capacity; i < room; i++)
            values[i] = (td_plan_value){.device = -1, .root = -1, .table = -1};
        plan->values = values;
        plan->values_capacity = room;
    }
    return NULL;
}

/* ---- the passes ------------------------------------------------------------------------------------------------------------ */

static td_status *start(td_plan *plan, const td_plan_site *sites, int32_t n_sites, const td_plan_request *request)
{
    plan->n_sites = n_sites;
    plan->host = request->host_site;
    plan->standard = request->default_site;
    plan->loss = request->loss;
    plan->seed = plan->random = plan->micro = plan->divisor = plan->speculate = plan->sample_extent =
        plan->clip_factor = -1;
    plan->replicas = plan->all_replicas = plan->most_accumulated = 1;
    plan->training = request->loss >= 0;
    plan->random_seed = request->options->seed;
    plan->on_nan = request->options->on_nan;
    plan->clip_norm = request->options->clip_norm;
    plan->delayed = plan->training && request->options->offload_delayed;
    plan->most_skipped = request->options->most_skipped;
    plan->stochastic_rounding = request->options->stochastic_rounding;
    TD_TRY(TD_NEW(plan->sites, n_sites));
    memcpy(plan->sites, sites, (size_t)n_sites * sizeof *sites);
    TD_TRY(TD_NEW(plan->arenas, n_sites));
    TD_TRY(TD_NEW(plan->dumps, N_PASSES));
    const int64_t most = request->n_outputs + 2 * plan->graph->n_values; /* each value once, and each one's gradient */
    TD_TRY(TD_NEW(plan->outputs, most + 3));
    TD_TRY(TD_NEW(plan->output_names, most + 1));
    for (int32_t i = 0; i < request->n_outputs; i++)
        TD_TRY(td_plan_add_output(plan, request->outputs[i], plan->graph->values[request->outputs[i]].name));
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (plan->graph->values[v].is_output)
            TD_TRY(td_plan_add_output(plan, v, plan->graph->values[v].name));
    return td_plan_settle_windows(plan, request);
}

td_status *td_plan_add_output(td_plan *plan, int32_t value, const char *name)
{
    char *copy = td_strdup(name);
    if (!copy)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan");
    plan->output_names[plan->n_output_names++] = copy;
    plan->outputs[plan->n_outputs++] = value;
    return NULL;
}

const char *td_plan_output_name(const td_plan *plan, int32_t index)
{
    return index >= 0 && index < plan->n_output_names ? plan->output_names[index] : NULL;
}

static td_status *run_passes(td_plan *plan, const td_plan_request *request)
{
    plan->dumped = request->options->keep_dumps;
    for (int32_t i = 0; i < N_PASSES; i++) {
        int64_t rewritten = plan->n_rewritten;
        TD_TRY(passes[i].run(plan, request));
        if (plan->graph->failed)
            return td_graph_check(plan->graph);
        TD_TRY(td_plan_follow(plan));
        if (plan->dumped)
            TD_TRY(td_plan_describe_pass(plan, rewritten, &plan->dumps[i]));
    }
    return NULL;
}

td_status *td_plan_build(td_graph *graph, const td_plan_site *sites, int32_t n_sites, const td_plan_request *request,
                         void *owner, void (*owner_release)(void *owner), td_plan **out_plan)
{
    int64_t begin = td_clock_ns();
    *out_plan = NULL;
    td_plan *plan = td_calloc(1, sizeof *plan);
    if (!plan) {
        td_graph_destroy(graph);
        owner_release(owner);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan");
    }
    plan->references = 1;
    plan->graph = graph;
    plan->owner = owner;
    plan->owner_release = owner_release;
    td_status *status = start(plan, sites, n_sites, request);
    if (!status)
        status = run_passes(plan, request);
    if (status) {
        td_plan_release(plan);
        return status;
    }
    plan->plan_s = 1e-9 * (double)(td_clock_ns() - begin);
    *out_plan = plan;
    return NULL;
}

int32_t td_plan_passes(const char *const **out_names)
{
    static const char *const names[] = {
#define TD_PASS(name, summary) #name,
#include "partition/passes.def"
#undef TD_PASS
    };
    *out_names = names;
    return N_PASSES;
}

td_status *td_plan_dump(const td_plan *plan, const char *pass, char **out_text)
{
    *out_text = NULL;
    for (int32_t i = 0; i < N_PASSES; i++) {
        if (strcmp(passes[i].name, pass) != 0)
            continue;
        if (!plan->dumped)
            return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "the plan was made without the text of each pass"),
                                  "set keep_dumps in its options");
        *out_text = td_strdup(plan->dumps[i] ? plan->dumps[i] : "");
        return *out_text ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a dump");
    }
    td_status *status = TD_ERROR(TD_NOT_FOUND, "there is no pass \"%s\"", pass);
    for (int32_t i = 0; i < N_PASSES; i++)
        status = td_status_help(status, "%s: %s", passes[i].name, passes[i].summary);
    return status;
}

/* ---- sites ------------------------------------------------------------------------------------------------------------------- */

int32_t td_plan_find_site(const td_plan_site *sites, int32_t n_sites, int32_t host, int32_t standard, const char *name)
{
    for (int32_t i = 0; i < n_sites; i++)
        if (strcasecmp(sites[i].name, name) == 0)
            return i;
    if (strcasecmp(name, "cpu") == 0)
        return host;
    if (strcasecmp(name, "device") == 0)
        return standard;
    return -1;
}

char *td_plan_site_names(const td_plan_site *sites, int32_t n_sites)
{
    char *names = td_strdup("");
    for (int32_t i = 0; i < n_sites && names; i++) {
        char *longer = td_format("%s%s%s", names, i ? ", " : "", sites[i].name);
        td_free(names);
        names = longer;
    }
    return names;
}

double td_plan_estimate(const td_plan_site *site, const td_cost *cost)
{
    double flops = site->properties.flops_per_s > 0 ? site->properties.flops_per_s : 5e10;
    double bytes = site->properties.memory_bytes_per_s > 0 ? site->properties.memory_bytes_per_s : 1e10;
    double compute = cost->flops / flops, memory = (cost->bytes_read + cost->bytes_written) / bytes;
    return compute > memory ? compute : memory;
}

/* ---- nodes as calls ---------------------------------------------------------------------------------------------------------- */

td_status *td_plan_call(const td_graph *graph, int32_t node, const int64_t *extents, td_kernel_call *out_call,
                        td_tensor **out_storage)
{
    const td_node *n = &graph->nodes[node];
    td_tensor *tensors = NULL;
    *out_storage = NULL;
    TD_TRY(TD_NEW(tensors, n->n_inputs + n->n_outputs + 1));
    for (int32_t i = 0; i < n->n_inputs; i++)
        if (n->inputs[i] >= 0)
            td_value_tensor(graph, n->inputs[i], extents, &tensors[i]);
    for (int32_t i = 0; i < n->n_outputs; i++)
        td_value_tensor(graph, n->outputs[i], extents, &tensors[n->n_inputs + i]);
    *out_call = (td_kernel_call){.struct_size = sizeof *out_call,
                                 .op = n->op->name,
                                 .name = n->name,
                                 .attrs = n->attrs,
                                 .inputs = tensors,
                                 .outputs = tensors + n->n_inputs,
                                 .n_attrs = n->n_attrs,
                                 .n_inputs = n->n_inputs,
                                 .n_outputs = n->n_outputs};
    *out_storage = tensors;
    return NULL;
}

td_status *td_plan_supports(const td_graph *graph, const td_plan_site *site, int32_t node, bool *out_supported,
                            char *reason, size_t reason_bytes)
{
    td_kernel_call call;
    td_tensor *storage = NULL;
    *out_supported = false;
    const td_node *n = &graph->nodes[node];
    if (n->op->flags & (TD_OP_VIEW | TD_OP_HOST_ONLY)) {
        *out_supported = site->is_host || n->op->flags & TD_OP_VIEW;
        (void)snprintf(reason, reason_bytes, "it runs on the host only");
        return NULL;
    }
    TD_TRY(td_plan_call(graph, node, NULL, &call, &storage));
    reason[0] = '\0';
    *out_supported = site->api->supports(site->device, &call, reason, reason_bytes);
    td_free(storage);
    return NULL;
}

int32_t td_plan_root(const td_plan *plan, int32_t value)
{
    while (plan->values[value].storage == TD_ALIAS)
        value = plan->values[value].root;
    return value;
}

/* Of both parities. */
static int64_t bytes_of(const td_plan_value *value)
{
    return value->block_bytes * (value->doubled ? 2 : 1);
}

bool td_plan_overlap(const td_plan *plan, int32_t a, int32_t b)
{
    const td_plan_value *x = &plan->values[a], *y = &plan->values[b];
    if (a == b)
        return true;
    return x->storage == TD_ARENA && y->storage == TD_ARENA && x->device == y->device &&
           x->offset < y->offset + bytes_of(y) && y->offset < x->offset + bytes_of(x);
}

bool td_op_is_lookup(const td_op *op)
{
    return strcmp(op->name, "embedding") == 0 || strcmp(op->name, "embedding_bag") == 0 ||
           strcmp(op->name, "embedding_lookups") == 0;
}
