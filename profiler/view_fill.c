/* Filling a view from the records of its trace: steps and micro-steps, when each subgraph ran, and on which lane. See view.h. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/string.h"
#include "profiler/view.h"

/* ---- lanes ------------------------------------------------------------------------------------------------------------------------- */

static void name_lane(const td_view *view, td_view_lane *lane)
{
    const td_trace_device *device = &view->plan->devices[lane->device];
    int same = 0;
    for (int64_t i = 0; i < view->n_lanes; i++)
        same += view->lanes[i].device == lane->device && view->lanes[i].kind == lane->kind;
    const char *direction = lane->kind == TD_TRACE_TO_DEVICE ? "to " : lane->kind == TD_TRACE_TO_HOST ? "from " : "";
    char name[41];
    td_text_cut(name, sizeof name, device->name);
    if (same)
        (void)snprintf(lane->name, sizeof lane->name, "%s%s %d", direction, name, same + 1);
    else
        (void)snprintf(lane->name, sizeof lane->name, "%s%s", direction, name);
}

enum { MOST_LANES = 256 };

static td_status *find_lane(td_view *view, uint16_t thread, int32_t subgraph, int32_t *out_lane)
{
    const td_trace_subgraph *s = &view->plan->subgraphs[subgraph];
    for (int64_t i = 0; i < view->n_lanes; i++)
        if (view->lanes[i].thread == thread && view->lanes[i].device == s->device && view->lanes[i].kind == s->lane) {
            *out_lane = (int32_t)i;
            return NULL;
        }
    if (view->n_lanes == MOST_LANES)
        return TD_ERROR(TD_UNSUPPORTED,
                        "subgraphs ran on more than %d threads: that is more than can be analysed at once", MOST_LANES);
    TD_TRY(td_grow(&view->lanes, &view->lanes_capacity, view->n_lanes, sizeof *view->lanes));
    td_view_lane *lane = &view->lanes[view->n_lanes];
    *lane = (td_view_lane){.device = s->device, .kind = s->lane, .thread = thread};
    name_lane(view, lane);
    *out_lane = (int32_t)view->n_lanes++;
    return NULL;
}

static int by_begin(const void *a, const void *b)
{
    const td_view_run *x = *(td_view_run *const *)a, *y = *(td_view_run *const *)b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->subgraph != y->subgraph ? x->subgraph - y->subgraph : x->index < y->index ? -1 : x->index > y->index;
}

static td_status *fill_lanes(td_view *view)
{
    for (int64_t i = 0; i < view->n_steps * view->n_micro * view->plan->n_subgraphs; i++) {
        td_view_run *run = &view->runs[i];
        if (run->lane < 0)
            continue;
        td_view_lane *lane = &view->lanes[run->lane];
        TD_TRY(td_grow(&lane->runs, &lane->capacity, lane->n_runs, sizeof *lane->runs));
        lane->runs[lane->n_runs++] = run;
    }
    for (int64_t i = 0; i < view->n_lanes; i++) {
        td_view_lane *lane = &view->lanes[i];
        qsort(lane->runs, (size_t)lane->n_runs, sizeof *lane->runs, by_begin);
        for (int64_t k = 0; k < lane->n_runs; k++)
            lane->runs[k]->before = k - 1;
    }
    return NULL;
}

/* ---- filling ---------------------------------------------------------------------------------------------------------------------- */

/* The plan whose steps the window has most of, of a worker's. */
static td_status *find_plan(const td_trace *trace, const td_trace_window *window, int32_t worker,
                            const td_trace_plan **out_plan)
{
    int64_t *steps = NULL, most = 0;
    *out_plan = NULL;
    TD_TRY(TD_NEW(steps, trace->n_plans + 1));
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        int32_t node, subgraph;
        if (e->kind != TD_RECORD_STEP || e->step < window->first_step || e->step > window->last_step)
            continue;
        const td_trace_plan *plan = td_trace_find(trace, e->id, &node, &subgraph);
        if (plan && plan->first_id == e->id && (worker < 0 || plan->worker == worker))
            steps[plan - trace->plans]++;
    }
    for (int64_t p = 0; p < trace->n_plans; p++)
        if (steps[p] > most) {
            most = steps[p];
            *out_plan = &trace->plans[p];
        }
    td_free(steps);
    return NULL;
}

/* Where an event's micro-step is; -1: outside. */
static int64_t index_of(const td_view *view, const td_trace_event *e)
{
    return td_view_index(view, e->step, e->micro);
}

static td_status *take_run(td_view *view, const td_trace_event *e)
{
    int32_t subgraph = td_view_subgraph(view, e);
    int64_t index = index_of(view, e);
    if (subgraph < 0 || index < 0)
        return NULL;
    td_view_run *run = &view->runs[index * view->plan->n_subgraphs + subgraph];
    if (run->lane >= 0) { /* no program records it twice */
        run->end_ns = e->end_ns > run->end_ns ? e->end_ns : run->end_ns;
        return NULL;
    }
    *run = (td_view_run){.begin_ns = e->begin_ns,
                         .end_ns = e->end_ns,
                         .subgraph = subgraph,
                         .step = e->step,
                         .micro = (int32_t)e->micro,
                         .index = index,
                         .before = -1};
    view->micros[index].ran = true;
    return find_lane(view, e->thread, subgraph, &run->lane);
}

static void take_step(td_view *view, const td_trace_event *e)
{
    td_view_step *step = td_view_slot(view, e->step);
    if (!step || e->id != view->plan->first_id)
        return;
    step->begin_ns = e->begin_ns;
    step->end_ns = e->end_ns;
    step->samples = (int64_t)e->amount;
    step->whole = true;
}

/* Of a thread that runs the view's steps; another one's are of another session, another worker say. */
static void take_micro_step(td_view *view, const td_trace_event *e)
{
    int64_t index = view->own_threads[e->thread] ? index_of(view, e) : -1;
    td_view_micro *micro = index < 0 ? NULL : &view->micros[index];
    if (micro && e->kind == TD_RECORD_DATA_WAIT) {
        micro->data_begin_ns = e->begin_ns;
        micro->data_end_ns = e->end_ns;
    } else if (micro && e->kind == TD_RECORD_MICRO_STEP && e->id == view->plan->first_id) {
        micro->begin_ns = e->begin_ns;
        micro->samples = (int64_t)e->amount;
        micro->known = true;
    } else if (micro && e->kind == TD_RECORD_ADMIT) {
        micro->admitted_ns = e->end_ns;
        micro->begin_ns = micro->known ? micro->begin_ns : e->begin_ns;
        micro->known = true;
    }
}

/* A micro-step ends with its last subgraph. Where nobody told when it was admitted (it alone is the step), the step did. */
static void end_micro_step(td_view *view, int64_t index)
{
    td_view_micro *micro = &view->micros[index];
    const td_view_step *step = td_view_slot(view, micro->step);
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int32_t s = 0; micro->ran && s < view->plan->n_subgraphs; s++) {
        const td_view_run *run = td_view_at(view, index, s);
        first = run && run->begin_ns < first ? run->begin_ns : first;
        last = run && run->end_ns > last ? run->end_ns : last;
    }
    if (!micro->ran)
        return;
    if (!micro->micro) {
        micro->known = step->whole;
        micro->begin_ns = step->begin_ns;
        micro->samples = micro->samples ? micro->samples : step->samples;
    } else if (!micro->known) {
        micro->known = step->whole;
        micro->begin_ns = first;
    }
    micro->end_ns = last;
    if (micro->admitted_ns < micro->begin_ns || micro->admitted_ns > first)
        micro->admitted_ns = micro->begin_ns < first ? micro->begin_ns : first;
    const td_view_micro *before = td_view_micro_of(view, td_view_before(view, index));
    micro->from_ns = before && before->end_ns < micro->end_ns ? before->end_ns : micro->begin_ns;
}

/* A step ends with its last subgraph; the run's thread, which recorded it, may have been waiting for data and seen it later. */
static void end_step(const td_view *view, td_view_step *step)
{
    int64_t last = INT64_MIN, first = td_view_index(view, step->step, 0);
    for (int64_t m = 0; m < view->n_micro; m++)
        if (view->micros[first + m].ran && view->micros[first + m].end_ns > last)
            last = view->micros[first + m].end_ns;
    if (step->whole && last > step->begin_ns)
        step->end_ns = last;
}

static td_status *take_events(td_view *view)
{
    const td_trace *trace = view->trace;
    TD_TRY(TD_NEW(view->own_threads, trace->n_threads + 1));
    for (int64_t i = 0; i < trace->n_events; i++)
        if (trace->events[i].kind == TD_RECORD_STEP && trace->events[i].id == view->plan->first_id)
            view->own_threads[trace->events[i].thread] = true;
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        if (e->kind == TD_RECORD_SUBGRAPH)
            TD_TRY(take_run(view, e));
        else if (e->kind == TD_RECORD_STEP)
            take_step(view, e);
        else if (e->kind == TD_RECORD_MICRO_STEP || e->kind == TD_RECORD_DATA_WAIT || e->kind == TD_RECORD_ADMIT)
            take_micro_step(view, e);
    }
    for (int64_t i = 0; i < view->n_steps * view->n_micro; i++)
        end_micro_step(view, i);
    for (int64_t i = 0; i < view->n_steps; i++)
        end_step(view, &view->steps[i]);
    for (int64_t i = 0; i < view->n_steps; i++) {
        td_view_step *step = &view->steps[i];
        step->from_ns = i && view->steps[i - 1].whole ? view->steps[i - 1].end_ns : step->begin_ns;
    }
    return NULL;
}

/* The most micro-steps that a step of the view has. */
static int64_t count_micro(const td_view *view)
{
    int64_t most = 1;
    for (int64_t i = 0; i < view->trace->n_events; i++) {
        const td_trace_event *e = &view->trace->events[i];
        if (e->kind == TD_RECORD_SUBGRAPH && (int64_t)e->micro >= most && td_view_slot(view, e->step) &&
            td_view_subgraph(view, e) >= 0)
            most = (int64_t)e->micro + 1;
    }
    return most;
}

td_status *td_view_fill(td_view *view, int32_t worker)
{
    enum { EDGE = 3, MOST_STEPS = 1 << 24, MOST_RUNS = 1 << 25, FEW_RUNS = 1 << 20, RARE = 64 };
    const td_trace_window *w = &view->window;
    bool sane = w->first_step >= 0 && w->last_step <= UINT32_MAX && w->first_step <= w->last_step;
    int64_t n = sane ? w->last_step - w->first_step : 0;
    if (!sane || n > MOST_STEPS || n > view->trace->n_events) /* a step has an event at least */
        return TD_ERROR(TD_DATA_ERROR, "a window of steps %lld to %lld", (long long)view->window.first_step,
                        (long long)view->window.last_step);
    TD_TRY(find_plan(view->trace, &view->window, worker, &view->plan));
    if (!view->plan)
        return TD_ERROR(TD_DATA_ERROR, "the trace has no whole step of a training between steps %lld and %lld",
                        (long long)view->window.first_step, (long long)view->window.last_step);
    view->first = view->window.first_step - EDGE;
    view->n_steps = n + 1 + 2 * EDGE;
    view->n_micro = 1;
    TD_TRY(TD_NEW(view->steps, view->n_steps));
    view->n_micro = count_micro(view);
    /* a subgraph that runs in a step is an event: a table that a few events would be spread over is not made */
    int64_t micros = view->n_steps * view->n_micro,
            runs = micros > MOST_RUNS ? micros : micros * view->plan->n_subgraphs;
    if (runs > MOST_RUNS || (runs > FEW_RUNS && runs / RARE > view->trace->n_events))
        return td_status_help(
            TD_ERROR(TD_UNSUPPORTED,
                     "a window of %lld steps of %d subgraphs, with %lld events: more than can be analysed at once",
                     (long long)n + 1, view->plan->n_subgraphs, (long long)view->trace->n_events),
            "record fewer steps: profile.steps; --chrome and --perfetto show all of it");
    TD_TRY(TD_NEW(view->micros, micros));
    TD_TRY(TD_NEW(view->runs, runs + 1));
    for (int64_t i = 0; i < runs; i++)
        view->runs[i].lane = -1;
    for (int64_t i = 0; i < view->n_steps; i++)
        view->steps[i].step = view->first + i;
    for (int64_t i = 0; i < micros; i++)
        view->micros[i] =
            (td_view_micro){.step = view->first + i / view->n_micro, .micro = (int32_t)(i % view->n_micro)};
    TD_TRY(take_events(view));
    TD_TRY(td_view_fill_order(view));
    return fill_lanes(view);
}
