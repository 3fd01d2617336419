/* Keys that name nothing of the model: see cli/idle_patterns.h. */
#include "cli/idle_patterns.h"

#include <string.h>

#include "base/glob.h"
#include "base/log.h"
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

/* A name that is spelled wrong would leave in 16 bit what was to stay f32. */
static td_status *check_kept(const td_setup *setup)
{
    for (int32_t i = 0; i < td_section_count(setup->root, "train.keep_fp32"); i++) {
        const char *pattern = td_section_string_at(setup->root, "train.keep_fp32", i);
        bool named = false;
        for (int64_t n = 0; n < setup->graph->n_nodes && !named; n++)
            named = td_glob_match(pattern, setup->graph->nodes[n].name);
        if (!named)
            return TD_SECTION_ERROR(setup->root, "train.keep_fp32",
                                    "train.keep_fp32: \"%s\" matches no op; did you mean \"%s\"?", pattern,
                                    td_plan_nearest_name(setup->graph, pattern));
    }
    return NULL;
}

static td_status *check_hashes(const td_setup *setup)
{
    for (int32_t i = 0; i < td_section_count(setup->root, "tables.hash"); i++) {
        td_section item = td_section_item(setup->root, "tables.hash", i);
        const char *pattern = td_section_string(item, "match");
        if (!matches(setup->graph, pattern, is_parameter))
            return TD_SECTION_ERROR(setup->root, "tables.hash",
                                    "tables.hash: \"%s\" matches no parameter; did you mean \"%s\"?", pattern,
                                    td_plan_nearest_name(setup->graph, pattern));
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
    for (int32_t i = 0; i < td_section_count(setup->root, key); i++) {
        const char *pattern = td_section_string_at(setup->root, key, i);
        if (!matches(setup->graph, pattern, counts))
            td_log(TD_LOG_WARNING, "%s: \"%s\" matches no %s, so nothing is recorded for it; did you mean \"%s\"?", key,
                   pattern, what, td_plan_nearest_name(setup->graph, pattern));
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
