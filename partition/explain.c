/* Why an op is where it is, and what became of one that the optimizer took away: see td_plan_explain. Parameters: explain_value.c;
 * subgraphs: explain_subgraph.c. */
#include "partition/explain.h"

#include <string.h>

#include "base/memory.h"
#include "base/nearest.h"
#include "base/units.h"
#include "graph/ops/update_part.h"
#include "partition/rewrite.h"

/* Ops of the plan, those that rules took away, values, then subgraphs. */
static const char *name_at(const void *context, int32_t index)
{
    const td_plan *plan = context;
    const int64_t n = plan->graph->n_nodes, values = n + plan->n_rewritten, subgraphs = values + plan->graph->n_values;
    if (index >= subgraphs)
        return plan->clusters[index - subgraphs].name;
    if (index >= values)
        return plan->graph->values[index - values].name;
    return index < n ? plan->graph->nodes[index].name : plan->rewritten[index - n].name;
}

/* The node that an op was made part of (group.c), by the op's name; -1: none. */
static int32_t find_group(const td_plan *plan, const char *op)
{
    size_t length = strlen(op);
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        for (const char *names = td_attr_string(node->attrs, node->n_attrs, "names", NULL); names;) {
            if (strcspn(names, " ") == length && strncmp(names, op, length) == 0)
                return n;
            names = strchr(names, ' ');
            names = names ? names + 1 : NULL;
        }
    }
    return -1;
}

static int32_t count_members(const td_node *group)
{
    int32_t n = 1;
    for (const char *at = td_attr_string(group->attrs, group->n_attrs, "names", ""); *at; at++)
        n += *at == ' ';
    return n;
}

/* The node of an op of the plan that has this name, on its own or in a group, which is said; -1: none. */
static int32_t find_node(const td_plan *plan, const char *op, td_string *text)
{
    int32_t id = td_name_map_get(&plan->graph->node_names, op);
    if (id >= 0)
        return id;
    id = find_group(plan, op);
    if (id < 0)
        return id;
    const td_node *group = &plan->graph->nodes[id];
    td_string_format(text,
                     "%s is one of the %d parts of \"%s\": ops of one kind in one subgraph share one call, and so the "
                     "threads\n",
                     op, count_members(group), group->name);
    return id;
}

/* What of the store goes where an op goes: parameters that it reads or writes and their optimizer state, or the replicas that it
 * reads, whose parameter and state stay where they are. */
static int64_t count_store_bytes(const td_plan *plan, const td_node *node)
{
    int64_t bytes = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_value_info *info = &plan->graph->values[v];
        bool comes = false;
        for (int32_t i = 0; i < node->n_inputs && plan->values[v].storage == TD_STORE && !comes; i++) {
            const int32_t input = node->inputs[i] < 0 ? -1 : td_graph_behind_views(plan->graph, node->inputs[i]);
            comes = input == v || (info->class == TD_CLASS_STATE && input >= 0 && input == info->parameter);
        }
        bytes += comes ? plan->values[v].block_bytes : 0;
    }
    return bytes;
}

static td_status *explain_other_devices(const td_plan *plan, int32_t id, td_string *text)
{
    char reason[160], bytes[TD_UNIT_TEXT], time[TD_UNIT_TEXT];
    const td_plan_node *p = &plan->nodes[id];
    const int64_t stored = count_store_bytes(plan, &plan->graph->nodes[id]);
    for (int32_t s = 0; s < plan->n_sites; s++) {
        bool supported = false;
        if (s == p->device)
            continue;
        TD_TRY(td_plan_supports(plan->graph, &plan->sites[s], id, &supported, reason, sizeof reason));
        if (!supported) {
            td_string_format(text, "  %s cannot run it: %s\n", plan->sites[s].name, reason);
            continue;
        }
        td_string_format(text, "  on %s it would take about %s", plan->sites[s].name,
                         td_format_seconds(time, td_plan_estimate(&plan->sites[s], &p->cost)));
        if (stored)
            td_string_format(text, " and need %s there", td_format_bytes(bytes, (double)stored));
        if (stored && plan->sites[s].properties.memory_bytes) {
            double used = (double)(plan->arenas[s].store_bytes + plan->arenas[s].bytes);
            td_string_format(text, ", of %s free",
                             td_format_bytes(bytes, (double)plan->sites[s].properties.memory_bytes - used));
        }
        td_string_append(text, "\n");
    }
    return NULL;
}

/* What rules made of the op that has this name, and of those that it does the work of. */
static void explain_rewrites(const td_plan *plan, const char *op, td_string *text)
{
    const td_plan_rewritten *was = td_plan_find_rewritten(plan, op);
    if (was)
        td_string_format(text, "  it was written as %s; rule %s: %s\n", was->op->name, td_rewrite_of(was->rule)->name,
                         td_rewrite_of(was->rule)->summary);
    bool any = false;
    for (int64_t i = 0; i < plan->n_rewritten; i++) {
        const td_plan_rewritten *other = &plan->rewritten[i];
        if (strcmp(other->into, op) != 0 || strcmp(other->name, op) == 0)
            continue;
        td_string_format(text, "%s %s (%s)", any ? "," : "  it does the work of", other->name, other->op->name);
        any = true;
    }
    if (any)
        td_string_append(text, "\n");
}

/* The two halves of an update that begins before the norm of all gradients is known (speculate.c): of the op that settles it the
 * one that does the work, of that one the one that settles it; -1: it is neither. */
static int32_t find_other_half(const td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    for (int32_t n = 0; n < plan->graph->n_nodes && (node->settles || node->speculates); n++) {
        const td_node *other = &plan->graph->nodes[n];
        if (other->settles == node->speculates && other->speculates == node->settles &&
            other->inputs[MIXED_PARAMETER] == node->inputs[MIXED_PARAMETER])
            return n;
    }
    return -1;
}

static void explain_halves(const td_plan *plan, int32_t id, td_string *text)
{
    const int32_t half = find_other_half(plan, id);
    if (half < 0)
        return;
    const char *other = plan->graph->nodes[half].name;
    if (plan->graph->nodes[id].settles)
        td_string_format(text,
                         "  it only undoes and repeats the update where gradients turn out to be clipped; the update "
                         "itself is \"%s\" (below)\n",
                         other);
    else
        td_string_format(text,
                         "  it updates as the gradient comes, before the norm of all gradients is known "
                         "(offload.speculate); \"%s\" undoes that where they are clipped\n",
                         other);
}

static td_status *explain_node(const td_plan *plan, int32_t id, td_string *text)
{
    const td_plan_node *p = &plan->nodes[id];
    const td_node *node = &plan->graph->nodes[id];
    char time[TD_UNIT_TEXT], traffic[TD_UNIT_TEXT];
    double bytes = p->cost.bytes_read + p->cost.bytes_written, intensity = bytes > 0 ? p->cost.flops / bytes : 0;
    td_string_format(text, "%s (%s) runs on %s\n  because %s\n", node->name, node->op->name,
                     plan->sites[p->device].name, p->cause);
    explain_halves(plan, id, text);
    explain_rewrites(plan, node->name, text);
    td_string_format(text, "  part of subgraph \"%s\"; about %s a step, %s moved\n", plan->clusters[p->cluster].name,
                     td_format_seconds(time, p->seconds), td_format_traffic(traffic, bytes));
    if (node->settles) /* its costs are those of steps in which it has nothing to do: no reason for any device */
        return NULL;
    TD_TRY(explain_other_devices(plan, id, text));
    td_string_format(text, "  it is %s (%.3g flops per byte)\n", intensity < 4 ? "memory-bound" : "compute-bound",
                     intensity);
    return NULL;
}

/* An op that is not in the plan any more, then what has its work now. */
static td_status *explain_rewritten(const td_plan *plan, const td_plan_rewritten *gone, td_string *text)
{
    int32_t id = -1;
    while (gone && id < 0) {
        const td_rewrite *rule = td_rewrite_of(gone->rule);
        td_string_format(text, "%s (%s) is \"%s\" now; rule %s: %s\n", gone->name, gone->op->name, gone->into,
                         rule->name, rule->summary);
        id = find_node(plan, gone->into, text);
        gone = td_plan_find_rewritten(plan, gone->into);
    }
    return id < 0 ? NULL : explain_node(plan, id, text);
}

static td_status *explain_op(const td_plan *plan, int32_t id, td_string *text)
{
    TD_TRY(explain_node(plan, id, text));
    const int32_t half = plan->graph->nodes[id].settles ? find_other_half(plan, id) : -1;
    return half < 0 ? NULL : explain_node(plan, half, text);
}

static td_status *unknown(const td_plan *plan, const char *name)
{
    const int64_t n = plan->graph->n_nodes + plan->n_rewritten + plan->graph->n_values + plan->n_clusters;
    char meant[TD_MEANT];
    return TD_ERROR(TD_NOT_FOUND, "the plan has no op, parameter or subgraph \"%s\"%s", name,
                    td_meant(meant, name, td_nearest(name, (int32_t)n, name_at, plan))[0]
                        ? meant
                        : " (tandem plan CONFIG --json names all)");
}

/* By name: an op or a parameter, an op that has gone, what ops make. */
static td_status *explain_op_or_value(const td_plan *plan, const char *name, td_string *text, bool *out_found)
{
    const int32_t value = td_name_map_get(&plan->graph->value_names, name);
    const bool is_source =
        value >= 0 && plan->graph->values[value].producer < 0; /* groups name those that they read, too */
    const int32_t id = is_source ? -1 : find_node(plan, name, text);
    const td_plan_rewritten *gone = id < 0 ? td_plan_find_rewritten(plan, name) : NULL;
    *out_found = id >= 0 || gone || value >= 0;
    if (id >= 0)
        return explain_op(plan, id, text);
    if (gone)
        return explain_rewritten(plan, gone, text);
    if (value >= 0)
        td_explain_value(plan, value, text);
    return NULL;
}

/* All that has the name: a subgraph often has that of its only op, or of a layer, whose parameters come last. */
static td_status *explain(const td_plan *plan, const char *name, td_string *text)
{
    bool known = false, is_subgraph = false;
    TD_TRY(explain_op_or_value(plan, name, text, &known));
    TD_TRY(td_explain_subgraph(plan, name, text, &is_subgraph));
    return known || td_explain_layer(plan, name, text) || is_subgraph ? NULL : unknown(plan, name);
}

td_status *td_plan_explain(const td_plan *plan, const char *op, char **out_text)
{
    td_string text = {0};
    *out_text = NULL;
    td_status *status = explain(plan, op, &text);
    if (status) {
        td_string_deinit(&text);
        return status;
    }
    return td_string_finish(&text, out_text);
}
