/* Pass: tables to the servers of a distributed job (offload.embedding: ps). Every parameter that lookups alone read is served, and
 * hash tables (td_hash) in a process that is alone too, which then owns them itself: they take no memory of the plan. One node
 * "ps/pull" brings the rows that a window names, and the lookups read those, by place:
 *
 *     table [rows, dim], ids -> lookup            becomes
 *     ps/pull (table, keys)  -> rows [most, dim];  rows, places -> lookup
 *
 * `keys` and `places` are new inputs, which the runtime makes of each batch's ids (runtime/served.c). Tables that are looked up
 * by the same ids share them. The update becomes a part of one node "ps/push" (update.c). Names of lookups stay what they were,
 * and with them the order of sums: the bits are those of a local table. */
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "partition/plan.h"

enum { TABLE, IDS };

static bool is_plain_lookup(const td_node *node)
{
    return strcmp(node->op->name, "embedding") == 0 || strcmp(node->op->name, "embedding_bag") == 0;
}

/* ---- which tables -------------------------------------------------------------------------------------------------------- */

static bool is_table(const td_graph *graph, int32_t value)
{
    bool any = false;
    if (graph->values[value].class != TD_CLASS_PARAMETER || graph->values[value].shape.rank != 2)
        return false;
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++) {
            if (graph->nodes[n].inputs[i] != value)
                continue;
            if (i != TABLE || !is_plain_lookup(&graph->nodes[n]))
                return false;
            any = true;
        }
    return any && !graph->values[value].is_output;
}

static int compare_served(const void *a, const void *b)
{
    return strcmp(((const td_plan_served *)a)->name, ((const td_plan_served *)b)->name);
}

/* The rules of a hash table by its name; NULL: it is none. */
static const td_hash_options *hash_of(const td_train_options *options, const char *name)
{
    for (int64_t i = 0; i < options->hashes.n; i++)
        if (td_glob_match(options->hashes.items[i].match, name))
            return &options->hashes.items[i];
    return NULL;
}

static td_status *list_tables(td_plan *plan, const td_train_options *options)
{
    td_graph *graph = plan->graph;
    TD_TRY(TD_NEW(plan->served, graph->n_values + 1));
    for (int32_t v = 0; v < graph->n_values; v++) {
        if (!is_table(graph, v))
            continue;
        const td_hash_options *hash = hash_of(options, graph->values[v].name);
        if (!hash && !options->serve_embedding)
            continue;
        td_plan_served *served = &plan->served[plan->n_served++];
        *served = (td_plan_served){.name = td_strdup(graph->values[v].name),
                                   .parameter = v,
                                   .group = -1,
                                   .squares = -1,
                                   .hashed = hash != NULL};
        if (hash)
            served->hash = *hash;
        served->hash.match = NULL;
        if (!served->name)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for served tables");
        graph->values[v].served = true;
    }
    qsort(plan->served, (size_t)plan->n_served, sizeof *plan->served, compare_served);
    return NULL;
}

/* ---- what is looked up of them -------------------------------------------------------------------------------------------- */

static int compare_nodes(const void *a, const void *b, void *context)
{
    const td_graph *graph = context;
    return strcmp(graph->nodes[*(const int32_t *)a].name, graph->nodes[*(const int32_t *)b].name);
}

/* The lookups of a table, by name. */
static int32_t list_lookups(td_graph *graph, int32_t table, int32_t *out_nodes)
{
    int32_t n = 0;
    for (int32_t k = 0; k < graph->n_nodes; k++)
        if (is_plain_lookup(&graph->nodes[k]) && graph->nodes[k].inputs[TABLE] == table)
            out_nodes[n++] = k;
    qsort_r(out_nodes, (size_t)n, sizeof *out_nodes, compare_nodes, graph);
    return n;
}

static int64_t offset_of(const td_node *lookup)
{
    return td_attr_int(lookup->attrs, lookup->n_attrs, "offset", 0);
}

/* Whether the lookups are the ones that these keys were made for. */
static bool are_alike(const td_graph *graph, const td_plan_keys *keys, const td_plan_keys *wanted,
                      const int32_t *lookups, int32_t n)
{
    bool alike = keys->n_places == n && keys->rows == wanted->rows && keys->hashed == wanted->hashed;
    for (int32_t i = 0; i < n && alike; i++) {
        const td_node *lookup = &graph->nodes[lookups[i]];
        alike = strcmp(keys->places[i].from, graph->values[lookup->inputs[IDS]].name) == 0 &&
                keys->places[i].offset == offset_of(lookup);
    }
    return alike;
}

static td_status *check_ids(const td_graph *graph, const td_node *lookup)
{
    const td_value_info *ids = &graph->values[lookup->inputs[IDS]];
    if (ids->class == TD_CLASS_INPUT)
        return NULL;
    return td_status_help(TD_ERROR(TD_UNSUPPORTED,
                                   "offload.embedding: ps: the ids of \"%s\" are computed (by \"%s\"), not an input, "
                                   "so they are not known before the step",
                                   lookup->name, graph->nodes[ids->producer].name),
                          "leave its table here: offload.embedding: none or cpu");
}

/* How many different ids this process's part of a window may have: the ids of its lookups in all its micro-batches, or the table's
 * rows. */
static int64_t most_keys(const td_plan *plan, const td_plan_keys *keys, const int32_t *lookups, int32_t n)
{
    const td_graph *graph = plan->graph;
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        td_tensor ids;
        td_value_tensor(graph, graph->nodes[lookups[i]].inputs[IDS], NULL, &ids);
        most += ids.kind == TD_RAGGED ? ids.entries : td_tensor_elements(&ids);
    }
    if (!td_multiply_checked(most, (int64_t)plan->replicas * plan->most_accumulated, &most))
        most = INT64_MAX;
    return most < keys->rows || keys->hashed ? most : keys->rows;
}

/* The input that gets the places of a lookup's ids: of their shape. */
static td_status *add_places(td_graph *graph, td_plan_keys *keys, const td_node *lookup)
{
    const td_value_info ids = graph->values[lookup->inputs[IDS]];
    td_plan_places *places = &keys->places[keys->n_places++];
    *places = (td_plan_places){.from = td_strdup(ids.name),
                               .to = td_format("%s/places.%d", keys->name, keys->n_places - 1),
                               .offset = offset_of(lookup)};
    if (!places->from || !places->to)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for served tables");
    (void)td_graph_add_source(graph, TD_CLASS_INPUT, ids.kind, places->to, TD_I64, ids.shape, ids.entries);
    return graph->failed ? td_graph_check(graph) : NULL;
}

static td_status *add_keys(td_plan *plan, const td_plan_served *served, int64_t rows, const int32_t *lookups, int32_t n)
{
    td_graph *graph = plan->graph;
    td_plan_keys *keys = &plan->keys[plan->n_keys++];
    *keys = (td_plan_keys){.name = td_format("%s/keys", served->name), .rows = rows, .hashed = served->hashed};
    TD_TRY(TD_NEW(keys->places, n));
    if (!keys->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for served tables");
    const td_dim most = td_extent(graph, keys->name, most_keys(plan, keys, lookups, n));
    keys->value = td_graph_add_source(graph, TD_CLASS_INPUT, TD_DENSE, keys->name, TD_I64, td_shape_of(1, &most),
                                      td_dim_constant(0))
                      .id;
    for (int32_t i = 0; i < n; i++) {
        TD_TRY(check_ids(graph, &graph->nodes[lookups[i]]));
        TD_TRY(add_places(graph, keys, &graph->nodes[lookups[i]]));
    }
    return NULL;
}

static td_status *find_keys(td_plan *plan, td_plan_served *served, const int32_t *lookups, int32_t n)
{
    const int64_t rows = plan->graph->values[served->parameter].shape.dims[0].constant;
    const td_plan_keys wanted = {.rows = rows, .hashed = served->hashed};
    for (served->keys = 0; served->keys < plan->n_keys; served->keys++)
        if (are_alike(plan->graph, &plan->keys[served->keys], &wanted, lookups, n))
            return NULL;
    return add_keys(plan, served, rows, lookups, n);
}

/* ---- the graph ------------------------------------------------------------------------------------------------------------- */

/* A lookup reads pulled rows by place. */
static void redirect(td_graph *graph, int32_t node, td_value rows, const char *places)
{
    td_node *lookup = &graph->nodes[node];
    lookup->inputs[TABLE] = rows.id;
    lookup->inputs[IDS] = td_graph_find(graph, places).id;
    for (int32_t a = 0; a < lookup->n_attrs; a++)
        if (strcmp(lookup->attrs[a].key, "offset") == 0)
            lookup->attrs[a].i = 0;
}

static td_status *add_pull(td_plan *plan, td_value *inputs, td_value *rows)
{
    td_graph *graph = plan->graph;
    const td_attr outputs = TD_INT("outputs", plan->n_served);
    for (int32_t t = 0; t < plan->n_served; t++) {
        inputs[2 * t] = (td_value){graph, plan->served[t].parameter};
        inputs[2 * t + 1] = (td_value){graph, plan->keys[plan->served[t].keys].value};
    }
    td_graph_add(graph, "ps_pull", "ps/pull", inputs, 2 * plan->n_served, &outputs, 1, rows, plan->n_served);
    return graph->failed ? td_graph_check(graph) : NULL;
}

static td_status *rewire(td_plan *plan, int32_t *lookups, const td_value *rows)
{
    for (int32_t t = 0; t < plan->n_served; t++) {
        const td_plan_keys *keys = &plan->keys[plan->served[t].keys];
        const int32_t n = list_lookups(plan->graph, plan->served[t].parameter, lookups);
        for (int32_t i = 0; i < n; i++)
            redirect(plan->graph, lookups[i], rows[t], keys->places[i].to);
    }
    return NULL;
}

static td_status *serve(td_plan *plan)
{
    int32_t *lookups = NULL;
    td_value *inputs = NULL, *rows = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(lookups, plan->graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(plan->keys, plan->n_served));
    TD_TRY_OR(status, done, TD_NEW(inputs, 2 * plan->n_served));
    TD_TRY_OR(status, done, TD_NEW(rows, plan->n_served));
    for (int32_t t = 0; t < plan->n_served; t++) {
        int32_t n = list_lookups(plan->graph, plan->served[t].parameter, lookups);
        TD_TRY_OR(status, done, find_keys(plan, &plan->served[t], lookups, n));
    }
    TD_TRY_OR(status, done, add_pull(plan, inputs, rows));
    TD_TRY_OR(status, done, rewire(plan, lookups, rows));
done:
    td_free(lookups);
    td_free(inputs);
    td_free(rows);
    return status;
}

static td_status *check_options(const td_train_options *options, bool alone)
{
    if (options->serve_embedding && (!options->remote || alone))
        return td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT, "offload.embedding: ps needs servers: start it with mpirun"),
            "mpirun --oversubscribe -n 4 tandem train ..., or in one process: --set offload.embedding=cpu");
    if (!options->remote)
        return TD_ERROR(TD_INVALID_ARGUMENT, "hash tables (td_hash) need who owns them: set td_train_options.remote");
    if (options->stochastic_rounding)
        return TD_ERROR(TD_UNSUPPORTED,
                        "train.table_rounding: stochastic is not there for served tables and hash tables");
    return NULL;
}

/* Who reads a value besides lookups; NULL: nobody. */
static const td_node *other_reader(const td_graph *graph, int32_t value)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] == value && (i != TABLE || !is_plain_lookup(&graph->nodes[n])))
                return &graph->nodes[n];
    return NULL;
}

/* Tables were to be served, and there is none that can be: the reason is that of the first lookup's. */
static td_status *nothing_to_serve(const td_graph *graph)
{
    td_status *status = NULL;
    for (int64_t n = 0; n < graph->n_nodes && !status; n++) {
        const td_node *lookup = &graph->nodes[n];
        if (!is_plain_lookup(lookup))
            continue;
        const td_value_info *table = &graph->values[lookup->inputs[TABLE]];
        const td_node *reader = other_reader(graph, lookup->inputs[TABLE]);
        status = TD_ERROR(
            TD_UNSUPPORTED,
            "offload.embedding: ps: \"%s\" reads \"%s\", which %s%s%s, and no other table is there: servers keep "
            "tables that lookups alone read",
            lookup->name, table->name, reader ? "\"" : "", reader ? reader->name : "",
            reader ? "\" reads too" : "is not a table of its own");
    }
    if (!status)
        status =
            TD_ERROR(TD_UNSUPPORTED, "offload.embedding: ps: the model has no lookup, so there is no table to serve");
    return td_status_help(status, "leave offload.embedding out: under mpirun each worker has all parameters then");
}

td_status *td_pass_serve(td_plan *plan, const td_plan_request *request)
{
    plan->remote = request->options->remote;
    plan->in_job = plan->remote && !request->alone;
    if (!request->options->serve_embedding && !request->options->hashes.n)
        return NULL;
    TD_TRY(td_graph_check(plan->graph));
    TD_TRY(check_options(request->options, request->alone));
    TD_TRY(list_tables(plan, request->options));
    if (request->options->serve_embedding && plan->training && !plan->n_served)
        return nothing_to_serve(plan->graph);
    return plan->n_served ? serve(plan) : NULL;
}

td_plan_served *td_plan_served_of(const td_plan *plan, int32_t parameter)
{
    for (int32_t t = 0; t < plan->n_served; t++)
        if (plan->served[t].parameter == parameter)
            return &plan->served[t];
    return NULL;
}

void td_plan_drop_served(td_plan *plan)
{
    for (int32_t k = 0; plan->keys && k < plan->n_keys; k++) {
        for (int32_t i = 0; plan->keys[k].places && i < plan->keys[k].n_places; i++) {
            td_free(plan->keys[k].places[i].from);
            td_free(plan->keys[k].places[i].to);
        }
        td_free(plan->keys[k].places);
        td_free(plan->keys[k].name);
    }
    for (int32_t t = 0; plan->served && t < plan->n_served; t++)
        td_free(plan->served[t].name);
    td_free(plan->keys);
    td_free(plan->served);
}
