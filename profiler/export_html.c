/* One HTML page: what the tables of tandem profile show, and a picture of a step. No script, no other file, nothing from anywhere
 * else; colours follow the reader's light or dark. */
#include <string.h>

#include "base/units.h"
#include "profiler/export.h"
#include "profiler/sink.h"

#define MS(ns) (1e-6 * (double)(ns))

static const char *const style =
    "<style>:root{color-scheme:light dark;--a:#2b6cb0;--b:#b7791f;--c:#6b46c1;--d:#2f855a;--line:#8884}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;width:100%;font-size:."
    "92em}"
    "th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid var(--line)}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.bar{width:30%}"
    "td.bar div{background:var(--a);height:.8em;border-radius:2px}svg{width:100%;height:auto;font-size:11px}"
    "svg "
    "text{fill:currentColor}.forward{fill:var(--a)}.backward{fill:var(--c)}.update{fill:var(--d)}.copy{fill:var(--b)}"
    ".wrap{overflow-x:auto}.legend span{margin-right:1.5em}.legend i{display:inline-block;width:.8em;height:.8em;"
    "margin-right:.4em}li{margin:.3rem 0}</style>";

static void write_ms(td_sink *out, double ns)
{
    td_sink_format(out, "<td class=n>%.3f</td>", MS(ns));
}

static void write_cell(td_sink *out, const char *text)
{
    td_sink_text(out, "<td>");
    td_sink_html(out, text);
    td_sink_text(out, "</td>");
}

static void write_bar(td_sink *out, double share)
{
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    td_sink_format(out, "<td class=n>%.1f %%</td><td class=bar><div style=\"width:%.1f%%\"></div></td>", 100 * share,
                   100 * share);
}

/* ---- the step's picture ------------------------------------------------------------------------------------------------------------ */

enum { WIDTH = 1000, LEFT = 110, ROW = 26 };

static const char *class_of(const td_step_trace *trace, int32_t subgraph)
{
    const td_subgraph_times *t = &trace->subgraphs[subgraph];
    if (trace->view->plan->subgraphs[subgraph].lane != TD_TRACE_COMPUTE)
        return "copy";
    if (t->update_ns > t->forward_ns && t->update_ns > t->backward_ns)
        return "update";
    return t->backward_ns > t->forward_ns ? "backward" : "forward";
}

static void draw_run(td_sink *out, const td_step_trace *trace, const td_view_run *run, int64_t lane, int64_t from,
                     int64_t to)
{
    int64_t begin = run->begin_ns > from ? run->begin_ns : from, end = run->end_ns < to ? run->end_ns : to;
    double scale = (double)(WIDTH - LEFT) / (double)(to - from + (to == from));
    if (end <= begin)
        return;
    double width = (double)(end - begin) * scale;
    td_sink_format(out, "<rect class=%s x=%.1f y=%d width=%.1f height=%d><title>", class_of(trace, run->subgraph),
                   LEFT + (double)(begin - from) * scale, (int)lane * ROW + 4, width < 0.5 ? 0.5 : width, ROW - 8);
    td_sink_html(out, trace->view->plan->subgraphs[run->subgraph].name);
    td_sink_format(out, " (step %lld): %.3f ms</title></rect>", (long long)run->step, MS(run->end_ns - run->begin_ns));
}

static void draw_step(td_sink *out, const td_analysis *a)
{
    const td_view *view = a->view;
    const td_view_step *step = td_view_step_of(view, a->memory->step);
    td_sink_format(out,
                   "<h2>Step %lld: %.3f ms</h2><div class=wrap><svg viewBox=\"0 0 %d %d\" role=img "
                   "aria-label=\"What each lane did during the step\">",
                   (long long)step->step, MS(step->end_ns - step->from_ns), WIDTH, (int)view->n_lanes * ROW + 4);
    for (int64_t l = 0; l < view->n_lanes; l++) {
        td_sink_format(out, "<text x=0 y=%d>", (int)l * ROW + 17);
        td_sink_html(out, view->lanes[l].name);
        td_sink_text(out, "</text>");
        for (int64_t i = 0; i < view->lanes[l].n_runs; i++)
            draw_run(out, a->steps, view->lanes[l].runs[i], l, step->from_ns, step->end_ns);
    }
    td_sink_text(out,
                 "</svg></div><p class=legend><span><i style=\"background:var(--a)\"></i>forward</span><span><i "
                 "style=\"background:var(--c)\"></i>backward</span><span><i style=\"background:var(--d)\"></i>update"
                 "</span><span><i style=\"background:var(--b)\"></i>copy</span></p>");
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------------- */

static void write_path(td_sink *out, const td_step_trace *trace)
{
    static const char *const names[TD_CAUSES] = {
        NULL, NULL, "waking up lanes", "waiting for data", "the run's own thread", "before what was recorded"};
    const td_trace_plan *plan = trace->view->plan;
    double wall = (double)trace->wall_ns, n = (double)trace->n_steps;
    td_sink_text(out, "<h2>Critical path</h2><div class=wrap><table><tr><th>what<th>device<th class=n>ms a step<th "
                      "class=n>share<th>");
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        if (!trace->subgraphs[s].path_ns)
            continue;
        td_sink_text(out, "<tr>");
        write_cell(out, plan->subgraphs[s].name);
        write_cell(out, plan->devices[plan->subgraphs[s].device].name);
        write_ms(out, (double)trace->subgraphs[s].path_ns / n);
        write_bar(out, (double)trace->subgraphs[s].path_ns / wall);
    }
    for (int c = TD_CAUSE_WAKE_UP; c < TD_CAUSES; c++) {
        if (!trace->average.path_ns[c])
            continue;
        td_sink_text(out, "<tr>");
        write_cell(out, names[c]);
        write_cell(out, "");
        write_ms(out, (double)trace->average.path_ns[c]);
        write_bar(out, (double)trace->average.path_ns[c] * n / wall);
    }
    td_sink_text(out, "</table></div>");
}

static void write_lanes(td_sink *out, const td_step_trace *trace)
{
    double n = (double)trace->n_steps;
    td_sink_text(
        out,
        "<h2>Lanes</h2><div class=wrap><table><tr><th>lane<th class=n>busy ms<th class=n>idle ms<th class=n>for data"
        "<th class=n>for copies<th class=n>for ops<th class=n>busy<th>");
    for (int64_t l = 0; l < trace->view->n_lanes; l++) {
        const td_lane_times *t = &trace->lanes[l];
        td_sink_text(out, "<tr>");
        write_cell(out, trace->view->lanes[l].name);
        write_ms(out, (double)t->busy_ns / n);
        write_ms(out, (double)t->idle_ns / n);
        write_ms(out, (double)t->waits_ns[TD_CAUSE_DATA] / n);
        write_ms(out, (double)t->waits_ns[TD_CAUSE_COPY] / n);
        write_ms(out, (double)t->waits_ns[TD_CAUSE_SUBGRAPH] / n);
        write_bar(out, (double)t->busy_ns / (double)(t->busy_ns + t->idle_ns + 1));
    }
    td_sink_text(out, "</table></div>");
}

static void write_overlaps(td_sink *out, const td_overlaps *o)
{
    double n = (double)o->trace->n_steps;
    td_sink_text(out, "<h2>At the same time</h2><div class=wrap><table><tr><th>what<th>and<th class=n>ms a step<th "
                      "class=n>of the shorter<th>");
    for (int32_t a = 0; a < o->n; a++)
        for (int32_t b = a + 1; b < o->n; b++) {
            int64_t x = o->activities[a].busy_ns, y = o->activities[b].busy_ns, less = x < y ? x : y;
            if (!td_overlap_ns(o, a, b))
                continue;
            td_sink_text(out, "<tr>");
            write_cell(out, o->activities[a].name);
            write_cell(out, o->activities[b].name);
            write_ms(out, (double)td_overlap_ns(o, a, b) / n);
            write_bar(out, (double)td_overlap_ns(o, a, b) / (double)(less + !less));
        }
    td_sink_text(out, "</table></div>");
}

/* Of a training that accumulates. */
static void write_micros(td_sink *out, const td_step_trace *trace)
{
    if (!trace->micro_average)
        return;
    td_sink_text(out, "<h2>Micro-steps</h2><div class=wrap><table><tr><th class=n>micro-step<th class=n>ms<th class=n>"
                      "data wait<th class=n>forward<th class=n>backward<th class=n>update<th class=n>to device<th "
                      "class=n>to host");
    for (int64_t m = 0; m < trace->view->n_micro; m++) {
        const td_step_times *s = &trace->micro_average[m];
        const int64_t ns[] = {s->interval_ns, s->data_wait_ns, s->forward_ns, s->backward_ns,
                              s->update_ns,   s->to_device_ns, s->to_host_ns};
        td_sink_format(out, "<tr><td class=n>%lld</td>", (long long)m);
        for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
            write_ms(out, (double)ns[i]);
    }
    td_sink_text(out, "</table></div>");
}

static void write_ranks(td_sink *out, const td_ranks *ranks)
{
    td_sink_text(
        out, "<h2>Ranks</h2><div class=wrap><table><tr><th>rank<th>role<th>host<th class=n>ms a step<th class=n>pull"
             "<th class=n>push<th class=n>sums<th class=n>late by<th class=n>last<th class=n>answers<th class=n>"
             "updates<th>clock<th>");
    for (int32_t i = 0; i < ranks->job->n; i++) {
        const td_rank_trace *r = &ranks->job->ranks[i];
        const td_rank_times *t = &ranks->times[i];
        double steps = t->steps ? (double)t->steps : 1;
        td_sink_format(out, "<tr><td>%d</td>", r->rank);
        write_cell(out, r->role);
        write_cell(out, r->host);
        write_ms(out, t->intervals ? (double)t->step_ns / (double)t->intervals : 0);
        write_ms(out, (double)t->pull.ns / steps);
        write_ms(out, (double)t->push.ns / steps);
        write_ms(out, (double)t->sum.ns / steps);
        write_ms(out, (double)t->late_median_ns);
        td_sink_format(out, "<td class=n>%lld of %lld</td>", (long long)t->times_last, (long long)t->met);
        write_ms(out, (double)t->answer.ns / steps);
        write_ms(out, (double)t->apply.ns / steps);
        write_cell(out, r->trace ? td_job_aligned_name(r->aligned) : "");
        write_cell(out, r->problem);
    }
    td_sink_text(out, "</table></div>");
}

static void write_ops(td_sink *out, const td_analysis *a, const td_op_rows *rows, const char *title)
{
    enum { MOST = 40 };
    td_sink_format(out,
                   "<h2>%s</h2><div class=wrap><table><tr><th>name<th>device<th class=n>a step<th class=n>ms a step<th "
                   "class=n>of its peak<th class=n>share<th>",
                   title);
    for (int64_t i = 0; i < rows->n && i < MOST; i++) {
        const td_op_row *row = &rows->rows[i];
        td_sink_text(out, "<tr>");
        write_cell(out, row->name);
        write_cell(out, row->device);
        td_sink_format(out, "<td class=n>%.3g</td>", (double)row->count / (double)a->ops->steps);
        write_ms(out, (double)row->self_ns / (double)a->ops->steps);
        td_sink_format(out, "<td class=n>%.0f %%</td>", 100 * td_op_reached(a->view, row));
        write_bar(out, (double)row->self_ns / (double)(a->ops->self_ns + !a->ops->self_ns));
    }
    td_sink_text(out, "</table></div>");
}

static void write_memory(td_sink *out, const td_analysis *a)
{
    char text[TD_UNIT_TEXT];
    td_sink_text(
        out,
        "<h2>Memory</h2><div class=wrap><table><tr><th>device<th class=n>store<th class=n>arena<th class=n>live at "
        "its peak<th>largest");
    for (int32_t d = 0; d < a->memory->n_devices; d++) {
        const td_device_memory *m = &a->memory->devices[d];
        td_sink_text(out, "<tr>");
        write_cell(out, a->view->plan->devices[d].name);
        td_sink_format(out, "<td class=n>%s</td>", td_format_bytes(text, (double)m->store_bytes));
        td_sink_format(out, "<td class=n>%s</td>", td_format_bytes(text, (double)m->arena_bytes));
        td_sink_format(out, "<td class=n>%s</td><td>", td_format_bytes(text, (double)m->peak_live_bytes));
        for (int32_t i = 0; i < m->n_tenants && i < 5; i++) {
            td_sink_html(out, m->tenants[i].name);
            td_sink_format(out, " %s%s", td_format_bytes(text, (double)m->tenants[i].bytes),
                           i + 1 < m->n_tenants && i < 4 ? ", " : "");
        }
        td_sink_text(out, "</td>");
    }
    td_sink_text(out, "</table></div>");
}

static void write_advice(td_sink *out, const td_analysis *a)
{
    td_advice_list list;
    td_advise(a, &list);
    td_sink_text(out, "<h2>Advice</h2>");
    td_sink_text(out, list.n ? "<ul>" : "<p>No rule has anything to say about these steps.</p>");
    for (int32_t i = 0; i < list.n; i++) {
        td_sink_text(out, "<li><b>");
        td_sink_html(out, list.items[i].rule);
        td_sink_text(out, "</b> ");
        td_sink_html(out, list.items[i].text);
    }
    td_sink_text(out, list.n ? "</ul>" : "");
}

td_status *td_export_html(const td_analysis *a, const char *path)
{
    const td_step_trace *trace = a->steps;
    const char *model = json_string_value(json_object_get(a->view->trace->info, "model"));
    td_sink *out = NULL;
    TD_TRY(td_sink_open(path, &out));
    td_sink_text(out, "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
                      "content=\"width=device-width,initial-scale=1\"><title>");
    td_sink_html(out, model ? model : "tandem");
    td_sink_text(out, ": where the time went</title>");
    td_sink_text(out, style);
    td_sink_text(out, "<h1>");
    td_sink_html(out, model ? model : "A recording");
    td_sink_format(out, ": steps %lld to %lld, %.3f ms a step</h1>", (long long)trace->steps[0].step,
                   (long long)trace->steps[trace->n_steps - 1].step, MS(trace->average.interval_ns));
    if (a->view->trace->dropped)
        td_sink_format(out, "<p><b>%llu records were dropped; times are too small.</b></p>",
                       (unsigned long long)a->view->trace->dropped);
    write_advice(out, a);
    draw_step(out, a);
    write_path(out, trace);
    write_lanes(out, trace);
    write_overlaps(out, a->overlaps);
    write_micros(out, trace);
    if (a->ranks)
        write_ranks(out, a->ranks);
    write_ops(out, a, &a->ops->types, "Ops by type");
    write_ops(out, a, &a->ops->ops, "Slowest ops");
    write_memory(out, a);
    td_sink_text(out, "</html>\n");
    return td_sink_close(out);
}
