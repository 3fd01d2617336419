/* Curves over steps, what went on at the same time, and one step in all its detail, as JSON: see report.h. */
#include <stddef.h>

#include "profiler/curves.h"
#include "profiler/lanes.h"
#include "profiler/report_parts.h"

/* ---- at the same time -------------------------------------------------------------------------------------------------------------- */

json_t *td_report_activities(const td_overlaps *overlaps)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < overlaps->n; i++) {
        const td_activity *a = &overlaps->activities[i];
        json_t *one = json_pack("{s:s, s:s, s:f}", "name", a->name, "kind", td_activity_kind_name(a->kind), "ms",
                                MS(a->busy_ns) / (double)overlaps->trace->n_steps);
        if (a->device >= 0)
            json_object_set_new(one, "device", json_string(overlaps->trace->view->plan->devices[a->device].name));
        json_array_append_new(list, one);
    }
    return list;
}

/* Of the one that took less. */
static double share_of(const td_overlaps *o, int32_t a, int32_t b)
{
    int64_t x = o->activities[a].busy_ns, y = o->activities[b].busy_ns, less = x < y ? x : y;
    return less > 0 ? (double)td_overlap_ns(o, a, b) / (double)less : 0;
}

json_t *td_report_overlaps(const td_overlaps *overlaps)
{
    json_t *list = json_array();
    for (int32_t a = 0; a < overlaps->n; a++)
        for (int32_t b = a + 1; b < overlaps->n; b++)
            json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f}", "a", overlaps->activities[a].name, "b",
                                                  overlaps->activities[b].name, "ms",
                                                  MS(td_overlap_ns(overlaps, a, b)) / (double)overlaps->trace->n_steps,
                                                  "share", share_of(overlaps, a, b)));
    return list;
}

/* ---- curves ------------------------------------------------------------------------------------------------------------------------ */

typedef struct range {
    int64_t first, end; /* of trace->steps */
} range;

typedef struct quantity {
    const char *key;
    size_t offset; /* in td_step_times, of an int64_t */
    double scale;
} quantity;

#define TIME(field)                                                                                                    \
    {                                                                                                                  \
#field "_ms", offsetof(td_step_times, field##_ns), 1e-6                                                        \
    }
#define COUNT(field)                                                                                                   \
    {                                                                                                                  \
#field, offsetof(td_step_times, field), 1                                                                      \
    }
static const quantity quantities[] = {
    TIME(interval),  TIME(span),       TIME(data_wait),        TIME(forward),        TIME(backward), TIME(update),
    TIME(to_device), TIME(to_host),    COUNT(to_device_bytes), COUNT(to_host_bytes), TIME(tail),     TIME(pull),
    TIME(push),      TIME(all_reduce), TIME(checkpoint),       TIME(callback),       TIME(flush),    COUNT(samples),
};
#undef TIME
#undef COUNT

static double number_at(const void *of, size_t offset)
{
    return (double)*(const int64_t *)(const void *)((const char *)of + offset);
}

static json_t *quantities_json(const td_step_trace *trace, range r)
{
    json_t *json = json_object();
    for (size_t q = 0; q < sizeof quantities / sizeof *quantities; q++) {
        json_t *values = json_array();
        for (int64_t i = r.first; i < r.end; i++)
            json_array_append_new(values,
                                  json_real(quantities[q].scale * number_at(&trace->steps[i], quantities[q].offset)));
        json_object_set_new(json, quantities[q].key, values);
    }
    return json;
}

static json_t *path_json(const td_step_trace *trace, range r)
{
    json_t *json = json_object();
    for (int c = 0; c < TD_CAUSES; c++) {
        json_t *values = json_array();
        for (int64_t i = r.first; i < r.end; i++)
            json_array_append_new(values, json_real(MS(trace->steps[i].path_ns[c])));
        json_object_set_new(json, td_report_cause_key((td_cause)c), values);
    }
    return json;
}

/* A subgraph's curve of one field of its points. */
static json_t *points_json(const td_curves *curves, int32_t subgraph, size_t offset)
{
    json_t *values = json_array();
    for (int64_t i = 0; i < curves->n; i++)
        json_array_append_new(values, json_real(1e-6 * number_at(td_curves_subgraph(curves, subgraph, i), offset)));
    return values;
}

static json_t *subgraphs_json(const td_curves *curves)
{
    const td_trace_plan *plan = curves->trace->view->plan;
    json_t *list = json_array();
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        json_t *one = json_pack("{s:i, s:s, s:s, s:o}", "id", s, "name", plan->subgraphs[s].name, "device",
                                plan->devices[plan->subgraphs[s].device].name, "ms",
                                points_json(curves, s, offsetof(td_subgraph_point, total_ns)));
        if (plan->subgraphs[s].lane == TD_TRACE_COMPUTE) {
            json_object_set_new(one, "forward_ms", points_json(curves, s, offsetof(td_subgraph_point, forward_ns)));
            json_object_set_new(one, "backward_ms", points_json(curves, s, offsetof(td_subgraph_point, backward_ns)));
            json_object_set_new(one, "update_ms", points_json(curves, s, offsetof(td_subgraph_point, update_ns)));
        }
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *lanes_json(const td_curves *curves)
{
    const td_view *view = curves->trace->view;
    json_t *list = json_array();
    for (int64_t l = 0; l < view->n_lanes; l++) {
        json_t *values = json_array();
        for (int64_t i = 0; i < curves->n; i++)
            json_array_append_new(values, json_real(MS(td_curves_lane_ns(curves, l, i))));
        json_array_append_new(list, json_pack("{s:s, s:o}", "name", view->lanes[l].name, "busy_ms", values));
    }
    return list;
}

/* Pairs that were at work together in some step of all; activities alone likewise. */
static void put_overlaps(json_t *json, const td_overlaps *o, range r)
{
    json_t *alone = json_array(), *pairs = json_array();
    for (int32_t a = 0; a < o->n; a++)
        for (int32_t b = a; b < o->n; b++) {
            json_t *values = json_array();
            for (int64_t i = r.first; i < r.end; i++)
                json_array_append_new(values, json_real(MS(td_overlap_in_step_ns(o, a, b, i))));
            if (a == b)
                json_array_append_new(alone, json_pack("{s:s, s:o}", "name", o->activities[a].name, "ms", values));
            else if (td_overlap_ns(o, a, b))
                json_array_append_new(pairs, json_pack("{s:s, s:s, s:o}", "a", o->activities[a].name, "b",
                                                       o->activities[b].name, "ms", values));
            else
                json_decref(values);
        }
    json_object_set_new(json, "activities", alone);
    json_object_set_new(json, "overlaps", pairs);
}

/* The steps from `from` to `to` that count. */
static range range_of(const td_step_trace *trace, int64_t from, int64_t to)
{
    range r = {0, trace->n_steps};
    while (r.first < r.end && trace->steps[r.first].step < from)
        r.first++;
    while (r.end > r.first && trace->steps[r.end - 1].step > to)
        r.end--;
    return r;
}

td_status *td_report_curves_json(const td_analysis *analysis, int64_t from, int64_t to, json_t **out_json)
{
    const td_step_trace *trace = analysis->steps;
    td_curves *curves = NULL;
    range r = range_of(trace, from, to);
    *out_json = NULL;
    TD_TRY(td_curves_create(trace, r.first, r.end - r.first, &curves));
    json_t *steps = json_array();
    for (int64_t i = r.first; i < r.end; i++)
        json_array_append_new(steps, json_integer((json_int_t)trace->steps[i].step));
    *out_json =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "steps", steps, "step", quantities_json(trace, r), "critical_path",
                  path_json(trace, r), "subgraphs", subgraphs_json(curves), "lanes", lanes_json(curves));
    td_curves_destroy(curves);
    if (!*out_json)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for curves");
    put_overlaps(*out_json, analysis->overlaps, r);
    return NULL;
}

/* ---- one step ---------------------------------------------------------------------------------------------------------------------- */

typedef struct pieces {
    const td_view *view;
    int64_t from_ns;
    json_t *list;
} pieces;

/* Segments come from the latest to the earliest. */
static td_status *add_piece(void *context, const td_segment *s)
{
    const pieces *p = context;
    bool ran = s->cause == TD_CAUSE_SUBGRAPH || s->cause == TD_CAUSE_COPY;
    json_t *one = json_pack("{s:f, s:f, s:s, s:s, s:I, s:I}", "from_ms", MS(td_ns_minus(s->begin_ns, p->from_ns)), "ms",
                            MS(td_ns_minus(s->end_ns, s->begin_ns)), "cause", td_cause_name(s->cause), "because",
                            td_edge_name(s->edge), "step", (json_int_t)s->step, "micro", (json_int_t)s->micro);
    if (ran) {
        json_object_set_new(one, "subgraph", json_integer(s->subgraph));
        json_object_set_new(one, "name", json_string(p->view->plan->subgraphs[s->subgraph].name));
    }
    json_array_insert_new(p->list, 0, one);
    return NULL;
}

/* `curves`: of that step alone. */
static json_t *points_of_step(const td_curves *curves, int64_t from_ns)
{
    const td_trace_plan *plan = curves->trace->view->plan;
    json_t *list = json_array();
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        const td_subgraph_point *p = td_curves_subgraph(curves, s, 0);
        if (p->runs)
            json_array_append_new(
                list, json_pack("{s:i, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "id", s, "name",
                                plan->subgraphs[s].name, "device", plan->devices[plan->subgraphs[s].device].name,
                                "runs", (int)p->runs, "from_ms", MS(td_ns_minus(p->begin_ns, from_ns)), "to_ms",
                                MS(td_ns_minus(p->end_ns, from_ns)), "ms", MS(p->total_ns), "forward_ms",
                                MS(p->forward_ns), "backward_ms", MS(p->backward_ns), "update_ms", MS(p->update_ns)));
    }
    return list;
}

static td_status *lanes_of_step(const td_step_trace *trace, const td_view_step *step, json_t *list)
{
    for (int64_t l = 0; l < trace->view->n_lanes; l++) {
        td_lane_times times = {0};
        td_status *status = td_lane_times_within(trace, l, step->from_ns, step->end_ns, &times);
        if (!status)
            json_array_append_new(list, td_report_lane(trace, l, &times, 1));
        td_lane_times_deinit(&times);
        TD_TRY(status);
    }
    return NULL;
}

static json_t *overlaps_of_step(const td_overlaps *o, int64_t i)
{
    json_t *list = json_array();
    for (int32_t a = 0; a < o->n; a++)
        for (int32_t b = a + 1; b < o->n; b++)
            if (td_overlap_in_step_ns(o, a, b, i))
                json_array_append_new(list,
                                      json_pack("{s:s, s:s, s:f}", "a", o->activities[a].name, "b",
                                                o->activities[b].name, "ms", MS(td_overlap_in_step_ns(o, a, b, i))));
    return list;
}

static td_status *fill_step(const td_analysis *a, const td_view_step *step, int64_t i, json_t *out)
{
    td_curves *curves = NULL;
    pieces p = {a->view, step->from_ns, json_array()};
    json_t *lanes = json_array();
    json_object_set_new(out, "critical_path", p.list);
    json_object_set_new(out, "lanes", lanes);
    TD_TRY(td_path_of_step(a->view, step, add_piece, &p));
    TD_TRY(lanes_of_step(a->steps, step, lanes));
    TD_TRY(td_curves_create(a->steps, i, 1, &curves));
    json_object_set_new(out, "subgraphs", points_of_step(curves, step->from_ns));
    td_curves_destroy(curves);
    json_object_set_new(out, "overlaps", overlaps_of_step(a->overlaps, i));
    return NULL;
}

td_status *td_report_step_json(const td_analysis *analysis, int64_t step, json_t **out_json)
{
    const td_step_trace *trace = analysis->steps;
    const td_step_times *found = td_step_times_of(trace, step);
    *out_json = NULL;
    if (!found)
        return TD_ERROR(TD_NOT_FOUND, "step %lld is not in the recording: it has steps %lld to %lld", (long long)step,
                        (long long)trace->steps[0].step, (long long)trace->steps[trace->n_steps - 1].step);
    json_t *json = json_object();
    json_object_set_new(json, "step", td_report_step_with_micros(trace, found - trace->steps));
    td_status *status = fill_step(analysis, td_view_step_of(analysis->view, step), found - trace->steps, json);
    if (status)
        json_decref(json);
    else
        *out_json = json;
    return status;
}
