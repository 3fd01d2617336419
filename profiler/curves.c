/* Curves over steps: see curves.h. */
#include "profiler/curves.h"

#include "base/memory.h"

static td_subgraph_point *point_of(const td_curves *curves, int32_t subgraph, int64_t i)
{
    return &curves->subgraphs[subgraph * curves->n + i];
}

const td_subgraph_point *td_curves_subgraph(const td_curves *curves, int32_t subgraph, int64_t i)
{
    return point_of(curves, subgraph, i);
}

int64_t td_curves_lane_ns(const td_curves *curves, int64_t lane, int64_t i)
{
    return curves->lane_busy_ns[lane * curves->n + i];
}

static void add_run(td_subgraph_point *to, const td_view_run *run)
{
    to->begin_ns = to->runs && to->begin_ns < run->begin_ns ? to->begin_ns : run->begin_ns;
    to->end_ns = to->runs && to->end_ns > run->end_ns ? to->end_ns : run->end_ns;
    to->total_ns = td_ns_plus(to->total_ns, td_ns_minus(run->end_ns, run->begin_ns));
    to->runs++;
}

static void add_op(const td_curves *curves, const td_trace_event *e)
{
    const td_view *view = curves->trace->view;
    int32_t node = e->kind == TD_RECORD_OP ? td_view_node(view, e) : -1;
    int32_t subgraph = node < 0 ? -1 : view->plan->nodes[node].subgraph;
    const td_step_times *step = subgraph < 0 ? NULL : td_step_times_of(curves->trace, e->step);
    const int64_t i = step ? step - curves->trace->steps - curves->first : -1;
    if (i < 0 || i >= curves->n)
        return;
    td_subgraph_point *to = point_of(curves, subgraph, i);
    int64_t *const phases[] = {&to->forward_ns, &to->backward_ns, &to->update_ns};
    *phases[view->plan->nodes[node].phase] =
        td_ns_plus(*phases[view->plan->nodes[node].phase], td_ns_minus(e->end_ns, e->begin_ns));
}

static void fill_subgraphs(const td_curves *curves)
{
    const td_step_trace *trace = curves->trace;
    const td_view *view = trace->view;
    for (int32_t s = 0; s < view->plan->n_subgraphs; s++)
        for (int64_t i = 0; i < curves->n * view->n_micro; i++) {
            const int64_t step = i / view->n_micro, number = trace->steps[curves->first + step].step;
            const td_view_run *run = td_view_at(view, td_view_index(view, number, i % view->n_micro), s);
            if (run)
                add_run(point_of(curves, s, step), run);
        }
    for (int64_t i = 0; i < view->trace->n_events; i++)
        add_op(curves, &view->trace->events[i]);
    for (int32_t s = 0; s < view->plan->n_subgraphs; s++)
        for (int64_t i = 0; !trace->subgraphs[s].told && i < curves->n; i++) {
            td_subgraph_point *to = point_of(curves, s, i);
            int64_t *const phases[] = {&to->forward_ns, &to->backward_ns, &to->update_ns};
            *phases[trace->subgraphs[s].phase] = to->total_ns;
        }
}

/* Runs of a lane come one after the other, and so do steps. */
static void fill_lane(const td_curves *curves, int64_t l)
{
    const td_step_trace *trace = curves->trace;
    const td_view_lane *lane = &trace->view->lanes[l];
    enum { MOST_IN_STEP = 1 << 16 }; /* runs: a file that has more is made to be slow */
    int64_t first = 0;
    for (int64_t i = 0; i < curves->n; i++) {
        const td_view_step *step = td_view_step_of(trace->view, trace->steps[curves->first + i].step);
        int64_t busy = 0;
        while (first < lane->n_runs && lane->runs[first]->end_ns <= step->from_ns)
            first++;
        const int64_t most = first + MOST_IN_STEP < lane->n_runs ? first + MOST_IN_STEP : lane->n_runs;
        for (int64_t r = first; r < most && lane->runs[r]->begin_ns < step->end_ns; r++) {
            int64_t begin = lane->runs[r]->begin_ns > step->from_ns ? lane->runs[r]->begin_ns : step->from_ns;
            int64_t end = lane->runs[r]->end_ns < step->end_ns ? lane->runs[r]->end_ns : step->end_ns;
            busy = td_ns_plus(busy, end > begin ? td_ns_minus(end, begin) : 0);
        }
        curves->lane_busy_ns[l * curves->n + i] = busy;
    }
}

enum { MOST_POINTS = 1 << 22 };

int64_t td_curves_most(const td_step_trace *trace)
{
    const int64_t subgraphs = trace->view->plan->n_subgraphs, lanes = trace->view->n_lanes;
    const int64_t most = MOST_POINTS / ((subgraphs > lanes ? subgraphs : lanes) + 1);
    return most ? most : 1;
}

td_status *td_curves_create(const td_step_trace *trace, int64_t first, int64_t n, td_curves **out_curves)
{
    td_curves *curves = NULL;
    *out_curves = NULL;
    if (n > td_curves_most(trace))
        return td_status_help(TD_ERROR(TD_UNSUPPORTED, "curves of %d subgraphs over %lld steps are more than %d points",
                                       trace->view->plan->n_subgraphs, (long long)n, MOST_POINTS),
                              "record fewer steps: profile.steps");
    TD_TRY(TD_NEW(curves, 1));
    *curves = (td_curves){.trace = trace, .first = first, .n = n};
    td_status *status = TD_NEW(curves->subgraphs, trace->view->plan->n_subgraphs * n + 1);
    if (!status)
        status = TD_NEW(curves->lane_busy_ns, trace->view->n_lanes * n + 1);
    if (status) {
        td_curves_destroy(curves);
        return status;
    }
    fill_subgraphs(curves);
    for (int64_t l = 0; l < trace->view->n_lanes; l++)
        fill_lane(curves, l);
    *out_curves = curves;
    return NULL;
}

void td_curves_destroy(td_curves *curves)
{
    if (!curves)
        return;
    td_free(curves->subgraphs);
    td_free(curves->lane_busy_ns);
    td_free(curves);
}
