/* The critical path through a plan's subgraphs: see partition/path.h. */
#include "partition/path.h"

#include "base/memory.h"

typedef struct walk {
    const td_plan *plan;
    double *seconds;     /* of each cluster */
    double *end;         /* of each cluster that ran; negative: not yet */
    double *free_at;     /* of each lane */
    int32_t *first_lane; /* of a device and queue kind; one more at the end */
} walk;

enum { KINDS = TD_QUEUE_TO_HOST + 1 };

static int32_t group_of(const td_cluster *cluster)
{
    return cluster->device * KINDS + (int32_t)cluster->lane;
}

/* When the cluster could start: its predecessors' ends, or a negative number while one of them has not run. */
static double ready_at(const walk *w, const td_cluster *cluster)
{
    double latest = 0;
    for (int32_t i = 0; i < cluster->n_before; i++) {
        double end = w->end[cluster->before[i]];
        if (end < 0)
            return -1;
        latest = end > latest ? end : latest;
    }
    return latest;
}

/* The lane of the cluster's group that is free first. */
static int32_t first_free(const walk *w, int32_t group)
{
    int32_t best = w->first_lane[group];
    for (int32_t lane = best + 1; lane < w->first_lane[group + 1]; lane++)
        if (w->free_at[lane] < w->free_at[best])
            best = lane;
    return best;
}

/* Runs the cluster that can start first, of several the one of the highest rank. */
static void run_next(walk *w)
{
    int32_t best = -1, best_lane = 0;
    double best_start = 0;
    for (int32_t c = 0; c < w->plan->n_clusters; c++) {
        const td_cluster *cluster = &w->plan->clusters[c];
        double start = w->end[c] < 0 ? ready_at(w, cluster) : -1;
        if (start < 0)
            continue;
        int32_t lane = first_free(w, group_of(cluster));
        start = w->free_at[lane] > start ? w->free_at[lane] : start;
        bool sooner =
            best < 0 || start < best_start || (start == best_start && cluster->rank > w->plan->clusters[best].rank);
        if (!sooner)
            continue;
        best = c;
        best_lane = lane;
        best_start = start;
    }
    w->end[best] = w->free_at[best_lane] = best_start + w->seconds[best];
}

static td_status *prepare(walk *w, td_node_seconds seconds, const void *context)
{
    const td_plan *plan = w->plan;
    int32_t lanes = 0;
    TD_TRY(TD_NEW(w->seconds, plan->n_clusters + 1));
    TD_TRY(TD_NEW(w->end, plan->n_clusters + 1));
    TD_TRY(TD_NEW(w->first_lane, plan->n_sites * KINDS + 1));
    for (int32_t group = 0; group < plan->n_sites * KINDS; group++) {
        w->first_lane[group] = lanes;
        lanes += group % KINDS == TD_QUEUE_COMPUTE ? plan->sites[group / KINDS].lanes : 1;
    }
    w->first_lane[plan->n_sites * KINDS] = lanes;
    TD_TRY(TD_NEW(w->free_at, lanes + 1));
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        w->end[c] = -1;
        for (int32_t i = 0; i < plan->clusters[c].n; i++)
            w->seconds[c] += seconds(context, plan, plan->sequence[plan->clusters[c].first + i]);
    }
    return NULL;
}

td_status *td_plan_critical_path(const td_plan *plan, td_node_seconds seconds, const void *context, double *out_seconds)
{
    walk w = {.plan = plan};
    *out_seconds = 0;
    td_status *status = prepare(&w, seconds, context);
    for (int32_t i = 0; i < plan->n_clusters && !status; i++)
        run_next(&w);
    for (int32_t c = 0; c < plan->n_clusters && !status; c++)
        *out_seconds = w.end[c] > *out_seconds ? w.end[c] : *out_seconds;
    td_free(w.seconds);
    td_free(w.end);
    td_free(w.free_at);
    td_free(w.first_lane);
    return status;
}
