/* The step trace: see steps.h. Lanes' idle time and overlap: lanes.c. */
#include "profiler/steps.h"

#include <string.h>

#include "base/memory.h"
#include "profiler/lanes.h"

/* ---- events to steps ------------------------------------------------------------------------------------------------------------ */

static td_step_times *times_of(const td_step_trace *trace, int64_t step)
{
    int64_t guess = step - trace->view->window.first_step; /* where it is unless steps before it are missing */
    guess = guess < trace->n_steps ? guess : trace->n_steps - 1;
    while (guess >= 0 && trace->steps[guess].step > step)
        guess--;
    return guess >= 0 && trace->steps[guess].step == step ? &trace->steps[guess] : NULL;
}

static void add_op(td_step_trace *trace, td_step_times *step, const td_trace_event *e)
{
    int32_t node = td_view_node(trace->view, e);
    if (node < 0)
        return;
    const td_trace_node *n = &trace->view->plan->nodes[node];
    td_subgraph_times *subgraph = n->subgraph < 0 ? NULL : &trace->subgraphs[n->subgraph];
    int64_t ns = e->end_ns - e->begin_ns;
    int64_t *const in_step[] = {&step->forward_ns, &step->backward_ns, &step->update_ns};
    *in_step[n->phase] = td_ns_plus(*in_step[n->phase], ns);
    if (!subgraph)
        return;
    int64_t *const in_subgraph[] = {&subgraph->forward_ns, &subgraph->backward_ns, &subgraph->update_ns};
    *in_subgraph[n->phase] = td_ns_plus(*in_subgraph[n->phase], ns);
}

static void add_copy(td_step_trace *trace, td_step_times *step, const td_trace_event *e)
{
    int32_t node = td_view_node(trace->view, e);
    int32_t subgraph = node < 0 ? -1 : trace->view->plan->nodes[node].subgraph;
    if (subgraph < 0)
        return;
    bool to_host = trace->view->plan->subgraphs[subgraph].lane == TD_TRACE_TO_HOST;
    *(to_host ? &step->to_host_ns : &step->to_device_ns) += e->end_ns - e->begin_ns;
    *(to_host ? &step->to_host_bytes : &step->to_device_bytes) += (int64_t)e->amount;
    trace->subgraphs[subgraph].bytes += (int64_t)e->amount;
}

static void add_event(td_step_trace *trace, const td_trace_event *e)
{
    td_step_times *step = times_of(trace, e->step);
    int64_t ns = e->end_ns - e->begin_ns;
    if (!step)
        return;
    switch (e->kind) {
    case TD_RECORD_OP:
        add_op(trace, step, e);
        break;
    case TD_RECORD_COPY:
        add_copy(trace, step, e);
        break;
    case TD_RECORD_DATA_WAIT:
        step->data_wait_ns += ns;
        break;
    case TD_RECORD_PULL:
        step->pull_ns += ns;
        break;
    case TD_RECORD_PUSH:
        step->push_ns += ns;
        break;
    case TD_RECORD_ALL_REDUCE:
        step->all_reduce_ns += ns;
        break;
    case TD_RECORD_CHECKPOINT:
        step->checkpoint_ns += ns;
        break;
    case TD_RECORD_CALLBACK:
        step->callback_ns += ns;
        break;
    case TD_RECORD_FLUSH:
        step->flush_ns += ns;
        break;
    default:
        break;
    }
}

/* Devices that do not tell when their ops ran: what their subgraphs took counts by what most of their ops are. */
static td_trace_phase phase_of(const td_view *view, int32_t subgraph)
{
    double estimated[3] = {0};
    for (int32_t n = view->first_node[subgraph]; n >= 0; n = view->next_node[n])
        estimated[view->plan->nodes[n].phase] += view->plan->nodes[n].estimated_ms + 1e-9;
    if (estimated[TD_TRACE_UPDATE] > estimated[TD_TRACE_FORWARD] + estimated[TD_TRACE_BACKWARD])
        return TD_TRACE_UPDATE;
    return estimated[TD_TRACE_BACKWARD] > estimated[TD_TRACE_FORWARD] ? TD_TRACE_BACKWARD : TD_TRACE_FORWARD;
}

static void add_runs(td_step_trace *trace)
{
    const td_trace_plan *plan = trace->view->plan;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        td_subgraph_times *times = &trace->subgraphs[s];
        times->subgraph = s;
        bool told = times->forward_ns + times->backward_ns + times->update_ns > 0;
        td_trace_phase phase = phase_of(trace->view, s);
        for (int64_t i = 0; i < trace->n_steps; i++) {
            const td_view_run *run = td_view_at(trace->view, trace->steps[i].step, s);
            if (!run)
                continue;
            times->runs++;
            times->total_ns += run->end_ns - run->begin_ns;
            if (told || plan->subgraphs[s].lane != TD_TRACE_COMPUTE)
                continue;
            int64_t *const in_step[] = {&trace->steps[i].forward_ns, &trace->steps[i].backward_ns,
                                        &trace->steps[i].update_ns};
            *in_step[phase] += run->end_ns - run->begin_ns;
        }
        if (!told && times->runs && plan->subgraphs[s].lane == TD_TRACE_COMPUTE && times->total_ns > 0)
            trace->device_ops = false;
    }
}

/* The last backward work of a step; what comes after is its tail. */
static void find_tails(td_step_trace *trace)
{
    const td_trace *all = trace->view->trace;
    for (int64_t i = 0; i < trace->n_steps; i++)
        trace->steps[i].tail_ns = td_view_step_of(trace->view, trace->steps[i].step)->end_ns -
                                  td_view_step_of(trace->view, trace->steps[i].step)->begin_ns;
    for (int64_t i = 0; i < all->n_events; i++) {
        const td_trace_event *e = &all->events[i];
        int32_t node = e->kind == TD_RECORD_OP ? td_view_node(trace->view, e) : -1;
        td_step_times *step = node < 0 ? NULL : times_of(trace, e->step);
        if (!step || trace->view->plan->nodes[node].phase == TD_TRACE_UPDATE)
            continue;
        int64_t left = td_view_step_of(trace->view, e->step)->end_ns - e->end_ns;
        step->tail_ns = left < step->tail_ns ? (left > 0 ? left : 0) : step->tail_ns;
    }
}

/* ---- critical paths -------------------------------------------------------------------------------------------------------------- */

typedef struct on_path {
    td_step_trace *trace;
    td_step_times *step;
} on_path;

static td_status *add_segment(void *context, const td_segment *segment)
{
    on_path *p = context;
    int64_t ns = segment->end_ns - segment->begin_ns;
    p->step->path_ns[segment->cause] += ns;
    bool ran = segment->cause == TD_CAUSE_SUBGRAPH || segment->cause == TD_CAUSE_COPY;
    if (ran)
        p->trace->subgraphs[segment->subgraph].path_ns += ns;
    return NULL;
}

static td_status *walk_steps(td_step_trace *trace)
{
    for (int64_t i = 0; i < trace->n_steps; i++) {
        on_path p = {trace, &trace->steps[i]};
        TD_TRY(td_path_of_step(trace->view, td_view_step_of(trace->view, trace->steps[i].step), add_segment, &p));
    }
    return NULL;
}

/* ---- averages ---------------------------------------------------------------------------------------------------------------------- */

/* All fields but the first are numbers of nanoseconds or bytes: the structure is summed as an array. */
static void average(td_step_trace *trace)
{
    enum { FIELDS = sizeof(td_step_times) / sizeof(int64_t) };
    int64_t sums[FIELDS] = {0};
    for (int64_t i = 0; i < trace->n_steps; i++) {
        int64_t fields[FIELDS];
        memcpy(fields, &trace->steps[i], sizeof fields);
        for (int f = 1; f < FIELDS; f++)
            sums[f] = td_ns_plus(sums[f], fields[f]);
        trace->wall_ns = td_ns_plus(trace->wall_ns, trace->steps[i].interval_ns);
    }
    for (int f = 1; f < FIELDS; f++)
        sums[f] /= trace->n_steps;
    memcpy(&trace->average, sums, sizeof sums);
}

static td_status *begin_steps(td_step_trace *trace)
{
    const td_view *view = trace->view;
    TD_TRY(TD_NEW(trace->steps, td_view_count(view) + 1));
    TD_TRY(TD_NEW(trace->subgraphs, view->plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(trace->lanes, view->n_lanes + 1));
    for (int64_t s = view->window.first_step; s <= view->window.last_step; s++) {
        const td_view_step *step = td_view_step_of(view, s);
        if (!td_view_counts(view, s))
            continue;
        trace->steps[trace->n_steps++] = (td_step_times){.step = s,
                                                         .samples = step->samples,
                                                         .interval_ns = step->end_ns - step->from_ns,
                                                         .span_ns = step->end_ns - step->begin_ns};
    }
    return trace->n_steps ? NULL : TD_ERROR(TD_DATA_ERROR, "the window has no whole step");
}

td_status *td_step_trace_create(const td_view *view, td_step_trace **out_trace)
{
    td_step_trace *trace = NULL;
    *out_trace = NULL;
    TD_TRY(TD_NEW(trace, 1));
    trace->view = view;
    trace->device_ops = true;
    td_status *status = begin_steps(trace);
    for (int64_t i = 0; !status && i < view->trace->n_events; i++)
        add_event(trace, &view->trace->events[i]);
    if (!status) {
        add_runs(trace);
        find_tails(trace);
        status = walk_steps(trace);
    }
    if (!status)
        status = td_lane_times_fill(trace);
    if (status) {
        td_step_trace_destroy(trace);
        return status;
    }
    average(trace);
    *out_trace = trace;
    return NULL;
}

void td_step_trace_destroy(td_step_trace *trace)
{
    if (!trace)
        return;
    for (int64_t i = 0; trace->lanes && i < trace->view->n_lanes; i++) {
        td_free(trace->lanes[i].by_subgraph_ns);
        td_free(trace->lanes[i].overlap_ns);
    }
    td_free(trace->steps);
    td_free(trace->subgraphs);
    td_free(trace->lanes);
    td_free(trace);
}
