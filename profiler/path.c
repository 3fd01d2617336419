/* Walking back along what was waited for: see path.h. */
#include "profiler/path.h"

const char *td_cause_name(td_cause cause)
{
    static const char *const names[TD_CAUSES] = {"subgraph", "copy", "wake-up", "data", "host", "unknown"};
    return names[cause];
}

const char *td_edge_name(td_edge edge)
{
    static const char *const names[TD_EDGES] = {"end", "data", "order", "lane", "step"};
    return names[edge];
}

typedef struct walk {
    const td_view *view;
    int64_t from_ns, at_ns; /* still to be explained */
    td_on_segment on_segment;
    void *context;
} walk;

/* One more cause, back to `begin_ns`. */
static td_status *tell(walk *w, td_cause cause, td_edge edge, const td_view_run *run, int64_t index, int64_t begin_ns)
{
    begin_ns = begin_ns < w->from_ns ? w->from_ns : begin_ns;
    if (begin_ns >= w->at_ns)
        return NULL;
    td_segment segment = {.cause = cause,
                          .edge = edge,
                          .subgraph = run ? run->subgraph : -1,
                          .step = index < 0 ? 0 : w->view->micros[index].step,
                          .micro = index < 0 ? 0 : w->view->micros[index].micro,
                          .begin_ns = begin_ns,
                          .end_ns = w->at_ns};
    w->at_ns = begin_ns;
    return w->on_segment(w->context, &segment);
}

/* What a run waited for last. */
typedef struct arrival {
    const td_view_run *run; /* NULL: its step's admission */
    td_edge edge;
    int64_t at_ns;
} arrival;

/* Later ones win; of two at one moment a data edge says more than a lane's turn. */
static void arrives(const td_view_run *run, arrival *last, const td_view_run *candidate, td_edge edge)
{
    if (!candidate || candidate->begin_ns >= run->begin_ns)
        return;
    int64_t at = candidate->end_ns < run->begin_ns ? candidate->end_ns : run->begin_ns;
    if (at > last->at_ns)
        *last = (arrival){candidate, edge, at};
}

static arrival last_arrival(const td_view *view, const td_view_run *run)
{
    const td_trace_subgraph *subgraph = &view->plan->subgraphs[run->subgraph];
    const td_view_micro *micro = &view->micros[run->index];
    const int64_t before = td_view_before(view, run->index);
    arrival last = {.at_ns = INT64_MIN, .edge = TD_EDGE_STEP};
    if (micro->known)
        last.at_ns = micro->admitted_ns;
    for (int32_t i = 0; i < subgraph->n_after; i++)
        arrives(run, &last, td_view_at(view, run->index, subgraph->after[i]),
                view->after_reads[run->subgraph][i] ? TD_EDGE_DATA : TD_EDGE_ORDER);
    for (int32_t i = 0; i < view->n_comes_after[run->subgraph]; i++)
        arrives(run, &last, td_view_at(view, before, view->comes_after[run->subgraph][i]),
                view->comes_after_reads[run->subgraph][i] ? TD_EDGE_DATA : TD_EDGE_ORDER);
    if (run->before >= 0)
        arrives(run, &last, view->lanes[run->lane].runs[run->before], TD_EDGE_LANE);
    return last;
}

/* What ended last of a micro-step, of what began before a moment. */
static const td_view_run *last_of(const td_view *view, int64_t index, int64_t before_ns)
{
    const td_view_run *last = NULL;
    for (int32_t s = 0; s < view->plan->n_subgraphs; s++) {
        const td_view_run *run = td_view_at(view, index, s);
        if (run && run->begin_ns < before_ns && (!last || run->end_ns > last->end_ns))
            last = run;
    }
    return last;
}

/* The run's own thread, back from a micro-step's admission: binding, waiting for data, what it did before that; then the micro-step
 * whose end let it go on. *out_run NULL: nothing before it was recorded. */
static td_status *walk_admission(walk *w, int64_t index, const td_view_run **out_run)
{
    enum { AT_ONCE = 3 }; /* micro-steps that a session has */
    const td_view_micro *micro = &w->view->micros[index];
    *out_run = NULL;
    TD_TRY(tell(w, TD_CAUSE_HOST, TD_EDGE_STEP, NULL, index, micro->begin_ns)); /* binding its batch */
    if (micro->data_end_ns > micro->data_begin_ns) {
        TD_TRY(tell(w, TD_CAUSE_HOST, TD_EDGE_STEP, NULL, index, micro->data_end_ns));
        TD_TRY(tell(w, TD_CAUSE_DATA, TD_EDGE_STEP, NULL, index, micro->data_begin_ns));
    }
    int64_t ended = -1, before = index; /* the last one that had ended by then */
    for (int back = 0; back < AT_ONCE && (before = td_view_before(w->view, before)) >= 0; back++) {
        const td_view_micro *other = &w->view->micros[before];
        if (other->known && other->end_ns <= w->at_ns && (ended < 0 || other->end_ns > w->view->micros[ended].end_ns))
            ended = before;
    }
    if (ended < 0)
        return NULL;
    *out_run = last_of(w->view, ended, w->at_ns);
    if (*out_run)
        return tell(w, TD_CAUSE_HOST, TD_EDGE_STEP, NULL, index, (*out_run)->end_ns);
    return NULL;
}

/* From a run that had not begun before w->at_ns. */
static td_status *walk_back(walk *w, const td_view_run *run)
{
    while (run && w->at_ns > w->from_ns) {
        arrival last = last_arrival(w->view, run);
        int64_t index = run->index;
        if (last.at_ns == INT64_MIN)
            break;
        TD_TRY(tell(w, TD_CAUSE_WAKE_UP, last.edge, run, index, last.at_ns));
        if (!last.run) {
            TD_TRY(walk_admission(w, index, &run));
            if (!run)
                break;
            last = (arrival){run, TD_EDGE_STEP, run->end_ns};
        }
        run = last.run;
        bool copy = w->view->plan->subgraphs[run->subgraph].lane != TD_TRACE_COMPUTE;
        TD_TRY(tell(w, copy ? TD_CAUSE_COPY : TD_CAUSE_SUBGRAPH, last.edge, run, run->index, run->begin_ns));
    }
    return tell(w, TD_CAUSE_UNKNOWN, TD_EDGE_END, NULL, run ? run->index : -1, w->from_ns);
}

td_status *td_path_before(const td_view *view, const td_view_run *run, int64_t from_ns, td_on_segment on_segment,
                          void *context)
{
    walk w = {view, from_ns, run->begin_ns, on_segment, context};
    return walk_back(&w, run);
}

td_status *td_path_of_micro(const td_view *view, int64_t index, int64_t from_ns, int64_t end_ns,
                            td_on_segment on_segment, void *context)
{
    walk w = {view, from_ns, end_ns, on_segment, context};
    const td_view_run *last = last_of(view, index, end_ns);
    if (last) {
        bool copy = view->plan->subgraphs[last->subgraph].lane != TD_TRACE_COMPUTE;
        TD_TRY(tell(&w, TD_CAUSE_HOST, TD_EDGE_END, NULL, index, last->end_ns));
        TD_TRY(tell(&w, copy ? TD_CAUSE_COPY : TD_CAUSE_SUBGRAPH, TD_EDGE_END, last, index, last->begin_ns));
    }
    return walk_back(&w, last);
}

td_status *td_path_of_step(const td_view *view, const td_view_step *step, td_on_segment on_segment, void *context)
{
    int64_t last = -1, first = td_view_index(view, step->step, 0);
    for (int64_t m = first; m >= 0 && m < first + view->n_micro; m++) /* the one that ended last */
        if (view->micros[m].ran && (last < 0 || view->micros[m].end_ns >= view->micros[last].end_ns))
            last = m;
    return td_path_of_micro(view, last, step->from_ns, step->end_ns, on_segment, context);
}
