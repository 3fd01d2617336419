/* The data's stages, the machine's use, and totals as JSON: part of the report, see report.h. */
#include "profiler/lanes.h"
#include "profiler/report_parts.h"

/* ---- data ------------------------------------------------------------------------------------------------------------------------ */

/* What makes batches, where they wait, and what takes them: who waited for whom, of all steps. */
static json_t *stages_json(const td_data_view *d)
{
    double mean = d->queue_samples ? (double)d->queue_sum / (double)d->queue_samples : 0;
    json_t *making =
        json_pack("{s:s, s:I, s:f, s:s, s:f}", "name", "making batches", "threads", (json_int_t)d->workers, "busy_ms",
                  MS(d->fetch_ns), "waits_for", "room in the queue", "waited_ms", MS(d->full_ns));
    json_t *queue = json_pack("{s:s, s:I, s:I, s:f, s:I, s:I}", "name", "queue", "places", (json_int_t)d->queue_places,
                              "least", (json_int_t)d->queue_least, "mean", mean, "greatest",
                              (json_int_t)d->queue_greatest, "empty", (json_int_t)d->queue_empty);
    json_t *session =
        json_pack("{s:s, s:s, s:f}", "name", "session", "waits_for", "a batch", "waited_ms", MS(d->waited_ns));
    return json_pack("[o, o, o]", making, queue, session);
}

static json_t *data_steps_json(const td_step_trace *trace, const td_data_view *d)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < trace->n_steps; i++) {
        json_t *one = json_pack("{s:I, s:f, s:b}", "step", (json_int_t)trace->steps[i].step, "waited_ms",
                                MS(d->steps[i].waited_ns), "bottleneck", (int)d->steps[i].starved);
        if (d->steps[i].ready >= 0)
            json_object_set_new(one, "ready", json_integer((json_int_t)d->steps[i].ready));
        json_array_append_new(list, one);
    }
    return list;
}

json_t *td_report_data(const td_analysis *analysis)
{
    const td_data_view *d = &analysis->data;
    return json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:I, s:I, s:o, s:o}", "workers", (json_int_t)d->workers, "batches",
        (json_int_t)d->fetches, "make_ms", d->fetches ? MS(d->fetch_ns) / (double)d->fetches : 0, "workers_waited_ms",
        MS(d->full_ns), "run_waited_ms", MS(d->waited_ns), "starved_steps", (json_int_t)d->starved_steps, "starved_ms",
        MS(d->starved_ns), "queue_ready", d->queue_samples ? (double)d->queue_sum / (double)d->queue_samples : 0,
        "queue_places", (json_int_t)d->queue_places, "queue_empty", (json_int_t)d->queue_empty, "stages",
        stages_json(d), "steps", data_steps_json(analysis->steps, d));
}

/* ---- the machine ----------------------------------------------------------------------------------------------------------------- */

json_t *td_report_machine(const td_analysis *analysis)
{
    const td_data_view *d = &analysis->data;
    const td_trace_plan *plan = analysis->view->plan;
    json_t *devices = json_array();
    for (int32_t i = 0; i < plan->n_devices; i++)
        json_array_append_new(devices, json_pack("{s:s, s:i, s:f}", "name", plan->devices[i].name, "lanes",
                                                 (int)plan->devices[i].lanes, "utilisation",
                                                 td_device_utilisation(analysis->steps, i)));
    return json_pack("{s:f, s:i, s:o, s:f, s:f, s:f, s:I, s:f}", "cores_used", d->cores_used, "cores", d->cores,
                     "devices", devices, "checkpoint_ms", MS(d->checkpoint_ns), "callback_ms", MS(d->callback_ns),
                     "flush_ms", MS(d->flush_ns), "events", (json_int_t)d->events, "events_share", d->events_share);
}

/* ---- totals ---------------------------------------------------------------------------------------------------------------------- */

/* Of the records of the steps that count, by kind; samples are none. */
json_t *td_report_totals(const td_analysis *analysis)
{
    const td_trace *trace = analysis->view->trace;
    int64_t n[TD_RECORD_KINDS] = {0}, ns[TD_RECORD_KINDS] = {0}, tasks = 0;
    json_t *kinds = json_object();
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        if (e->kind < 0 || e->kind >= TD_RECORD_KINDS || e->end_ns == e->begin_ns ||
            !td_view_counts(analysis->view, e->step))
            continue;
        n[e->kind]++;
        ns[e->kind] = td_ns_plus(ns[e->kind], td_ns_minus(e->end_ns, e->begin_ns));
    }
    for (int kind = 1; kind < TD_RECORD_KINDS; kind++)
        if (n[kind])
            json_object_set_new(kinds, td_record_kind_name(kind),
                                json_pack("{s:I, s:f}", "count", (json_int_t)n[kind], "ms", MS(ns[kind])));
    for (int64_t l = 0; l < analysis->view->n_lanes; l++)
        tasks += analysis->steps->lanes[l].tasks;
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "steps", (json_int_t)analysis->steps->n_steps, "threads",
                     (json_int_t)trace->n_threads, "lanes", (json_int_t)analysis->view->n_lanes, "tasks",
                     (json_int_t)tasks, "kinds", kinds);
}
