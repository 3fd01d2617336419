/* The trace that was asked for last, kept open with what the timeline needs: rows of boxes at several levels of detail. */
#ifndef TANDEM_BOARD_TRACES_H
#define TANDEM_BOARD_TRACES_H

#include "board/board.h"
#include "profiler/trace.h"

/* One or more events of a row that lie side by side. */
typedef struct td_board_box {
    int64_t begin_ns, end_ns, busy_ns;
    int64_t event; /* the longest of them */
    uint32_t n;
} td_board_box;

typedef struct td_board_level {
    int64_t width_ns; /* boxes that are closer than this are one; 0: every event has its own */
    td_board_box *boxes;
    int64_t n, capacity;
} td_board_level;

enum { TD_BOARD_LEVELS = 40 };

/* Events of one thread that do not overlap, by begin. */
typedef struct td_board_row {
    uint16_t thread;
    int depth;    /* 0: steps; 1: subgraphs, waits and the like; 2: ops and copies */
    int overflow; /* of rows that overlap in time, such as steps: which of them */
    int64_t last_end_ns;
    td_board_level levels[TD_BOARD_LEVELS];
    int n_levels;
} td_board_row;

struct td_board_trace {
    char *key; /* the run's id and the file's name and time */
    td_trace *trace;
    td_board_row *rows;
    int64_t n_rows, rows_capacity;
    char *analysis; /* what tandem profile --json says; NULL: not asked for yet */
};

/* The trace of the request's run; an answer of 404 that says how to record one where there is none. */
td_status *td_board_trace_of(td_board *board, const td_board_request *request, td_board_trace **out_trace) TD_MUST_USE;
void td_board_trace_destroy(td_board_trace *trace);
/* The name of an event's op or subgraph, or of its kind. */
const char *td_board_event_name(const td_trace *trace, const td_trace_event *event);

#endif
