/* What a trace shows: its analysis, time by op, and the timeline at the detail that a picture of so many pixels has. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "board/traces.h"
#include "profiler/report.h"

/* ---- analysis ----------------------------------------------------------------------------------------------------------------- */

static td_status *analyse(td_board_trace *t)
{
    td_view *view = NULL;
    td_step_trace *steps = NULL;
    json_t *json = NULL;
    td_status *status = td_view_create(t->trace, -1, &view);
    if (!status)
        status = td_step_trace_create(view, &steps);
    if (!status)
        status = td_report_json(steps, &json);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    t->analysis = text ? td_strdup(text) : NULL;
    if (!status && !t->analysis)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an analysis");
    free(text); /* jansson's own allocation */
    json_decref(json);
    td_step_trace_destroy(steps);
    td_view_destroy(view);
    return status;
}

TD_BOARD_HANDLER(get_profile)
{
    td_board_trace *t = NULL;
    TD_TRY(td_board_trace_of(board, request, &t));
    if (!t->analysis)
        TD_TRY(analyse(t));
    td_string_append(out, t->analysis);
    return NULL;
}

/* ---- operators ---------------------------------------------------------------------------------------------------------------- */

typedef struct op_time {
    int64_t n, total_ns, longest_ns;
} op_time;

static const char *phase_name(td_trace_phase phase)
{
    return phase == TD_TRACE_FORWARD ? "forward" : phase == TD_TRACE_BACKWARD ? "backward" : "update";
}

static void put_text(td_string *out, const char *name, const char *text)
{
    td_string_format(out, "\"%s\":", name);
    td_board_quote(out, text ? text : "", text ? strlen(text) : 0);
    td_string_append(out, ",");
}

static void put_op(td_string *out, const td_trace_plan *plan, int32_t index, const op_time *time)
{
    const td_trace_node *node = &plan->nodes[index];
    const td_trace_subgraph *subgraph = node->subgraph >= 0 ? &plan->subgraphs[node->subgraph] : NULL;
    td_string_append(out, "{");
    put_text(out, "name", node->name);
    put_text(out, "op", node->op);
    put_text(out, "subgraph", subgraph ? subgraph->name : "");
    put_text(out, "device", subgraph ? plan->devices[subgraph->device].name : "");
    put_text(out, "phase", phase_name(node->phase));
    td_string_format(out,
                     "\"inserted\":%s,\"n\":%lld,\"total_ms\":%.9g,\"longest_ms\":%.9g,\"planned_ms\":%.9g,\"flops\":%."
                     "9g,\"bytes\":%.9g}",
                     node->inserted ? "true" : "false", (long long)time->n, (double)time->total_ns / 1e6,
                     (double)time->longest_ns / 1e6, node->estimated_ms, node->flops, node->bytes);
}

static bool is_of_node(const td_trace_event *event)
{
    return event->kind == TD_RECORD_OP || event->kind == TD_RECORD_COPY;
}

static const td_trace_plan *training_plan(const td_trace *trace)
{
    for (int64_t i = trace->n_plans; i-- > 0;)
        if (trace->plans[i].training)
            return &trace->plans[i];
    return trace->n_plans ? &trace->plans[trace->n_plans - 1] : NULL;
}

TD_BOARD_HANDLER(get_operators)
{
    td_board_trace *t = NULL;
    op_time *times = NULL;
    int64_t steps = 0;
    TD_TRY(td_board_trace_of(board, request, &t));
    const td_trace_plan *plan = training_plan(t->trace);
    if (!plan)
        return TD_ERROR(TD_DATA_ERROR, "this trace has no plan: nothing says which ops its records are of");
    TD_TRY(TD_NEW(times, plan->n_nodes + 1));
    for (int64_t i = 0; i < t->trace->n_events; i++) {
        const td_trace_event *event = &t->trace->events[i];
        int64_t offset = (int64_t)event->id - plan->first_id, ns = event->end_ns - event->begin_ns;
        steps += event->kind == TD_RECORD_STEP;
        if (!is_of_node(event) || offset < 0 || offset >= plan->n_nodes)
            continue;
        times[offset].n++;
        times[offset].total_ns += ns;
        times[offset].longest_ns = ns > times[offset].longest_ns ? ns : times[offset].longest_ns;
    }
    td_string_format(out, "{\"steps\":%lld,\"ops\":[", (long long)steps);
    for (int32_t i = 0, first = 1; i < plan->n_nodes; i++) {
        if (!times[i].n)
            continue;
        td_string_append(out, first ? "" : ",");
        put_op(out, plan, i, &times[i]);
        first = 0;
    }
    td_string_append(out, "]}");
    td_free(times);
    return NULL;
}

/* ---- timeline ----------------------------------------------------------------------------------------------------------------- */

/* The first box that ends after `from`: boxes of a row are in order, and do not overlap but by the ends of merged ones. */
static int64_t first_box(const td_board_level *level, int64_t from)
{
    int64_t low = 0, high = level->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (level->boxes[middle].end_ns < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The finest level whose boxes are as wide as a pixel. */
static const td_board_level *level_for(const td_board_row *row, int64_t pixel_ns)
{
    int k = 0;
    while (k + 1 < row->n_levels && row->levels[k + 1].width_ns <= pixel_ns)
        k++;
    return &row->levels[k];
}

typedef struct range {
    int64_t from, to, pixel_ns;
} range;

/* [begin, end, busy, how many, step, kind, name], times in nanoseconds from `from`. */
static void put_box(td_string *out, const td_trace *trace, const td_board_box *box, const range *r)
{
    const td_trace_event *event = &trace->events[box->event];
    const char *name = td_board_event_name(trace, event);
    td_string_format(out, "[%lld,%lld,%lld,%u,%u,%d,", (long long)(box->begin_ns - r->from),
                     (long long)(box->end_ns - r->from), (long long)box->busy_ns, box->n, event->step, event->kind);
    td_board_quote(out, name, strlen(name));
    td_string_append(out, "]");
}

static void put_row(td_string *out, const td_trace *trace, const td_board_row *row, const range *r)
{
    enum { MOST_BOXES = 20000 };
    const td_board_level *level = level_for(row, r->pixel_ns);
    const char *thread = trace->threads[row->thread].name;
    int64_t n = 0;
    td_string_append(out, "{\"thread\":");
    td_board_quote(out, thread, strlen(thread));
    td_string_format(out, ",\"depth\":%d,\"lane\":%d,\"boxes\":[", row->depth, row->overflow);
    for (int64_t i = first_box(level, r->from); i < level->n && level->boxes[i].begin_ns <= r->to && n < MOST_BOXES;
         i++) {
        td_string_append(out, n++ ? "," : "");
        put_box(out, trace, &level->boxes[i], r);
    }
    td_string_append(out, "]}");
}

TD_BOARD_HANDLER(get_timeline)
{
    td_board_trace *t = NULL;
    TD_TRY(td_board_trace_of(board, request, &t));
    const td_trace *trace = t->trace;
    int64_t begin = trace->n_events ? trace->events[0].begin_ns : 0, end = begin;
    for (int64_t i = 0; i < t->n_rows; i++)
        end = t->rows[i].last_end_ns > end ? t->rows[i].last_end_ns : end;
    double from = td_board_number(request, "from", (double)begin, -9e18, 9e18);
    double to = td_board_number(request, "to", (double)end, from, 9e18),
           pixels = td_board_number(request, "pixels", 1200, 1, 8000);
    range r = {(int64_t)from, (int64_t)to, (int64_t)((to - from) / pixels)};
    td_string_format(
        out,
        "{\"begin\":%lld,\"end\":%lld,\"from\":%lld,\"to\":%lld,\"events\":%lld,\"dropped\":%llu,\"cut\":%s,\"rows\":[",
        (long long)begin, (long long)end, (long long)r.from, (long long)r.to, (long long)trace->n_events,
        (unsigned long long)trace->dropped, trace->cut ? "true" : "false");
    for (int64_t i = 0; i < t->n_rows; i++) {
        td_string_append(out, i ? "," : "");
        put_row(out, trace, &t->rows[i], &r);
    }
    td_string_append(out, "]}");
    return NULL;
}
