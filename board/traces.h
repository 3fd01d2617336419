/* The trace that was asked for last, kept open with what the timeline needs: rows of boxes at several levels of detail. */
#ifndef TANDEM_BOARD_TRACES_H
#define TANDEM_BOARD_TRACES_H

#include "board/board.h"
#include "profiler/advice.h"

/* One or more events of a row that lie side by side. */
typedef struct td_board_box {
    int64_t begin_ns, end_ns, busy_ns;
    uint32_t event; /* the longest of them */
    uint32_t n;
} td_board_box;

typedef struct td_board_level {
    int64_t width_ns; /* boxes that are closer than this are one */
    td_board_box *boxes;
    int64_t n;
} td_board_level;

enum { TD_BOARD_LEVELS = 40 };

/* Events of one thread that do not overlap, by begin. */
typedef struct td_board_row {
    uint16_t thread;
    int32_t rank; /* its place among the trace's ranks; 0 where it has none */
    int depth;    /* 0: steps; 1: subgraphs, waits and the like; 2: ops and copies */
    int overflow; /* of rows that overlap in time, such as steps: which of them */
    int32_t next; /* the row of the same thread and depth that takes what overlaps; -1: none yet */
    int64_t last_end_ns;
    uint32_t *events; /* of the trace */
    int64_t n_events, events_capacity;
    td_board_level levels[TD_BOARD_LEVELS]; /* coarser and coarser */
    int n_levels;
} td_board_row;

struct td_board_trace {
    char *key; /* the run's id and the file's name and time */
    td_job_traces *job;
    td_trace *merged; /* of all ranks; NULL: there is one */
    td_trace *trace;  /* what the timeline shows: that, or the only one */
    td_board_row *rows;
    int64_t n_rows, rows_capacity;
    td_analysis *parsed; /* what analyses find; NULL: not asked for yet */
    char *analysis;      /* what tandem profile --json says of it; likewise */
};

/* The trace of the request's run; an answer of 404 that says how to record one where there is none. */
td_status *td_board_trace_of(td_board *board, const td_board_request *request, td_board_trace **out_trace) TD_MUST_USE;
void td_board_trace_destroy(td_board_trace *trace);
/* Its analyses, kept with it: get_trace.c. */
td_status *td_board_analysis_of(td_board *board, const td_board_request *request,
                                const td_analysis **out_analysis) TD_MUST_USE;
/* levels.c: fills in the levels of a row whose events are there. */
td_status *td_board_make_levels(const td_trace *trace, td_board_row *row) TD_MUST_USE;
/* Box i of a level, or of the single events (level NULL). */
td_board_box td_board_box_at(const td_trace *trace, const td_board_row *row, const td_board_level *level, int64_t i);

/* The traces of all ranks beside `path`, below the board's folder; those that cannot be read are left out. *out_key, td_free'd by the
 * caller: unlike any before once one of them has changed. */
td_status *td_board_key_of_job(td_board *board, const char *path, char **out_key) TD_MUST_USE;
td_status *td_board_read_job(td_board *board, const char *path, td_job_traces **out_job) TD_MUST_USE;
/* The name of an event's op or subgraph, or of its kind. */
const char *td_board_event_name(const td_trace *trace, const td_trace_event *event);

#endif
