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

static int by_seconds(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

td_status *td_measured_ops_init(td_measured_ops *out_ops, const td_session *session, const td_plan *plan,
                                const char *device, int32_t blocks)
{
    *out_ops = (td_measured_ops){.device = device,
                                 .session = session,
                                 .plan = plan,
                                 .n = td_session_op_times(session, 0, NULL),
                                 .capacity = blocks};
    TD_TRY(TD_NEW(out_ops->times, out_ops->n + 1));
    (void)td_session_op_times(session, out_ops->n, out_ops->times);
    TD_TRY(TD_NEW(out_ops->n_blocks, out_ops->n + 1));
    return TD_NEW(out_ops->blocks, (int64_t)out_ops->n * blocks + 1);
}

td_status *td_measured_ops_add_block(td_measured_ops *ops)
{
    td_op_time *now = NULL;
    TD_TRY(TD_NEW(now, ops->n + 1));
    (void)td_session_op_times(ops->session, ops->n, now);
    for (int32_t i = 0; i < ops->n; i++) {
        const int64_t runs = now[i].runs - ops->times[i].runs;
        if (runs && ops->n_blocks[i] < ops->capacity)
            ops->blocks[(int64_t)i * ops->capacity + ops->n_blocks[i]++] =
                (now[i].seconds - ops->times[i].seconds) / (double)runs;
    }
    td_free(ops->times);
    ops->times = now;
    return NULL;
}

bool td_measured_ops_settle(td_measured_ops *ops)
{
    bool ran = false;
    for (int32_t i = 0; i < ops->n; i++) {
        double *blocks = ops->blocks + (int64_t)i * ops->capacity;
        const int32_t n = ops->n_blocks[i];
        qsort(blocks, (size_t)n, sizeof *blocks, by_seconds);
        ops->times[i].runs = n > 0;
        ops->times[i].seconds = n ? (blocks[n / 2] + blocks[(n - 1) / 2]) / 2 : 0;
        ran = ran || n;
    }
    qsort(ops->times, (size_t)ops->n, sizeof *ops->times, by_name);
    return ran;
}

void td_measured_ops_deinit(td_measured_ops *ops)
{
    td_free(ops->times);
    td_free(ops->blocks);
    td_free(ops->n_blocks);
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
    return found && found->runs ? found->seconds : -1;
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

/* Of an op that is several here and was one each there; negative where one of them was not measured. */
static double find_parts(const measured *m, const char *device, const char *names)
{
    double seconds = 0;
    for (const char *at = names; *at;) {
        const size_t length = strcspn(at, " ");
        char name[256];
        (void)snprintf(name, sizeof name, "%.*s", (int)length, at);
        const double part = find(m, device, name);
        if (part < 0)
            return -1;
        seconds += part;
        at += length + (at[length] == ' ');
    }
    return *names ? seconds : -1;
}

static double copy_seconds(const measured *m, const td_plan *plan, const td_plan_node *copy)
{
    const td_device_properties *link = &plan->sites[copy->device].properties;
    double bytes = m->copied_share * copy->cost.bytes_read;
    return (td_plan_pays_latency(plan, copy) ? link->link_latency_s : 0) +
           (link->link_bytes_per_s > 0 ? bytes / link->link_bytes_per_s : 0);
}

/* A node's name in a run where nothing of it is split off; *out_factor: how much longer it takes here. */
static void usual_name(const td_plan *plan, int32_t node, const measured *m, char *name, size_t bytes,
                       double *out_factor)
{
    const td_plan_node *p = &plan->nodes[node];
    const td_node *info = &plan->graph->nodes[node];
    const char *suffix = p->early == TD_EARLY_FIRST || info->speculates ? "/early" : "";
    *out_factor = p->early == TD_EARLY_FIRST ? m->early_share : p->early == TD_EARLY_REST ? 1 - m->early_share : 1;
    (void)snprintf(name, bytes, "%.*s%s", (int)(strlen(info->name) - strlen(suffix)), info->name,
                   info->speculates ? "/update" : "");
    if (info->speculates) { /* beside what the update reads and writes it writes the log */
        double arrays = 1;
        for (int32_t i = 6; i < info->n_inputs; i++)
            arrays += info->inputs[i] >= 0;
        *out_factor = (1 + 3 * arrays) / (1 + 2 * arrays);
    }
}

static double seconds_of(const void *context, const td_plan *plan, int32_t node)
{
    const measured *m = context;
    const td_plan_node *p = &plan->nodes[node];
    const td_node *info = &plan->graph->nodes[node];
    if (p->lane != TD_QUEUE_COMPUTE)
        return copy_seconds(m, plan, p);
    if (info->op->flags & TD_OP_VIEW)
        return 0;
    if (info->settles) /* next to nothing; the run that was measured had the whole update under this name */
        return p->seconds;
    double share = 1;
    char name[512];
    usual_name(plan, node, m, name, sizeof name, &share);
    double seconds = find(m, plan->sites[p->device].name, name);
    if (seconds < 0)
        seconds = find_parts(m, plan->sites[p->device].name, td_attr_string(info->attrs, info->n_attrs, "names", ""));
    if (seconds < 0)
        ++*m->estimated;
    return share * (seconds < 0 ? p->seconds : seconds);
}

/* The accelerators' share of the work, and the rest: hosts and copies. */
static void add_up(const td_plan *plan, const measured *m, td_bench_path *out)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_plan_node *p = &plan->nodes[n];
        const bool accelerator = p->lane == TD_QUEUE_COMPUTE && !plan->sites[p->device].is_host;
        *(accelerator ? &out->accelerator_s : &out->others_s) += seconds_of(m, plan, n);
    }
}

td_status *td_bench_critical_path(const td_plan *plan, const td_session_counters *counters, const td_measured_ops *all,
                                  int32_t n, td_bench_path *out)
{
    int64_t to_device = 0, to_host = 0;
    int32_t again = 0;
    measured m = {.all = all, .n = n, .copied_share = 1, .estimated = &again};
    *out = (td_bench_path){0};
    td_plan_copy_bytes(plan, NULL, &to_device, &to_host);
    if (counters->bags_looked_up)
        m.early_share = (double)counters->bags_looked_up_early / (double)counters->bags_looked_up;
    if (to_device + to_host && counters->steps)
        m.copied_share = (double)(counters->to_device_bytes + counters->to_host_bytes) /
                         ((double)(to_device + to_host) * (double)counters->steps);
    add_up(plan, &m, out);
    m.estimated = &out->estimated;
    return td_plan_critical_path(plan, seconds_of, &m, &out->seconds);
}

double td_bench_overlap_allowed(const td_bench_path *path)
{
    const double idle = path->seconds - path->accelerator_s;
    return path->others_s > 0 && idle > 0 ? 1 - (idle < path->others_s ? idle / path->others_s : 1) : 1;
}
