/* One recorded window of a trace, ordered for questions: which steps and micro-steps, when each subgraph ran in each, on which lane.
 *
 *     td_view *view = NULL;
 *     TD_TRY(td_view_create(trace, -1, &view));                                            // the last window
 *     const td_view_run *run = td_view_at(view, td_view_index(view, step, 0), subgraph);   // NULL: it was not recorded
 *
 * Micro-steps of all steps are numbered one after the other, n_micro places for each step. A step that does not accumulate is one
 * micro-step. Within one, subgraphs follow each other by the plan; the same holds between one and the next, in the same step or not.
 *
 * The plan is the one that the window's steps trained; of a rank that runs several workers of a job, the plan of one of them. A view borrows
 * its trace and is never changed. */
#ifndef TANDEM_PROFILER_VIEW_H
#define TANDEM_PROFILER_VIEW_H

#include "profiler/trace.h"

/* A subgraph in a micro-step. */
typedef struct td_view_run {
    int64_t begin_ns, end_ns;
    int32_t subgraph, lane; /* lane -1: it did not run */
    int64_t step, index;    /* index: of the micro-step, in the view */
    int32_t micro;
    int64_t before; /* the index in its lane's runs of what ran there before it; -1: nothing */
} td_view_run;

/* A thread that runs subgraphs, on one device in one direction. */
typedef struct td_view_lane {
    char name[64]; /* "accel", "cpu 2", "to accel", "from accel" */
    int32_t device;
    td_trace_lane kind;
    uint16_t thread;
    td_view_run **runs; /* by begin */
    int64_t n_runs, capacity;
} td_view_lane;

typedef struct td_view_step {
    int64_t step, samples;
    int64_t begin_ns; /* admitted */
    int64_t end_ns;   /* all of it had ended */
    /* where its interval begins: the end of the step before, or its own beginning if that was not recorded */
    int64_t from_ns;
    bool whole; /* its begin and end were recorded */
} td_view_step;

typedef struct td_view_micro {
    int64_t step, samples;
    int32_t micro;       /* which of its step, from 0 */
    bool ran;            /* a subgraph of it was recorded */
    bool known;          /* begin_ns is */
    int64_t begin_ns;    /* taken up */
    int64_t admitted_ns; /* its batch was bound: subgraphs may begin; begin_ns where it was not recorded */
    int64_t end_ns;      /* its last subgraph had ended */
    int64_t from_ns;     /* the end of the one before: where its interval begins */
    int64_t data_begin_ns, data_end_ns; /* asking for its batch; equal: not recorded */
} td_view_micro;

typedef struct td_view {
    const td_trace *trace;
    const td_trace_plan *plan;
    td_trace_window window;
    bool *own_threads; /* of each thread: it ran steps of this plan, and what it did between them is theirs */
    /* steps first .. first + n_steps, of which the window's are analysed; the others are its edges */
    int64_t first, n_steps;
    td_view_step *steps;
    int64_t n_micro;       /* places for micro-steps in each step: as many as the longest has */
    td_view_micro *micros; /* [n_steps][n_micro] */
    td_view_run *runs;     /* [n_steps][n_micro][n_subgraphs] */
    td_view_lane *lanes;
    int64_t n_lanes, lanes_capacity;
    int32_t *first_node, *next_node; /* of each subgraph, of each node: the subgraph's nodes in order; -1: no more */
    int32_t **comes_after;           /* of each subgraph: those of the step before that it waits for */
    int32_t *n_comes_after;
    bool **after_reads,
        **comes_after_reads; /* whether it reads what that one made; else there is an order between them only */
} td_view;

/* `window`: from 0, or -1 for the last. An error where the trace has no such window, or no step of a training in it. */
td_status *td_view_create(const td_trace *trace, int32_t window, td_view **out_view) TD_MUST_USE;
/* Of the plans of one worker; -1: of all. */
td_status *td_view_create_of(const td_trace *trace, int32_t window, int32_t worker, td_view **out_view) TD_MUST_USE;
void td_view_destroy(td_view *view);

/* NULL outside what was recorded. */
const td_view_step *td_view_step_of(const td_view *view, int64_t step);
const td_view_run *td_view_at(const td_view *view, int64_t index, int32_t subgraph);
/* The index of a micro-step; -1: outside. */
int64_t td_view_index(const td_view *view, int64_t step, int64_t micro);
/* The one that ran before; -1: none was recorded. */
int64_t td_view_before(const td_view *view, int64_t index);
/* NULL: it was not recorded. */
const td_view_micro *td_view_micro_of(const td_view *view, int64_t index);
/* The step's last one, in which every subgraph runs. */
const td_view_micro *td_view_last_micro(const td_view *view, int64_t step);
/* The steps that are analysed: from window.first_step to window.last_step, those that are whole. */
bool td_view_counts(const td_view *view, int64_t step);
int64_t td_view_count(const td_view *view);
/* The node or subgraph of an event of this plan; -1 where it is none. */
int32_t td_view_node(const td_view *view, const td_trace_event *event);
int32_t td_view_subgraph(const td_view *view, const td_trace_event *event);
/* Whether an event is of this plan's steps, or of nobody's: another worker of the same rank may have recorded it. */
bool td_view_owns(const td_view *view, const td_trace_event *event);
/* From where to where the analysed steps go. */
int64_t td_view_begin_ns(const td_view *view);
int64_t td_view_end_ns(const td_view *view);

/* ---- parts of making a view ---- */
/* The place of a step, whether or not it was recorded; NULL: outside. */
td_view_step *td_view_slot(const td_view *view, int64_t step);
/* view_fill.c: of a view that has its trace and window, all the rest. `worker`: as td_view_create_of. */
td_status *td_view_fill(td_view *view, int32_t worker) TD_MUST_USE;
/* view_order.c: what waits for what of the step before. */
td_status *td_view_fill_order(td_view *view) TD_MUST_USE;

#endif
