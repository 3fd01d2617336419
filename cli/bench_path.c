/* Times of ops by name, and the critical path that they give: see cli/bench_path.h. */
#include "cli/bench_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/path.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const td_op_time *)a)->name, ((const td_op_time *)b)->name);
}

td_status *td_measured_ops_read(const td_session *session, const td_plan *plan, const char *device,
                                td_measured_ops *out_ops)
{
    *out_ops = (td_measured_ops){.device = device, .plan = plan, .n = td_session_op_times(session, 0, NULL)};
    TD_TRY(TD_NEW(out_ops->times, out_ops->n + 1));
    (void)td_session_op_times(session, out_ops->n, out_ops->times);
    qsort(out_ops->times, (size_t)out_ops->n, sizeof *out_ops->times, by_name);
    return NULL;
}

void td_measured_ops_deinit(td_measured_ops *ops)
{
    td_free(ops->times);
    *ops = (td_measured_ops){0};
}

typedef struct measured {
    const td_measured_ops *all;
    int32_t n;
    double early_share;  /* of bags */
    double copied_share; /* bytes actually copied, of those at capacity */
    int32_t *estimated;
} measured;

static double find_op(const td_measured_ops *ops, const char *name)
{
    const td_op_time key = {.name = name};
    const td_op_time *found = bsearch(&key, ops->times, (size_t)ops->n, sizeof key, by_name);
    return found && found->runs ? found->seconds / (double)found->runs : -1;
}

/* How many words; *out_has: whether `word` is one of them. */
static int32_t count_words(const char *words, const char *word, bool *out_has)
{
    int32_t n = 0;
    *out_has = false;
    for (const char *at = words; *at; n++) {
        size_t length = strcspn(at, " ");
        *out_has = *out_has || (strlen(word) == length && strncmp(at, word, length) == 0);
        at += length + (at[length] == ' ');
    }
    return n;
}

/* The share of an op that the pass "group" made part of another one there. */
static double find_in_groups(const td_measured_ops *ops, const char *name)
{
    const td_graph *graph = ops->plan->graph;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const td_node *node = &graph->nodes[i];
        bool has = false;
        int32_t n = count_words(td_attr_string(node->attrs, node->n_attrs, "names", ""), name, &has);
        if (has)
            return find_op(ops, node->name) / (double)n;
    }
    return -1;
}

/* Seconds per step of an op on a device; negative when it was not measured there. */
static double find(const measured *m, const char *device, const char *name)
{
    for (int32_t i = 0; i < m->n; i++) {
        if (strcmp(m->all[i].device, device) != 0)
            continue;
        double seconds = find_op(&m->all[i], name);
        if (seconds < 0)
            seconds = find_in_groups(&m->all[i], name);
        if (seconds >= 0)
            return seconds;
    }
    return -1;
}

static double copy_seconds(const measured *m, const td_plan *plan, int32_t node)
{
    const td_device_properties *link = &plan->sites[plan->nodes[node].device].properties;
    double bytes = m->copied_share * plan->nodes[node].cost.bytes_read;
    return link->link_latency_s + (link->link_bytes_per_s > 0 ? bytes / link->link_bytes_per_s : 0);
}

static double seconds_of(const void *context, const td_plan *plan, int32_t node)
{
    const measured *m = context;
    const td_plan_node *p = &plan->nodes[node];
    const td_node *info = &plan->graph->nodes[node];
    if (p->lane != TD_QUEUE_COMPUTE)
        return copy_seconds(m, plan, node);
    if (info->op->flags & TD_OP_VIEW)
        return 0;
    double share = p->early == TD_EARLY_FIRST ? m->early_share : p->early == TD_EARLY_REST ? 1 - m->early_share : 1;
    char name[512];
    size_t length = strlen(info->name), early = strlen("/early");
    if (p->early == TD_EARLY_FIRST && length > early && length < sizeof name) {
        memcpy(name, info->name, length - early);
        name[length - early] = 0;
    } else {
        (void)snprintf(name, sizeof name, "%s", info->name);
    }
    double seconds = find(m, plan->sites[p->device].name, name);
    if (seconds < 0)
        ++*m->estimated;
    return share * (seconds < 0 ? p->seconds : seconds);
}

td_status *td_bench_critical_path(const td_plan *plan, const td_session_counters *counters, const td_measured_ops *all,
                                  int32_t n, double *out_seconds, int32_t *out_estimated)
{
    int64_t to_device = 0, to_host = 0;
    measured m = {.all = all, .n = n, .copied_share = 1, .estimated = out_estimated};
    *out_estimated = 0;
    td_plan_copy_bytes(plan, NULL, &to_device, &to_host);
    if (counters->bags_looked_up)
        m.early_share = (double)counters->bags_looked_up_early / (double)counters->bags_looked_up;
    if (to_device + to_host && counters->steps)
        m.copied_share = (double)(counters->to_device_bytes + counters->to_host_bytes) /
                         ((double)(to_device + to_host) * (double)counters->steps);
    return td_plan_critical_path(plan, seconds_of, &m, out_seconds);
}
