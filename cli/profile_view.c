/* Tables of a recording: see profile_view.h. */
#include "cli/profile_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "cli/profile_cell.h"
#include "cli/table.h"

#define MS(ns) (1e-6 * (double)(ns))

/* ---- the head ------------------------------------------------------------------------------------------------------------------- */

/* Of a job: whose steps these are. */
static void print_whose(const td_ranks *ranks, const td_view *view, FILE *out)
{
    const td_rank_trace *place = ranks ? td_ranks_place(ranks, view->trace, view->plan->worker) : NULL;
    if (!place)
        return;
    const td_rank_trace *end = ranks->job->ranks + ranks->job->n;
    const bool several = place->shares || (place + 1 < end && place[1].shares);
    fprintf(out, "  of rank %d (%s%s%s); --rank N%s shows another's\n", place->rank, place->role,
            *place->host ? " on " : "", place->host, several ? ", or --worker N of a rank that runs several," : "");
}

static void print_head(const td_analysis *analysis, FILE *out)
{
    const td_step_trace *trace = analysis->steps;
    const td_trace *all = trace->view->trace;
    const td_step_times *a = &trace->average;
    td_cell step, rate, data;
    const char *model = json_string_value(json_object_get(all->info, "model"));
    fprintf(out, "%s: steps %" PRId64 " to %" PRId64 ", %s a step, %s samples/s, data wait %s\n",
            model ? model : "the trace", trace->steps[0].step, trace->steps[trace->n_steps - 1].step,
            td_format_seconds(step.text, 1e-9 * (double)a->interval_ns),
            td_format_count(rate.text, a->interval_ns ? 1e9 * (double)a->samples / (double)a->interval_ns : 0),
            td_cell_share(&data, (double)a->path_ns[TD_CAUSE_DATA], (double)a->interval_ns));
    print_whose(analysis->ranks, trace->view, out);
    const json_t *recovery = json_object_get(all->info, "recovery");
    const char *loss = json_string_value(json_object_get(recovery, "loss"));
    const char *ended = json_string_value(json_object_get(all->info, "ended_by"));
    if (recovery)
        fprintf(out,
                "  the job went on here after step %" JSON_INTEGER_FORMAT
                "%s%s; the recording before has what was until then\n",
                json_integer_value(json_object_get(recovery, "after_step")), loss && *loss ? ": " : "",
                loss ? loss : "");
    if (ended)
        fprintf(out, "  it ended there: %s\n", ended);
    if (all->dropped)
        fprintf(out, "  dropped: %s; raise profile.ring_records, or record fewer steps\n",
                TD_COUNTED(all->dropped, "record"));
    if (all->cut)
        fprintf(out, "  the file is cut off after %s; this is what there is before\n", TD_COUNTED(all->cut_at, "byte"));
    if (!trace->device_ops)
        fprintf(out, "  a device does not tell when its ops ran: its subgraphs count as a whole\n");
}

/* ---- where the step's time went ---------------------------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    const td_subgraph_times *x = *(td_subgraph_times *const *)a, *y = *(td_subgraph_times *const *)b;
    if (x->path_ns != y->path_ns)
        return x->path_ns > y->path_ns ? -1 : 1;
    return x->subgraph - y->subgraph;
}

static td_status *sorted_subgraphs(const td_step_trace *trace, td_subgraph_times ***out)
{
    TD_TRY(TD_NEW(*out, trace->view->plan->n_subgraphs + 1));
    for (int32_t s = 0; s < trace->view->plan->n_subgraphs; s++)
        (*out)[s] = &trace->subgraphs[s];
    qsort(*out, (size_t)trace->view->plan->n_subgraphs, sizeof **out, by_path);
    return NULL;
}

static td_status *print_path(const td_step_trace *trace, td_subgraph_times *const *sorted, FILE *out)
{
    static const char *const texts[TD_CAUSES] = {
        NULL, NULL, "waking up lanes", "waiting for data", "the run's own thread", "before what was recorded"};
    enum { MOST = 16 };
    const td_trace_plan *plan = trace->view->plan;
    double wall = (double)trace->wall_ns, n = (double)trace->n_steps;
    td_table table;
    td_cell a, b;
    td_table_init(&table, 3);
    table.right[1] = table.right[2] = true;
    td_table_row(&table, "critical path", "a step", "share");
    int64_t rest = 0, others = 0;
    for (int32_t i = 0; i < plan->n_subgraphs; i++) {
        const td_trace_subgraph *s = &plan->subgraphs[sorted[i]->subgraph];
        char name[256];
        if (i >= MOST || (double)sorted[i]->path_ns < 0.005 * wall) {
            rest += sorted[i]->path_ns;
            others += sorted[i]->path_ns > 0;
            continue;
        }
        (void)snprintf(name, sizeof name, "%s (%s)", s->name,
                       s->lane == TD_TRACE_COMPUTE     ? plan->devices[s->device].name
                       : s->lane == TD_TRACE_TO_DEVICE ? "copy to device"
                                                       : "copy to host");
        td_table_row(&table, name, td_cell_time(&a, (double)sorted[i]->path_ns / n),
                     td_cell_share(&b, (double)sorted[i]->path_ns, wall));
    }
    for (int c = TD_CAUSE_WAKE_UP; c < TD_CAUSES; c++) {
        double ns = (double)trace->average.path_ns[c];
        if (ns * n >= 0.0005 * wall)
            td_table_row(&table, texts[c], td_cell_time(&a, ns), td_cell_share(&b, ns * n, wall));
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%" PRId64 " %s", others, others == 1 ? "other" : "others");
    if (rest)
        td_table_row(&table, name, td_cell_time(&a, (double)rest / n), td_cell_share(&b, (double)rest, wall));
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

/* Whether some subgraph pulls, pushes or sums. */
static bool has_ranks(const td_step_trace *trace)
{
    for (int32_t s = 0; s < trace->view->plan->n_subgraphs; s++)
        if (trace->subgraphs[s].ranks_ns)
            return true;
    return false;
}

/* Of all steps: those of many subgraphs that take less than this are summed up. */
static double least_shown(const td_step_trace *trace)
{
    enum { MANY = 24 };
    int32_t n = 0;
    for (int32_t s = 0; s < trace->view->plan->n_subgraphs; s++)
        n += trace->view->plan->subgraphs[s].lane == TD_TRACE_COMPUTE;
    return n > MANY ? 0.005 * (double)trace->wall_ns : 0;
}

static void add_times(td_subgraph_times *to, const td_subgraph_times *times)
{
    td_ns_add(&to->total_ns, times->total_ns);
    td_ns_add(&to->forward_ns, times->forward_ns);
    td_ns_add(&to->backward_ns, times->backward_ns);
    td_ns_add(&to->update_ns, times->update_ns);
    td_ns_add(&to->ranks_ns, times->ranks_ns);
}

static void add_subgraph(td_table *table, const char *name, const char *device, const td_subgraph_times *times,
                         double planned_ns)
{
    enum { LEAST_PLANNED_NS = 1000 }; /* less is no estimate: another op has the work in the plan */
    const double n = (double)(times->steps ? times->steps : 1);
    td_cell t[6];
    td_table_row(table, name, device, td_cell_time(&t[0], (double)times->total_ns / n),
                 td_cell_time(&t[1], (double)times->forward_ns / n),
                 td_cell_time(&t[2], (double)times->backward_ns / n), td_cell_time(&t[3], (double)times->update_ns / n),
                 td_cell_time(&t[4], planned_ns / n < LEAST_PLANNED_NS ? 0 : planned_ns / n),
                 td_cell_time(&t[5], (double)times->ranks_ns / n));
}

static td_status *print_subgraphs(const td_step_trace *trace, FILE *out)
{
    const td_trace_plan *plan = trace->view->plan;
    const bool ranks = has_ranks(trace);
    td_table table;
    td_table_init(&table, ranks ? 8 : 7);
    for (int i = 2; i < 8; i++)
        table.right[i] = true;
    td_table_row(&table, "subgraph", "device", "a step", "forward", "backward", "update", "planned", "ranks");
    const double least = least_shown(trace);
    td_subgraph_times others = {.steps = trace->n_steps};
    double planned = 0;
    int32_t more = 0;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        const td_subgraph_times *times = &trace->subgraphs[s];
        const double expected = plan->subgraphs[s].estimated_ms * 1e6 * (double)times->runs;
        if (plan->subgraphs[s].lane != TD_TRACE_COMPUTE)
            continue;
        if ((double)times->total_ns >= least) {
            add_subgraph(&table, plan->subgraphs[s].name, plan->devices[plan->subgraphs[s].device].name, times,
                         expected);
            continue;
        }
        more++;
        planned += expected;
        add_times(&others, times);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%d %s, less than %s each", more, more == 1 ? "other" : "others",
                   td_format_seconds((td_unit_text){0}.text, 1e-9 * least / (double)trace->n_steps));
    if (more)
        add_subgraph(&table, name, "", &others, planned);
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

/* ---- copies ----------------------------------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const td_subgraph_times *x = *(td_subgraph_times *const *)a, *y = *(td_subgraph_times *const *)b;
    if (x->total_ns != y->total_ns)
        return x->total_ns > y->total_ns ? -1 : 1;
    return x->subgraph - y->subgraph;
}

static td_status *print_copies(const td_step_trace *trace, td_subgraph_times **sorted, FILE *out)
{
    enum { MOST = 6 };
    const td_trace_plan *plan = trace->view->plan;
    td_subgraph_times others = {0};
    int32_t shown = 0, more = 0;
    td_table table;
    td_cell t[5];
    td_table_init(&table, 7);
    for (int i = 2; i < 7; i++)
        table.right[i] = true;
    td_table_row(&table, "cut edge", "way", "bytes a step", "a step", "rate", "hidden", "on the path");
    qsort(sorted, (size_t)plan->n_subgraphs, sizeof *sorted, by_time);
    for (int32_t i = 0; i < plan->n_subgraphs; i++) {
        const td_subgraph_times *c = sorted[i];
        const td_trace_subgraph *s = &plan->subgraphs[c->subgraph];
        if (s->lane == TD_TRACE_COMPUTE || !c->runs)
            continue;
        if (shown++ >= MOST) {
            others.total_ns += c->total_ns;
            others.bytes += c->bytes;
            others.hidden_ns += c->hidden_ns;
            others.path_ns += c->path_ns;
            others.steps = c->steps;
            more++;
            continue;
        }
        double n = (double)c->steps;
        char way[64], device[41];
        td_text_cut(device, sizeof device, plan->devices[s->device].name);
        (void)snprintf(way, sizeof way, "%s %s", s->lane == TD_TRACE_TO_DEVICE ? "to" : "from", device);
        td_table_row(&table, s->name, way, td_format_traffic(t[0].text, (double)c->bytes / n),
                     td_cell_time(&t[1], (double)c->total_ns / n),
                     td_format_rate(t[2].text, c->total_ns ? 1e9 * (double)c->bytes / (double)c->total_ns : 0),
                     td_cell_share(&t[3], (double)c->hidden_ns, (double)c->total_ns),
                     td_cell_time(&t[4], (double)c->path_ns / n));
    }
    if (more) {
        double n = (double)others.steps;
        char name[64];
        (void)snprintf(name, sizeof name, "%d %s", more, more == 1 ? "other" : "others");
        td_table_row(&table, name, "", td_format_traffic(t[0].text, (double)others.bytes / n),
                     td_cell_time(&t[1], (double)others.total_ns / n),
                     td_format_rate(t[2].text, 1e9 * (double)others.bytes / (double)(others.total_ns + 1)),
                     td_cell_share(&t[3], (double)others.hidden_ns, (double)others.total_ns),
                     td_cell_time(&t[4], (double)others.path_ns / n));
    }
    if (shown)
        fputc('\n', out);
    else
        table.n = 0;
    return td_table_print(&table, "  ", out);
}

/* ---- lanes ---------------------------------------------------------------------------------------------------------------------------- */

static td_status *print_lanes(const td_step_trace *trace, FILE *out)
{
    const td_view *view = trace->view;
    td_table table;
    td_cell t[6];
    td_table_init(&table, 8);
    for (int i = 1; i < 7; i++)
        table.right[i] = true;
    td_table_row(&table, "lane", "busy", "idle", "for data", "for copies", "for ops", "else", "waits most for");
    for (int64_t l = 0; l < view->n_lanes; l++) {
        const td_lane_times *lane = &trace->lanes[l];
        double wall = (double)(lane->busy_ns + lane->idle_ns);
        int32_t most = -1;
        for (int32_t s = 0; s < view->plan->n_subgraphs; s++)
            if (lane->by_subgraph_ns[s] > (most < 0 ? 0 : lane->by_subgraph_ns[most]))
                most = s;
        int64_t rest =
            lane->waits_ns[TD_CAUSE_WAKE_UP] + lane->waits_ns[TD_CAUSE_HOST] + lane->waits_ns[TD_CAUSE_UNKNOWN];
        td_table_row(&table, view->lanes[l].name, td_cell_share(&t[0], (double)lane->busy_ns, wall),
                     td_cell_share(&t[1], (double)lane->idle_ns, wall),
                     td_cell_share(&t[2], (double)lane->waits_ns[TD_CAUSE_DATA], wall),
                     td_cell_share(&t[3], (double)lane->waits_ns[TD_CAUSE_COPY], wall),
                     td_cell_share(&t[4], (double)lane->waits_ns[TD_CAUSE_SUBGRAPH], wall),
                     td_cell_share(&t[5], (double)rest, wall), most < 0 ? "-" : view->plan->subgraphs[most].name);
    }
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

td_status *td_profile_print_steps(const td_analysis *analysis, FILE *out)
{
    const td_step_trace *trace = analysis->steps;
    td_subgraph_times **sorted = NULL;
    TD_TRY(sorted_subgraphs(trace, &sorted));
    print_head(analysis, out);
    td_status *status = print_path(trace, sorted, out);
    if (!status)
        status = print_subgraphs(trace, out);
    if (!status)
        status = print_copies(trace, sorted, out);
    if (!status)
        status = print_lanes(trace, out);
    td_free(sorted);
    return status;
}

/* ---- one step ------------------------------------------------------------------------------------------------------------------------- */

typedef struct pieces {
    const td_step_trace *trace;
    td_segment *items;
    int64_t n, capacity;
} pieces;

static td_status *keep(void *context, const td_segment *segment)
{
    pieces *p = context;
    TD_TRY(td_grow(&p->items, &p->capacity, p->n, sizeof *p->items));
    p->items[p->n++] = *segment;
    return NULL;
}

static td_status *print_pieces(const pieces *p, const td_view_step *step, FILE *out)
{
    const td_trace_plan *plan = p->trace->view->plan;
    td_table table;
    td_cell t[2];
    td_table_init(&table, 4);
    table.right[0] = table.right[1] = true;
    td_table_row(&table, "from", "for", "what", "because");
    for (int64_t i = p->n - 1; i >= 0; i--) {
        const td_segment *s = &p->items[i];
        bool ran = s->cause == TD_CAUSE_SUBGRAPH || s->cause == TD_CAUSE_COPY;
        char what[256], number[32] = "";
        if (s->step != step->step)
            (void)snprintf(number, sizeof number, " of step %" PRId64, s->step);
        else if (p->trace->micros)
            (void)snprintf(number, sizeof number, ", micro-step %" PRId64, s->micro);
        (void)snprintf(what, sizeof what, "%s%s", ran ? plan->subgraphs[s->subgraph].name : td_cause_name(s->cause),
                       ran ? number : "");
        (void)snprintf(t[0].text, sizeof t[0].text, "%.3f ms", MS(s->begin_ns - step->from_ns));
        (void)snprintf(t[1].text, sizeof t[1].text, "%.3f ms", MS(s->end_ns - s->begin_ns));
        td_table_row(&table, t[0].text, t[1].text, what, ran ? td_edge_name(s->edge) : "");
    }
    return td_table_print(&table, "  ", out);
}

td_status *td_profile_print_step(const td_analysis *analysis, int64_t step, FILE *out)
{
    const td_step_trace *trace = analysis->steps;
    const td_step_times *times = td_step_times_of(trace, step);
    const td_view_step *found = td_view_step_of(trace->view, step);
    pieces p = {.trace = trace};
    if (!times)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "step %" PRId64 " is not in the recording: it has steps %" PRId64 " to %" PRId64, step,
                        trace->steps[0].step, trace->steps[trace->n_steps - 1].step);
    fprintf(out, "step %" PRId64 ": %.3f ms, of which the critical path is\n", step,
            MS(found->end_ns - found->from_ns));
    td_status *status = td_path_of_step(trace->view, found, keep, &p);
    if (!status)
        status = print_pieces(&p, found, out);
    td_free(p.items);
    if (!status && trace->micros)
        status = td_profile_print_micros(trace, &trace->micros[(times - trace->steps) * trace->view->n_micro], out);
    return status ? status : td_profile_print_overlaps(analysis->overlaps, times - trace->steps, out);
}
