/* How clusters become ready: each counts down what it waits for, in its step and from the step before, and then lies in the heap of its
 * lane group by step and rank. Who runs it is in lanes.c. See session.h. */
#include "runtime/session.h"

static bool runs_before(const td_session *session, td_ready a, td_ready b)
{
    if (a.step != b.step)
        return a.step < b.step;
    const td_cluster *x = &session->plan->clusters[a.cluster], *y = &session->plan->clusters[b.cluster];
    return x->rank != y->rank ? x->rank > y->rank : a.cluster < b.cluster;
}

static void heap_push(const td_session *session, td_lane_group *group, td_ready item)
{
    int32_t i = group->n_ready++;
    for (; i > 0 && runs_before(session, item, group->ready[(i - 1) / 2]); i = (i - 1) / 2)
        group->ready[i] = group->ready[(i - 1) / 2];
    group->ready[i] = item;
}

td_ready td_session_pop_ready(const td_session *session, td_lane_group *group)
{
    td_ready top = group->ready[0], item = group->ready[--group->n_ready];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child + 1 < group->n_ready && runs_before(session, group->ready[child + 1], group->ready[child]))
            child++;
        if (child >= group->n_ready || !runs_before(session, group->ready[child], item))
            break;
        group->ready[i] = group->ready[child];
        i = child;
    }
    group->ready[i] = item;
    return top;
}

static void make_ready(td_session *session, int32_t cluster, int64_t step)
{
    td_lane_group *group = session->group_of[cluster];
    pthread_mutex_lock(&group->mutex);
    heap_push(session, group, (td_ready){cluster, step});
    pthread_cond_signal(&group->wake);
    pthread_mutex_unlock(&group->mutex);
}

static void count_down(td_session *session, td_step_slot *slot, int32_t cluster, int64_t step)
{
    if (atomic_fetch_sub_explicit(&slot->waiting[cluster], 1, memory_order_acq_rel) == 1)
        make_ready(session, cluster, step);
}

/* The clusters of the step after `slot`'s that wait for this one. */
static const int32_t *waiting_for(const td_cluster *cluster, const td_step_slot *slot, int32_t *out_n)
{
    *out_n = slot->ends_window ? cluster->n_across : cluster->n_within;
    return slot->ends_window ? cluster->across : cluster->within;
}

void td_session_reset_slot(td_session *session, int64_t step)
{
    td_step_slot *slot = &session->slots[step % TD_STEP_SLOTS], *before = &session->slots[(step - 1) % TD_STEP_SLOTS];
    const td_plan *plan = session->plan;
    bool first =
        step == session->completed + 1; /* nothing before it is in flight: no one will count its `across` down */
    for (int32_t c = 0; c < plan->n_clusters; c++)
        atomic_store_explicit(&slot->waiting[c], plan->clusters[c].n_before + 1, memory_order_relaxed);
    for (int32_t c = 0; !first && plan->pipelined && c < plan->n_clusters; c++) {
        int32_t n = 0;
        const int32_t *to = waiting_for(&plan->clusters[c], before, &n);
        for (int32_t k = 0; k < n; k++)
            atomic_fetch_add_explicit(&slot->waiting[to[k]], 1, memory_order_relaxed);
    }
    atomic_store(&slot->clusters_left, plan->n_clusters);
    atomic_store(&slot->updating, false);
}

void td_session_start_step(td_session *session, td_step_slot *slot)
{
    for (int32_t c = 0; c < session->plan->n_clusters; c++)
        count_down(session, slot, c, slot->step);
}

void td_session_finish_cluster(td_session *session, int32_t index, int64_t step)
{
    const td_cluster *cluster = &session->plan->clusters[index];
    td_step_slot *slot = &session->slots[step % TD_STEP_SLOTS];
    for (int32_t i = 0; i < cluster->n_after; i++)
        count_down(session, slot, cluster->after[i], step);
    td_step_slot *next = &session->slots[(step + 1) % TD_STEP_SLOTS];
    int32_t n = 0;
    const int32_t *to = waiting_for(cluster, slot, &n);
    for (int32_t i = 0; session->plan->pipelined && i < n; i++)
        count_down(session, next, to[i], step + 1);
    if (atomic_fetch_sub_explicit(&slot->clusters_left, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_lock(&session->mutex);
        pthread_cond_broadcast(&session->step_done);
        pthread_mutex_unlock(&session->mutex);
    }
}
