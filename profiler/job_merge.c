/* One trace of a job's traces: see job.h. Ids of a rank's plans are moved behind those of the ranks before it, so that every id still
 * means one node or subgraph. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "profiler/job.h"
#include "profiler/plan.h"
#include "profiler/trace_sort.h"
#include "profiler/workers.h"

/* Behind all ids of a rank's plans. */
static uint32_t end_of_ids(const td_trace *trace)
{
    uint32_t end = 1;
    for (int64_t p = 0; p < trace->n_plans; p++) {
        const td_trace_plan *plan = &trace->plans[p];
        uint32_t last = plan->first_id + (uint32_t)plan->n_nodes + (uint32_t)plan->n_subgraphs;
        end = last > end ? last : end;
    }
    return end;
}

/* Plans keep their texts in a document, which both traces hold on to. */
static td_status *add_plans(td_trace *out, const td_trace *from, uint32_t base)
{
    for (int64_t p = 0; p < from->n_plans; p++) {
        TD_TRY(td_grow(&out->plans, &out->plans_capacity, out->n_plans, sizeof *out->plans));
        TD_TRY(td_trace_plan_parse(json_incref(from->plans[p].json), &out->plans[out->n_plans]));
        out->plans[out->n_plans++].first_id += base;
    }
    return NULL;
}

static td_status *add_threads(td_trace *out, const td_trace *from, int32_t rank)
{
    if (out->n_threads + from->n_threads > UINT16_MAX)
        return TD_ERROR(TD_UNSUPPORTED, "the ranks of this job have more than %d threads together", UINT16_MAX);
    for (int64_t t = 0; t < from->n_threads; t++) {
        TD_TRY(td_grow(&out->threads, &out->threads_capacity, out->n_threads, sizeof *out->threads));
        out->threads[out->n_threads] = from->threads[t];
        out->threads[out->n_threads++].rank = rank;
    }
    return NULL;
}

static void add_events(td_trace *out, const td_rank_trace *r, int64_t first_thread, uint32_t base)
{
    for (int64_t i = 0; i < r->trace->n_events; i++) {
        td_trace_event *e = &out->events[out->n_events++];
        *e = r->trace->events[i];
        e->begin_ns = td_rank_time(r, e->begin_ns);
        e->end_ns = td_rank_time(r, e->end_ns);
        e->end_ns = e->end_ns < e->begin_ns ? e->begin_ns : e->end_ns;
        e->thread = (uint16_t)(e->thread + first_thread);
        e->id += td_event_has_plan_id(e) ? base : 0;
    }
}

static td_status *add_rank(td_trace *out, const td_rank_trace *r, uint32_t *base)
{
    int64_t first_thread = out->n_threads;
    td_trace_rank *rank = &out->ranks[out->n_ranks];
    rank->rank = r->rank;
    (void)snprintf(rank->name, sizeof rank->name, "rank %d%s%s%s%s", r->rank, *r->role ? ": " : "", r->role,
                   *r->host ? " on " : "", r->host);
    if (*base > UINT_MAX / 4)
        return TD_ERROR(TD_UNSUPPORTED, "the plans of this job's ranks have more ids than can be told apart");
    TD_TRY(add_threads(out, r->trace, (int32_t)out->n_ranks));
    TD_TRY(add_plans(out, r->trace, *base));
    add_events(out, r, first_thread, *base);
    out->n_ranks++;
    out->dropped += r->trace->dropped;
    out->cut = out->cut || r->trace->cut;
    int64_t error = r->error_ns + r->trace->clock_error_ns;
    out->clock_error_ns = error > out->clock_error_ns ? error : out->clock_error_ns;
    *base += end_of_ids(r->trace);
    return NULL;
}

static td_status *fill(td_trace *out, const td_job_traces *job)
{
    const td_trace *first = job->base;
    int64_t events = 0;
    uint32_t base = 0;
    for (int32_t i = 0; i < job->n; i++) {
        const td_trace *trace = job->ranks[i].shares ? NULL : job->ranks[i].trace;
        events += trace ? trace->n_events : 0;
    }
    if (!first)
        return TD_ERROR(TD_DATA_ERROR, "no rank of this job has a trace that can be read");
    out->info = json_deep_copy(first->info);
    out->start_unix_ns = first->start_unix_ns;
    out->start_monotonic_ns = first->start_monotonic_ns;
    TD_TRY(TD_NEW(out->ranks, job->n + 1));
    TD_TRY(TD_NEW(out->windows, first->n_windows + 1));
    out->events = td_calloc_aligned(((size_t)events + 1) * sizeof *out->events);
    if (!out->events || !out->info)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %lld events", (long long)events);
    out->events_capacity = events + 1;
    out->windows_capacity = first->n_windows + 1;
    out->n_windows = first->n_windows;
    if (first->n_windows)
        memcpy(out->windows, first->windows, (size_t)first->n_windows * sizeof *out->windows);
    for (int32_t i = 0; i < job->n; i++)
        if (job->ranks[i].trace && !job->ranks[i].shares)
            TD_TRY(add_rank(out, &job->ranks[i], &base));
    TD_TRY(td_trace_index_plans(out));
    return td_trace_sort(out);
}

td_status *td_job_traces_merge(const td_job_traces *job, td_trace **out_trace)
{
    td_trace *out = NULL;
    *out_trace = NULL;
    TD_TRY(TD_NEW(out, 1));
    td_status *status = fill(out, job);
    if (status)
        td_trace_destroy(out);
    else
        *out_trace = out;
    return status;
}
