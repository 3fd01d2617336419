/* A recording as JSON: see report.h. */
#include <stdlib.h>

#include "base/memory.h"
#include "profiler/report_parts.h"
#include "tandem/profiler.h"

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

static json_t *op_row_json(const td_op_statistics *ops, const td_op_row *row)
{
    double steps = (double)(ops->steps ? ops->steps : 1), seconds = 1e-9 * (double)row->self_ns;
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "name", row->name, "device", row->device, "count",
                  (json_int_t)row->count, "total_ms", MS(row->total_ns) / steps, "self_ms", MS(row->self_ns) / steps,
                  "share", (double)row->self_ns / (double)(ops->self_ns + !ops->self_ns), "flops_per_s",
                  seconds > 0 ? row->flops / seconds : 0, "bytes_per_s", seconds > 0 ? row->bytes / seconds : 0,
                  "reached", td_op_reached(ops->view, row));
    if (row->node >= 0) {
        const td_trace_plan *plan = ops->view->plan;
        const td_trace_node *node = &plan->nodes[row->node];
        static const char *const phases[] = {"forward", "backward", "update"};
        char inputs[1024], outputs[512];
        json_object_set_new(json, "op", json_string(row->op));
        json_object_set_new(json, "subgraph", json_string(plan->subgraphs[node->subgraph].name));
        json_object_set_new(json, "phase", json_string(phases[node->phase]));
        json_object_set_new(json, "inputs",
                            json_string(td_op_shapes(plan, node->inputs, node->n_inputs, inputs, sizeof inputs)));
        json_object_set_new(json, "outputs",
                            json_string(td_op_shapes(plan, node->outputs, node->n_outputs, outputs, sizeof outputs)));
        json_object_set_new(json, "attributes", json_string(node->attributes));
        json_object_set_new(json, "inserted", json_boolean(node->inserted));
        json_object_set_new(json, "planned_ms", json_real(node->estimated_ms));
    }
    return json;
}

static json_t *op_rows_json(const td_op_statistics *ops, const td_op_rows *rows)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < rows->n; i++)
        json_array_append_new(list, op_row_json(ops, &rows->rows[i]));
    return list;
}

static json_t *operators_json(const td_op_statistics *ops)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "by_type", op_rows_json(ops, &ops->types), "by_op",
                     op_rows_json(ops, &ops->ops), "by_subgraph", op_rows_json(ops, &ops->subgraphs), "by_device",
                     op_rows_json(ops, &ops->devices));
}

static json_t *memory_json(const td_analysis *a)
{
    json_t *list = json_array();
    for (int32_t d = 0; d < a->memory->n_devices; d++) {
        const td_device_memory *m = &a->memory->devices[d];
        json_t *points = json_array(), *tenants = json_array();
        for (int64_t i = 0; i < m->n_points; i++)
            json_array_append_new(points, json_pack("[f, I]", MS(m->points[i].at_ns), (json_int_t)m->points[i].bytes));
        for (int32_t i = 0; i < m->n_tenants; i++)
            json_array_append_new(tenants, json_pack("{s:s, s:s, s:I}", "name", m->tenants[i].name, "class",
                                                     m->tenants[i].class, "bytes", (json_int_t)m->tenants[i].bytes));
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:o, s:o}", "device", a->view->plan->devices[d].name,
                            "store_bytes", (json_int_t)m->store_bytes, "arena_bytes", (json_int_t)m->arena_bytes,
                            "capacity_bytes", (json_int_t)m->capacity_bytes, "peak_live_bytes",
                            (json_int_t)m->peak_live_bytes, "peak_at_ms", MS(m->peak_at_ns), "in_use_bytes",
                            (json_int_t)m->in_use_bytes, "live_bytes_over_ms", points, "tenants", tenants));
    }
    return json_pack("{s:I, s:o}", "step", (json_int_t)a->memory->step, "devices", list);
}

static json_t *advice_json(const td_analysis *a)
{
    json_t *json = json_array();
    td_advice_list list;
    td_advise(a, &list);
    for (int32_t i = 0; i < list.n; i++)
        json_array_append_new(json, json_pack("{s:s, s:f, s:f, s:f, s:s}", "rule", list.items[i].rule, "threshold",
                                              list.items[i].threshold, "measured", list.items[i].measured, "gain_ms",
                                              list.items[i].gain_ms, "text", list.items[i].text));
    return json;
}

/* Of a job: its ranks, and the place among them whose steps the report is of. */
static td_status *ranks_json(const td_analysis *a, json_t **out_json)
{
    const td_rank_trace *place = td_ranks_place(a->ranks, a->view->trace, a->view->plan->worker);
    TD_TRY(td_ranks_json(a->ranks, out_json));
    if (place)
        json_object_set_new(*out_json, "shown", json_integer(place - a->ranks->job->ranks));
    return NULL;
}

td_status *td_report_json(const td_analysis *analysis, json_t **out_json)
{
    const td_step_trace *trace = analysis->steps;
    *out_json = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o}", "totals", td_report_totals(analysis),
        "trace", trace_json(trace->view->trace), "average", td_report_average(trace), "steps", td_report_steps(trace),
        "subgraphs", td_report_subgraphs(trace), "lanes", td_report_lanes(trace), "activities",
        td_report_activities(analysis->overlaps), "overlaps", td_report_overlaps(analysis->overlaps), "device_ops",
        (int)trace->device_ops, "operators", operators_json(analysis->ops), "memory", memory_json(analysis), "data",
        td_report_data(analysis), "machine", td_report_machine(analysis), "advice", advice_json(analysis));
    if (!*out_json)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report");
    json_t *ranks = NULL;
    td_status *status = analysis->ranks ? ranks_json(analysis, &ranks) : NULL;
    if (ranks)
        json_object_set_new(*out_json, "ranks", ranks);
    if (status) {
        json_decref(*out_json);
        *out_json = NULL;
    }
    return status;
}

/* ---- the public call ------------------------------------------------------------------------------------------------------------- */

static td_status *analyse(const td_job_traces *job, int32_t window, char **out_json)
{
    td_analysis *analysis = NULL;
    json_t *json = NULL;
    td_status *status = td_analysis_create_of(job, (td_whose){-1, -1}, window, &analysis);
    if (!status)
        status = td_report_json(analysis, &json);
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        *out_json = td_strdup(text);
    if (!status && !*out_json)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report");
    free(text); /* jansson's own allocation */
    json_decref(json);
    td_analysis_destroy(analysis);
    return status;
}

td_status *td_profiler_analyse(const char *trace, int32_t window, char **out_json)
{
    td_job_traces *job = NULL;
    *out_json = NULL;
    TD_TRY(td_job_traces_read(trace, &job));
    td_status *status = td_status_prefix(analyse(job, window, out_json), "%s", trace);
    td_job_traces_destroy(job);
    return status;
}
