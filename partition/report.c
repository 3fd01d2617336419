/* A finished plan for programs and pictures: summaries, JSON, Graphviz. Why an op is where it is: explain.c. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "partition/rewrite.h"

/* ---- summaries ------------------------------------------------------------------------------------------------------------- */

static int32_t count_subgraphs(const td_plan *plan)
{
    int32_t n = 0;
    for (int32_t c = 0; c < plan->n_clusters; c++)
        n += plan->clusters[c].lane == TD_QUEUE_COMPUTE;
    return n;
}

static int32_t count_cut_edges(const td_plan *plan)
{
    int32_t n = 0;
    for (int64_t i = 0; i < plan->graph->n_nodes; i++)
        n += plan->nodes[i].lane != TD_QUEUE_COMPUTE;
    return n;
}

td_plan_summary td_plan_summarize(const td_plan *plan)
{
    td_plan_summary summary = {.devices = plan->n_sites,
                               .subgraphs = count_subgraphs(plan),
                               .cut_edges = count_cut_edges(plan),
                               .plan_ms = plan->plan_s * 1e3,
                               .early_lookup = plan->early_lookup,
                               .delayed = plan->delayed,
                               .recomputed_ops = plan->n_recomputed};
    td_plan_sum_window(plan, &summary);
    return summary;
}

td_plan_device_summary td_plan_device(const td_plan *plan, int32_t index)
{
    const td_plan_site *site = &plan->sites[index];
    const td_plan_arena *arena = &plan->arenas[index];
    td_plan_device_summary summary = {.name = site->name,
                                      .backend = site->backend,
                                      .description = site->properties.description,
                                      .capacity_bytes = site->properties.memory_bytes,
                                      .peak_bytes = (uint64_t)(arena->store_bytes + arena->bytes),
                                      .parameter_bytes = (uint64_t)arena->parameter_bytes,
                                      .state_bytes = (uint64_t)arena->state_bytes,
                                      .activation_bytes = (uint64_t)arena->bytes,
                                      .accumulated_bytes = (uint64_t)td_plan_accumulated_bytes(plan, index),
                                      .is_host = site->is_host};
    if (index == plan->host) {
        summary.table_bytes = (uint64_t)plan->paging.bytes;
        summary.table_resident_bytes = (uint64_t)plan->paging.resident_bytes;
        summary.table_file_bytes = (uint64_t)plan->paging.file_bytes;
    }
    summary.busy_s = td_plan_busy_seconds(plan, index);
    return summary;
}

/* ---- JSON --------------------------------------------------------------------------------------------------------------------- */

typedef struct named_bytes {
    const char *name;
    int64_t bytes;
} named_bytes;

static int compare_named(const void *a, const void *b)
{
    const named_bytes *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* `all` has room for every value. */
static json_t *tenants_json(const td_plan *plan, int32_t site, named_bytes *all)
{
    enum { MOST = 10 };
    json_t *list = json_array();
    int64_t n = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        bool paged = value->table >= 0 && plan->tables[value->table].storage != TD_TABLE_MEMORY;
        if (value->device == site && !paged && (value->storage == TD_STORE || value->storage == TD_ARENA))
            all[n++] = (named_bytes){plan->graph->values[v].name, value->block_bytes * (value->doubled ? 2 : 1)};
    }
    qsort(all, (size_t)n, sizeof *all, compare_named);
    for (int64_t i = 0; i < n && i < MOST; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "name", all[i].name, "bytes", (json_int_t)all[i].bytes));
    return list;
}

static json_t *device_json(const td_plan *plan, int32_t index, named_bytes *room)
{
    td_plan_device_summary d = td_plan_device(plan, index);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:o}", "name", d.name,
                     "backend", d.backend, "description", d.description, "capacity_bytes", (json_int_t)d.capacity_bytes,
                     "peak_bytes", (json_int_t)d.peak_bytes, "parameter_bytes", (json_int_t)d.parameter_bytes,
                     "state_bytes", (json_int_t)d.state_bytes, "activation_bytes", (json_int_t)d.activation_bytes,
                     "accumulated_bytes", (json_int_t)d.accumulated_bytes, "table_bytes", (json_int_t)d.table_bytes,
                     "table_resident_bytes", (json_int_t)d.table_resident_bytes, "table_file_bytes",
                     (json_int_t)d.table_file_bytes, "busy_ms", d.busy_s * 1e3, "host", (int)d.is_host, "tenants",
                     tenants_json(plan, index, room));
}

/* Where a node's inputs come from: the op that makes each, before any copy of it, or the name of what no op makes. */
static json_t *inputs_json(const td_plan *plan, const td_node *node)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t value = node->inputs[i], producer = value < 0 ? -1 : plan->graph->values[value].producer;
        while (producer >= 0 && plan->nodes[producer].lane != TD_QUEUE_COMPUTE) {
            value = plan->graph->nodes[producer].inputs[0];
            producer = plan->graph->values[value].producer;
        }
        if (value >= 0)
            json_array_append_new(
                list, json_string(producer >= 0 ? plan->graph->nodes[producer].name : plan->graph->values[value].name));
    }
    return list;
}

static json_t *node_json(const td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    const td_plan_node *p = &plan->nodes[id];
    double bytes = p->cost.bytes_read + p->cost.bytes_written;
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:b}", "name", node->name, "op", node->op->name,
                     "device", plan->sites[p->device].name, "cause", p->cause, "inputs", inputs_json(plan, node),
                     "flops", p->cost.flops, "bytes", bytes, "flops_per_byte", bytes > 0 ? p->cost.flops / bytes : 0.0,
                     "ms", p->seconds * 1e3, "moved", (int)p->moved);
}

static json_t *cluster_json(const td_plan *plan, int32_t index)
{
    const td_cluster *cluster = &plan->clusters[index];
    json_t *after = json_array(), *ops = json_array();
    double flops = 0, bytes = 0;
    for (int32_t i = 0; i < cluster->n_before; i++)
        json_array_append_new(after, json_string(plan->clusters[cluster->before[i]].name));
    for (int32_t i = 0; i < cluster->n; i++) {
        int32_t node = plan->sequence[cluster->first + i];
        flops += plan->nodes[node].cost.flops;
        bytes += plan->nodes[node].cost.bytes_read + plan->nodes[node].cost.bytes_written;
        json_array_append_new(ops, node_json(plan, node));
    }
    return json_pack("{s:i, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:s, s:o, s:o}", "id", index, "name", cluster->name,
                     "device", plan->sites[cluster->device].name, "n_ops", cluster->n, "ms", cluster->seconds * 1e3,
                     "flops", flops, "bytes", bytes, "flops_per_byte", bytes > 0 ? flops / bytes : 0.0, "why",
                     plan->nodes[plan->sequence[cluster->first]].cause, "after", after, "ops", ops);
}

static json_t *cuts_json(const td_plan *plan)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < plan->graph->n_nodes; i++) {
        int32_t n = plan->sequence[i];
        const td_node *node = &plan->graph->nodes[n];
        const td_plan_node *p = &plan->nodes[n];
        if (p->lane == TD_QUEUE_COMPUTE)
            continue;
        int32_t from = plan->values[node->inputs[0]].device, to = plan->values[td_copied_to(node)].device;
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:I, s:f}", "value", plan->graph->values[node->inputs[0]].name,
                                        "from", plan->sites[from].name, "to", plan->sites[to].name, "bytes",
                                        (json_int_t)p->cost.bytes_read, "ms", p->seconds * 1e3));
    }
    return list;
}

static json_t *moved_json(const td_plan *plan)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < plan->graph->n_nodes; i++) {
        int32_t n = plan->sequence[i];
        if (plan->nodes[n].moved)
            json_array_append_new(
                list, json_pack("{s:s, s:s}", "op", plan->graph->nodes[n].name, "why", plan->nodes[n].cause));
    }
    return list;
}

/* A memory-bound subgraph alone on the far side of copies that cost more than it does: the placement contradicts figures. */
static json_t *flags_json(const td_plan *plan)
{
    json_t *list = json_array();
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        const td_cluster *cluster = &plan->clusters[c];
        double copies = 0, flops = 0, bytes = 0;
        if (cluster->lane != TD_QUEUE_COMPUTE || plan->sites[cluster->device].is_host)
            continue;
        for (int32_t i = 0; i < cluster->n; i++) {
            const td_plan_node *p = &plan->nodes[plan->sequence[cluster->first + i]];
            flops += p->cost.flops;
            bytes += p->cost.bytes_read + p->cost.bytes_written;
        }
        for (int32_t i = 0; i < cluster->n_before; i++)
            if (plan->clusters[cluster->before[i]].lane != TD_QUEUE_COMPUTE)
                copies += plan->clusters[cluster->before[i]].seconds;
        if (bytes > 0 && flops / bytes < 1 && copies > cluster->seconds)
            json_array_append_new(list,
                                  json_pack("{s:s, s:f, s:f, s:f}", "subgraph", cluster->name, "flops_per_byte",
                                            flops / bytes, "ms", cluster->seconds * 1e3, "copies_ms", copies * 1e3));
    }
    return list;
}

static json_t *idle_rules_json(const td_plan *plan)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < plan->n_idle_rules; i++)
        json_array_append_new(list, json_string(plan->idle_rules[i]));
    return list;
}

/* What the optimizer did: how often each rule applied, those that did. */
static json_t *optimized_json(const td_plan *plan)
{
    static const char *const levels[] = {"O0", "O1", "O2"};
    json_t *list = json_array();
    int32_t n = 0;
    const td_rewrite *rules = td_rewrites(&n);
    for (int32_t i = 0; i < n; i++)
        if (plan->rewrites[i])
            json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "rule", rules[i].name, "summary", rules[i].summary,
                                                  "count", (json_int_t)plan->rewrites[i]));
    return json_pack("{s:s, s:o}", "level", levels[plan->jit_level], "rules", list);
}

td_status *td_plan_json(const td_plan *plan, char **out_text)
{
    td_plan_summary s = td_plan_summarize(plan);
    named_bytes *room = NULL;
    *out_text = NULL;
    TD_TRY(TD_NEW(room, plan->graph->n_values + 1));
    json_t *devices = json_array(), *subgraphs = json_array();
    for (int32_t i = 0; i < plan->n_sites; i++)
        json_array_append_new(devices, device_json(plan, i, room));
    td_free(room);
    for (int32_t c = 0; c < plan->n_clusters; c++)
        if (plan->clusters[c].lane == TD_QUEUE_COMPUTE)
            json_array_append_new(subgraphs, cluster_json(plan, c));
    json_t *root = json_pack(
        "{s:i, s:i, s:I, s:I, s:I, s:f, s:f, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "n_subgraphs",
        s.subgraphs, "n_cut_edges", s.cut_edges, "micro_batches_per_step", (json_int_t)s.micro_batches,
        "to_device_bytes_per_step", (json_int_t)s.to_device_bytes_per_step, "to_host_bytes_per_step",
        (json_int_t)s.to_host_bytes_per_step, "plan_ms", s.plan_ms, "step_bound_ms", s.step_bound_s * 1e3,
        "early_lookup", (int)s.early_lookup, "pipelined", (int)plan->pipelined, "delayed", (int)s.delayed, "devices",
        devices, "subgraphs", subgraphs, "cut_edges", cuts_json(plan), "moved", moved_json(plan), "flags",
        flags_json(plan), "optimized", optimized_json(plan), "idle_rules", idle_rules_json(plan));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (text)
        *out_text = td_strdup(text);
    free(text); /* jansson's own allocation */
    return *out_text ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan's JSON");
}

/* ---- Graphviz ------------------------------------------------------------------------------------------------------------------- */

static const char *const colours[] = {"#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#d0e0e3", "#fce5cd"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

static void dot_clusters(const td_plan *plan, td_string *text)
{
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        const td_cluster *cluster = &plan->clusters[c];
        bool compute = cluster->lane == TD_QUEUE_COMPUTE;
        td_string_format(text, "  subgraph cluster_%d {\n    label=\"%s (%s)\"; style=filled; color=\"%s\";\n", c,
                         cluster->name, plan->sites[cluster->device].name,
                         compute ? colours[cluster->device % N_COLOURS] : "#eeeeee");
        for (int32_t i = 0; i < cluster->n; i++) {
            const td_node *node = &plan->graph->nodes[plan->sequence[cluster->first + i]];
            td_string_format(text, "    \"%s\" [label=\"%s\\n%s\", shape=%s, style=filled, fillcolor=white];\n",
                             node->name, node->name, node->op->name, compute ? "box" : "cds");
        }
        td_string_append(text, "  }\n");
    }
}

static void dot_edges(const td_plan *plan, td_string *text)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs; i++) {
            int32_t producer = node->inputs[i] < 0 ? -1 : plan->graph->values[node->inputs[i]].producer;
            if (producer < 0)
                continue;
            char bytes[TD_UNIT_TEXT];
            bool cut = plan->nodes[producer].lane != TD_QUEUE_COMPUTE;
            td_string_format(text, "  \"%s\" -> \"%s\"", plan->graph->nodes[producer].name, node->name);
            if (cut)
                td_string_format(text, " [label=\"%s\", penwidth=2]",
                                 td_format_traffic(bytes, plan->nodes[producer].cost.bytes_read));
            td_string_append(text, ";\n");
        }
    }
}

td_status *td_plan_dot(const td_plan *plan, char **out_text)
{
    td_string text = {0};
    td_string_append(&text, "digraph plan {\n  rankdir=TB; node [fontname=\"sans-serif\", fontsize=10];\n");
    dot_clusters(plan, &text);
    dot_edges(plan, &text);
    td_string_append(&text, "}\n");
    return td_string_finish(&text, out_text);
}
