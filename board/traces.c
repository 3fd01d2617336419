/* Opening a trace: see board/traces.h. Its rows: rows.c; their levels of detail: levels.c. */
#include "board/traces.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "profiler/trace_sort.h"

static const char *const kind_names[] = {
#define TD_RECORD(number, symbol, name, help) [number] = name,
#include "base/record.def"
#undef TD_RECORD
};

const char *td_board_event_name(const td_trace *trace, const td_trace_event *event)
{
    int32_t node, subgraph;
    int kind = event->kind;
    const td_trace_plan *plan = td_trace_find(trace, event->id, &node, &subgraph);
    if (plan && node >= 0 && td_board_depth_of(event) == TD_BOARD_OF_NODE)
        return plan->nodes[node].name;
    if (plan && subgraph >= 0 && kind == TD_RECORD_SUBGRAPH)
        return plan->subgraphs[subgraph].name;
    bool known = kind >= 0 && kind < (int)(sizeof kind_names / sizeof *kind_names) && kind_names[kind];
    return known ? kind_names[kind] : "unknown";
}

/* ---- opening ------------------------------------------------------------------------------------------------------------------ */

void td_board_trace_destroy(td_board_trace *trace)
{
    if (!trace)
        return;
    td_board_free_rows(trace->rows, trace->n_rows);
    td_analysis_destroy(trace->parsed); /* it reads the traces */
    td_trace_destroy(trace->merged);
    td_job_traces_destroy(trace->job);
    td_free(trace->key);
    td_free(trace->analysis);
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
        status = td_board_make_rows(t->trace, td_trace_helpers(t->trace->n_events), &t->rows, &t->n_rows);
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
