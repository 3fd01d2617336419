/* The step trace: see steps.h. Lanes' idle time and overlap: lanes.c. */
#include "profiler/steps.h"

#include <string.h>

#include "base/memory.h"
#include "profiler/lanes.h"

/* ---- events to steps ------------------------------------------------------------------------------------------------------------ */

/* Where a step is among those that count; -1: it does not. */
static int64_t place_of(const td_step_trace *trace, int64_t step)
{
    int64_t guess = step - trace->view->window.first_step; /* where it is unless steps before it are missing */
    guess = guess < trace->n_steps ? guess : trace->n_steps - 1;
    while (guess >= 0 && trace->steps[guess].step > step)
        guess--;
    return guess >= 0 && trace->steps[guess].step == step ? guess : -1;
}

static td_step_times *times_of(const td_step_trace *trace, int64_t step)
{
    int64_t place = place_of(trace, step);
    return place < 0 ? NULL : &trace->steps[place];
}

const td_step_times *td_step_times_of(const td_step_trace *trace, int64_t step)
{
    return times_of(trace, step);
}

double td_subgraph_ranks_share(const td_subgraph_times *times)
{
    if (times->total_ns <= 0 || times->ranks_ns <= 0)
        return 0;
    return times->ranks_ns < times->total_ns ? (double)times->ranks_ns / (double)times->total_ns : 1;
}

static void add_op(const td_view *view, td_step_times *to, const td_trace_event *e)
{
    int32_t node = td_view_node(view, e);
    int64_t *const phases[] = {&to->forward_ns, &to->backward_ns, &to->update_ns};
    if (node >= 0)
        *phases[view->plan->nodes[node].phase] =
            td_ns_plus(*phases[view->plan->nodes[node].phase], td_ns_minus(e->end_ns, e->begin_ns));
}

static void add_copy(const td_view *view, td_step_times *to, const td_trace_event *e)
{
    int32_t node = td_view_node(view, e);
    int32_t subgraph = node < 0 ? -1 : view->plan->nodes[node].subgraph;
    if (subgraph < 0)
        return;
    bool to_host = view->plan->subgraphs[subgraph].lane == TD_TRACE_TO_HOST;
    td_ns_add(to_host ? &to->to_host_ns : &to->to_device_ns, td_ns_minus(e->end_ns, e->begin_ns));
    td_ns_add(to_host ? &to->to_host_bytes : &to->to_device_bytes, (int64_t)e->amount);
}

/* An op or a copy, or what an op had to do with other ranks. */
static void add_to_subgraph(const td_step_trace *trace, const td_trace_event *e)
{
    int32_t node = td_view_node(trace->view, e);
    int32_t subgraph = node < 0 ? -1 : trace->view->plan->nodes[node].subgraph;
    if (subgraph < 0)
        return;
    td_subgraph_times *to = &trace->subgraphs[subgraph];
    int64_t *const phases[] = {&to->forward_ns, &to->backward_ns, &to->update_ns};
    int64_t *phase = phases[trace->view->plan->nodes[node].phase];
    if (e->kind == TD_RECORD_COPY)
        td_ns_add(&to->bytes, (int64_t)e->amount);
    else
        td_ns_add(e->kind == TD_RECORD_OP ? phase : &to->ranks_ns, td_ns_minus(e->end_ns, e->begin_ns));
}

/* To a step's times, or a micro-step's. */
static void add_to(const td_view *view, td_step_times *step, const td_trace_event *e)
{
    int64_t ns = td_ns_minus(e->end_ns, e->begin_ns);
    switch (e->kind) {
    case TD_RECORD_OP:
        add_op(view, step, e);
        break;
    case TD_RECORD_COPY:
        add_copy(view, step, e);
        break;
    case TD_RECORD_DATA_WAIT:
        td_ns_add(&step->data_wait_ns, ns);
        break;
    case TD_RECORD_PULL:
        td_ns_add(&step->pull_ns, ns);
        break;
    case TD_RECORD_PUSH:
        td_ns_add(&step->push_ns, ns);
        break;
    case TD_RECORD_ALL_REDUCE:
        td_ns_add(&step->all_reduce_ns, ns);
        break;
    case TD_RECORD_CHECKPOINT:
        td_ns_add(&step->checkpoint_ns, ns);
        break;
    case TD_RECORD_CALLBACK:
        td_ns_add(&step->callback_ns, ns);
        break;
    case TD_RECORD_FLUSH:
        td_ns_add(&step->flush_ns, ns);
        break;
    default:
        break;
    }
}

static td_step_times *micro_of(const td_step_trace *trace, const td_step_times *step, int64_t micro)
{
    if (!trace->micros || micro >= trace->view->n_micro)
        return NULL;
    td_step_times *found = &trace->micros[(step - trace->steps) * trace->view->n_micro + micro];
    return found->interval_ns ? found : NULL;
}

static void add_event(const td_step_trace *trace, const td_trace_event *e)
{
    td_step_times *step = times_of(trace, e->step), *micro = step ? micro_of(trace, step, e->micro) : NULL;
    if (!step || !td_view_owns(trace->view, e))
        return;
    add_to(trace->view, step, e);
    if (micro)
        add_to(trace->view, micro, e);
    if (e->kind == TD_RECORD_OP || e->kind == TD_RECORD_COPY || e->kind == TD_RECORD_PULL ||
        e->kind == TD_RECORD_PUSH || e->kind == TD_RECORD_ALL_REDUCE)
        add_to_subgraph(trace, e);
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

/* What a subgraph took in a step; false: it did not run. `phase`: of ops that nobody told of; -1: they were told. */
static bool add_runs_of(td_step_trace *trace, td_subgraph_times *times, td_step_times *step, int phase)
{
    int64_t first = td_view_index(trace->view, step->step, 0), before = times->runs;
    for (int64_t m = 0; m < trace->view->n_micro; m++) {
        const td_view_run *run = td_view_at(trace->view, first + m, times->subgraph);
        if (!run)
            continue;
        int64_t ns = td_ns_minus(run->end_ns, run->begin_ns);
        td_step_times *micro = micro_of(trace, step, m);
        times->runs++;
        td_ns_add(&times->total_ns, ns);
        for (int i = 0; phase >= 0 && i < 2; i++) {
            td_step_times *to = i ? micro : step;
            int64_t *const phases[] = {to ? &to->forward_ns : NULL, to ? &to->backward_ns : NULL,
                                       to ? &to->update_ns : NULL};
            if (to)
                td_ns_add(phases[phase], ns);
        }
    }
    return times->runs > before;
}

static void add_runs(td_step_trace *trace)
{
    const td_trace_plan *plan = trace->view->plan;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        td_subgraph_times *times = &trace->subgraphs[s];
        times->subgraph = s;
        times->told = times->forward_ns + times->backward_ns + times->update_ns > 0 ||
                      plan->subgraphs[s].lane != TD_TRACE_COMPUTE;
        times->phase = phase_of(trace->view, s);
        for (int64_t i = 0; i < trace->n_steps; i++)
            times->steps += add_runs_of(trace, times, &trace->steps[i], times->told ? -1 : (int)times->phase);
        if (!times->told && times->total_ns > 0)
            trace->device_ops = false;
    }
}

static void shorten_tail(td_step_times *times, int64_t left_ns)
{
    times->tail_ns = left_ns < times->tail_ns ? (left_ns > 0 ? left_ns : 0) : times->tail_ns;
}

/* The last work of a step, or micro-step, that is no update; what comes after is its tail. */
static void find_tails(td_step_trace *trace)
{
    const td_trace *all = trace->view->trace;
    for (int64_t i = 0; i < trace->n_steps; i++)
        trace->steps[i].tail_ns = trace->steps[i].span_ns;
    for (int64_t i = 0; trace->micros && i < trace->n_steps * trace->view->n_micro; i++)
        trace->micros[i].tail_ns = trace->micros[i].span_ns;
    for (int64_t i = 0; i < all->n_events; i++) {
        const td_trace_event *e = &all->events[i];
        int32_t node = e->kind == TD_RECORD_OP ? td_view_node(trace->view, e) : -1;
        td_step_times *step = node < 0 ? NULL : times_of(trace, e->step);
        if (!step || trace->view->plan->nodes[node].phase == TD_TRACE_UPDATE)
            continue;
        td_step_times *micro = micro_of(trace, step, e->micro);
        shorten_tail(step, td_ns_minus(td_view_step_of(trace->view, e->step)->end_ns, e->end_ns));
        if (micro)
            shorten_tail(micro, td_ns_minus(trace->view->micros[td_view_index(trace->view, e->step, e->micro)].end_ns,
                                            e->end_ns));
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
    int64_t ns = td_ns_minus(segment->end_ns, segment->begin_ns);
    td_ns_add(&p->step->path_ns[segment->cause], ns);
    bool ran = segment->cause == TD_CAUSE_SUBGRAPH || segment->cause == TD_CAUSE_COPY;
    if (ran)
        td_ns_add(&p->trace->subgraphs[segment->subgraph].path_ns, ns);
    return NULL;
}

static td_status *add_micro_segment(void *context, const td_segment *segment)
{
    td_ns_add(&((td_step_times *)context)->path_ns[segment->cause], td_ns_minus(segment->end_ns, segment->begin_ns));
    return NULL;
}

static td_status *walk_micros(const td_step_trace *trace)
{
    for (int64_t i = 0; trace->micros && i < trace->n_steps * trace->view->n_micro; i++) {
        td_step_times *times = &trace->micros[i];
        const int64_t index = td_view_index(trace->view, times->step, times->micro);
        if (!times->interval_ns)
            continue;
        const td_view_micro *micro = &trace->view->micros[index];
        TD_TRY(td_path_of_micro(trace->view, index, micro->from_ns, micro->end_ns, add_micro_segment, times));
    }
    return NULL;
}

static td_status *walk_steps(td_step_trace *trace)
{
    for (int64_t i = 0; i < trace->n_steps; i++) {
        on_path p = {trace, &trace->steps[i]};
        TD_TRY(td_path_of_step(trace->view, td_view_step_of(trace->view, trace->steps[i].step), add_segment, &p));
    }
    return walk_micros(trace);
}

/* ---- averages ---------------------------------------------------------------------------------------------------------------------- */

enum { FIELDS = sizeof(td_step_times) / sizeof(int64_t), FIRST = 2 };

/* All fields but the first two are numbers of nanoseconds or bytes: the structure is summed as an array. */
static void add_fields(int64_t *sums, const td_step_times *times)
{
    int64_t fields[FIELDS];
    memcpy(fields, times, sizeof fields);
    for (int f = FIRST; f < FIELDS; f++)
        sums[f] = td_ns_plus(sums[f], fields[f]);
}

static td_step_times mean_of(int64_t *sums, int64_t n, int64_t micro)
{
    td_step_times mean;
    for (int f = FIRST; n && f < FIELDS; f++)
        sums[f] /= n;
    sums[0] = 0;
    sums[1] = micro;
    memcpy(&mean, sums, sizeof mean);
    return mean;
}

static void average(td_step_trace *trace)
{
    int64_t sums[FIELDS] = {0};
    for (int64_t i = 0; i < trace->n_steps; i++) {
        add_fields(sums, &trace->steps[i]);
        trace->wall_ns = td_ns_plus(trace->wall_ns, trace->steps[i].interval_ns);
    }
    trace->average = mean_of(sums, trace->n_steps, -1);
    for (int64_t m = 0; trace->micros && m < trace->view->n_micro; m++) {
        int64_t of_micro[FIELDS] = {0}, n = 0;
        for (int64_t i = 0; i < trace->n_steps; i++) {
            const td_step_times *times = &trace->micros[i * trace->view->n_micro + m];
            n += times->interval_ns != 0;
            if (times->interval_ns)
                add_fields(of_micro, times);
        }
        trace->micro_average[m] = mean_of(of_micro, n, m);
    }
}

/* The micro-steps of the i-th step that counts. */
static void begin_micros(td_step_trace *trace, int64_t i)
{
    const td_view *view = trace->view;
    for (int64_t m = 0; trace->micros && m < view->n_micro; m++) {
        const td_view_micro *micro = td_view_micro_of(view, td_view_index(view, trace->steps[i].step, m));
        td_step_times *times = &trace->micros[i * view->n_micro + m];
        *times = (td_step_times){.step = trace->steps[i].step, .micro = m};
        if (!micro || !micro->known || micro->end_ns <= micro->from_ns)
            continue;
        times->samples = micro->samples;
        times->interval_ns = td_ns_minus(micro->end_ns, micro->from_ns);
        times->span_ns = td_ns_minus(micro->end_ns, micro->begin_ns);
    }
}

static td_status *begin_steps(td_step_trace *trace)
{
    const td_view *view = trace->view;
    TD_TRY(TD_NEW(trace->steps, td_view_count(view) + 1));
    TD_TRY(TD_NEW(trace->subgraphs, view->plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(trace->lanes, view->n_lanes + 1));
    if (view->n_micro > 1) {
        TD_TRY(TD_NEW(trace->micros, td_view_count(view) * view->n_micro + 1));
        TD_TRY(TD_NEW(trace->micro_average, view->n_micro + 1));
    }
    for (int64_t s = view->window.first_step; s <= view->window.last_step; s++) {
        const td_view_step *step = td_view_step_of(view, s);
        if (!td_view_counts(view, s))
            continue;
        trace->steps[trace->n_steps] = (td_step_times){.step = s,
                                                       .micro = -1,
                                                       .samples = step->samples,
                                                       .interval_ns = step->end_ns - step->from_ns,
                                                       .span_ns = step->end_ns - step->begin_ns};
        begin_micros(trace, trace->n_steps++);
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
    for (int64_t i = 0; trace->lanes && i < trace->view->n_lanes; i++)
        td_lane_times_deinit(&trace->lanes[i]);
    td_free(trace->steps);
    td_free(trace->micros);
    td_free(trace->micro_average);
    td_free(trace->subgraphs);
    td_free(trace->lanes);
    td_free(trace);
}
