/* Which kinds of work went on at the same time: see overlap.h. */
#include "profiler/overlap.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/string.h"

const char *td_activity_kind_name(td_activity_kind kind)
{
    static const char *const names[TD_ACTIVITIES] = {"compute",   "update",     "to_device",  "from_device",
                                                     "pull",      "push",       "all_reduce", "data_fetch",
                                                     "data_wait", "checkpoint", "callback"};
    return names[kind];
}

static bool has_device(td_activity_kind kind)
{
    return kind <= TD_ACTIVITY_FROM_DEVICE;
}

static void name_activity(const td_trace_plan *plan, td_activity *activity)
{
    static const char *const texts[TD_ACTIVITIES] = {[TD_ACTIVITY_PULL] = "pull",
                                                     [TD_ACTIVITY_PUSH] = "push",
                                                     [TD_ACTIVITY_SUM] = "all-reduce",
                                                     [TD_ACTIVITY_DATA_FETCH] = "making batches",
                                                     [TD_ACTIVITY_DATA_WAIT] = "waiting for data",
                                                     [TD_ACTIVITY_CHECKPOINT] = "checkpoint",
                                                     [TD_ACTIVITY_CALLBACK] = "callback"};
    char device[41] = "";
    if (has_device(activity->kind))
        td_text_cut(device, sizeof device, plan->devices[activity->device].name);
    switch (activity->kind) {
    case TD_ACTIVITY_COMPUTE:
    case TD_ACTIVITY_UPDATE:
        (void)snprintf(activity->name, sizeof activity->name, "%s %s", device, td_activity_kind_name(activity->kind));
        break;
    case TD_ACTIVITY_TO_DEVICE:
    case TD_ACTIVITY_FROM_DEVICE:
        (void)snprintf(activity->name, sizeof activity->name, "%s %s",
                       activity->kind == TD_ACTIVITY_TO_DEVICE ? "to" : "from", device);
        break;
    default:
        (void)snprintf(activity->name, sizeof activity->name, "%s", texts[activity->kind]);
        break;
    }
}

/* ---- records to activities --------------------------------------------------------------------------------------------------------- */

typedef struct gathering {
    const td_step_trace *trace;
    const td_view *view;
    td_activity *all; /* of devices [devices][4], then of the process */
    int32_t n;
    bool *communicates; /* of each node: it pulls, pushes or sums */
    td_span within;
} gathering;

static td_activity *activity_of(const gathering *g, td_activity_kind kind, int32_t device)
{
    int32_t devices = g->view->plan->n_devices;
    return has_device(kind) ? &g->all[device * (TD_ACTIVITY_FROM_DEVICE + 1) + (int32_t)kind]
                            : &g->all[devices * (TD_ACTIVITY_FROM_DEVICE + 1) + (int32_t)kind - TD_ACTIVITY_PULL];
}

/* Records come in the order in which they began. */
static td_status *add_span(const gathering *g, td_activity *to, const td_trace_event *e)
{
    int64_t begin = e->begin_ns > g->within.begin_ns ? e->begin_ns : g->within.begin_ns;
    int64_t end = e->end_ns < g->within.end_ns ? e->end_ns : g->within.end_ns;
    if (end <= begin)
        return NULL;
    if (to->n_spans && begin <= to->spans[to->n_spans - 1].end_ns) {
        td_span *last = &to->spans[to->n_spans - 1];
        last->end_ns = end > last->end_ns ? end : last->end_ns;
        return NULL;
    }
    TD_TRY(td_grow(&to->spans, &to->capacity, to->n_spans, sizeof *to->spans));
    to->spans[to->n_spans++] = (td_span){begin, end};
    return NULL;
}

/* What a subgraph's lane and phase make of it. */
static td_activity *activity_at(const gathering *g, int32_t subgraph, td_trace_phase phase)
{
    const td_trace_subgraph *s = &g->view->plan->subgraphs[subgraph];
    td_activity_kind kind = s->lane == TD_TRACE_TO_DEVICE ? TD_ACTIVITY_TO_DEVICE
                            : s->lane == TD_TRACE_TO_HOST ? TD_ACTIVITY_FROM_DEVICE
                            : phase == TD_TRACE_UPDATE    ? TD_ACTIVITY_UPDATE
                                                          : TD_ACTIVITY_COMPUTE;
    return activity_of(g, kind, s->device);
}

static td_activity *activity_of_node(const gathering *g, const td_trace_event *e)
{
    int32_t node = td_view_node(g->view, e);
    if (node < 0 || g->view->plan->nodes[node].subgraph < 0 || g->communicates[node])
        return NULL;
    return activity_at(g, g->view->plan->nodes[node].subgraph, g->view->plan->nodes[node].phase);
}

/* A subgraph stands for its ops where its device did not tell of them. */
static td_activity *activity_of_subgraph(const gathering *g, const td_trace_event *e)
{
    int32_t subgraph = td_view_subgraph(g->view, e);
    if (subgraph < 0 || g->trace->subgraphs[subgraph].told)
        return NULL;
    return activity_at(g, subgraph, g->trace->subgraphs[subgraph].phase);
}

static td_activity *activity_of_event(const gathering *g, const td_trace_event *e)
{
    switch (e->kind) {
    case TD_RECORD_OP:
    case TD_RECORD_COPY:
        return activity_of_node(g, e);
    case TD_RECORD_SUBGRAPH:
        return activity_of_subgraph(g, e);
    case TD_RECORD_PULL:
        return activity_of(g, TD_ACTIVITY_PULL, -1);
    case TD_RECORD_PUSH:
        return activity_of(g, TD_ACTIVITY_PUSH, -1);
    case TD_RECORD_ALL_REDUCE:
        return activity_of(g, TD_ACTIVITY_SUM, -1);
    case TD_RECORD_DATA_FETCH:
        return activity_of(g, TD_ACTIVITY_DATA_FETCH, -1);
    case TD_RECORD_DATA_WAIT:
        return activity_of(g, TD_ACTIVITY_DATA_WAIT, -1);
    case TD_RECORD_CHECKPOINT:
        return activity_of(g, TD_ACTIVITY_CHECKPOINT, -1);
    case TD_RECORD_CALLBACK:
        return activity_of(g, TD_ACTIVITY_CALLBACK, -1);
    default:
        return NULL;
    }
}

static bool is_communication(int kind)
{
    return kind == TD_RECORD_PULL || kind == TD_RECORD_PUSH || kind == TD_RECORD_ALL_REDUCE;
}

static td_status *gather(const gathering *g)
{
    const td_trace *trace = g->view->trace;
    for (int64_t i = 0; i < trace->n_events; i++) {
        int32_t node = is_communication(trace->events[i].kind) ? td_view_node(g->view, &trace->events[i]) : -1;
        if (node >= 0)
            g->communicates[node] = true;
    }
    for (int64_t i = 0; i < trace->n_events; i++) {
        td_activity *activity =
            td_view_owns(g->view, &trace->events[i]) ? activity_of_event(g, &trace->events[i]) : NULL;
        if (activity)
            TD_TRY(add_span(g, activity, &trace->events[i]));
    }
    return NULL;
}

/* Those that went on, one behind the other; the others' memory is none. Of a plan of more devices than any machine has, the first. */
static void keep_used(const gathering *g, td_overlaps *out)
{
    enum { MOST = 256 };
    for (int32_t i = 0; i < g->n; i++) {
        td_activity *from = &g->all[i];
        int32_t on_devices = g->view->plan->n_devices * (TD_ACTIVITY_FROM_DEVICE + 1);
        if (out->n == MOST)
            td_free(from->spans);
        if (!from->n_spans || out->n == MOST)
            continue;
        from->device = i < on_devices ? i / (TD_ACTIVITY_FROM_DEVICE + 1) : -1;
        from->kind =
            (td_activity_kind)(i < on_devices ? i % (TD_ACTIVITY_FROM_DEVICE + 1) : TD_ACTIVITY_PULL + i - on_devices);
        name_activity(g->view->plan, from);
        for (int64_t k = 0; k < from->n_spans; k++)
            from->busy_ns = td_ns_plus(from->busy_ns, td_ns_minus(from->spans[k].end_ns, from->spans[k].begin_ns));
        out->activities[out->n++] = *from;
    }
}

/* ---- pairs ------------------------------------------------------------------------------------------------------------------------ */

/* The first span of an activity that ends after a moment. */
static int64_t first_after(const td_activity *activity, int64_t ns)
{
    int64_t low = 0, high = activity->n_spans;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (activity->spans[middle].end_ns > ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int64_t shared_within(const td_activity *x, const td_activity *y, td_span within)
{
    int64_t sum = 0;
    for (int64_t i = first_after(x, within.begin_ns), k = first_after(y, within.begin_ns);
         i < x->n_spans && k < y->n_spans;) {
        td_span p = x->spans[i], q = y->spans[k];
        int64_t begin = p.begin_ns > q.begin_ns ? p.begin_ns : q.begin_ns;
        int64_t end = p.end_ns < q.end_ns ? p.end_ns : q.end_ns;
        if (begin >= within.end_ns)
            break;
        begin = begin > within.begin_ns ? begin : within.begin_ns;
        end = end < within.end_ns ? end : within.end_ns;
        if (end > begin)
            sum = td_ns_plus(sum, td_ns_minus(end, begin));
        *(p.end_ns <= q.end_ns ? &i : &k) += 1;
    }
    return sum;
}

static td_status *fill_pairs(td_overlaps *o, td_span within)
{
    TD_TRY(TD_NEW(o->shared_ns, (int64_t)o->n * o->n + 1));
    for (int32_t a = 0; a < o->n; a++)
        for (int32_t b = a; b < o->n; b++)
            o->shared_ns[a * o->n + b] = o->shared_ns[b * o->n + a] =
                shared_within(&o->activities[a], &o->activities[b], within);
    return NULL;
}

int64_t td_overlap_ns(const td_overlaps *overlaps, int32_t a, int32_t b)
{
    return overlaps->shared_ns[a * overlaps->n + b];
}

int64_t td_overlap_in_step_ns(const td_overlaps *overlaps, int32_t a, int32_t b, int64_t i)
{
    const td_step_trace *trace = overlaps->trace;
    const td_view_step *step = td_view_step_of(trace->view, trace->steps[i].step);
    return shared_within(&overlaps->activities[a], &overlaps->activities[b], (td_span){step->from_ns, step->end_ns});
}

/* ---- all -------------------------------------------------------------------------------------------------------------------------- */

td_status *td_overlaps_create(const td_step_trace *trace, td_overlaps **out_overlaps)
{
    td_overlaps *o = NULL;
    gathering g = {.trace = trace,
                   .view = trace->view,
                   .n = trace->view->plan->n_devices * (TD_ACTIVITY_FROM_DEVICE + 1) + TD_ACTIVITIES - TD_ACTIVITY_PULL,
                   .within = {td_view_begin_ns(trace->view), td_view_end_ns(trace->view)}};
    *out_overlaps = NULL;
    TD_TRY(TD_NEW(o, 1));
    o->trace = trace;
    td_status *status = TD_NEW(g.all, g.n);
    if (!status)
        status = TD_NEW(g.communicates, trace->view->plan->n_nodes + 1);
    if (!status)
        status = TD_NEW(o->activities, g.n);
    if (!status)
        status = gather(&g);
    if (!status)
        keep_used(&g, o);
    for (int32_t i = 0; status && g.all && i < g.n; i++)
        td_free(g.all[i].spans);
    td_free(g.all);
    td_free(g.communicates);
    if (!status)
        status = fill_pairs(o, g.within);
    if (status)
        td_overlaps_destroy(o);
    else
        *out_overlaps = o;
    return status;
}

void td_overlaps_destroy(td_overlaps *overlaps)
{
    if (!overlaps)
        return;
    for (int32_t i = 0; overlaps->activities && i < overlaps->n; i++)
        td_free(overlaps->activities[i].spans);
    td_free(overlaps->activities);
    td_free(overlaps->shared_ns);
    td_free(overlaps);
}
