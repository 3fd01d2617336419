/* Sorting a trace's events: see trace_sort.h.
 *
 * A thread writes an event when it ends, so each thread's events are nearly in order already: what nests comes before what it is
 * in. They are told apart by thread, put in order in place, and merged. Ten million events take a third of what a general sort
 * takes; a file that was made to be slow falls back to that. */
#include "profiler/trace_sort.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"

static int by_begin(const void *a, const void *b)
{
    const td_trace_event *x = a, *y = b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : 0;
}

/* Insertion, as long as that moves few. */
void td_trace_sort_thread(td_trace_event *events, int64_t n)
{
    int64_t left = 32 * n;
    for (int64_t i = 1; i < n; i++) {
        if (by_begin(&events[i - 1], &events[i]) <= 0)
            continue;
        td_trace_event event = events[i];
        int64_t at = i;
        for (; at > 0 && left > 0 && by_begin(&events[at - 1], &event) > 0; at--, left--)
            events[at] = events[at - 1];
        events[at] = event;
        if (left <= 0) {
            qsort(events, (size_t)n, sizeof *events, by_begin);
            return;
        }
    }
}

/* Where a thread's events are: next to be merged, and their end. */
typedef struct run {
    const td_trace_event *at, *end;
} run;

static void sift_down(run *heap, int64_t n, int64_t i)
{
    run item = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && by_begin(heap[child + 1].at, heap[child].at) < 0)
            child++;
        if (by_begin(item.at, heap[child].at) <= 0)
            break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

static void merge(run *heap, int64_t n, td_trace_event *out)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i);
    while (n) {
        *out++ = *heap[0].at++;
        if (heap[0].at == heap[0].end)
            heap[0] = heap[--n];
        if (n)
            sift_down(heap, n, 0);
    }
}

/* ---- the merge, in stretches of time that threads share ---------------------------------------------------------------------- */

enum { STRETCHES = 16 };

typedef struct merging {
    const td_trace *trace;
    const int64_t *first; /* [threads + 1] */
    td_trace_event *out;
    run *heaps; /* [STRETCHES][threads] */
    int64_t cuts[STRETCHES];
    atomic_int next;
} merging;

/* Of a thread's events, how many begin before a moment. */
static int64_t before(const td_trace_event *events, int64_t n, int64_t moment)
{
    int64_t low = 0;
    while (low < n) {
        int64_t middle = low + (n - low) / 2;
        if (events[middle].begin_ns < moment)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* Where a stretch begins among a thread's events. */
static int64_t place_of(const merging *m, int64_t thread, int stretch)
{
    const int64_t first = m->first[thread], n = m->first[thread + 1] - first;
    if (stretch == 0 || stretch == STRETCHES)
        return stretch ? n : 0;
    return before(m->trace->events + first, n, m->cuts[stretch]);
}

static void *merge_stretches(void *argument)
{
    merging *m = argument;
    for (int k; (k = atomic_fetch_add(&m->next, 1)) < STRETCHES;) {
        run *heap = m->heaps + k * m->trace->n_threads;
        int64_t n = 0, at = 0;
        for (int64_t t = 0; t < m->trace->n_threads; t++) {
            const td_trace_event *events = m->trace->events + m->first[t];
            int64_t begin = place_of(m, t, k), end = place_of(m, t, k + 1);
            at += begin;
            if (end > begin)
                heap[n++] = (run){events + begin, events + end};
        }
        merge(heap, n, m->out + at);
    }
    return NULL;
}

/* By the thread that has most events. */
static void choose_cuts(merging *m)
{
    int64_t most = 0;
    for (int64_t t = 0; t < m->trace->n_threads; t++)
        most = m->first[t + 1] - m->first[t] > m->first[most + 1] - m->first[most] ? t : most;
    const int64_t n = m->trace->n_threads ? m->first[most + 1] - m->first[most] : 0;
    for (int k = 1; n && k < STRETCHES; k++)
        m->cuts[k] = m->trace->events[m->first[most] + n / STRETCHES * k].begin_ns;
}

td_status *td_trace_merge(td_trace *trace, const int64_t *first, td_trace_event *spare, int helpers)
{
    merging m = {.trace = trace, .first = first, .out = spare};
    td_status *status = TD_NEW(m.heaps, STRETCHES * trace->n_threads + 1);
    if (!status && !spare)
        status = td_trace_room(trace->n_events, &m.out);
    if (!status) {
        choose_cuts(&m);
        td_thread_share(merge_stretches, &m, helpers);
        for (int64_t t = 0; t < trace->n_threads; t++)
            trace->threads[t].n_events = first[t + 1] - first[t];
        td_free(trace->events);
        trace->events = m.out;
        trace->events_capacity = trace->n_events + 1;
    }
    td_free(m.heaps);
    return status;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------------------- */

td_status *td_trace_room(int64_t events, td_trace_event **out_events)
{
    *out_events = td_calloc_aligned(((size_t)events + 1) * sizeof **out_events);
    return *out_events ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %lld events", (long long)events);
}

td_status *td_trace_sort(td_trace *trace)
{
    td_trace_event *apart = NULL;
    int64_t *first = NULL, *at = NULL;
    td_status *status = TD_NEW(first, trace->n_threads + 1);
    if (!status)
        status = TD_NEW(at, trace->n_threads + 1);
    if (!status)
        status = td_trace_room(trace->n_events, &apart);
    if (!status) {
        for (int64_t i = 0; i < trace->n_events; i++)
            first[trace->events[i].thread + 1]++;
        for (int64_t t = 0; t < trace->n_threads; t++)
            at[t + 1] = first[t + 1] += first[t];
        for (int64_t i = 0; i < trace->n_events; i++)
            apart[at[trace->events[i].thread]++] = trace->events[i];
        for (int64_t t = 0; t < trace->n_threads; t++)
            td_trace_sort_thread(apart + first[t], first[t + 1] - first[t]);
        td_free(trace->events);
        trace->events = apart;
        trace->events_capacity = trace->n_events + 1;
        status = td_trace_merge(trace, first, NULL, td_trace_helpers(trace->n_events));
    }
    td_free(first);
    td_free(at);
    return status;
}

int td_trace_helpers(int64_t events)
{
    enum { WORTH_SHARING = 200000 };
    return events < WORTH_SHARING ? 0 : td_thread_helpers();
}
