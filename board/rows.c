/* A trace's events in rows: see board/traces.h.
 *
 * An event goes into the first row of its thread and depth that is free by then. Threads have nothing to do with each other here, so
 * they are dealt out in shares, each of which goes through all events by itself and takes those of its threads; then rows' levels
 * are made, row by row. Neither depends on how many threads take the shares. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "board/traces.h"

enum { MOST_ROWS = 4096, MOST_OVERLAPPING = 16, DEPTHS = TD_BOARD_DEPTHS, MOST_SHARES = TD_MOST_HELPERS + 1 };
enum { MOST_THREADS = MOST_ROWS / DEPTHS };

int64_t td_board_threads_left_out(const td_trace *trace)
{
    return trace->n_threads > MOST_THREADS ? trace->n_threads - MOST_THREADS : 0;
}

td_board_depth td_board_depth_of(const td_trace_event *event)
{
    switch (event->kind) {
    case TD_RECORD_MEMORY:
    case TD_RECORD_PROCESSOR:
    case TD_RECORD_QUEUE:
    case TD_RECORD_STALENESS:
        return TD_BOARD_OF_NOTHING;
    case TD_RECORD_STEP:
    case TD_RECORD_MICRO_STEP:
        return TD_BOARD_OF_STEP;
    case TD_RECORD_OP:
    case TD_RECORD_COPY:
    case TD_RECORD_UPDATE:
    case TD_RECORD_PULL:
    case TD_RECORD_PUSH:
    case TD_RECORD_ALL_REDUCE:
        return TD_BOARD_OF_NODE;
    default:
        return TD_BOARD_OF_SUBGRAPH;
    }
}

/* The rows of some threads. */
typedef struct share {
    td_board_row *rows;
    int64_t n, capacity, n_events;
    td_status *status;
} share;

typedef struct laying {
    const td_trace *trace;
    uint8_t *share_of; /* [threads] */
    int64_t *n_of;     /* [threads][DEPTHS], events */
    int32_t *first;    /* [threads][DEPTHS], rows in their share; -1: none yet */
    int most_overlapping;
    share shares[MOST_SHARES];
    int n_shares;
    td_board_row *rows;
    int64_t n_rows;
    td_status *status; /* of the levels */
    atomic_int next, failed;
    atomic_long next_row;
} laying;

/* ---- events into rows --------------------------------------------------------------------------------------------------------- */

static td_status *add_row(laying *l, share *s, const td_trace_event *event, int depth, int overlapping, int32_t *out)
{
    TD_TRY(td_grow(&s->rows, &s->capacity, s->n, sizeof *s->rows));
    td_board_row *row = &s->rows[s->n];
    *row = (td_board_row){.thread = event->thread, .depth = depth, .overflow = overlapping, .next = -1};
    *out = (int32_t)s->n++;
    if (overlapping)
        return NULL; /* few go there */
    const int64_t n = l->n_of[event->thread * DEPTHS + depth];
    row->items = td_calloc_aligned((size_t)n * sizeof *row->items);
    row->items_capacity = n;
    return row->items ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a timeline of %lld events", (long long)n);
}

/* The first row that is free, or the last that there may be. */
static td_status *row_of(laying *l, share *s, const td_trace_event *event, int depth, td_board_row **out_row)
{
    int32_t at = l->first[event->thread * DEPTHS + depth], before = -1;
    int overlapping = 0;
    for (; at >= 0; before = at, at = s->rows[at].next, overlapping++)
        if (s->rows[at].last_end_ns <= event->begin_ns || overlapping + 1 == l->most_overlapping)
            break;
    if (at < 0) {
        TD_TRY(add_row(l, s, event, depth, overlapping, &at));
        *(before < 0 ? &l->first[event->thread * DEPTHS + depth] : &s->rows[before].next) = at;
    }
    *out_row = &s->rows[at];
    return NULL;
}

static td_status *place_event(laying *l, share *s, int64_t index, int depth)
{
    const td_trace_event *event = &l->trace->events[index];
    td_board_row *row = NULL;
    TD_TRY(row_of(l, s, event, depth, &row));
    TD_TRY(td_grow(&row->items, &row->items_capacity, row->n_events, sizeof *row->items));
    const int64_t duration = event->end_ns - event->begin_ns;
    row->items[row->n_events++] =
        (td_board_item){event->begin_ns, duration < UINT32_MAX ? (uint32_t)duration : UINT32_MAX, (uint32_t)index};
    row->last_end_ns = event->end_ns > row->last_end_ns ? event->end_ns : row->last_end_ns;
    return NULL;
}

static td_status *place_events(laying *l, int which)
{
    share *s = &l->shares[which];
    for (int64_t i = 0; i < l->trace->n_events; i++) {
        const td_trace_event *event = &l->trace->events[i];
        const int depth = l->share_of[event->thread] == which ? td_board_depth_of(event) : TD_BOARD_OF_NOTHING;
        if (depth >= 0)
            TD_TRY(place_event(l, s, i, depth));
    }
    return NULL;
}

static void count_events(laying *l, int which)
{
    for (int64_t i = 0; i < l->trace->n_events; i++) {
        const td_trace_event *event = &l->trace->events[i];
        if (l->share_of[event->thread] != which)
            continue;
        const int depth = td_board_depth_of(event);
        if (depth >= 0)
            l->n_of[event->thread * DEPTHS + depth]++;
    }
}

static void *take_shares(void *argument)
{
    laying *l = argument;
    for (int i; (i = atomic_fetch_add(&l->next, 1)) < l->n_shares;) {
        count_events(l, i);
        l->shares[i].status = place_events(l, i);
    }
    return NULL;
}

/* Threads to the share that has fewest events by then; those beyond MOST_THREADS to none. */
static void deal_out(laying *l)
{
    enum { NONE = UINT8_MAX };
    for (int64_t t = 0; t < l->trace->n_threads; t++) {
        share *least = &l->shares[0];
        for (int i = 1; i < l->n_shares; i++)
            least = l->shares[i].n_events < least->n_events ? &l->shares[i] : least;
        least->n_events += l->trace->threads[t].n_events;
        l->share_of[t] = t < MOST_THREADS ? (uint8_t)(least - l->shares) : NONE;
    }
}

/* ---- all rows ----------------------------------------------------------------------------------------------------------------- */

/* Rank by rank; steps first; then thread by thread, subgraphs before ops. */
static int by_thread(const void *a, const void *b)
{
    const td_board_row *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if ((x->depth == TD_BOARD_OF_STEP) != (y->depth == TD_BOARD_OF_STEP))
        return x->depth == TD_BOARD_OF_STEP ? -1 : 1;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->depth != y->depth ? x->depth - y->depth : x->overflow - y->overflow;
}

/* The shares' rows become the trace's, or are freed. */
static td_status *gather(laying *l)
{
    td_status *status = NULL;
    for (int i = 0; i < l->n_shares; i++) {
        if (status)
            td_status_destroy(l->shares[i].status);
        else
            status = l->shares[i].status;
        l->n_rows += l->shares[i].n;
    }
    if (!status)
        status = TD_NEW(l->rows, l->n_rows + 1);
    l->n_rows = 0;
    for (int i = 0; i < l->n_shares; i++) {
        share *s = &l->shares[i];
        if (status) {
            td_board_free_rows(s->rows, s->n);
            continue;
        }
        if (s->n)
            memcpy(l->rows + l->n_rows, s->rows, (size_t)s->n * sizeof *s->rows);
        l->n_rows += s->n;
        td_free(s->rows);
    }
    for (int64_t i = 0; i < l->n_rows; i++)
        l->rows[i].rank = l->trace->threads[l->rows[i].thread].rank;
    if (l->n_rows > 1)
        qsort(l->rows, (size_t)l->n_rows, sizeof *l->rows, by_thread);
    return status;
}

static void *make_levels(void *argument)
{
    laying *l = argument;
    for (int64_t i; (i = atomic_fetch_add(&l->next_row, 1)) < l->n_rows;) {
        td_status *status = td_board_make_levels(l->trace, &l->rows[i]);
        if (!status)
            continue;
        if (atomic_exchange(&l->failed, 1))
            td_status_destroy(status);
        else
            l->status = status;
    }
    return NULL;
}

static td_status *make_rows(laying *l, int helpers)
{
    const td_trace *trace = l->trace;
    if (trace->n_events > UINT32_MAX)
        return TD_ERROR(TD_UNSUPPORTED, "a timeline of %lld events; it shows at most %u", (long long)trace->n_events,
                        UINT32_MAX);
    TD_TRY(TD_NEW(l->share_of, trace->n_threads + 1));
    TD_TRY(TD_NEW(l->n_of, trace->n_threads * DEPTHS + 1));
    TD_TRY(TD_NEW(l->first, trace->n_threads * DEPTHS + 1));
    for (int64_t i = 0; i < trace->n_threads * DEPTHS; i++)
        l->first[i] = -1;
    deal_out(l);
    td_thread_share(take_shares, l, helpers);
    TD_TRY(gather(l));
    td_thread_share(make_levels, l, helpers);
    return l->status;
}

td_status *td_board_make_rows(const td_trace *trace, int helpers, td_board_row **out_rows, int64_t *out_n)
{
    const int64_t room = MOST_ROWS / (DEPTHS * (trace->n_threads + 1));
    laying l = {.trace = trace,
                .n_shares = helpers < TD_MOST_HELPERS ? helpers + 1 : MOST_SHARES,
                .most_overlapping = room < 1                  ? 1
                                    : room < MOST_OVERLAPPING ? (int)room
                                                              : MOST_OVERLAPPING};
    td_status *status = make_rows(&l, helpers);
    td_free(l.share_of);
    td_free(l.n_of);
    td_free(l.first);
    *out_rows = l.rows;
    *out_n = l.n_rows;
    return status;
}

void td_board_free_rows(td_board_row *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < rows[i].n_levels; k++)
            td_free(rows[i].levels[k].boxes);
        td_free(rows[i].items);
    }
    td_free(rows);
}
