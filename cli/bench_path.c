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

td_status *td_measured_ops_read(const td_session *session, const char *device, td_measured_ops *out_ops)
{
    *out_ops = (td_measured_ops){.device = device, .n = td_session_op_times(session, 0, NULL)};
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
    int32_t *missing;
} measured;

/* Seconds per step of an op on a device; negative when it was not measured there. */
static double find(const measured *m, const char *device, const char *name)
{
    const td_op_time key = {.name = name};
    for (int32_t i = 0; i < m->n; i++) {
        const td_op_time *found = strcmp(m->all[i].device, device) != 0
                                      ? NULL
                                      : bsearch(&key, m->all[i].times, (size_t)m->all[i].n, sizeof key, by_name);
        if (found && found->runs)
            return found->seconds / (double)found->runs;
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
        ++*m->missing;
    return seconds < 0 ? 0 : share * seconds;
}

td_status *td_bench_critical_path(const td_plan *plan, const td_session_counters *counters, const td_measured_ops *all,
                                  int32_t n, double *out_seconds, int32_t *out_missing)
{
    int64_t to_device = 0, to_host = 0;
    measured m = {.all = all, .n = n, .copied_share = 1, .missing = out_missing};
    *out_missing = 0;
    td_plan_copy_bytes(plan, NULL, &to_device, &to_host);
    if (counters->bags_looked_up)
        m.early_share = (double)counters->bags_looked_up_early / (double)counters->bags_looked_up;
    if (to_device + to_host && counters->steps)
        m.copied_share = (double)(counters->to_device_bytes + counters->to_host_bytes) /
                         ((double)(to_device + to_host) * (double)counters->steps);
    return td_plan_critical_path(plan, seconds_of, &m, out_seconds);
}
