/* Rules that one number of a recording decides: see advice.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "profiler/advice.h"

static void advise_data(const td_analysis *a, td_advice_list *list)
{
    const td_data_view *d = &a->data;
    double ns = (double)a->steps->average.path_ns[TD_CAUSE_DATA];
    const double fetch = d->fetches ? (double)d->fetch_ns / (double)d->fetches : 0;
    td_advice_give(list, TD_ADVICE_data_starvation, td_advice_share(a, ns), ns,
                   "waiting for data takes %s of a step of %s (%.0f %%): a batch takes %s to make, on %" PRId64
                   " %s; raise data.workers, or set data.cache",
                   TD_ADVICE_TIME(ns), TD_ADVICE_TIME(a->steps->average.interval_ns), 100 * td_advice_share(a, ns),
                   TD_ADVICE_TIME(fetch), d->workers, d->workers == 1 ? "thread" : "threads at a time");
}

/* A few scalars take their link's latency whatever its speed: copies of fewer bytes say nothing of it. */
enum { LEAST_COPY_BYTES = 256 };

/* Copies that are long on critical paths, the longest by its name. */
static void advise_link(const td_analysis *a, td_advice_list *list)
{
    const td_trace_plan *plan = a->view->plan;
    const td_subgraph_times *worst = NULL;
    double ns = 0;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        const td_subgraph_times *t = &a->steps->subgraphs[s];
        if (plan->subgraphs[s].lane == TD_TRACE_COMPUTE || !t->runs || t->bytes / t->runs < LEAST_COPY_BYTES)
            continue;
        ns += (double)t->path_ns / (double)a->steps->n_steps;
        worst = t->path_ns > (worst ? worst->path_ns : 0) ? t : worst;
    }
    if (!worst)
        return;
    td_advice_give(list, TD_ADVICE_slow_link, td_advice_share(a, ns), ns,
                   "copies hold a step up for %s (%.0f %%), most of it \"%s\" with %s: %s at %s; "
                   "place its producer and consumers on one device, or copy less (train.precision: bf16)",
                   TD_ADVICE_TIME(ns), 100 * td_advice_share(a, ns), plan->subgraphs[worst->subgraph].name,
                   TD_ADVICE_TIME((double)worst->path_ns / (double)a->steps->n_steps),
                   td_format_traffic((td_unit_text){0}.text, (double)worst->bytes / (double)worst->runs),
                   td_format_rate((td_unit_text){0}.text,
                                  1e9 * (double)worst->bytes / (double)(worst->total_ns + !worst->total_ns)));
}

static int32_t pieces_of(const td_view *view, int32_t subgraph)
{
    int32_t n = 0;
    for (int32_t i = view->first_node[subgraph]; i >= 0; i = view->next_node[i])
        n++;
    return n;
}

static void advise_pieces(const td_analysis *a, td_advice_list *list)
{
    const td_trace_plan *plan = a->view->plan;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        const td_subgraph_times *t = &a->steps->subgraphs[s];
        const td_trace_device *device = &plan->devices[plan->subgraphs[s].device];
        bool alone = plan->subgraphs[s].lane != TD_TRACE_COMPUTE && !device->copies_as_lists;
        int32_t pieces = alone ? pieces_of(a->view, s) : 0;
        if (pieces < 2 || !t->runs || td_advice_share(a, (double)t->path_ns / (double)t->steps) < 0.02)
            continue;
        double mean = (double)t->total_ns / (double)t->runs;
        double latency = 1e9 * device->link_latency_s * pieces;
        td_advice_give(list, TD_ADVICE_copy_in_pieces, mean > 0 ? latency / mean : 0,
                       latency * (pieces - 1) / pieces * (double)t->runs / (double)t->steps,
                       "\"%s\" is copied in %d pieces, whose latency takes %s of its %s: concatenate what it "
                       "copies into one value",
                       plan->subgraphs[s].name, pieces, TD_ADVICE_TIME(latency), TD_ADVICE_TIME(mean));
    }
}

/* ---- slow ops ------------------------------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* How a device's ops compare with their plan: the median of measured over planned time; 0: nothing to compare. */
static double usual_ratio(const td_analysis *a, int32_t device)
{
    double *ratios = td_calloc((size_t)a->ops->ops.n + 1, sizeof *ratios), median = 0;
    int64_t n = 0;
    for (int64_t i = 0; ratios && i < a->ops->ops.n; i++) {
        const td_op_row *row = &a->ops->ops.rows[i];
        double planned = a->view->plan->nodes[row->node].estimated_ms;
        if (row->device_index == device && planned > 0 && row->count)
            ratios[n++] = 1e-6 * (double)row->self_ns / (double)row->count / planned;
    }
    if (n >= 3) {
        qsort(ratios, (size_t)n, sizeof *ratios, by_value);
        median = ratios[(n - 1) / 2];
    }
    td_free(ratios);
    return median;
}

static void advise_slow_op(const td_analysis *a, td_advice_list *list)
{
    enum { TIMES = 3 };
    const td_trace_plan *plan = a->view->plan;
    for (int32_t d = 0; d < plan->n_devices; d++) {
        const td_op_row *worst = NULL;
        double usual = usual_ratio(a, d), excess = 0, expected = 0;
        for (int64_t i = 0; usual > 0 && i < a->ops->ops.n; i++) {
            const td_op_row *row = &a->ops->ops.rows[i];
            const td_trace_node *node = &plan->nodes[row->node];
            /* what settles an update does what of it was not done early: the plan has that with the other op */
            const bool copy =
                plan->subgraphs[node->subgraph].lane != TD_TRACE_COMPUTE || !strcmp(node->op, "settle_update");
            double measured = (double)row->self_ns / (double)a->ops->steps;
            double planned = 1e6 * node->estimated_ms * usual * (double)row->count / (double)a->ops->steps;
            if (copy || row->device_index != d || measured < TIMES * planned || measured - planned <= excess)
                continue;
            worst = row;
            excess = measured - planned;
            expected = planned;
        }
        if (worst)
            td_advice_give(
                list, TD_ADVICE_slow_op, td_advice_share(a, excess), excess,
                "%s \"%s\" takes %s of a step on %s, %s more than the %s that its size and the other ops there lead "
                "to expect: look at its shapes (--op-info), or place it elsewhere",
                worst->op, worst->name, TD_ADVICE_TIME(expected + excess), worst->device, TD_ADVICE_TIME(excess),
                TD_ADVICE_TIME(expected));
    }
}

/* ---- the rest -------------------------------------------------------------------------------------------------------------------------- */

/* Changes of precision and place. Lookups that were cut in two are the planner's work as well, but no overhead of it. */
static bool is_conversion(const td_trace_node *node)
{
    return node->inserted && (!strcmp(node->op, "cast") || !strcmp(node->op, "copy") || !strcmp(node->op, "copy_out"));
}

static void advise_inserted(const td_analysis *a, td_advice_list *list)
{
    const td_trace_plan *plan = a->view->plan;
    const td_op_row *first = NULL;
    double ns = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < a->ops->ops.n; i++) {
        const td_op_row *row = &a->ops->ops.rows[i];
        const td_trace_node *node = &plan->nodes[row->node];
        if (!is_conversion(node) || plan->subgraphs[node->subgraph].lane != TD_TRACE_COMPUTE)
            continue;
        first = first ? first : row;
        ns += (double)row->self_ns / (double)a->ops->steps;
        n++;
    }
    if (first)
        td_advice_give(list, TD_ADVICE_inserted_ops, td_advice_share(a, ns), ns,
                       "%" PRId64 " %s that the planner inserted %s %s of a step, %s \"%s\" the most: keep "
                       "neighbours in one precision (train.keep_fp32)",
                       n, n == 1 ? "conversion" : "conversions", n == 1 ? "takes" : "take", TD_ADVICE_TIME(ns),
                       first->op, first->name);
}

/* What the host computes of the critical path: not what its subgraphs wait for other ranks. */
static double host_computes_ns(const td_analysis *a)
{
    const td_trace_plan *plan = a->view->plan;
    double ns = 0;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        const td_subgraph_times *t = &a->steps->subgraphs[s];
        if (plan->devices[plan->subgraphs[s].device].host && t->total_ns > 0)
            ns += (double)t->path_ns * (1 - td_subgraph_ranks_share(t)) / (double)a->steps->n_steps;
    }
    return ns;
}

/* Cores may idle because the host's work does not fill them; not because it waits for other ranks, nor where these use them. */
static void advise_cores(const td_analysis *a, td_advice_list *list)
{
    const double host = host_computes_ns(a);
    const td_rank_trace *place = a->ranks ? td_ranks_place(a->ranks, a->view->trace, a->view->plan->worker) : NULL;
    const double working = place ? td_ranks_cores_used(a->ranks, place->host) : a->data.cores_used;
    if (td_advice_share(a, host) < 0.5 || a->data.cores_used <= 0 || a->data.cores < 2)
        return;
    const double used = working / a->data.cores;
    td_advice_give(list, TD_ADVICE_idle_cores, 1 - used, host * (1 - used),
                   "the host computes for %s of a step that nothing else goes on beside, and %.1f of its %d cores "
                   "work: raise cpu.threads, or "
                   "place its matrix products on an accelerator",
                   TD_ADVICE_TIME(host), working, a->data.cores);
}

/* What the run's own thread did, and what would help against the longest of it. What no event covers is unrecorded: nobody knows why. */
static void advise_host(const td_analysis *a, double host, td_advice_list *list)
{
    const td_data_view *d = &a->data;
    struct {
        int64_t ns;
        const char *name, *help;
    } parts[] = {
        {d->admit_ns, "binding batches (ids are told apart there)",
         !a->view->plan->pipelined && a->view->n_lanes > 1 ? "train.pipeline: on does it while the step before runs"
                                                           : "fewer ids a batch are told apart sooner"},
        {d->callback_ns, "the caller's code after a step", "do less there, or not in every step"},
        {d->checkpoint_ns, "checkpoints", "checkpoint.every: less often"},
        {d->flush_ns, "emptying the profiler's rings", "record fewer steps"},
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    char text[320] = "";
    double told = 0;
    int most = 0;
    for (int i = 0; i < PARTS; i++) {
        const double ns = (double)parts[i].ns / (double)a->steps->n_steps;
        told += ns;
        most = parts[i].ns > parts[most].ns ? i : most;
        if (ns > 0.01 * host)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s %s", *text ? "," : "", parts[i].name,
                           TD_ADVICE_TIME(ns));
    }
    const bool known = told > 0.5 * host;
    if (host - told > 0.05 * host)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s unrecorded %s", *text ? "," : "",
                       TD_ADVICE_TIME(host - told));
    td_advice_give(list, TD_ADVICE_host_work, td_advice_share(a, host), known ? host : told,
                   "the run's own thread holds a step up for %s (%.0f %%):%s; %s", TD_ADVICE_TIME(host),
                   100 * td_advice_share(a, host), text,
                   known ? parts[most].help
                         : "the recording does not say what that thread did, or waited for, in most of it");
}

static void advise_waits(const td_analysis *a, td_advice_list *list)
{
    double wake = (double)a->steps->average.path_ns[TD_CAUSE_WAKE_UP];
    double host = (double)a->steps->average.path_ns[TD_CAUSE_HOST];
    td_advice_give(list, TD_ADVICE_wake_ups, td_advice_share(a, wake), wake,
                   "lanes take %s of a step to wake up (%.0f %%): more threads want to run than there are cores, or "
                   "the plan has many small subgraphs; larger batches or fewer targets make fewer",
                   TD_ADVICE_TIME(wake), 100 * td_advice_share(a, wake));
    advise_host(a, host, list);
}

static int by_interval(const void *a, const void *b)
{
    const td_step_times *x = *(const td_step_times *const *)a, *y = *(const td_step_times *const *)b;
    return x->interval_ns < y->interval_ns ? -1 : x->interval_ns > y->interval_ns;
}

static void advise_uneven(const td_analysis *a, td_advice_list *list)
{
    const td_step_trace *trace = a->steps;
    const td_step_times **sorted = td_calloc((size_t)trace->n_steps + 1, sizeof(const td_step_times *));
    for (int64_t i = 0; sorted && i < trace->n_steps; i++)
        sorted[i] = &trace->steps[i];
    if (sorted && trace->n_steps >= 5) {
        qsort(sorted, (size_t)trace->n_steps, sizeof *sorted, by_interval);
        const td_step_times *median = sorted[trace->n_steps / 2], *slow = sorted[(trace->n_steps * 9) / 10];
        int cause = 0;
        static const char *const told[TD_CAUSES] = {"ops",
                                                    "copies",
                                                    "lanes that wake up",
                                                    "waiting for data",
                                                    "the run's own thread",
                                                    "before what was recorded"};
        for (int c = 1; c < TD_CAUSES; c++)
            if (slow->path_ns[c] - median->path_ns[c] > slow->path_ns[cause] - median->path_ns[cause])
                cause = c;
        td_advice_give(list, TD_ADVICE_uneven_steps, (double)slow->interval_ns / (double)(median->interval_ns + 1),
                       (double)(slow->interval_ns - median->interval_ns) * 0.1,
                       "steps differ: the median takes %s, step %" PRId64
                       " takes %s, most of the difference %s: see --step "
                       "%" PRId64,
                       TD_ADVICE_TIME(median->interval_ns), slow->step, TD_ADVICE_TIME(slow->interval_ns), told[cause],
                       slow->step);
    }
    td_free(sorted);
}

/* The op that an event lies in, on its thread; NULL: none. Events are in order of their beginning. */
static const td_trace_node *op_around(const td_view *view, int64_t index)
{
    enum { FAR = 64 };
    const td_trace_event *inner = &view->trace->events[index];
    for (int64_t i = index - 1; i >= 0 && i >= index - FAR; i--) {
        const td_trace_event *e = &view->trace->events[i];
        int32_t node = e->kind == TD_RECORD_OP && e->thread == inner->thread ? td_view_node(view, e) : -1;
        if (node >= 0 && e->end_ns >= inner->end_ns)
            return &view->plan->nodes[node];
    }
    return NULL;
}

static void advise_replanning(const td_analysis *a, td_advice_list *list)
{
    const td_trace *trace = a->view->trace;
    int64_t begin = td_view_begin_ns(a->view), end = td_view_end_ns(a->view), longest = -1, n = 0;
    double ns = 0;
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        if (e->kind != TD_RECORD_PREPARE || !td_view_owns(a->view, e) || e->begin_ns < begin || e->end_ns > end)
            continue;
        ns += (double)(e->end_ns - e->begin_ns) / (double)a->steps->n_steps;
        n++;
        if (longest < 0 || e->end_ns - e->begin_ns > trace->events[longest].end_ns - trace->events[longest].begin_ns)
            longest = i;
    }
    if (longest < 0)
        return;
    const td_trace_node *op = op_around(a->view, longest);
    td_advice_give(
        list, TD_ADVICE_replanning, td_advice_share(a, ns), ns,
        "kernels were made anew, %s in %s, for shapes that had not come for long: %s of "
        "a step, the longest for %s \"%s\" with %s; batches of few sizes (data.drop_remainder, one length of "
        "sequences) need it once",
        TD_COUNTED(n, "time"), TD_COUNTED(a->steps->n_steps, "step"), TD_ADVICE_TIME(ns), op ? op->op : "an op",
        op ? op->name : "", TD_ADVICE_TIME(trace->events[longest].end_ns - trace->events[longest].begin_ns));
}

static void advise_recording(const td_analysis *a, td_advice_list *list)
{
    uint64_t dropped = a->view->trace->dropped;
    td_advice_give(list, TD_ADVICE_dropped_records, (double)dropped, 0,
                   "%" PRIu64 " records were dropped, so times are too short: raise profile.ring_records, or record "
                   "fewer steps",
                   dropped);
    td_advice_give(list, TD_ADVICE_recording, a->data.events_share,
                   a->data.events_share * (double)a->steps->average.interval_ns,
                   "recording itself takes about %.1f %% of a step, %s: times are too long by as much",
                   100 * a->data.events_share, TD_COUNTED(a->data.events / a->steps->n_steps, "event"));
}

void td_advice_rules(const td_analysis *analysis, td_advice_list *list)
{
    advise_data(analysis, list);
    advise_link(analysis, list);
    advise_pieces(analysis, list);
    advise_slow_op(analysis, list);
    advise_inserted(analysis, list);
    advise_cores(analysis, list);
    advise_waits(analysis, list);
    advise_uneven(analysis, list);
    advise_replanning(analysis, list);
    advise_recording(analysis, list);
}
