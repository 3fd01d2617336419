/* Opening a trace and laying its events out in rows: see board/traces.h. Their levels of detail: levels.c. */
#include "board/traces.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum { MOST_ROWS = 4096, MOST_OVERLAPPING = 16 };
enum { OF_STEP = 0, OF_SUBGRAPH, OF_NODE, DEPTHS };

static const char *const kind_names[] = {
#define TD_RECORD(number, symbol, name, help) [number] = name,
#include "base/record.def"
#undef TD_RECORD
};

/* Samples are no boxes. */
static int depth_of(const td_trace_event *event)
{
    switch (event->kind) {
    case TD_RECORD_MEMORY:
    case TD_RECORD_PROCESSOR:
    case TD_RECORD_QUEUE:
    case TD_RECORD_STALENESS:
        return -1;
    case TD_RECORD_STEP:
    case TD_RECORD_MICRO_STEP:
        return OF_STEP;
    case TD_RECORD_OP:
    case TD_RECORD_COPY:
    case TD_RECORD_UPDATE:
    case TD_RECORD_PULL:
    case TD_RECORD_PUSH:
    case TD_RECORD_ALL_REDUCE:
        return OF_NODE;
    default:
        return OF_SUBGRAPH;
    }
}

const char *td_board_event_name(const td_trace *trace, const td_trace_event *event)
{
    int32_t node, subgraph;
    int kind = event->kind;
    const td_trace_plan *plan = td_trace_find(trace, event->id, &node, &subgraph);
    if (plan && node >= 0 && depth_of(event) == OF_NODE)
        return plan->nodes[node].name;
    if (plan && subgraph >= 0 && kind == TD_RECORD_SUBGRAPH)
        return plan->subgraphs[subgraph].name;
    bool known = kind >= 0 && kind < (int)(sizeof kind_names / sizeof *kind_names) && kind_names[kind];
    return known ? kind_names[kind] : "unknown";
}

/* ---- rows ----------------------------------------------------------------------------------------------------------------- */

/* The row that an event goes into: the first of its thread and depth that is free by then. NULL: there are too many. */
static td_status *row_of(td_board_trace *t, int32_t *first, const td_trace_event *event, int depth,
                         td_board_row **out_row)
{
    int overlapping = 0;
    int32_t *at = first;
    *out_row = NULL;
    for (; *at >= 0; at = &t->rows[*at].next, overlapping++)
        if (t->rows[*at].last_end_ns <= event->begin_ns || overlapping + 1 == MOST_OVERLAPPING) {
            *out_row = &t->rows[*at];
            return NULL;
        }
    if (t->n_rows == MOST_ROWS)
        return NULL;
    ptrdiff_t inside = at == first ? -1 : (char *)at - (char *)t->rows; /* rows may move */
    TD_TRY(td_grow(&t->rows, &t->rows_capacity, t->n_rows, sizeof *t->rows));
    t->rows[t->n_rows] = (td_board_row){.thread = event->thread, .depth = depth, .overflow = overlapping, .next = -1};
    *(inside < 0 ? first : (int32_t *)(void *)((char *)t->rows + inside)) = (int32_t)t->n_rows;
    *out_row = &t->rows[t->n_rows++];
    return NULL;
}

static td_status *place_event(td_board_trace *t, int32_t *firsts, int64_t index)
{
    const td_trace_event *event = &t->trace->events[index];
    int depth = depth_of(event);
    td_board_row *row = NULL;
    if (depth < 0)
        return NULL;
    TD_TRY(row_of(t, &firsts[event->thread * DEPTHS + depth], event, depth, &row));
    if (!row)
        return NULL;
    TD_TRY(td_grow(&row->events, &row->events_capacity, row->n_events, sizeof *row->events));
    row->events[row->n_events++] = (uint32_t)index;
    row->last_end_ns = event->end_ns > row->last_end_ns ? event->end_ns : row->last_end_ns;
    return NULL;
}

static td_status *place_events(td_board_trace *t)
{
    int32_t *firsts = NULL; /* rows of each thread and depth */
    if (t->trace->n_events > UINT32_MAX)
        return TD_ERROR(TD_UNSUPPORTED, "a timeline of %lld events; it shows at most %u", (long long)t->trace->n_events,
                        UINT32_MAX);
    TD_TRY(TD_NEW(firsts, t->trace->n_threads * DEPTHS + 1));
    for (int64_t i = 0; i < t->trace->n_threads * DEPTHS; i++)
        firsts[i] = -1;
    td_status *status = NULL;
    for (int64_t i = 0; i < t->trace->n_events && !status; i++)
        status = place_event(t, firsts, i);
    td_free(firsts);
    return status;
}

/* Rank by rank; steps first; then thread by thread, subgraphs before ops. */
static int by_thread(const void *a, const void *b)
{
    const td_board_row *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if ((x->depth == OF_STEP) != (y->depth == OF_STEP))
        return x->depth == OF_STEP ? -1 : 1;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->depth != y->depth ? x->depth - y->depth : x->overflow - y->overflow;
}

static void sort_rows(td_board_trace *t)
{
    for (int64_t i = 0; i < t->n_rows; i++)
        t->rows[i].rank = t->trace->threads[t->rows[i].thread].rank;
    qsort(t->rows, (size_t)t->n_rows, sizeof *t->rows, by_thread);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------------ */

void td_board_trace_destroy(td_board_trace *trace)
{
    if (!trace)
        return;
    for (int64_t i = 0; i < trace->n_rows; i++) {
        for (int k = 0; k < trace->rows[i].n_levels; k++)
            td_free(trace->rows[i].levels[k].boxes);
        td_free(trace->rows[i].events);
    }
    td_trace_destroy(trace->merged);
    td_job_traces_destroy(trace->job);
    td_free(trace->rows);
    td_free(trace->key);
    td_free(trace->analysis);
    td_analysis_destroy(trace->parsed);
    td_free(trace);
}

static td_status *key_of(td_board *board, const td_board_run *run, const char *path, char **out_key)
{
    char *key = NULL;
    TD_TRY(td_board_key_of_job(board, path, &key));
    *out_key = td_format("%s %s", run->id, key);
    td_free(key);
    return *out_key ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a trace");
}

/* All ranks on one clock where there are several. */
static td_status *read_traces(td_board *board, const char *path, td_board_trace *t)
{
    TD_TRY(td_board_read_job(board, path, &t->job));
    if (t->job->n > 1)
        TD_TRY(td_job_traces_merge(t->job, &t->merged));
    t->trace = t->merged ? t->merged : t->job->ranks[0].trace;
    return NULL;
}

/* Takes `key`. */
static td_status *open_trace(td_board *board, const char *path, char *key)
{
    td_board_trace *t = NULL;
    td_board_trace_destroy(board->trace);
    board->trace = NULL;
    td_status *status = TD_NEW(t, 1);
    if (status) {
        td_free(key);
        return status;
    }
    t->key = key;
    status = read_traces(board, path, t);
    if (!status)
        status = place_events(t);
    if (t->n_rows)
        sort_rows(t);
    for (int64_t i = 0; !status && i < t->n_rows; i++)
        status = td_board_make_levels(t->trace, &t->rows[i]);
    if (status)
        td_board_trace_destroy(t);
    else
        board->trace = t;
    return status;
}

td_status *td_board_trace_of(td_board *board, const td_board_request *request, td_board_trace **out_trace)
{
    td_board_run *run = NULL;
    char *key = NULL;
    *out_trace = NULL;
    TD_TRY(td_board_run_of(board, request, &run));
    if (!run->trace)
        return td_status_help(TD_ERROR(TD_NOT_FOUND, "no trace was recorded in this run"),
                              "record one: tandem train CONFIG --profile, or kill -USR1 a training that runs");
    char *path = td_format("%s/%s", run->path, run->trace);
    td_status *status = path ? key_of(board, run, path, &key) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    if (!status && board->trace && !strcmp(board->trace->key, key))
        td_free(key);
    else if (!status)
        status = open_trace(board, path, key);
    td_free(path);
    *out_trace = status ? NULL : board->trace;
    return status;
}
