/* Steps, subgraphs and lanes as JSON: part of the report, see report.h. */
#include "profiler/report_parts.h"

static const char *const cause_keys[TD_CAUSES] = {"subgraph_ms", "copy_ms", "wake_up_ms",
                                                  "data_ms",     "host_ms", "unknown_ms"};

json_t *td_report_causes(const int64_t *ns, double divisor)
{
    json_t *json = json_object();
    for (int c = 0; c < TD_CAUSES; c++)
        json_object_set_new(json, cause_keys[c], json_real(MS(ns[c]) / divisor));
    return json;
}

json_t *td_report_step(const td_step_times *s)
{
    json_t *json =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "step", (json_int_t)s->step,
                  "samples", (json_int_t)s->samples, "interval_ms", MS(s->interval_ns), "span_ms", MS(s->span_ns),
                  "data_wait_ms", MS(s->data_wait_ns), "forward_ms", MS(s->forward_ns), "backward_ms",
                  MS(s->backward_ns), "update_ms", MS(s->update_ns), "to_device_ms", MS(s->to_device_ns), "to_host_ms",
                  MS(s->to_host_ns), "to_device_bytes", (json_int_t)s->to_device_bytes, "to_host_bytes",
                  (json_int_t)s->to_host_bytes, "critical_path", td_report_causes(s->path_ns, 1));
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
    double n = (double)(t->steps ? t->steps : 1);
    json_t *json = json_pack("{s:i, s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "id", index, "name", s->name, "device",
                             trace->view->plan->devices[s->device].name, "lane", lanes[s->lane], "runs",
                             (json_int_t)t->runs, "ms", MS(t->total_ns) / n, "critical_path_ms", MS(t->path_ns) / n,
                             "planned_ms", s->estimated_ms * (double)t->runs / n);
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

json_t *td_report_lane(const td_step_trace *trace, int64_t index, const td_lane_times *t, double n)
{
    const td_view_lane *lane = &trace->view->lanes[index];
    json_t *waits = json_array(), *overlap = json_object();
    for (int32_t s = 0; s < trace->view->plan->n_subgraphs; s++)
        if (t->by_subgraph_ns[s])
            json_array_append_new(waits, json_pack("{s:i, s:f}", "subgraph", s, "ms", MS(t->by_subgraph_ns[s]) / n));
    for (int64_t l = 0; l < trace->view->n_lanes; l++)
        json_object_set_new(overlap, trace->view->lanes[l].name, json_real(MS(t->overlap_ns[l]) / n));
    return json_pack("{s:s, s:I, s:f, s:f, s:o, s:o, s:o}", "name", lane->name, "tasks", (json_int_t)t->tasks,
                     "busy_ms", MS(t->busy_ns) / n, "idle_ms", MS(t->idle_ns) / n, "idle_by_cause",
                     td_report_causes(t->waits_ns, n), "idle_by_subgraph", waits, "overlap_ms", overlap);
}

/* ---- all of them --------------------------------------------------------------------------------------------------------------------- */

const char *td_report_cause_key(td_cause cause)
{
    return cause_keys[cause];
}

/* Those that the step had, by micro-step. */
static json_t *micros_json(const td_step_times *micros, int64_t n)
{
    json_t *list = json_array();
    for (int64_t m = 0; m < n; m++) {
        json_t *one = micros[m].interval_ns ? td_report_step(&micros[m]) : NULL;
        if (!one)
            continue;
        json_object_set_new(one, "micro", json_integer((json_int_t)m));
        json_array_append_new(list, one);
    }
    return list;
}

json_t *td_report_step_with_micros(const td_step_trace *trace, int64_t i)
{
    json_t *json = td_report_step(&trace->steps[i]);
    if (trace->micros)
        json_object_set_new(json, "micro_steps",
                            micros_json(&trace->micros[i * trace->view->n_micro], trace->view->n_micro));
    return json;
}

json_t *td_report_steps(const td_step_trace *trace)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < trace->n_steps; i++)
        json_array_append_new(list, td_report_step_with_micros(trace, i));
    return list;
}

json_t *td_report_average(const td_step_trace *trace)
{
    json_t *json = td_report_step(&trace->average);
    if (trace->micros)
        json_object_set_new(json, "micro_steps", micros_json(trace->micro_average, trace->view->n_micro));
    return json;
}

json_t *td_report_subgraphs(const td_step_trace *trace)
{
    json_t *list = json_array();
    for (int32_t s = 0; s < trace->view->plan->n_subgraphs; s++)
        json_array_append_new(list, subgraph_json(trace, s));
    return list;
}

json_t *td_report_lanes(const td_step_trace *trace)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < trace->view->n_lanes; l++)
        json_array_append_new(list, td_report_lane(trace, l, &trace->lanes[l], (double)trace->n_steps));
    return list;
}
