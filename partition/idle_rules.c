/* Placement rules that match nothing: the plan stands, and says so with the nearest name. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "partition/plan.h"

static void take_nearer(const char *wanted, const char *name, const char **nearest, int32_t *distance)
{
    int32_t edits = strchr(wanted, '*') ? td_start_distance(wanted, name) : td_edit_distance(wanted, name);
    if (*nearest && (edits > *distance || (edits == *distance && strcmp(name, *nearest) >= 0)))
        return;
    *nearest = name;
    *distance = edits;
}

/* Of the model's ops and parameters, whatever the order in which they were built. */
const char *td_plan_nearest_name(const td_graph *graph, const char *wanted)
{
    const char *nearest = NULL;
    int32_t distance = 0;
    for (int64_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].phase == TD_FORWARD)
            take_nearer(wanted, graph->nodes[n].name, &nearest, &distance);
    for (int64_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == TD_CLASS_PARAMETER)
            take_nearer(wanted, graph->values[v].name, &nearest, &distance);
    return nearest ? nearest : "*";
}

static bool matches_something(const td_plan *plan, const char *pattern)
{
    for (int64_t n = 0; n < plan->graph->n_nodes; n++)
        if (td_glob_match(pattern, plan->graph->nodes[n].name))
            return true;
    for (int64_t v = 0; v < plan->graph->n_values; v++)
        if (plan->graph->values[v].class == TD_CLASS_PARAMETER && td_glob_match(pattern, plan->graph->values[v].name))
            return true;
    for (int64_t i = 0; i < plan->n_rewritten; i++)
        if (td_glob_match(pattern, plan->rewritten[i].name))
            return true;
    return false;
}

/* A rule that matches nothing is most likely a name that is spelled wrong: the plan stands, and says so. */
td_status *td_plan_note_idle_rules(td_plan *plan, const td_plan_request *request)
{
    const td_option_list *rules = &request->options->placements;
    if (!plan->training) /* an evaluation has fewer ops: what a rule means may not be among them */
        return NULL;
    TD_TRY(TD_NEW(plan->idle_rules, rules->n + 1));
    for (int64_t i = 0; i < rules->n; i++) {
        if (matches_something(plan, rules->items[i].match))
            continue;
        char meant[TD_MEANT];
        const char *match = rules->items[i].match;
        char *text = td_format("%s matches no op and no parameter%s", rules->items[i].cause,
                               td_meant(meant, match, td_plan_nearest_name(plan->graph, match)));
        if (!text)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a remark about a rule");
        plan->idle_rules[plan->n_idle_rules++] = text;
    }
    return NULL;
}
