/* A window of a trace, ordered: see view.h. */
#include "profiler/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

/* ---- looking --------------------------------------------------------------------------------------------------------------------- */

static td_view_step *step_slot(const td_view *view, int64_t step)
{
    return step >= view->first && step - view->first < view->n_steps ? &view->steps[step - view->first] : NULL;
}

const td_view_step *td_view_step_of(const td_view *view, int64_t step)
{
    const td_view_step *found = step_slot(view, step);
    return found && found->whole ? found : NULL;
}

const td_view_run *td_view_at(const td_view *view, int64_t step, int32_t subgraph)
{
    if (!step_slot(view, step))
        return NULL;
    const td_view_run *run = &view->runs[(step - view->first) * view->plan->n_subgraphs + subgraph];
    return run->lane >= 0 ? run : NULL;
}

bool td_view_counts(const td_view *view, int64_t step)
{
    return step >= view->window.first_step && step <= view->window.last_step && td_view_step_of(view, step);
}

int64_t td_view_count(const td_view *view)
{
    int64_t n = 0;
    for (int64_t i = 0; i < view->n_steps; i++)
        n += td_view_counts(view, view->first + i);
    return n;
}

int32_t td_view_node(const td_view *view, const td_trace_event *event)
{
    uint32_t offset = event->id - view->plan->first_id;
    return event->id >= view->plan->first_id && offset < (uint32_t)view->plan->n_nodes ? (int32_t)offset : -1;
}

int32_t td_view_subgraph(const td_view *view, const td_trace_event *event)
{
    uint32_t offset = event->id - view->plan->first_id - (uint32_t)view->plan->n_nodes;
    return event->id >= view->plan->first_id + (uint32_t)view->plan->n_nodes &&
                   offset < (uint32_t)view->plan->n_subgraphs
               ? (int32_t)offset
               : -1;
}

int64_t td_view_begin_ns(const td_view *view)
{
    for (int64_t i = 0; i < view->n_steps; i++)
        if (td_view_counts(view, view->first + i))
            return view->steps[i].from_ns;
    return 0;
}

int64_t td_view_end_ns(const td_view *view)
{
    int64_t end = 0;
    for (int64_t i = 0; i < view->n_steps; i++)
        if (td_view_counts(view, view->first + i) && view->steps[i].end_ns > end)
            end = view->steps[i].end_ns;
    return end;
}

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
    return x->begin_ns != y->begin_ns ? (x->begin_ns < y->begin_ns ? -1 : 1) : x->subgraph - y->subgraph;
}

static td_status *fill_lanes(td_view *view)
{
    for (int64_t i = 0; i < view->n_steps * view->plan->n_subgraphs; i++) {
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

/* The plan whose steps the window has most of. */
static td_status *find_plan(const td_trace *trace, const td_trace_window *window, const td_trace_plan **out_plan)
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
        if (plan && plan->first_id == e->id)
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

static td_status *take_run(td_view *view, const td_trace_event *e)
{
    int32_t subgraph = td_view_subgraph(view, e);
    if (subgraph < 0 || !step_slot(view, e->step))
        return NULL;
    td_view_run *run = &view->runs[((int64_t)e->step - view->first) * view->plan->n_subgraphs + subgraph];
    if (run->lane >= 0) {
        run->end_ns = e->end_ns > run->end_ns ? e->end_ns : run->end_ns;
        return NULL;
    }
    *run = (td_view_run){
        .begin_ns = e->begin_ns, .end_ns = e->end_ns, .subgraph = subgraph, .step = e->step, .before = -1};
    return find_lane(view, e->thread, subgraph, &run->lane);
}

static void take_step(td_view *view, const td_trace_event *e)
{
    td_view_step *step = step_slot(view, e->step);
    if (!step)
        return;
    if (e->kind == TD_RECORD_STEP && e->id == view->plan->first_id) {
        step->begin_ns = e->begin_ns;
        step->end_ns = e->end_ns;
        step->samples = (int64_t)e->amount;
        step->whole = true;
    } else if (e->kind == TD_RECORD_DATA_WAIT) {
        step->data_begin_ns = e->begin_ns;
        step->data_end_ns = e->end_ns;
    } else if (e->kind == TD_RECORD_ADMIT) {
        step->admit_begin_ns = e->begin_ns;
    }
}

/* A step ends with its last subgraph; the run's thread, which recorded it, may have been waiting for data and seen it later. */
static void end_step(td_view *view, td_view_step *step)
{
    int64_t last = INT64_MIN;
    for (int32_t s = 0; step->whole && s < view->plan->n_subgraphs; s++) {
        const td_view_run *run = td_view_at(view, step->step, s);
        last = run && run->end_ns > last ? run->end_ns : last;
    }
    if (last > step->begin_ns)
        step->end_ns = last;
}

static td_status *take_events(td_view *view)
{
    const td_trace *trace = view->trace;
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        if (e->kind == TD_RECORD_SUBGRAPH)
            TD_TRY(take_run(view, e));
        else if (e->kind == TD_RECORD_STEP || e->kind == TD_RECORD_DATA_WAIT || e->kind == TD_RECORD_ADMIT)
            take_step(view, e);
    }
    for (int64_t i = 0; i < view->n_steps; i++)
        end_step(view, &view->steps[i]);
    for (int64_t i = 0; i < view->n_steps; i++) {
        td_view_step *step = &view->steps[i];
        step->from_ns = i && view->steps[i - 1].whole ? view->steps[i - 1].end_ns : step->begin_ns;
    }
    return NULL;
}

static td_status *fill_comes_after(td_view *view)
{
    const td_trace_plan *plan = view->plan;
    TD_TRY(TD_NEW(view->comes_after, plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(view->n_comes_after, plan->n_subgraphs + 1));
    for (int32_t s = 0; s < plan->n_subgraphs; s++)
        for (int32_t i = 0; i < plan->subgraphs[s].n_next; i++)
            view->n_comes_after[plan->subgraphs[s].next[i]]++;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        TD_TRY(TD_NEW(view->comes_after[s], view->n_comes_after[s] + 1));
        view->n_comes_after[s] = 0;
    }
    for (int32_t s = 0; s < plan->n_subgraphs; s++)
        for (int32_t i = 0; i < plan->subgraphs[s].n_next; i++) {
            int32_t to = plan->subgraphs[s].next[i];
            view->comes_after[to][view->n_comes_after[to]++] = s;
        }
    return NULL;
}

/* Marks those of `list` that `made` says. */
static td_status *mark_reads(const bool *made, const int32_t *list, int32_t n, bool **out)
{
    TD_TRY(TD_NEW(*out, n + 1));
    for (int32_t i = 0; i < n; i++)
        (*out)[i] = made[list[i]];
    return NULL;
}

/* made[s]: subgraph s made something that a node reads. */
static void note_makers(const td_trace_plan *plan, const td_trace_node *node, bool value, bool *made)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t producer = node->inputs[i] < 0 ? -1 : plan->values[node->inputs[i]].producer;
        int32_t maker = producer < 0 ? -1 : plan->nodes[producer].subgraph;
        if (maker >= 0)
            made[maker] = value;
    }
}

static td_status *chain_nodes(td_view *view)
{
    const td_trace_plan *plan = view->plan;
    TD_TRY(TD_NEW(view->first_node, plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(view->next_node, plan->n_nodes + 1));
    for (int32_t s = 0; s < plan->n_subgraphs; s++)
        view->first_node[s] = -1;
    for (int32_t n = plan->n_nodes - 1; n >= 0; n--)
        if (plan->nodes[n].subgraph >= 0) {
            view->next_node[n] = view->first_node[plan->nodes[n].subgraph];
            view->first_node[plan->nodes[n].subgraph] = n;
        }
    return NULL;
}

static td_status *fill_reads(td_view *view)
{
    const td_trace_plan *plan = view->plan;
    const int32_t *first = view->first_node, *next = view->next_node;
    bool *made = NULL;
    TD_TRY(TD_NEW(view->after_reads, plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(view->comes_after_reads, plan->n_subgraphs + 1));
    td_status *status = TD_NEW(made, plan->n_subgraphs + 1);
    for (int32_t s = 0; !status && s < plan->n_subgraphs; s++) {
        for (int32_t n = first[s]; n >= 0; n = next[n])
            note_makers(plan, &plan->nodes[n], true, made);
        status = mark_reads(made, plan->subgraphs[s].after, plan->subgraphs[s].n_after, &view->after_reads[s]);
        if (!status)
            status = mark_reads(made, view->comes_after[s], view->n_comes_after[s], &view->comes_after_reads[s]);
        for (int32_t n = first[s]; n >= 0; n = next[n])
            note_makers(plan, &plan->nodes[n], false, made);
    }
    td_free(made);
    return status;
}

static td_status *fill(td_view *view)
{
    enum { EDGE = 3, MOST_STEPS = 1 << 24, MOST_RUNS = 1 << 25, FEW_RUNS = 1 << 20, RARE = 64 };
    const td_trace_window *w = &view->window;
    bool sane = w->first_step >= 0 && w->last_step <= UINT32_MAX && w->first_step <= w->last_step;
    int64_t n = sane ? w->last_step - w->first_step : 0;
    if (!sane || n > MOST_STEPS || n > view->trace->n_events) /* a step has an event at least */
        return TD_ERROR(TD_DATA_ERROR, "a window of steps %lld to %lld", (long long)view->window.first_step,
                        (long long)view->window.last_step);
    TD_TRY(find_plan(view->trace, &view->window, &view->plan));
    if (!view->plan)
        return TD_ERROR(TD_DATA_ERROR, "the trace has no whole step of a training between steps %lld and %lld",
                        (long long)view->window.first_step, (long long)view->window.last_step);
    /* a subgraph that runs in a step is an event: a table that a few events would be spread over is not made */
    int64_t runs = (n + 1 + 2 * EDGE) * view->plan->n_subgraphs;
    if (runs > MOST_RUNS || (runs > FEW_RUNS && runs / RARE > view->trace->n_events))
        return td_status_help(
            TD_ERROR(TD_UNSUPPORTED,
                     "a window of %lld steps of %d subgraphs, with %lld events: more than can be analysed at once",
                     (long long)n + 1, view->plan->n_subgraphs, (long long)view->trace->n_events),
            "record fewer steps: profile.steps; --chrome and --perfetto show all of it");
    view->first = view->window.first_step - EDGE;
    view->n_steps = n + 1 + 2 * EDGE;
    TD_TRY(TD_NEW(view->steps, view->n_steps));
    TD_TRY(TD_NEW(view->runs, view->n_steps * view->plan->n_subgraphs + 1));
    for (int64_t i = 0; i < view->n_steps * view->plan->n_subgraphs; i++)
        view->runs[i].lane = -1;
    for (int64_t i = 0; i < view->n_steps; i++)
        view->steps[i].step = view->first + i;
    TD_TRY(take_events(view));
    TD_TRY(fill_comes_after(view));
    TD_TRY(chain_nodes(view));
    TD_TRY(fill_reads(view));
    return fill_lanes(view);
}

td_status *td_view_create(const td_trace *trace, int32_t window, td_view **out_view)
{
    td_view *view = NULL;
    *out_view = NULL;
    if (!trace->n_windows)
        return TD_ERROR(TD_DATA_ERROR, "the trace has no whole step");
    if (window < -1 || window >= trace->n_windows)
        return TD_ERROR(TD_INVALID_ARGUMENT, "the trace has %lld recorded windows; there is no window %d",
                        (long long)trace->n_windows, window);
    TD_TRY(TD_NEW(view, 1));
    view->trace = trace;
    view->window = trace->windows[window < 0 ? trace->n_windows - 1 : window];
    td_status *status = fill(view);
    if (status)
        td_view_destroy(view);
    else
        *out_view = view;
    return status;
}

void td_view_destroy(td_view *view)
{
    if (!view)
        return;
    for (int64_t i = 0; i < view->n_lanes; i++)
        td_free(view->lanes[i].runs);
    for (int32_t s = 0; view->comes_after && s < view->plan->n_subgraphs; s++)
        td_free(view->comes_after[s]);
    for (int32_t s = 0; view->comes_after_reads && s < view->plan->n_subgraphs; s++) {
        td_free(view->after_reads[s]);
        td_free(view->comes_after_reads[s]);
    }
    td_free(view->after_reads);
    td_free(view->comes_after_reads);
    td_free(view->first_node);
    td_free(view->next_node);
    td_free(view->comes_after);
    td_free(view->n_comes_after);
    td_free(view->lanes);
    td_free(view->steps);
    td_free(view->runs);
    td_free(view);
}
