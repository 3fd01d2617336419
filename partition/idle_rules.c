/* Placement rules that match nothing: the plan stands, and says so with the nearest name. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "partition/plan.h"

/* The model's own ops, then its parameters. */
static const char *name_at(const void *context, int32_t index)
{
    const td_graph *graph = context;
    if (index < graph->n_nodes)
        return graph->nodes[index].phase == TD_FORWARD ? graph->nodes[index].name : NULL;
    const td_value_info *value = &graph->values[index - graph->n_nodes];
    return value->class == TD_CLASS_PARAMETER ? value->name : NULL;
}

const char *td_plan_nearest_name(const td_graph *graph, const char *wanted)
{
    return td_nearest(wanted, (int32_t)(graph->n_nodes + graph->n_values), name_at, graph);
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
