/* Lanes: see lanes.h. All within the time of the steps that count. */
#include "profiler/lanes.h"

#include "base/memory.h"

typedef struct bounds {
    int64_t begin_ns, end_ns;
} bounds;

static int64_t shared(int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t begin = a > c ? a : c, end = b < d ? b : d;
    return end > begin ? end - begin : 0;
}

/* The first run of a lane that ends after a moment. */
static int64_t first_after(const td_view_lane *lane, int64_t ns)
{
    int64_t low = 0, high = lane->n_runs;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (lane->runs[middle]->end_ns > ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

typedef struct waiting {
    td_lane_times *lane;
    int64_t end_ns; /* what is later does not count */
} waiting;

static td_status *add_wait(void *context, const td_segment *segment)
{
    const waiting *w = context;
    int64_t ns = td_ns_minus(segment->end_ns < w->end_ns ? segment->end_ns : w->end_ns, segment->begin_ns);
    if (ns <= 0)
        return NULL;
    td_ns_add(&w->lane->waits_ns[segment->cause], ns);
    if (segment->cause == TD_CAUSE_SUBGRAPH || segment->cause == TD_CAUSE_COPY)
        td_ns_add(&w->lane->by_subgraph_ns[segment->subgraph], ns);
    return NULL;
}

/* Gaps between what a lane ran, each explained by what it ran next. */
static td_status *explain_idle(const td_step_trace *trace, int64_t index, bounds within, td_lane_times *times)
{
    const td_view_lane *lane = &trace->view->lanes[index];
    waiting w = {times, within.end_ns};
    int64_t free_ns = within.begin_ns;
    for (int64_t i = first_after(lane, within.begin_ns); i < lane->n_runs && free_ns < within.end_ns; i++) {
        const td_view_run *run = lane->runs[i];
        td_ns_add(&times->busy_ns, shared(run->begin_ns, run->end_ns, within.begin_ns, within.end_ns));
        times->tasks += run->begin_ns < within.end_ns;
        if (run->begin_ns > free_ns)
            TD_TRY(td_path_before(trace->view, run, free_ns, add_wait, &w));
        free_ns = run->begin_ns > within.end_ns ? within.end_ns : run->end_ns > free_ns ? run->end_ns : free_ns;
    }
    if (free_ns < within.end_ns)
        td_ns_add(&times->waits_ns[TD_CAUSE_UNKNOWN], td_ns_minus(within.end_ns, free_ns));
    for (int c = 0; c < TD_CAUSES; c++)
        td_ns_add(&times->idle_ns, times->waits_ns[c]);
    return NULL;
}

/* How long two lanes worked at the same time. Runs of a lane do not overlap. */
static int64_t overlap(const td_view_lane *a, const td_view_lane *b, bounds within)
{
    int64_t sum = 0;
    for (int64_t i = first_after(a, within.begin_ns), k = first_after(b, within.begin_ns);
         i < a->n_runs && k < b->n_runs;) {
        const td_view_run *x = a->runs[i], *y = b->runs[k];
        int64_t begin = x->begin_ns > y->begin_ns ? x->begin_ns : y->begin_ns;
        int64_t end = x->end_ns < y->end_ns ? x->end_ns : y->end_ns;
        if (begin >= within.end_ns)
            break;
        td_ns_add(&sum, end > begin ? shared(begin, end, within.begin_ns, within.end_ns) : 0);
        *(x->end_ns <= y->end_ns ? &i : &k) += 1;
    }
    return sum;
}

/* What of a copy passed while some compute lane of its device worked. */
static int64_t hidden(const td_view *view, const td_view_run *copy)
{
    enum { MOST_BESIDE = 4096 }; /* runs during one copy: a file that has more is made to be slow */
    int64_t most = 0;
    for (int64_t l = 0; l < view->n_lanes; l++) {
        const td_view_lane *lane = &view->lanes[l];
        int64_t sum = 0;
        if (lane->kind != TD_TRACE_COMPUTE || lane->device != view->lanes[copy->lane].device)
            continue;
        int64_t first = first_after(lane, copy->begin_ns), end = first + MOST_BESIDE;
        end = end < lane->n_runs ? end : lane->n_runs;
        for (int64_t i = first; i < end && lane->runs[i]->begin_ns < copy->end_ns; i++)
            td_ns_add(&sum, shared(copy->begin_ns, copy->end_ns, lane->runs[i]->begin_ns, lane->runs[i]->end_ns));
        most = sum > most ? sum : most;
    }
    return most;
}

static void fill_hidden(td_step_trace *trace)
{
    const td_view *view = trace->view;
    for (int32_t s = 0; s < view->plan->n_subgraphs; s++)
        for (int64_t i = 0; view->plan->subgraphs[s].lane != TD_TRACE_COMPUTE && i < trace->n_steps * view->n_micro;
             i++) {
            const int64_t step = trace->steps[i / view->n_micro].step;
            const td_view_run *run = td_view_at(view, td_view_index(view, step, i % view->n_micro), s);
            td_ns_add(&trace->subgraphs[s].hidden_ns, run ? hidden(view, run) : 0);
        }
}

td_status *td_lane_times_within(const td_step_trace *trace, int64_t index, int64_t begin_ns, int64_t end_ns,
                                td_lane_times *out_times)
{
    const td_view *view = trace->view;
    bounds within = {begin_ns, end_ns};
    *out_times = (td_lane_times){0};
    TD_TRY(TD_NEW(out_times->by_subgraph_ns, view->plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(out_times->overlap_ns, view->n_lanes));
    TD_TRY(explain_idle(trace, index, within, out_times));
    for (int64_t k = 0; k < view->n_lanes; k++)
        out_times->overlap_ns[k] =
            k == index ? out_times->busy_ns : overlap(&view->lanes[index], &view->lanes[k], within);
    return NULL;
}

void td_lane_times_deinit(td_lane_times *times)
{
    td_free(times->by_subgraph_ns);
    td_free(times->overlap_ns);
}

td_status *td_lane_times_fill(td_step_trace *trace)
{
    const td_view *view = trace->view;
    for (int64_t i = 0; i < view->n_lanes; i++)
        TD_TRY(td_lane_times_within(trace, i, td_view_begin_ns(view), td_view_end_ns(view), &trace->lanes[i]));
    fill_hidden(trace);
    return NULL;
}

double td_device_utilisation(const td_step_trace *trace, int32_t device)
{
    const int32_t lanes = trace->view->plan->devices[device].lanes > 1 ? trace->view->plan->devices[device].lanes : 1;
    double busy = 0;
    for (int64_t l = 0; l < trace->view->n_lanes; l++)
        if (trace->view->lanes[l].device == device && trace->view->lanes[l].kind == TD_TRACE_COMPUTE)
            busy += (double)trace->lanes[l].busy_ns;
    double used = trace->wall_ns > 0 ? busy / lanes / (double)trace->wall_ns : 0;
    return used < 1 ? used : 1;
}
