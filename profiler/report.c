/* A recording as JSON: see report.h. */
#include "profiler/report.h"

#include <stdlib.h>

#include "base/memory.h"
#include "tandem/profiler.h"

#define MS(ns) (1e-6 * (double)(ns))

static const char *const cause_keys[TD_CAUSES] = {"subgraph_ms", "copy_ms", "wake_up_ms",
                                                  "data_ms",     "host_ms", "unknown_ms"};

static json_t *causes_json(const int64_t *ns, double divisor)
{
    json_t *json = json_object();
    for (int c = 0; c < TD_CAUSES; c++)
        json_object_set_new(json, cause_keys[c], json_real(MS(ns[c]) / divisor));
    return json;
}

static json_t *step_json(const td_step_times *s)
{
    json_t *json =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "step", (json_int_t)s->step,
                  "samples", (json_int_t)s->samples, "interval_ms", MS(s->interval_ns), "span_ms", MS(s->span_ns),
                  "data_wait_ms", MS(s->data_wait_ns), "forward_ms", MS(s->forward_ns), "backward_ms",
                  MS(s->backward_ns), "update_ms", MS(s->update_ns), "to_device_ms", MS(s->to_device_ns), "to_host_ms",
                  MS(s->to_host_ns), "to_device_bytes", (json_int_t)s->to_device_bytes, "to_host_bytes",
                  (json_int_t)s->to_host_bytes, "critical_path", causes_json(s->path_ns, 1));
    json_t *more =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tail_ms", MS(s->tail_ns), "pull_ms", MS(s->pull_ns),
                  "push_ms", MS(s->push_ns), "all_reduce_ms", MS(s->all_reduce_ns), "checkpoint_ms",
                  MS(s->checkpoint_ns), "callback_ms", MS(s->callback_ns), "flush_ms", MS(s->flush_ns));
    json_object_update(json, more);
    json_decref(more);
    return json;
}

static json_t *subgraph_json(const td_step_trace *trace, int32_t index)
{
    static const char *const lanes[] = {"compute", "to_device", "to_host"};
    const td_trace_subgraph *s = &trace->view->plan->subgraphs[index];
    const td_subgraph_times *t = &trace->subgraphs[index];
    double n = (double)(t->runs ? t->runs : 1);
    json_t *json =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "id", index, "name", s->name, "device",
                  trace->view->plan->devices[s->device].name, "lane", lanes[s->lane], "runs", (json_int_t)t->runs, "ms",
                  MS(t->total_ns) / n, "critical_path_ms", MS(t->path_ns) / n, "planned_ms", s->estimated_ms);
    if (s->lane == TD_TRACE_COMPUTE) {
        json_object_set_new(json, "forward_ms", json_real(MS(t->forward_ns) / n));
        json_object_set_new(json, "backward_ms", json_real(MS(t->backward_ns) / n));
        json_object_set_new(json, "update_ms", json_real(MS(t->update_ns) / n));
    } else {
        json_object_set_new(json, "bytes", json_real((double)t->bytes / n));
        json_object_set_new(json, "hidden", json_real((double)t->hidden_ns / (double)(t->total_ns + !t->total_ns)));
    }
    return json;
}

static json_t *lane_json(const td_step_trace *trace, int64_t index)
{
    const td_view_lane *lane = &trace->view->lanes[index];
    const td_lane_times *t = &trace->lanes[index];
    double n = (double)trace->n_steps;
    json_t *waits = json_array(), *overlap = json_object();
    for (int32_t s = 0; s < trace->view->plan->n_subgraphs; s++)
        if (t->by_subgraph_ns[s])
            json_array_append_new(waits, json_pack("{s:i, s:f}", "subgraph", s, "ms", MS(t->by_subgraph_ns[s]) / n));
    for (int64_t l = 0; l < trace->view->n_lanes; l++)
        json_object_set_new(overlap, trace->view->lanes[l].name, json_real(MS(t->overlap_ns[l]) / n));
    return json_pack("{s:s, s:f, s:f, s:o, s:o, s:o}", "name", lane->name, "busy_ms", MS(t->busy_ns) / n, "idle_ms",
                     MS(t->idle_ns) / n, "idle_by_cause", causes_json(t->waits_ns, n), "idle_by_subgraph", waits,
                     "overlap_ms", overlap);
}

static json_t *trace_json(const td_trace *trace)
{
    json_t *threads = json_array();
    for (int64_t i = 0; i < trace->n_threads; i++)
        json_array_append_new(threads, json_pack("{s:s, s:I}", "name", trace->threads[i].name, "dropped",
                                                 (json_int_t)trace->threads[i].dropped));
    return json_pack("{s:O, s:I, s:I, s:b, s:I, s:I, s:o}", "info", trace->info, "records", (json_int_t)trace->n_events,
                     "dropped", (json_int_t)trace->dropped, "cut", (int)trace->cut, "windows",
                     (json_int_t)trace->n_windows, "clock_error_ns", (json_int_t)trace->clock_error_ns, "threads",
                     threads);
}

td_status *td_report_json(const td_step_trace *trace, json_t **out_json)
{
    json_t *steps = json_array(), *subgraphs = json_array(), *lanes = json_array();
    for (int64_t i = 0; i < trace->n_steps; i++)
        json_array_append_new(steps, step_json(&trace->steps[i]));
    for (int32_t i = 0; i < trace->view->plan->n_subgraphs; i++)
        json_array_append_new(subgraphs, subgraph_json(trace, i));
    for (int64_t i = 0; i < trace->view->n_lanes; i++)
        json_array_append_new(lanes, lane_json(trace, i));
    *out_json = json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "trace", trace_json(trace->view->trace), "average",
                          step_json(&trace->average), "steps", steps, "subgraphs", subgraphs, "lanes", lanes,
                          "device_ops", (int)trace->device_ops);
    return *out_json ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report");
}

/* ---- the public call ------------------------------------------------------------------------------------------------------------- */

static td_status *analyse(const td_trace *trace, int32_t window, char **out_json)
{
    td_view *view = NULL;
    td_step_trace *steps = NULL;
    json_t *json = NULL;
    td_status *status = td_view_create(trace, window, &view);
    if (!status)
        status = td_step_trace_create(view, &steps);
    if (!status)
        status = td_report_json(steps, &json);
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        *out_json = td_strdup(text);
    if (!status && !*out_json)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report");
    free(text); /* jansson's own allocation */
    json_decref(json);
    td_step_trace_destroy(steps);
    td_view_destroy(view);
    return status;
}

td_status *td_profiler_analyse(const char *trace, int32_t window, char **out_json)
{
    td_trace *read = NULL;
    *out_json = NULL;
    TD_TRY(td_trace_read(trace, &read));
    td_status *status = td_status_prefix(analyse(read, window, out_json), "%s", trace);
    td_trace_destroy(read);
    return status;
}
