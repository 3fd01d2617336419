/* Keys that name nothing of the model: see cli/idle_patterns.h. */
#include "cli/idle_patterns.h"

#include <string.h>

#include "base/glob.h"
#include "base/log.h"
#include "base/nearest.h"
#include "graph/graph.h"
#include "partition/plan.h"

static bool is_parameter(const td_value_info *value)
{
    return value->class == TD_CLASS_PARAMETER;
}

static bool is_made(const td_value_info *value)
{
    return value->producer >= 0;
}

static bool matches(const td_graph *graph, const char *pattern, bool (*counts)(const td_value_info *))
{
    for (int64_t v = 0; v < graph->n_values; v++)
        if (counts(&graph->values[v]) && td_glob_match(pattern, graph->values[v].name))
            return true;
    return false;
}

/* The table that an op looks rows up in; NULL: it does not. */
static const char *table_at(const void *context, int32_t index)
{
    const td_graph *graph = context;
    const td_node *node = &graph->nodes[index];
    const td_value_info *table = node->n_inputs && node->inputs[0] >= 0 ? &graph->values[node->inputs[0]] : NULL;
    return table && is_parameter(table) && strncmp(node->op->name, "embedding", 9) == 0 ? table->name : NULL;
}

static bool matches_table(const td_graph *graph, const char *pattern)
{
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const char *table = table_at(graph, n);
        if (table && td_glob_match(pattern, table))
            return true;
    }
    return false;
}

/* A name that is spelled wrong would leave in 16 bit what was to stay f32. */
static td_status *check_kept(const td_setup *setup)
{
    char meant[TD_MEANT];
    for (int32_t i = 0; i < td_section_count(setup->root, "train.keep_fp32"); i++) {
        const char *pattern = td_section_string_at(setup->root, "train.keep_fp32", i);
        bool named = false;
        for (int64_t n = 0; n < setup->graph->n_nodes && !named; n++)
            named = td_glob_match(pattern, setup->graph->nodes[n].name);
        if (!named)
            return TD_SECTION_ERROR(setup->root, "train.keep_fp32", "train.keep_fp32: \"%s\" matches no op%s", pattern,
                                    td_meant(meant, pattern, td_plan_nearest_name(setup->graph, pattern)));
    }
    return NULL;
}

static td_status *check_hashes(const td_setup *setup)
{
    char meant[TD_MEANT];
    for (int32_t i = 0; i < td_section_count(setup->root, "tables.hash"); i++) {
        td_section item = td_section_item(setup->root, "tables.hash", i);
        const char *pattern = td_section_string(item, "match");
        if (!matches_table(setup->graph, pattern))
            return TD_SECTION_ERROR(
                setup->root, "tables.hash", "tables.hash: \"%s\" matches no table%s", pattern,
                td_meant(meant, pattern, td_nearest(pattern, (int32_t)setup->graph->n_nodes, table_at, setup->graph)));
    }
    return NULL;
}

td_status *td_check_idle_patterns(const td_setup *setup)
{
    TD_TRY(check_kept(setup));
    return check_hashes(setup);
}

static void warn_of_patterns(const td_setup *setup, const char *key, const char *what,
                             bool (*counts)(const td_value_info *))
{
    char meant[TD_MEANT];
    for (int32_t i = 0; i < td_section_count(setup->root, key); i++) {
        const char *pattern = td_section_string_at(setup->root, key, i);
        if (!matches(setup->graph, pattern, counts))
            td_log(TD_LOG_WARNING, "%s: \"%s\" matches no %s, so nothing is recorded for it%s", key, pattern, what,
                   td_meant(meant, pattern, td_plan_nearest_name(setup->graph, pattern)));
    }
}

static void warn_of_rows(const td_setup *setup, const char *key, const char *what, const char *format)
{
    if (!td_section_has(setup->root, "data.format") || td_section_int(setup->root, key) == 0)
        return;
    const char *given = td_section_string(setup->root, "data.format");
    if (strcmp(given, format) != 0)
        td_log(TD_LOG_WARNING, "%s: data.format %s has no %s, so none are recorded", key, given, what);
}

void td_warn_of_idle_summaries(const td_setup *setup)
{
    warn_of_patterns(setup, "summary.parameters", "parameter", is_parameter);
    warn_of_patterns(setup, "summary.gradients", "parameter", is_parameter);
    warn_of_patterns(setup, "summary.tensors", "parameter", is_parameter);
    warn_of_patterns(setup, "summary.activations", "value", is_made);
    warn_of_rows(setup, "summary.images", "images", "idx");
    warn_of_rows(setup, "summary.texts", "texts", "text");
}
