/* What a trace shows: its analysis, and the timeline at the detail that a picture of so many pixels has. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "board/traces.h"
#include "profiler/report.h"

/* ---- analysis ----------------------------------------------------------------------------------------------------------------- */

static td_whose whose_of(const td_board_request *request)
{
    return (td_whose){.rank = (int32_t)td_board_number(request, "rank", -1, -1, INT32_MAX),
                      .worker = (int32_t)td_board_number(request, "worker", -1, -1, INT32_MAX)};
}

static td_status *parse(td_board_trace *t, td_whose whose)
{
    td_analysis *parsed = NULL;
    if (t->parsed && t->whose.rank == whose.rank && t->whose.worker == whose.worker)
        return NULL;
    TD_TRY(td_analysis_create_of(t->job, whose, -1, &parsed));
    td_analysis_destroy(t->parsed);
    td_free(t->analysis);
    t->analysis = NULL;
    t->parsed = parsed;
    t->whose = whose;
    return NULL;
}

td_status *td_board_analysis_of(td_board *board, const td_board_request *request, const td_analysis **out_analysis)
{
    td_board_trace *t = NULL;
    *out_analysis = NULL;
    TD_TRY(td_board_trace_of(board, request, &t));
    TD_TRY(parse(t, whose_of(request)));
    *out_analysis = t->parsed;
    return NULL;
}

static td_status *analyse(td_board_trace *t)
{
    json_t *json = NULL;
    td_string text = {0};
    TD_TRY(td_report_json(t->parsed, &json));
    TD_TRY(td_board_put_json(&text, json));
    return td_string_finish(&text, &t->analysis);
}

TD_BOARD_HANDLER(get_profile)
{
    td_board_trace *t = NULL;
    TD_TRY(td_board_trace_of(board, request, &t));
    TD_TRY(parse(t, whose_of(request)));
    if (!t->analysis)
        TD_TRY(analyse(t));
    td_string_append(out, t->analysis);
    return NULL;
}

/* ---- ranks -------------------------------------------------------------------------------------------------------------------- */

TD_BOARD_HANDLER(get_cluster)
{
    td_board_trace *t = NULL;
    td_ranks *ranks = NULL;
    json_t *json = NULL;
    TD_TRY(td_board_trace_of(board, request, &t));
    if (t->job->n < 2)
        return td_status_help(TD_ERROR(TD_NOT_FOUND, "this recording is of one process, no distributed job"),
                              "record one: mpirun -n 4 tandem train CONFIG --profile");
    TD_TRY(td_ranks_create(t->job, -1, &ranks));
    td_status *status = td_ranks_json(ranks, &json);
    td_ranks_destroy(ranks);
    return status ? status : td_board_put_json(out, json);
}

/* ---- timeline ----------------------------------------------------------------------------------------------------------------- */

/* The finest level whose boxes are as wide as a pixel; NULL: single events. */
static const td_board_level *level_for(const td_board_row *row, int64_t pixel_ns)
{
    int k = 0;
    while (k < row->n_levels && row->levels[k].width_ns <= pixel_ns)
        k++;
    return k ? &row->levels[k - 1] : NULL;
}

/* The first box that ends after `from`: boxes of a row are in order, and do not overlap but by the ends of merged ones. */
static int64_t first_box(const td_trace *trace, const td_board_row *row, const td_board_level *level, int64_t from)
{
    int64_t low = 0, high = level ? level->n : row->n_events;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (td_board_box_at(trace, row, level, middle).end_ns < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
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
    char thread[64];
    int64_t n = 0, end = level ? level->n : row->n_events;
    if (trace->n_ranks)
        (void)snprintf(thread, sizeof thread, "%d: %s", trace->ranks[row->rank].rank, trace->threads[row->thread].name);
    else
        td_text_cut(thread, sizeof thread, trace->threads[row->thread].name);
    td_string_append(out, "{\"thread\":");
    td_board_quote(out, thread, strlen(thread));
    if (trace->n_ranks) {
        td_string_format(out, ",\"rank\":%d,\"process\":", trace->ranks[row->rank].rank);
        td_board_quote(out, trace->ranks[row->rank].name, strlen(trace->ranks[row->rank].name));
    }
    td_string_format(out, ",\"depth\":%d,\"lane\":%d,\"boxes\":[", row->depth, row->overflow);
    for (int64_t i = first_box(trace, row, level, r->from); i < end && n < MOST_BOXES; i++) {
        const td_board_box box = td_board_box_at(trace, row, level, i);
        if (box.begin_ns > r->to)
            break;
        td_string_append(out, n++ ? "," : "");
        put_box(out, trace, &box, r);
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
    td_string_format(out,
                     "{\"begin\":%lld,\"end\":%lld,\"from\":%lld,\"to\":%lld,\"events\":%lld,\"dropped\":%llu,"
                     "\"cut\":%s,\"threads\":%lld,\"threads_left_out\":%lld,\"rows\":[",
                     (long long)begin, (long long)end, (long long)r.from, (long long)r.to, (long long)trace->n_events,
                     (unsigned long long)trace->dropped, trace->cut ? "true" : "false", (long long)trace->n_threads,
                     (long long)td_board_threads_left_out(trace));
    for (int64_t i = 0; i < t->n_rows; i++) {
        td_string_append(out, i ? "," : "");
        put_row(out, trace, &t->rows[i], &r);
    }
    td_string_append(out, "]}");
    return NULL;
}
