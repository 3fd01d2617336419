/* Rules about the ranks of a job: see advice.h. */
#include <inttypes.h>

#include "profiler/advice.h"

/* One that is last half of the time and more, and by how much in the middle: a pause now and then is not it. */
static void advise_slow_rank(const td_analysis *a, td_advice_list *list)
{
    int32_t slowest = td_ranks_slowest(a->ranks);
    if (slowest < 0)
        return;
    const td_rank_times *t = &a->ranks->times[slowest];
    const td_rank_trace *rank = &a->ranks->job->ranks[slowest];
    double ns = 2 * t->times_last > t->met ? (double)t->held_up_median_ns : 0;
    td_advice_give(
        list, TD_ADVICE_slow_rank, td_advice_share(a, ns), ns,
        "rank %d (%s on %s) came last to %" PRId64 " of %" PRId64
        " sums, and the others waited %s of a step of %s for it alone: see --rank %d; it may lack cores, or share them",
        rank->rank, rank->role, rank->host, t->times_last, t->met, TD_ADVICE_TIME(ns),
        TD_ADVICE_TIME(a->steps->average.interval_ns), rank->rank);
}

/* By bytes: times of servers that share cores say little. */
static void advise_servers(const td_analysis *a, td_advice_list *list)
{
    int32_t servers = 0, busiest = -1;
    int64_t all = 0, most = 0, most_ns = 0, all_ns = 0;
    for (int32_t r = 0; r < a->ranks->job->n; r++) {
        const td_rank_times *t = &a->ranks->times[r];
        int64_t bytes = t->answer.bytes + t->apply.bytes, ns = t->answer.ns + t->apply.ns;
        if (!t->answer.n && !t->apply.n)
            continue;
        servers++;
        all += bytes;
        all_ns += ns;
        if (bytes > most) {
            busiest = r;
            most = bytes;
            most_ns = ns;
        }
    }
    if (servers < 2 || busiest < 0 || td_advice_share(a, (double)most_ns / (double)a->ranks->n_steps) < 0.02)
        return;
    double mean = (double)all / servers,
           gain = ((double)most_ns - (double)all_ns / servers) / (double)a->ranks->n_steps;
    td_advice_give(list, TD_ADVICE_unbalanced_servers, (double)most / mean, gain > 0 ? gain : 0,
                   "rank %d (%s) moves %s of a step's %s that %d servers do, %.2g times the mean: ids that come often "
                   "lie in its range of rows; spread them (data that hashes its ids)",
                   a->ranks->job->ranks[busiest].rank, a->ranks->job->ranks[busiest].role,
                   td_format_traffic((td_unit_text){0}.text, (double)most / (double)a->ranks->n_steps),
                   td_format_traffic((td_unit_text){0}.text, (double)all / (double)a->ranks->n_steps), servers,
                   (double)most / mean);
}

static void advise_dedup(const td_analysis *a, td_advice_list *list)
{
    const td_step_times *s = &a->steps->average;
    double ns = (double)s->pull_ns + (double)s->push_ns;
    int64_t ids = 0, distinct = 0;
    for (int64_t k = 0; k < a->ranks->n_keys; k++) {
        ids += a->ranks->keys[k].ids;
        distinct += a->ranks->keys[k].distinct;
    }
    if (!ids || td_advice_share(a, ns) < 0.05)
        return;
    td_advice_give(
        list, TD_ADVICE_low_dedup, (double)distinct / (double)ids, 0,
        "of a batch's ids %.0f %% name rows of their own, so nearly each lookup is a row to pull and a gradient to "
        "push, %s of a step: larger batches (data.batch) repeat more ids; narrower rows (a smaller dim, "
        "train.table_dtype: bf16) are fewer bytes",
        100 * (double)distinct / (double)ids, TD_ADVICE_TIME(ns));
}

/* What the critical path spends in pulls, pushes and sums, however long they take beside it. */
static void advise_waiting(const td_analysis *a, td_advice_list *list)
{
    const td_step_times *s = &a->steps->average;
    double ns = 0;
    for (int32_t i = 0; i < a->view->plan->n_subgraphs; i++) {
        const td_subgraph_times *t = &a->steps->subgraphs[i];
        ns += (double)t->path_ns * td_subgraph_ranks_share(t) / (double)a->steps->n_steps;
    }
    td_advice_give(
        list, TD_ADVICE_waiting_for_ranks, td_advice_share(a, ns), ns,
        "pulls, pushes and sums hold a step up for %s (%.0f %%): pulls take %s, pushes %s, sums %s; larger batches or "
        "train.accumulate wait less often, fewer ranks a host have more cores each, and with ps.consistency: stale "
        "workers need not wait for the last update",
        TD_ADVICE_TIME(ns), 100 * td_advice_share(a, ns), TD_ADVICE_TIME(s->pull_ns), TD_ADVICE_TIME(s->push_ns),
        TD_ADVICE_TIME(s->all_reduce_ns));
}

void td_advice_ranks(const td_analysis *analysis, td_advice_list *list)
{
    if (analysis->ranks->n_steps) {
        advise_slow_rank(analysis, list);
        advise_servers(analysis, list);
    }
    advise_dedup(analysis, list);
    advise_waiting(analysis, list);
}
