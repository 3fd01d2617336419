/* The workers of a rank: see workers.h. */
#include "profiler/workers.h"

#include <string.h>

td_status *td_trace_workers(const td_trace *trace, int32_t out_workers[TD_MOST_WORKERS], int32_t *out_n)
{
    int32_t n = 0;
    for (int64_t p = 0; p < trace->n_plans; p++) {
        const int32_t worker = trace->plans[p].training ? trace->plans[p].worker : -1;
        int32_t at = n;
        while (at > 0 && out_workers[at - 1] > worker)
            at--;
        if (worker < 0 || (at > 0 && out_workers[at - 1] == worker))
            continue;
        if (n == TD_MOST_WORKERS)
            return TD_ERROR(TD_DATA_ERROR, "it runs more than %d workers", TD_MOST_WORKERS);
        memmove(&out_workers[at + 1], &out_workers[at], (size_t)(n - at) * sizeof *out_workers);
        out_workers[at] = worker;
        n++;
    }
    *out_n = n;
    return NULL;
}

/* Loaders have no plan: a batch's id is its worker's number and one. */
static bool is_of_batch(const td_trace_event *event)
{
    return event->kind == TD_RECORD_DATA_FETCH || event->kind == TD_RECORD_DATA_FULL;
}

bool td_event_has_plan_id(const td_trace_event *event)
{
    return event->id && event->kind != TD_RECORD_MEMORY && event->kind != TD_RECORD_QUEUE && !is_of_batch(event);
}

int32_t td_event_worker(const td_trace *trace, const td_trace_event *event)
{
    int32_t node, subgraph;
    if (is_of_batch(event))
        return event->id && event->id <= INT32_MAX ? (int32_t)(event->id - 1) : -1;
    const td_trace_plan *plan = td_event_has_plan_id(event) ? td_trace_find(trace, event->id, &node, &subgraph) : NULL;
    return plan ? plan->worker : -1;
}

/* What a record says of how long its worker had something to compute; less than 0: it waited for other ranks meanwhile. */
static double work_ns(const td_trace *trace, const td_trace_event *event)
{
    const double ns = (double)event->end_ns - (double)event->begin_ns;
    int32_t node, subgraph;
    switch (event->kind) {
    case TD_RECORD_SUBGRAPH: {
        const td_trace_plan *plan = td_trace_find(trace, event->id, &node, &subgraph);
        return plan && subgraph >= 0 && plan->subgraphs[subgraph].lane == TD_TRACE_COMPUTE ? ns : 0;
    }
    case TD_RECORD_DATA_FETCH:
        return ns;
    case TD_RECORD_PULL:
    case TD_RECORD_PUSH:
    case TD_RECORD_ALL_REDUCE:
        return -ns;
    default:
        return 0;
    }
}

double td_worker_share(const td_trace *trace, int32_t worker, int64_t from_ns, int64_t to_ns)
{
    double mine = 0, all = 0;
    bool alone = true;
    for (int64_t p = 0; p < trace->n_plans; p++)
        alone = alone && (!trace->plans[p].training || trace->plans[p].worker == worker);
    if (worker < 0 || alone)
        return 1;
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        if (e->begin_ns < from_ns || e->end_ns > to_ns)
            continue;
        const double ns = work_ns(trace, e);
        all += ns;
        mine += ns != 0 && td_event_worker(trace, e) == worker ? ns : 0;
    }
    return all > 0 && mine > 0 ? (mine < all ? mine / all : 1) : 0;
}
