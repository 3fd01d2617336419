/* CSV files of curves over steps, one row a step and thing: micro-steps, subgraphs, lanes, and what went on at the same time. Times in
 * microseconds, as in step_trace_time.csv. */
#include "base/file.h"
#include "base/memory.h"
#include "profiler/curves.h"
#include "profiler/export.h"
#include "profiler/sink.h"

#define US(ns) (1e-3 * (double)(ns))

static td_status *write_micros(const td_step_trace *trace, const char *folder)
{
    td_sink *out = NULL;
    if (!trace->micros)
        return NULL;
    TD_TRY(td_sink_open_in(folder, "micro_step_time.csv", &out));
    td_sink_text(out,
                 "Step,Micro Step,Interval,Data Wait,Forward,Backward,Update,To Device,To Host,Pull,Push,AllReduce,"
                 "Tail\n");
    for (int64_t i = 0; i < trace->n_steps * trace->view->n_micro; i++) {
        const td_step_times *s = &trace->micros[i];
        if (!s->interval_ns)
            continue;
        td_sink_format(out, "%lld,%lld,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", (long long)s->step,
                       (long long)s->micro, US(s->interval_ns), US(s->data_wait_ns), US(s->forward_ns),
                       US(s->backward_ns), US(s->update_ns), US(s->to_device_ns), US(s->to_host_ns), US(s->pull_ns),
                       US(s->push_ns), US(s->all_reduce_ns), US(s->tail_ns));
    }
    return td_sink_close(out);
}

static void write_subgraphs(td_sink *out, const td_curves *curves)
{
    const td_trace_plan *plan = curves->trace->view->plan;
    for (int64_t i = 0; i < curves->n; i++)
        for (int32_t s = 0; s < plan->n_subgraphs; s++) {
            const td_subgraph_point *p = td_curves_subgraph(curves, s, i);
            if (!p->runs)
                continue;
            td_sink_format(out, "%lld,", (long long)curves->trace->steps[curves->first + i].step);
            td_sink_csv(out, plan->subgraphs[s].name);
            td_sink_text(out, ",");
            td_sink_csv(out, plan->devices[plan->subgraphs[s].device].name);
            td_sink_format(out, ",%d,%.3f,%.3f,%.3f,%.3f\n", (int)p->runs, US(p->total_ns), US(p->forward_ns),
                           US(p->backward_ns), US(p->update_ns));
        }
}

static void write_lanes(td_sink *out, const td_curves *curves)
{
    const td_view *view = curves->trace->view;
    for (int64_t i = 0; i < curves->n; i++)
        for (int64_t l = 0; l < view->n_lanes; l++) {
            const td_step_times *step = &curves->trace->steps[curves->first + i];
            td_sink_format(out, "%lld,", (long long)step->step);
            td_sink_csv(out, view->lanes[l].name);
            td_sink_format(out, ",%.3f,%.3f\n", US(td_curves_lane_ns(curves, l, i)), US(step->interval_ns));
        }
}

/* Of however many steps, some at a time. */
static td_status *write_curves(const td_step_trace *trace, int64_t at_once, td_sink *subgraphs, td_sink *lanes)
{
    const int64_t most = at_once > 0 ? at_once : td_curves_most(trace);
    td_sink_text(subgraphs, "Step,Subgraph,Device,Runs,Total,Forward,Backward,Update\n");
    td_sink_text(lanes, "Step,Lane,Busy,Interval\n");
    for (int64_t i = 0; i < trace->n_steps; i += most) {
        td_curves *curves = NULL;
        TD_TRY(td_curves_create(trace, i, trace->n_steps - i < most ? trace->n_steps - i : most, &curves));
        write_subgraphs(subgraphs, curves);
        write_lanes(lanes, curves);
        td_curves_destroy(curves);
    }
    return NULL;
}

static td_status *write_overlaps(const td_overlaps *o, const char *folder)
{
    td_sink *out = NULL;
    TD_TRY(td_sink_open_in(folder, "overlap_step_time.csv", &out));
    td_sink_text(out, "Step,First,Second,Overlap\n");
    for (int64_t i = 0; i < o->trace->n_steps; i++)
        for (int32_t a = 0; a < o->n; a++)
            for (int32_t b = a + 1; b < o->n; b++) {
                if (!td_overlap_ns(o, a, b))
                    continue;
                td_sink_format(out, "%lld,", (long long)o->trace->steps[i].step);
                td_sink_csv(out, o->activities[a].name);
                td_sink_text(out, ",");
                td_sink_csv(out, o->activities[b].name);
                td_sink_format(out, ",%.3f\n", US(td_overlap_in_step_ns(o, a, b, i)));
            }
    return td_sink_close(out);
}

td_status *td_export_csv_curves(const td_analysis *analysis, const char *folder, int64_t at_once)
{
    td_sink *subgraphs = NULL, *lanes = NULL;
    TD_TRY(write_micros(analysis->steps, folder));
    TD_TRY(write_overlaps(analysis->overlaps, folder));
    TD_TRY(td_sink_open_in(folder, "subgraph_step_time.csv", &subgraphs));
    td_status *status = td_sink_open_in(folder, "lane_step_time.csv", &lanes);
    if (!status)
        status = write_curves(analysis->steps, at_once, subgraphs, lanes);
    return td_sink_close_after(lanes, td_sink_close_after(subgraphs, status));
}
