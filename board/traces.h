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

/* An event as rows need it, beside its neighbours in the row: those of the trace are far apart. */
typedef struct td_board_item {
    int64_t begin_ns;
    uint32_t duration_ns; /* UINT32_MAX: as long or longer, the event knows */
    uint32_t event;       /* of the trace */
} td_board_item;

/* What a row holds. */
typedef enum td_board_depth {
    TD_BOARD_OF_NOTHING = -1, /* a sample: no box */
    TD_BOARD_OF_STEP = 0,
    TD_BOARD_OF_SUBGRAPH, /* waits and the like, too */
    TD_BOARD_OF_NODE,     /* ops and copies */
    TD_BOARD_DEPTHS
} td_board_depth;

/* Events of one thread that do not overlap, by begin. */
typedef struct td_board_row {
    uint16_t thread;
    int32_t rank; /* its place among the trace's ranks; 0 where it has none */
    int depth;    /* td_board_depth */
    int overflow; /* of rows that overlap in time, such as steps: which of them */
    int32_t next; /* the row of the same thread and depth that takes what overlaps; -1: none yet. While rows are made */
    int64_t last_end_ns;
    td_board_item *items; /* its events */
    int64_t n_events, items_capacity;
    td_board_level levels[TD_BOARD_LEVELS]; /* coarser and coarser */
    int n_levels;
} td_board_row;

struct td_board_trace {
    char *key; /* the run's id and the file's name and time */
    td_job_traces *job;
    td_trace *merged; /* of all ranks; NULL: there is one */
    td_trace *trace;  /* what the timeline shows: that, or the only one */
    td_board_row *rows;
    int64_t n_rows;
    td_whose whose;      /* of a job: whose steps were analysed last */
    td_analysis *parsed; /* what analyses find of them; NULL: not asked for yet */
    char *analysis;      /* what tandem profile --json says of them; likewise */
};

/* The trace of the request's run; an answer of 404 that says how to record one where there is none. */
td_status *td_board_trace_of(td_board *board, const td_board_request *request, td_board_trace **out_trace) TD_MUST_USE;
void td_board_trace_destroy(td_board_trace *trace);
/* Its analyses, of the request's "rank" or "worker", kept with it until another's are asked for: get_trace.c. */
td_status *td_board_analysis_of(td_board *board, const td_board_request *request,
                                const td_analysis **out_analysis) TD_MUST_USE;
/* rows.c: the rows of a trace, with their levels, by rank, thread and depth: the same ones whatever `helpers`, the number of further
 * threads that make them. */
td_status *td_board_make_rows(const td_trace *trace, int helpers, td_board_row **out_rows, int64_t *out_n) TD_MUST_USE;
/* Threads of a trace that get no row: those beyond as many as a timeline has. */
int64_t td_board_threads_left_out(const td_trace *trace);
td_board_depth td_board_depth_of(const td_trace_event *event);
void td_board_free_rows(td_board_row *rows, int64_t n);
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
