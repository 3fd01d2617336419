/* Pass: the tables of a plan, and where their rows are.
 *
 * A table is a parameter of which every op reads or writes some rows only: lookups, and updates by row-sparse gradients. It is
 * found from the ops that use it, whatever its name. Where the options say so, a table on the host and its state take address
 * space instead of memory; how much of that is in memory at a time is settled here, so that the proof covers it. What one step
 * touches is bounded by the ids of its lookups; a bound below what two steps touch (they overlap) could not be kept. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "base/paging.h"
#include "graph/ops/lookup_parts.h"
#include "partition/plan.h"

enum { UPDATE_STATES = 5 }; /* inputs of embedding_update, and of a part of embedding_updates, before the states */

/* ---- who reads rows ----------------------------------------------------------------------------------------------------------- */

typedef struct row_reader {
    const char *op;
    int32_t table, ids; /* inputs; ids -1: rows of an earlier lookup of the same step */
} row_reader;

static const row_reader readers[] = {
    {"embedding", 0, 1},
    {"embedding_bag", 0, 1},
    {"lookup_early", 0, 1},
    {"lookup_rest", 0, -1},
    {"embedding_bag_weights_gradient", 0, 1},
};

/* Ops of several lookups or updates (group.c): parts one after another, each with its table first. A table that is not simply
 * in memory is never among them, so nobody asks for the ids. */
static bool reads_rows_of_part(const td_node *node, int32_t port)
{
    if (strcmp(node->op->name, "embedding_lookups") == 0)
        return port % LOOKUP_PART_INPUTS == 0;
    if (strcmp(node->op->name, "embedding_updates") != 0)
        return false;
    port %= UPDATE_STATES + TD_MAX_SLOTS;
    return port == 0 || port >= UPDATE_STATES;
}

bool td_plan_reads_rows(const td_plan *plan, const td_node *node, int32_t port, int32_t *out_ids)
{
    enum { GRADIENT = 1, STATES = 3 };
    *out_ids = -1;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(node->op->name, readers[i].op) == 0 && port == readers[i].table) {
            *out_ids = readers[i].ids;
            return true;
        }
    if (strcmp(node->op->name, "embedding_update") == 0)
        return port == 0 || port >= UPDATE_STATES;
    if (reads_rows_of_part(node, port))
        return true;
    if (!td_rule_find(node->op->name) || node->inputs[GRADIENT] < 0 ||
        plan->graph->values[node->inputs[GRADIENT]].kind != TD_ROW_SPARSE || (port > 0 && port < STATES))
        return false;
    *out_ids = plan->micro >= 0 ? GRADIENT : -1; /* of a window: its earlier micro-batches' rows may have left memory */
    return true;
}

/* whole[v]: some op needs all of it, or the caller does. */
static void find_whole(const td_plan *plan, bool *whole, bool *by_rows)
{
    const td_graph *graph = plan->graph;
    int32_t ids;
    for (int32_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] >= 0)
                *(td_plan_reads_rows(plan, &graph->nodes[n], i, &ids) ? &by_rows[graph->nodes[n].inputs[i]]
                                                                      : &whole[graph->nodes[n].inputs[i]]) = true;
    for (int32_t i = 0; i < plan->n_outputs; i++)
        whole[plan->outputs[i]] = true;
    for (int32_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == TD_CLASS_STATE && whole[v])
            whole[graph->values[v].parameter] = true;
}

/* The parameter that a value is a copy of, made for another device; else itself. */
static int32_t original_of(const td_graph *graph, int32_t value)
{
    for (int32_t maker; (maker = graph->values[value].producer) >= 0;) {
        if (strcmp(graph->nodes[maker].op->name, "copy") != 0)
            break;
        value = graph->nodes[maker].inputs[0];
    }
    return value;
}

/* Parameters of which only rows are read wherever they are copied to, and their states. Whether a parameter is one of them must
 * not depend on placement: checksums do. `whole` and `by_rows` are overwritten. */
static void mark_by_rows(td_plan *plan, bool *whole, bool *by_rows)
{
    const td_graph *graph = plan->graph;
    int32_t ids;
    memset(whole, 0, (size_t)graph->n_values);
    memset(by_rows, 0, (size_t)graph->n_values);
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs && strcmp(node->op->name, "copy") != 0; i++)
            if (node->inputs[i] >= 0)
                (td_plan_reads_rows(plan, node, i, &ids) ? by_rows : whole)[original_of(graph, node->inputs[i])] = true;
    }
    for (int32_t i = 0; i < plan->n_outputs; i++)
        whole[original_of(graph, plan->outputs[i])] = true;
    for (int32_t v = 0; v < graph->n_values; v++)
        plan->values[v].by_rows =
            graph->values[v].class == TD_CLASS_PARAMETER && by_rows[v] && !whole[v] && graph->values[v].shape.rank >= 2;
    for (int32_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == TD_CLASS_STATE && graph->values[v].parameter >= 0)
            plan->values[v].by_rows = plan->values[graph->values[v].parameter].by_rows;
}

static td_status *find_tables(td_plan *plan)
{
    const td_graph *graph = plan->graph;
    bool *whole = NULL, *by_rows = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(whole, graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(by_rows, graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(plan->tables, graph->n_values + 1));
    find_whole(plan, whole, by_rows);
    for (int32_t v = 0; v < graph->n_values; v++) {
        const td_value_info *info = &graph->values[v];
        if (info->class != TD_CLASS_PARAMETER || whole[v] || !by_rows[v] || info->shape.rank < 2 || info->served)
            continue;
        plan->values[v].table = plan->n_tables;
        plan->tables[plan->n_tables++] = (td_plan_table){.parameter = v};
    }
    for (int32_t v = 0; v < graph->n_values; v++) {
        int32_t parameter = graph->values[v].class == TD_CLASS_STATE ? graph->values[v].parameter : -1;
        if (parameter < 0 || plan->values[parameter].table < 0)
            continue;
        td_plan_table *table = &plan->tables[plan->values[parameter].table];
        plan->values[v].table = plan->values[parameter].table;
        table->states[table->n_states++] = v;
    }
    mark_by_rows(plan, whole, by_rows);
done:
    td_free(whole);
    td_free(by_rows);
    return status;
}

static void find_updated(td_plan *plan)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        int32_t table = node->n_inputs > 0 && node->inputs[0] >= 0 ? plan->values[node->inputs[0]].table : -1;
        if (node->phase == TD_UPDATE && table >= 0)
            plan->tables[table].updated = true;
    }
}

/* ---- how much of them is in memory ------------------------------------------------------------------------------------------- */

static int32_t array_value(const td_plan_table *table, int32_t array)
{
    return array == 0 ? table->parameter : table->states[array - 1];
}

static int64_t rows_of(const td_plan *plan, const td_plan_table *table)
{
    return plan->graph->values[table->parameter].shape.dims[0].constant;
}

static int64_t table_bytes(const td_plan *plan, const td_plan_table *table)
{
    int64_t bytes = 0;
    for (int32_t a = 0; a <= table->n_states; a++)
        bytes += plan->values[array_value(table, a)].bytes[0];
    return bytes;
}

static void choose_storage(td_plan *plan, const td_table_options *options)
{
    for (int32_t t = 0; t < plan->n_tables; t++) {
        td_plan_table *table = &plan->tables[t];
        const char *name = plan->graph->values[table->parameter].name;
        bool wanted = plan->values[table->parameter].device == plan->host &&
                      (!options->match || td_glob_match(options->match, name)) &&
                      table_bytes(plan, table) >= options->least_bytes;
        table->storage = wanted ? options->storage : TD_TABLE_MEMORY;
    }
}

/* Bytes of pages that so many rows of an array can lie in. */
static int64_t touched_bytes(int64_t rows, int64_t row_bytes, int64_t n, int64_t page)
{
    int64_t all = td_pages_of(rows * row_bytes, page) * page;
    int64_t per_row = page % (row_bytes > 0 ? row_bytes : 1) == 0 ? 1 : (row_bytes + page - 2) / page + 1, most;
    if (!td_multiply_checked(n, per_row * page, &most))
        return all;
    return most < all ? most : all;
}

static int64_t touched_by(const td_plan *plan, const td_node *node, const td_plan_table *table, int64_t page)
{
    int32_t port = -1, ids = -1;
    for (int32_t i = 0; i < node->n_inputs && ids < 0; i++)
        if (node->inputs[i] == table->parameter && td_plan_reads_rows(plan, node, i, &ids))
            port = i;
    if (port < 0 || ids < 0)
        return 0;
    int64_t rows = rows_of(plan, table), bytes = 0;
    td_tensor tensor;
    td_value_tensor(plan->graph, node->inputs[ids], NULL, &tensor);
    int64_t n = tensor.kind == TD_RAGGED || tensor.kind == TD_ROW_SPARSE ? tensor.entries : td_tensor_elements(&tensor);
    for (int32_t a = 0; a <= table->n_states; a++)
        bytes += touched_bytes(rows, rows > 0 ? plan->values[array_value(table, a)].bytes[0] / rows : 0, n, page);
    return bytes;
}

static void add_table(td_plan *plan, const td_plan_table *table, int64_t page)
{
    td_plan_paging *paging = &plan->paging;
    int64_t one_step = 0, all = 0;
    for (int32_t a = 0; a <= table->n_states; a++) {
        int64_t bytes = plan->values[array_value(table, a)].bytes[0];
        all += td_pages_of(bytes, page) * page;
        paging->overhead_bytes += td_page_overhead_bytes(bytes, page);
    }
    for (int32_t n = 0; n < plan->graph->n_nodes; n++)
        one_step += touched_by(plan, &plan->graph->nodes[n], table, page);
    paging->needed_bytes += 2 * one_step < all ? 2 * one_step : all;
    paging->bytes += all;
    paging->overhead_bytes += td_table_overhead_bytes(rows_of(plan, table));
}

static td_status *settle(td_plan *plan, const td_plan_request *request)
{
    td_plan_paging *paging = &plan->paging;
    const td_table_options *options = &request->options->tables;
    int64_t page = (int64_t)td_page_bytes(), memory = (int64_t)plan->sites[plan->host].properties.memory_bytes;
    int64_t half = (memory ? memory : request->host_memory_bytes) / 2 / page * page;
    for (int32_t t = 0; t < plan->n_tables; t++)
        if (plan->tables[t].storage != TD_TABLE_MEMORY)
            add_table(plan, &plan->tables[t], page);
    if (!paging->bytes)
        return NULL;
    int64_t bound = options->resident_bytes ? options->resident_bytes / page * page : half;
    paging->resident_bytes = bound && bound < paging->bytes ? bound : paging->bytes;
    paging->overhead_bytes += paging->resident_bytes / page * TD_PAGE_REF_BYTES + page;
    if (options->storage != TD_TABLE_FILE)
        return NULL;
    paging->file_bytes = paging->bytes;
    paging->path = td_strdup(options->path ? options->path : ".");
    return paging->path ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan's tables");
}

td_status *td_pass_tables(td_plan *plan, const td_plan_request *request)
{
    TD_TRY(find_tables(plan));
    find_updated(plan);
    choose_storage(plan, &request->options->tables);
    return settle(plan, request);
}
