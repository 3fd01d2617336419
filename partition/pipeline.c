/* Pass: what consecutive steps do to the same bytes.
 *
 * Steps overlap by true dependencies: a cluster of the next step waits for those of this one that touch what it touches, one
 * of the two writing (state, or a block of the arena that is not doubled), and each cluster for itself. Nothing else holds a
 * step back. A plan with very many clusters takes the simple way: every step ends before the next. */
#include <stdlib.h>

#include "base/memory.h"
#include "partition/plan.h"

/* What a cluster does to memory that outlives the step's own order: for each root it touches. */
typedef struct touch {
    int32_t root, cluster;
    bool writes;
} touch;

static int compare_touches(const void *a, const void *b)
{
    const touch *x = a, *y = b;
    if (x->root != y->root)
        return x->root < y->root ? -1 : 1;
    if (x->cluster != y->cluster)
        return x->cluster < y->cluster ? -1 : 1;
    return (int)y->writes - (int)x->writes;
}

/* One touch per root and cluster, the writing one if there is one. */
static int64_t distinct_touches(touch *touches, int64_t n)
{
    int64_t kept = 0;
    qsort(touches, (size_t)n, sizeof *touches, compare_touches);
    for (int64_t i = 0; i < n; i++)
        if (!kept || touches[kept - 1].root != touches[i].root || touches[kept - 1].cluster != touches[i].cluster)
            touches[kept++] = touches[i];
    return kept;
}

static int64_t collect_touches(const td_plan *plan, touch *touches)
{
    int64_t n = 0;
    for (int32_t i = 0; i < plan->graph->n_nodes; i++) {
        const td_node *node = &plan->graph->nodes[i];
        for (int32_t k = 0; k < node->n_inputs + node->n_outputs; k++) {
            int32_t value = k < node->n_inputs ? node->inputs[k] : node->outputs[k - node->n_inputs];
            if (value < 0)
                continue;
            int32_t root = td_plan_root(plan, value);
            bool writes = k >= node->n_inputs || td_node_writes(node, k);
            if (plan->values[root].doubled || plan->values[root].storage == TD_BOUND ||
                plan->values[root].storage == TD_NUMBERS || plan->values[root].storage == TD_PREVIOUS)
                continue;
            if (plan->nodes[i].early == TD_EARLY_FIRST && plan->values[root].storage == TD_STORE)
                continue; /* reads rows that the update of the step before does not write */
            touches[n++] = (touch){root, plan->nodes[i].cluster, writes};
        }
    }
    return n;
}

static void mark_conflicts(const td_plan *plan, const touch *touches, int64_t n, bool *wait)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            if ((touches[i].writes || touches[k].writes) && td_plan_overlap(plan, touches[i].root, touches[k].root))
                wait[(int64_t)touches[i].cluster * plan->n_clusters + touches[k].cluster] = true;
}

td_status *td_pass_pipeline(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    enum { MOST_CLUSTERS = 1024, MOST_TOUCHES = 8000 };
    int64_t n = 0, most = 0;
    touch *touches = NULL;
    bool *wait = NULL;
    td_status *status = NULL;
    if (plan->n_clusters > MOST_CLUSTERS)
        plan->pipelined = false;
    if (!plan->pipelined)
        return NULL;
    for (int64_t i = 0; i < plan->graph->n_nodes; i++)
        most += plan->graph->nodes[i].n_inputs + plan->graph->nodes[i].n_outputs;
    TD_TRY_OR(status, done, TD_NEW(touches, most + 1));
    n = distinct_touches(touches, collect_touches(plan, touches));
    plan->pipelined = n <= MOST_TOUCHES;
    if (!plan->pipelined)
        goto done;
    TD_TRY_OR(status, done, TD_NEW(wait, (int64_t)plan->n_clusters * plan->n_clusters + 1));
    mark_conflicts(plan, touches, n, wait);
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        td_cluster *cluster = &plan->clusters[c];
        TD_TRY_OR(status, done, TD_NEW(cluster->across, plan->n_clusters + 1));
        for (int32_t d = 0; d < plan->n_clusters; d++)
            if (c == d || wait[(int64_t)c * plan->n_clusters + d])
                cluster->across[cluster->n_across++] = d;
    }
done:
    td_free(touches);
    td_free(wait);
    return status;
}
