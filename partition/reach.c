/* Which cluster ends before which: reachability in the quotient graph, in near-linear room.
 *
 * Clusters are cut into chains, each a path of the graph. From a cluster, all of a chain from some position on can be reached,
 * so one number per (cluster, chain) says it all. Plans have few chains however long they are (about as many as run at the
 * same time). Where there are so many that the numbers would not fit in MOST_NUMBERS, only the first chains have them, and
 * "unknown" is answered as "not before": less memory is shared, nothing else changes. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

enum { MOST_NUMBERS = 16 << 20 };

/* Kahn's algorithm; a quotient with a cycle is the one thing that must never come out. */
static td_status *sort_clusters(const td_plan *plan, int32_t *order)
{
    int32_t n = plan->n_clusters, done = 0, end = 0, *waiting = NULL;
    TD_TRY(TD_NEW(waiting, n + 1));
    for (int32_t c = 0; c < n; c++) {
        waiting[c] = plan->clusters[c].n_before;
        if (!waiting[c])
            order[end++] = c;
    }
    while (done < end) {
        const td_cluster *cluster = &plan->clusters[order[done++]];
        for (int32_t k = 0; k < cluster->n_after; k++)
            if (--waiting[cluster->after[k]] == 0)
                order[end++] = cluster->after[k];
    }
    td_free(waiting);
    return end == n ? NULL : TD_ERROR(TD_INTERNAL, "cluster: the quotient graph has a cycle");
}

/* Each cluster follows a predecessor that nobody follows yet, or begins a chain. */
static td_status *make_chains(td_plan *plan, const int32_t *order)
{
    int32_t n = plan->n_clusters;
    bool *followed = NULL;
    TD_TRY(TD_NEW(followed, n + 1));
    for (int32_t i = 0; i < n; i++) {
        const td_cluster *cluster = &plan->clusters[order[i]];
        td_place_in_chain *own = &plan->chains[order[i]];
        int32_t before = -1;
        for (int32_t k = 0; k < cluster->n_before && before < 0; k++)
            if (!followed[cluster->before[k]])
                before = cluster->before[k];
        own->order = i;
        own->chain = before < 0 ? plan->n_chains++ : plan->chains[before].chain;
        own->position = before < 0 ? 0 : plan->chains[before].position + 1;
        if (before >= 0)
            followed[before] = true;
    }
    td_free(followed);
    return NULL;
}

static void fill_reach(td_plan *plan, const int32_t *order)
{
    int64_t known = plan->n_known_chains;
    memset(plan->reach, 0x7f, (size_t)(plan->n_clusters * known) * sizeof *plan->reach);
    for (int32_t i = plan->n_clusters - 1; i >= 0; i--) {
        const td_cluster *cluster = &plan->clusters[order[i]];
        int32_t *own = plan->reach + order[i] * known;
        for (int32_t k = 0; k < cluster->n_after; k++) {
            const td_place_in_chain *next = &plan->chains[cluster->after[k]];
            const int32_t *from = plan->reach + cluster->after[k] * known;
            for (int64_t c = 0; c < known; c++)
                own[c] = from[c] < own[c] ? from[c] : own[c];
            if (next->chain < known && next->position < own[next->chain])
                own[next->chain] = next->position;
        }
    }
}

td_status *td_plan_find_reach(td_plan *plan)
{
    int32_t *order = NULL;
    int64_t n = plan->n_clusters;
    TD_TRY(TD_NEW(order, n + 1));
    td_status *status = sort_clusters(plan, order);
    if (!status)
        status = TD_NEW(plan->chains, n + 1);
    if (!status)
        status = make_chains(plan, order);
    if (!status) {
        plan->n_known_chains = plan->n_chains * n > MOST_NUMBERS ? MOST_NUMBERS / n : plan->n_chains;
        status = TD_NEW(plan->reach, n * plan->n_known_chains + 1);
    }
    if (!status)
        fill_reach(plan, order);
    td_free(order);
    return status;
}

bool td_cluster_reaches(const td_plan *plan, int32_t a, int32_t b)
{
    const td_place_in_chain *x = &plan->chains[a], *y = &plan->chains[b];
    if (x->chain == y->chain)
        return x->position < y->position;
    return y->chain < plan->n_known_chains && plan->reach[a * plan->n_known_chains + y->chain] <= y->position;
}
