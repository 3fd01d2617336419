/* A window of a trace, ordered: see view.h. What may be asked of it, and opening one; how it is filled: view_fill.c. */
#include "profiler/view.h"

#include "base/memory.h"
#include "base/units.h"
#include "profiler/workers.h"

/* ---- looking --------------------------------------------------------------------------------------------------------------------- */

td_view_step *td_view_slot(const td_view *view, int64_t step)
{
    return step >= view->first && step - view->first < view->n_steps ? &view->steps[step - view->first] : NULL;
}

const td_view_step *td_view_step_of(const td_view *view, int64_t step)
{
    const td_view_step *found = td_view_slot(view, step);
    return found && found->whole ? found : NULL;
}

int64_t td_view_index(const td_view *view, int64_t step, int64_t micro)
{
    return td_view_slot(view, step) && micro >= 0 && micro < view->n_micro
               ? (step - view->first) * view->n_micro + micro
               : -1;
}

const td_view_run *td_view_at(const td_view *view, int64_t index, int32_t subgraph)
{
    if (index < 0 || index >= view->n_steps * view->n_micro)
        return NULL;
    const td_view_run *run = &view->runs[index * view->plan->n_subgraphs + subgraph];
    return run->lane >= 0 ? run : NULL;
}

int64_t td_view_before(const td_view *view, int64_t index)
{
    int64_t least = index - view->n_micro; /* a step may have fewer micro-steps than others, and not none */
    for (index--; index >= 0 && index >= least; index--)
        if (view->micros[index].ran)
            return index;
    return -1;
}

const td_view_micro *td_view_micro_of(const td_view *view, int64_t index)
{
    return index >= 0 && index < view->n_steps * view->n_micro && view->micros[index].ran ? &view->micros[index] : NULL;
}

const td_view_micro *td_view_last_micro(const td_view *view, int64_t step)
{
    int64_t first = td_view_index(view, step, 0);
    for (int64_t m = first < 0 ? 0 : view->n_micro; m-- > 0;)
        if (view->micros[first + m].ran)
            return &view->micros[first + m];
    return NULL;
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

bool td_view_owns(const td_view *view, const td_trace_event *event)
{
    switch (event->kind) {
    case TD_RECORD_QUEUE: /* its id is no plan's */
    case TD_RECORD_DATA_WAIT:
    case TD_RECORD_ADMIT:
    case TD_RECORD_CHECKPOINT:
    case TD_RECORD_CALLBACK:
    case TD_RECORD_FLUSH:
        return view->own_threads[event->thread];
    case TD_RECORD_MEMORY:
    case TD_RECORD_PROCESSOR:
        return true;
    case TD_RECORD_DATA_FETCH:
    case TD_RECORD_DATA_FULL: {
        const int32_t worker = td_event_worker(view->trace, event);
        return worker < 0 || view->plan->worker < 0 || worker == view->plan->worker;
    }
    default:
        return !event->id || td_view_node(view, event) >= 0 || td_view_subgraph(view, event) >= 0;
    }
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

/* ---- opening ---------------------------------------------------------------------------------------------------------------------- */

td_status *td_view_create(const td_trace *trace, int32_t window, td_view **out_view)
{
    return td_view_create_of(trace, window, -1, out_view);
}

td_status *td_view_create_of(const td_trace *trace, int32_t window, int32_t worker, td_view **out_view)
{
    td_view *view = NULL;
    *out_view = NULL;
    if (!trace->n_windows)
        return TD_ERROR(TD_DATA_ERROR, "the trace has no whole step");
    if (window < -1 || window >= trace->n_windows)
        return TD_ERROR(TD_INVALID_ARGUMENT, "the trace has %s; there is no window %d (they count from 0)",
                        TD_COUNTED(trace->n_windows, "recorded window"), window);
    TD_TRY(TD_NEW(view, 1));
    view->trace = trace;
    view->window = trace->windows[window < 0 ? trace->n_windows - 1 : window];
    td_status *status = td_view_fill(view, worker);
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
    td_free(view->own_threads);
    td_free(view->steps);
    td_free(view->micros);
    td_free(view->runs);
    td_free(view);
}
