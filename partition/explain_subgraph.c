/* What a subgraph holds, what it takes and gives, and what it is cut from: the part of td_plan_explain about subgraphs.
 *
 *     subgraph "bottom" (4 ops, about 4.19 ms a step) runs on accel
 *       because default device
 *       it holds bottom.0/linear, bottom.1/linear, bottom.2/linear, bottom.3/linear
 *       it takes 106 kB: dense@accel 106 kB
 *       it gives 6.95 MB: bottom.0/relu 4.19 MB, bottom.1/relu 2.10 MB, bottom.2/relu 524 kB, bottom.3/relu 131 kB
 *       it begins behind what comes from another device: dense and 1 more -> accel
 *       it is cut from "interaction+top" behind it: that one waits for "table.0/bag and 25 more -> accel", too
 *
 * The cuts follow from the levels of cluster.c; here they are told by what they are good for: of two subgraphs of a device, either
 * the second waits for something that the first need not wait for, or something waits for the first that need not wait for the second.
 * Where neither is so they are cut in stages (stages.c). */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "partition/cluster.h"
#include "partition/explain.h"

enum { MOST_NEIGHBOURS = 6 };

static int32_t find_cluster(const td_plan *plan, const char *name)
{
    for (int32_t c = 0; c < plan->n_clusters; c++)
        if (!strcmp(plan->clusters[c].name, name))
            return c;
    return -1;
}

/* ---- what it holds, takes and gives ----------------------------------------------------------------------------------------- */

static void list_ops(const td_plan *plan, const td_cluster *cluster, td_string *text)
{
    td_listing l = {text, "  it holds ", 0};
    for (int32_t i = 0; i < cluster->n; i++)
        td_listing_add(&l, plan->graph->nodes[plan->sequence[cluster->first + i]].name);
    td_listing_end(&l);
}

/* The cluster that makes a value; -1: it comes with the batch. -2: it is no traffic (a parameter, its state, numbers). */
static int32_t maker_of(const td_plan *plan, int32_t value)
{
    const td_value_info *info = &plan->graph->values[value];
    if (info->producer >= 0)
        return plan->nodes[info->producer].cluster;
    return info->class == TD_CLASS_INPUT ? -1 : -2;
}

/* Marks the values that come into the cluster, or those of its own that others read. */
static void mark_traffic(const td_plan *plan, int32_t cluster, bool in, bool *marks)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if ((plan->nodes[n].cluster == cluster) != in)
            continue;
        for (int32_t i = 0; i < node->n_inputs; i++) {
            const int32_t maker = node->inputs[i] < 0 ? -2 : maker_of(plan, node->inputs[i]);
            if (maker > -2 && (maker == cluster) != in)
                marks[node->inputs[i]] = true;
        }
    }
}

static void list_marked(const td_plan *plan, const bool *marks, const char *verb, td_string *text)
{
    char traffic[TD_UNIT_TEXT], lead[64];
    int64_t all = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        all += marks[v] ? td_explained_bytes(plan, v) : 0;
    (void)snprintf(lead, sizeof lead, "  it %s %s: ", verb, td_format_traffic(traffic, (double)all));
    td_listing l = {text, lead, 0};
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (marks[v] && td_listing_add(&l, plan->graph->values[v].name))
            td_string_format(text, " %s", td_format_traffic(traffic, (double)td_explained_bytes(plan, v)));
    td_listing_end(&l);
}

static td_status *list_traffic(const td_plan *plan, int32_t cluster, bool in, td_string *text)
{
    bool *marks = NULL;
    TD_TRY(TD_NEW(marks, plan->graph->n_values + 1));
    mark_traffic(plan, cluster, in, marks);
    list_marked(plan, marks, in ? "takes" : "gives", text);
    td_free(marks);
    return NULL;
}

/* ---- what it is cut from ------------------------------------------------------------------------------------------------------ */

static bool same_lane(const td_plan *plan, int32_t a, int32_t b)
{
    return plan->clusters[a].device == plan->clusters[b].device && plan->clusters[a].lane == plan->clusters[b].lane;
}

static bool is_early(const td_plan *plan, int32_t cluster)
{
    return plan->nodes[plan->sequence[plan->clusters[cluster].first]].early == TD_EARLY_FIRST;
}

/* Whether one of two clusters surely ends before the other begins: `other` first if `before`. */
static bool is_tied(const td_plan *plan, int32_t cluster, int32_t other, bool before)
{
    return before ? td_cluster_reaches(plan, other, cluster) : td_cluster_reaches(plan, cluster, other);
}

/* What tells two of a lane apart, on another lane: it runs before `tied` (or behind it), and not before (or behind) `loose`; if there
 * is a choice, right before it. -1: nothing. */
static int32_t find_difference(const td_plan *plan, int32_t tied, int32_t loose, bool before)
{
    const td_cluster *t = &plan->clusters[tied];
    const int32_t *next = before ? t->before : t->after, n = before ? t->n_before : t->n_after;
    for (int32_t i = 0; i < n + plan->n_clusters; i++) {
        const int32_t c = i < n ? next[i] : i - n;
        if (!same_lane(plan, c, tied) && is_tied(plan, tied, c, before) && !is_tied(plan, loose, c, before))
            return c;
    }
    return -1;
}

static void explain_cut(const td_plan *plan, int32_t first, int32_t second, bool from_first, td_string *text)
{
    const int32_t awaited = find_difference(plan, second, first, true);
    const int32_t waiting = awaited < 0 ? find_difference(plan, first, second, false) : -1;
    const char *later = from_first ? "this one" : "that one";
    td_string_format(text, "  it is cut from \"%s\" %s it", plan->clusters[from_first ? first : second].name,
                     from_first ? "before" : "behind");
    if (is_early(plan, first) != is_early(plan, second))
        td_string_append(text, ": early lookups do not wait for the update of the step before");
    else if (awaited >= 0)
        td_string_format(text, ": %s waits for \"%s\", too", later, plan->clusters[awaited].name);
    else if (waiting >= 0)
        td_string_format(text, ": \"%s\" need not wait for %s", plan->clusters[waiting].name, later);
    else if (td_cluster_is_staged(plan) && plan->clusters[first].lane == TD_QUEUE_COMPUTE)
        td_string_append(text, ": gradients leave before all are made, and parameters come as they are needed");
    td_string_append(text, "\n");
}

/* Bundles of copies among the neighbours that bring something to the cluster's device, or take something away. */
static void list_copies(const td_plan *plan, int32_t cluster, bool before, bool to_it, td_string *text)
{
    const td_cluster *c = &plan->clusters[cluster];
    const int32_t *neighbours = before ? c->before : c->after, n = before ? c->n_before : c->n_after;
    char lead[64];
    (void)snprintf(lead, sizeof lead, "  it %s what %s another device: ", before ? "begins behind" : "ends before",
                   to_it ? "comes from" : "goes to");
    td_listing l = {text, lead, 0};
    for (int32_t i = 0; i < n; i++) {
        const td_cluster *other = &plan->clusters[neighbours[i]];
        const td_node *copy = &plan->graph->nodes[plan->sequence[other->first]];
        if (other->lane != TD_QUEUE_COMPUTE && (plan->values[td_copied_to(copy)].device == c->device) == to_it)
            td_listing_add(&l, other->name);
    }
    td_listing_end(&l);
}

/* From the neighbours of its lane. */
static void list_cuts(const td_plan *plan, int32_t cluster, bool before, td_string *text)
{
    const td_cluster *c = &plan->clusters[cluster];
    const int32_t *neighbours = before ? c->before : c->after, n = before ? c->n_before : c->n_after;
    int32_t cuts = 0;
    for (int32_t i = 0; i < n; i++)
        if (same_lane(plan, neighbours[i], cluster) && cuts++ < MOST_NEIGHBOURS)
            explain_cut(plan, before ? neighbours[i] : cluster, before ? cluster : neighbours[i], before, text);
    if (cuts > MOST_NEIGHBOURS)
        td_string_format(text, "  it is cut from %d more %s it\n", cuts - MOST_NEIGHBOURS,
                         before ? "before" : "behind");
}

static void explain_cuts(const td_plan *plan, int32_t cluster, td_string *text)
{
    list_copies(plan, cluster, true, true, text);
    list_copies(plan, cluster, true, false, text);
    list_copies(plan, cluster, false, true, text);
    list_copies(plan, cluster, false, false, text);
    list_cuts(plan, cluster, true, text);
    list_cuts(plan, cluster, false, text);
}

td_status *td_explain_subgraph(const td_plan *plan, const char *name, td_string *text, bool *out_found)
{
    char time[TD_UNIT_TEXT];
    const int32_t cluster = find_cluster(plan, name);
    *out_found = cluster >= 0;
    if (cluster < 0)
        return NULL;
    const td_cluster *c = &plan->clusters[cluster];
    td_string_format(text, "subgraph \"%s\" (%d %s, about %s a step) runs on %s\n  because %s\n", c->name, c->n,
                     c->n == 1 ? "op" : "ops", td_format_seconds(time, c->seconds), plan->sites[c->device].name,
                     plan->nodes[plan->sequence[c->first]].cause);
    list_ops(plan, c, text);
    TD_TRY(list_traffic(plan, cluster, true, text));
    TD_TRY(list_traffic(plan, cluster, false, text));
    explain_cuts(plan, cluster, text);
    return NULL;
}
