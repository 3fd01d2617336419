/* The table of metrics and the calls around them: see tandem/data.h. What a metric computes is in data/metric_<name>.c. */
#include "data/metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

#define TD_METRIC(rule_name) extern const td_metric_rule td_metric_##rule_name;
#include "data/metrics.def"
#undef TD_METRIC

static const td_metric_rule *const rules[] = {
#define TD_METRIC(rule_name) &td_metric_##rule_name,
#include "data/metrics.def"
#undef TD_METRIC
};
enum { N_RULES = sizeof rules / sizeof rules[0] };

struct td_metric {
    const td_metric_rule *rule;
    int64_t samples;
    void *state;
};

int32_t td_metric_count(void)
{
    return N_RULES;
}

const char *td_metric_name(int32_t index)
{
    return rules[index]->name;
}

const char *td_metric_summary(int32_t index)
{
    return rules[index]->summary;
}

static td_status *unknown(const char *name)
{
    char list[256] = "";
    for (int32_t i = 0; i < N_RULES; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", rules[i]->name);
    }
    return TD_ERROR(TD_INVALID_ARGUMENT, "there is no metric \"%s\"; the metrics are %s", name, list);
}

td_status *td_metric_create(const char *name, td_metric **out_metric)
{
    *out_metric = NULL;
    const td_metric_rule *rule = NULL;
    for (int32_t i = 0; i < N_RULES && !rule; i++)
        rule = strcmp(rules[i]->name, name) == 0 ? rules[i] : NULL;
    if (!rule)
        return unknown(name);
    td_metric *metric = NULL;
    TD_TRY(TD_NEW(metric, 1));
    metric->rule = rule;
    metric->state = td_calloc(1, rule->state_bytes);
    if (!metric->state) {
        td_free(metric);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %zu bytes for metric %s", rule->state_bytes, name);
    }
    *out_metric = metric;
    return NULL;
}

td_status *td_metric_add(td_metric *metric, const float *logits, const float *labels, const uint8_t *mask, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (mask && !mask[i])
            continue;
        if (isnan(logits[i]))
            return TD_ERROR(TD_DATA_ERROR, "metric %s: the logit of sample %lld is not a number", metric->rule->name,
                            (long long)metric->samples);
        TD_TRY(metric->rule->add(metric->state, logits[i], labels[i]));
        metric->samples++;
    }
    return NULL;
}

td_status *td_metric_finish(td_metric *metric, double *out_value)
{
    *out_value = 0;
    if (metric->samples == 0)
        return TD_ERROR(TD_DATA_ERROR, "metric %s: not defined without samples", metric->rule->name);
    return metric->rule->finish(metric->state, metric->samples, out_value);
}

void td_metric_reset(td_metric *metric)
{
    if (metric->rule->clear)
        metric->rule->clear(metric->state);
    memset(metric->state, 0, metric->rule->state_bytes);
    metric->samples = 0;
}

void td_metric_destroy(td_metric *metric)
{
    if (!metric)
        return;
    td_metric_reset(metric);
    td_free(metric->state);
    td_free(metric);
}
