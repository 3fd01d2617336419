/* See grouping.h. */
#include "partition/grouping.h"

#include <string.h>

#include "base/memory.h"

/* ---- parts ------------------------------------------------------------------------------------------------------------- */

td_status *td_parts_init(parts *p, int64_t most)
{
    TD_TRY(TD_NEW(p->inputs, most * UPDATE_INPUTS));
    TD_TRY(TD_NEW(p->pooling, most));
    TD_TRY(TD_NEW(p->offset, most));
    TD_TRY(TD_NEW(p->column, most));
    TD_TRY(TD_NEW(p->table, most));
    return TD_NEW(p->rounding, most);
}

void td_parts_deinit(parts *p)
{
    td_free(p->inputs);
    td_free(p->pooling);
    td_free(p->offset);
    td_free(p->column);
    td_free(p->table);
    td_free(p->rounding);
    td_string_deinit(&p->names);
}

void td_parts_clear(parts *p)
{
    p->n = p->n_inputs = p->n_tables = 0;
    td_string_deinit(&p->names);
    p->names = (td_string){0};
}

static int64_t pooling_number(const td_node *node, const char *fallback)
{
    const char *pooling = td_attr_string(node->attrs, node->n_attrs, "pooling", fallback);
    return strcmp(pooling, "none") == 0 ? 0 : strcmp(pooling, "mean") == 0 ? 2 : 1;
}

static void add_name(parts *p, const char *name, size_t length)
{
    td_string_format(&p->names, "%s%.*s", p->n ? " " : "", (int)length, name);
}

/* A lookup; or, where `node` is NULL, a value whose columns are copied. */
void td_parts_add_lookup(grouping *g, const td_node *node, int32_t value)
{
    parts *p = &g->parts;
    const td_value_info *info = &g->graph->values[value];
    for (int32_t i = 0; i < LOOKUP_INPUTS; i++)
        p->inputs[p->n_inputs++] = (td_value){g->graph, !node                ? (i == 1 ? value : -1)
                                                        : i < node->n_inputs ? node->inputs[i]
                                                                             : -1};
    p->pooling[p->n] = node ? pooling_number(node, strcmp(node->op->name, "embedding") == 0 ? "none" : "sum") : 0;
    p->offset[p->n] = node ? td_attr_int(node->attrs, node->n_attrs, "offset", 0) : 0;
    add_name(p, node ? node->name : info->name, strlen(node ? node->name : info->name));
    p->n++;
}

/* The value behind a slice of columns on the same device, and the first column; or the value itself. */
static int32_t behind_slice(const grouping *g, int32_t value, int32_t node, int64_t *out_column)
{
    int32_t producer = g->graph->values[value].producer;
    const td_node *slice = producer >= 0 ? &g->graph->nodes[producer] : NULL;
    *out_column = 0;
    if (!slice || strcmp(slice->op->name, "slice") != 0 || g->graph->values[value].shape.rank != 2 ||
        td_attr_int(slice->attrs, slice->n_attrs, "axis", 0) != 1 ||
        g->plan->nodes[producer].cluster != g->plan->nodes[node].cluster)
        return value;
    *out_column = td_attr_int(slice->attrs, slice->n_attrs, "begin", 0);
    return slice->inputs[0];
}

static void add_update_part(grouping *g, int32_t id, const int32_t *inputs, int32_t n_inputs, int64_t column)
{
    parts *p = &g->parts;
    int64_t begin = 0;
    for (int32_t i = 0; i < UPDATE_INPUTS; i++) {
        int32_t value = i < n_inputs ? inputs[i] : -1;
        if (i == 1 && !column)
            value = behind_slice(g, value, id, &begin);
        p->inputs[p->n_inputs++] = (td_value){g->graph, value};
    }
    p->column[p->n++] = column + begin;
}

/* An embedding_update as one part, or an embedding_updates as its parts. */
void td_parts_add_update(grouping *g, int32_t id)
{
    parts *p = &g->parts;
    const td_node *node = &g->graph->nodes[id];
    const td_attr *attrs = node->attrs;
    const char *names = td_attr_string(attrs, node->n_attrs, "names", node->name);
    if (strcmp(node->op->name, "embedding_update") == 0) {
        p->pooling[p->n] = pooling_number(node, "sum");
        p->offset[p->n] = td_attr_int(attrs, node->n_attrs, "offset", 0);
        p->table[p->n] = p->n_tables++;
        p->rounding[p->n] = td_attr_int(attrs, node->n_attrs, "rounding", 0);
        add_name(p, node->name, strlen(node->name));
        add_update_part(g, id, node->inputs, node->n_inputs, 0);
        return;
    }
    const td_attr *pooling = td_attr_find(attrs, node->n_attrs, "pooling"),
                  *offset = td_attr_find(attrs, node->n_attrs, "offset"),
                  *column = td_attr_find(attrs, node->n_attrs, "column"),
                  *table = td_attr_find(attrs, node->n_attrs, "table"),
                  *rounding = td_attr_find(attrs, node->n_attrs, "rounding");
    int32_t first = p->n_tables;
    for (int32_t i = 0; i < pooling->n_ints; i++) {
        p->pooling[p->n] = pooling->ints[i];
        p->offset[p->n] = offset->ints[i];
        p->table[p->n] = first + table->ints[i];
        p->n_tables = (int32_t)p->table[p->n] + 1;
        p->rounding[p->n] = rounding->ints[i];
        add_name(p, names, strcspn(names, " "));
        names += strcspn(names, " ");
        names += *names == ' ';
        add_update_part(g, id, node->inputs + i * UPDATE_INPUTS, UPDATE_INPUTS, column->ints[i]);
    }
}

/* ---- putting an op in -------------------------------------------------------------------------------------------------- */

td_status *td_grouping_add_named(grouping *g, const char *op, const char *name, int32_t like, const td_attr *attrs,
                                 int32_t n_attrs, int32_t n_outputs, int32_t *out)
{
    td_graph *graph = g->graph;
    td_value *outputs = NULL;
    char reason[160] = "";
    bool supported = false;
    *out = -1;
    char *cause = td_strdup(g->plan->nodes[like].cause);
    td_status *status = TD_NEW(outputs, n_outputs + 1);
    if (!status && !cause)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a group of embeddings");
    if (!status) {
        graph->phase = graph->nodes[like].phase;
        td_graph_add(graph, op, name, g->parts.inputs, g->parts.n_inputs, attrs, n_attrs, outputs, n_outputs);
        status = graph->failed ? td_graph_check(graph) : td_plan_follow(g->plan);
    }
    int32_t id = (int32_t)graph->n_nodes - 1;
    if (!status) {
        td_plan_node *p = &g->plan->nodes[id];
        p->device = g->plan->nodes[like].device;
        p->lane = g->plan->nodes[like].lane;
        p->cluster = g->plan->nodes[like].cluster;
        p->cause = cause;
        cause = NULL;
        status = td_plan_supports(graph, &g->plan->sites[p->device], id, &supported, reason, sizeof reason);
    }
    if (!status && supported) {
        *out = id;
        g->keep[id] = true;
        for (int32_t i = 0; i < graph->nodes[id].n_inputs; i++)
            if (graph->nodes[id].inputs[i] >= 0)
                g->uses[graph->nodes[id].inputs[i]]++;
    }
    td_free(outputs);
    td_free(cause);
    return status;
}

td_status *td_grouping_add_node(grouping *g, const char *op, int32_t like, const td_attr *attrs, int32_t n_attrs,
                                int32_t n_outputs, int32_t *out)
{
    *out = -1;
    char *name = td_format("%s+%d", g->graph->nodes[like].name, g->parts.n - 1);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a group of embeddings");
    td_status *status = td_grouping_add_named(g, op, name, like, attrs, n_attrs, n_outputs, out);
    td_free(name);
    return status;
}

void td_grouping_drop(grouping *g, int32_t node)
{
    g->keep[node] = false;
    for (int32_t i = 0; i < g->graph->nodes[node].n_outputs; i++)
        g->keep_value[g->graph->nodes[node].outputs[i]] = false;
}

/* Output `index` of the new node becomes the value that `old` was, under its name and for its readers. */
void td_grouping_take_over(grouping *g, int32_t node, int32_t index, int32_t old)
{
    g->graph->nodes[node].outputs[index] = old;
    g->graph->values[old].producer = node;
    g->graph->values[old].output = index;
    g->keep_value[old] = true;
}

/* Whether a part of the new op looks behind the slice that makes this gradient, rather than reading it. */
static bool looks_behind(const grouping *g, const td_node *update, int32_t id, int32_t input)
{
    const td_attr *column = td_attr_find(update->attrs, update->n_attrs, "column");
    int64_t begin = 0;
    int32_t part = input / UPDATE_INPUTS, value = update->inputs[input];
    return input % UPDATE_INPUTS == 1 && value >= 0 && !(column && column->ints[part]) &&
           behind_slice(g, value, id, &begin) != value;
}

void td_grouping_release_slices(grouping *g, int32_t id)
{
    const td_node *update = &g->graph->nodes[id];
    for (int32_t i = 0; i < update->n_inputs; i++) {
        if (!looks_behind(g, update, id, i))
            continue;
        int32_t value = update->inputs[i];
        bool read = --g->uses[value] > 0 || g->graph->values[value].is_output;
        for (int32_t k = 0; k < g->plan->n_outputs; k++)
            read = read || g->plan->outputs[k] == value;
        if (!read)
            td_grouping_drop(g, g->graph->values[value].producer);
    }
}
