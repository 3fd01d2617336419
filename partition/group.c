/* Pass: embeddings of one subgraph become one op, so that tables share one dispatch over the threads.
 *
 * Lookups whose ids come from elsewhere become one embedding_lookups. Those that only a concat along the last axis reads write
 * straight into its place. Updates of tables by one rule become one embedding_updates; a gradient that is a slice of columns
 * is read where it lies. Ops of one subgraph run in sequence on one lane anyway, so nothing waits for more than it did, and
 * an update has no successors in its step, so no cycle can arise; a dense neighbour in a concat is taken only when no lookup
 * of the subgraph leads to it:
 *
 *     lookup a -> linear -> concat <- lookup b        b may not be put into the concat: it would wait for a's results
 *
 * Before that the vectors of interactions are put side by side, where that gives such concats and slices (interactions.c).
 * Members are taken in the order of their names, parts of a concat in its own. Values keep their names. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/grouping.h"

/* ---- lookups ------------------------------------------------------------------------------------------------------------ */

/* Whether nothing of its own subgraph makes this value. */
static bool comes_from_elsewhere(const grouping *g, int32_t value, int32_t node)
{
    int32_t producer = value < 0 ? -1 : g->graph->values[td_graph_behind_views(g->graph, value)].producer;
    return producer < 0 || g->plan->nodes[producer].cluster != g->plan->nodes[node].cluster;
}

bool td_grouping_may_join(const grouping *g, int32_t id)
{
    const td_node *node = &g->graph->nodes[id];
    if (!g->keep[id] || !td_op_is_lookup(node->op) || g->plan->nodes[id].early != TD_EARLY_NONE ||
        node->phase != TD_FORWARD)
        return false;
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (!comes_from_elsewhere(g, node->inputs[i], id))
            return false;
    return true;
}

static td_status *add_lookups(grouping *g, int32_t like, bool concat, int32_t n_outputs, int32_t *out)
{
    parts *p = &g->parts;
    char *names = NULL;
    TD_TRY(td_string_finish(&p->names, &names));
    const td_attr attrs[] = {TD_INTS("pooling", p->pooling, p->n), TD_INTS("offset", p->offset, p->n),
                             TD_FLAG("concat", concat), TD_INT("outputs", n_outputs), TD_STRING("names", names)};
    td_status *status = td_grouping_add_node(g, "embedding_lookups", like, attrs, 5, n_outputs, out);
    td_free(names);
    return status;
}

/* The lookup that makes part `value` of a concat and that nobody else reads, or -1. */
static int32_t lookup_of_part(const grouping *g, int32_t value, int32_t concat)
{
    int32_t producer = g->graph->values[value].producer;
    bool fits = producer >= 0 && producer < g->n_nodes && g->uses[value] == 1 && !g->graph->values[value].is_output &&
                g->plan->nodes[producer].cluster == g->plan->nodes[concat].cluster && td_grouping_may_join(g, producer);
    for (int32_t k = 0; fits && k < g->plan->n_outputs; k++)
        fits = g->plan->outputs[k] != value;
    return fits ? producer : -1;
}

static bool may_take_columns(const grouping *g, int32_t value, int32_t concat)
{
    int32_t producer = g->graph->values[value].producer;
    if (g->graph->values[value].dtype != TD_F32 || g->graph->values[value].kind != TD_DENSE)
        return false;
    return producer < 0 || g->plan->nodes[producer].cluster != g->plan->nodes[concat].cluster ||
           !g->after_lookup[producer];
}

static td_status *group_concat(grouping *g, int32_t id)
{
    const td_node *node = &g->graph->nodes[id];
    const td_value_info *output = &g->graph->values[node->outputs[0]];
    int32_t lookups = 0, made = -1;
    bool fits = output->shape.rank == 2 && output->dtype == TD_F32 &&
                td_attr_int(node->attrs, node->n_attrs, "axis", 0) == 1 && output->shape.dims[1].extent < 0;
    for (int32_t i = 0; fits && i < node->n_inputs; i++) {
        bool lookup = lookup_of_part(g, node->inputs[i], id) >= 0;
        lookups += lookup;
        fits = lookup || may_take_columns(g, node->inputs[i], id);
    }
    if (!fits || !lookups)
        return NULL;
    td_parts_clear(&g->parts);
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t lookup = lookup_of_part(g, node->inputs[i], id);
        td_parts_add_lookup(g, lookup >= 0 ? &g->graph->nodes[lookup] : NULL, node->inputs[i]);
    }
    TD_TRY(add_lookups(g, id, true, 1, &made));
    if (made < 0)
        return NULL;
    node = &g->graph->nodes[id]; /* adding may have moved it */
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t lookup = lookup_of_part(g, node->inputs[i], id);
        if (lookup >= 0)
            td_grouping_drop(g, lookup);
    }
    td_grouping_drop(g, id);
    td_grouping_take_over(g, made, 0, node->outputs[0]);
    return NULL;
}

static td_status *group_lookups(grouping *g)
{
    int32_t made = -1;
    if (g->n_members < 2)
        return NULL;
    td_parts_clear(&g->parts);
    for (int32_t i = 0; i < g->n_members; i++)
        td_parts_add_lookup(g, &g->graph->nodes[g->members[i]], g->graph->nodes[g->members[i]].outputs[0]);
    TD_TRY(add_lookups(g, g->members[0], false, g->n_members, &made));
    for (int32_t i = 0; made >= 0 && i < g->n_members; i++) {
        td_grouping_drop(g, g->members[i]);
        td_grouping_take_over(g, made, i, g->graph->nodes[g->members[i]].outputs[0]);
    }
    return NULL;
}

/* ---- updates ------------------------------------------------------------------------------------------------------------ */

static td_status *group_updates(grouping *g)
{
    parts *p = &g->parts;
    char *names = NULL;
    int32_t made = -1;
    bool columns = false;
    td_parts_clear(p);
    for (int32_t i = 0; i < g->n_members; i++)
        td_parts_add_update(g, g->members[i]);
    for (int32_t i = 0; i < p->n; i++)
        columns =
            columns || p->column[i] || p->inputs[i * UPDATE_INPUTS + 1].id != g->graph->nodes[g->members[0]].inputs[1];
    TD_TRY(td_string_finish(&p->names, &names));
    if (g->n_members < 2 && !columns) {
        td_free(names);
        return NULL;
    }
    const td_node *first = &g->graph->nodes[g->members[0]];
    const td_attr attrs[] = {TD_STRING("rule", td_attr_string(first->attrs, first->n_attrs, "rule", "")),
                             TD_INTS("pooling", p->pooling, p->n),
                             TD_INTS("offset", p->offset, p->n),
                             TD_INTS("column", p->column, p->n),
                             TD_INTS("table", p->table, p->n),
                             TD_INTS("rounding", p->rounding, p->n),
                             TD_STRING("names", names)};
    td_status *status = td_grouping_add_node(g, "embedding_updates", g->members[0], attrs, 7, 0, &made);
    td_free(names);
    for (int32_t i = 0; made >= 0 && i < g->n_members; i++) {
        td_grouping_drop(g, g->members[i]);
        td_grouping_release_slices(g, g->members[i]);
    }
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------ */

static td_status *find_facts(grouping *g)
{
    int32_t *order = NULL;
    TD_TRY(td_graph_order(g->graph, &order));
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const td_node *node = &g->graph->nodes[order[i]];
        bool after = td_op_is_lookup(node->op);
        for (int32_t k = 0; k < node->n_inputs; k++) {
            int32_t producer = node->inputs[k] < 0 ? -1 : g->graph->values[node->inputs[k]].producer;
            if (node->inputs[k] >= 0)
                g->uses[node->inputs[k]]++;
            after = after || (producer >= 0 && g->after_lookup[producer] &&
                              g->plan->nodes[producer].cluster == g->plan->nodes[order[i]].cluster);
        }
        g->after_lookup[order[i]] = after;
    }
    td_free(order);
    return NULL;
}

/* Of one subgraph, one kind and one rule together, then by name. */
static int compare_members(const void *a, const void *b, void *context)
{
    const grouping *g = context;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const td_node *p = &g->graph->nodes[x], *q = &g->graph->nodes[y];
    if (g->plan->nodes[x].cluster != g->plan->nodes[y].cluster)
        return g->plan->nodes[x].cluster < g->plan->nodes[y].cluster ? -1 : 1;
    int order =
        strcmp(td_attr_string(p->attrs, p->n_attrs, "rule", ""), td_attr_string(q->attrs, q->n_attrs, "rule", ""));
    return order ? order : strcmp(p->name, q->name);
}

static bool same_group(const grouping *g, int32_t a, int32_t b)
{
    const td_node *p = &g->graph->nodes[a], *q = &g->graph->nodes[b];
    return g->plan->nodes[a].cluster == g->plan->nodes[b].cluster &&
           strcmp(td_attr_string(p->attrs, p->n_attrs, "rule", ""), td_attr_string(q->attrs, q->n_attrs, "rule", "")) ==
               0;
}

enum { MOST_MEMBERS = 256 }; /* so that a call's arguments stay small enough for any device's queue */

/* Runs `group` on each group of the nodes that `wanted` picks. */
static td_status *each_group(grouping *g, bool (*wanted)(const grouping *g, int32_t node),
                             td_status *(*group)(grouping *g))
{
    int32_t *list = NULL, n = 0;
    td_status *status = TD_NEW(list, g->n_nodes + 1);
    for (int32_t i = 0; i < g->n_nodes && !status; i++)
        if (wanted(g, i))
            list[n++] = i;
    if (!status)
        qsort_r(list, (size_t)n, sizeof *list, compare_members, g);
    for (int32_t begin = 0, end; begin < n && !status; begin = end) {
        for (end = begin + 1; end < n && end - begin < MOST_MEMBERS && same_group(g, list[begin], list[end]); end++)
            ;
        g->members = list + begin;
        g->n_members = end - begin;
        status = group(g);
    }
    td_free(list);
    return status;
}

static bool is_concat(const grouping *g, int32_t id)
{
    return g->keep[id] && strcmp(g->graph->nodes[id].op->name, "concat") == 0 &&
           g->plan->nodes[id].lane == TD_QUEUE_COMPUTE;
}

static td_status *group_concats(grouping *g)
{
    td_status *status = NULL;
    for (int32_t i = 0; i < g->n_members && !status; i++)
        status = group_concat(g, g->members[i]);
    return status;
}

static bool is_update(const grouping *g, int32_t id)
{
    const char *op = g->graph->nodes[id].op->name;
    return strcmp(op, "embedding_update") == 0 || strcmp(op, "embedding_updates") == 0;
}

static td_status *allocate(grouping *g)
{
    /* Interactions add, for each of their lookups, two slices and a share of three nodes; then each node may be replaced once. */
    int64_t most_nodes = 10 * g->n_nodes + 1, most_values = g->graph->n_values + most_nodes;
    TD_TRY(TD_NEW(g->uses, most_values));
    TD_TRY(TD_NEW(g->after_lookup, most_nodes));
    TD_TRY(TD_NEW(g->keep, most_nodes));
    TD_TRY(TD_NEW(g->keep_value, most_values));
    memset(g->keep, 1, (size_t)g->n_nodes);
    memset(g->keep_value, 1, (size_t)g->graph->n_values);
    int64_t most_parts = 1;
    for (int64_t i = 0; i < g->n_nodes; i++)
        most_parts += g->graph->nodes[i].n_inputs;
    return td_parts_init(&g->parts, most_parts);
}

static bool has_members(const td_graph *graph)
{
    for (int64_t i = 0; i < graph->n_nodes; i++)
        if (td_op_is_lookup(graph->nodes[i].op) || strncmp(graph->nodes[i].op->name, "embedding_update", 16) == 0)
            return true;
    return false;
}

td_status *td_pass_group(td_plan *plan, const td_plan_request *request)
{
    grouping g = {.plan = plan, .graph = plan->graph, .n_nodes = plan->graph->n_nodes};
    td_status *status = NULL;
    /* Tables that take memory by touched rows are told which rows by each lookup on its own. */
    if (!has_members(plan->graph) || request->options->tables.storage != TD_TABLE_MEMORY)
        return NULL;
    TD_TRY_OR(status, done, allocate(&g));
    TD_TRY_OR(status, done, find_facts(&g));
    TD_TRY_OR(status, done, td_group_interactions(&g));
    TD_TRY_OR(status, done, each_group(&g, is_concat, group_concats));
    TD_TRY_OR(status, done, each_group(&g, td_grouping_may_join, group_lookups));
    TD_TRY_OR(status, done, each_group(&g, is_update, group_updates));
    TD_TRY_OR(status, done, td_plan_compact(plan, g.keep, g.keep_value));
done:
    td_free(g.uses);
    td_free(g.after_lookup);
    td_free(g.keep);
    td_free(g.keep_value);
    td_parts_deinit(&g.parts);
    return status;
}
