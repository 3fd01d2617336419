/* The data pipeline and the machine: see data.h. */
#include "profiler/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "profiler/workers.h"

enum { MOST_THREADS = 1 << 16 };

typedef struct processor {
    int64_t first_ns, last_ns, first_used, last_used;
    int64_t n;
} processor;

static void add_processor(processor *p, const td_trace_event *e)
{
    if (!p->n++) {
        p->first_ns = e->begin_ns;
        p->first_used = (int64_t)e->amount;
    }
    p->last_ns = e->begin_ns;
    p->last_used = (int64_t)e->amount;
}

static void add_event(td_data_view *d, const td_trace_event *e)
{
    int64_t ns = td_ns_minus(e->end_ns, e->begin_ns);
    switch (e->kind) {
    case TD_RECORD_DATA_FETCH:
        d->fetches++;
        td_ns_add(&d->fetch_ns, ns);
        break;
    case TD_RECORD_DATA_FULL:
        td_ns_add(&d->full_ns, ns);
        break;
    case TD_RECORD_QUEUE:
        d->queue_least = d->queue_samples && d->queue_least < (int64_t)e->amount ? d->queue_least : (int64_t)e->amount;
        d->queue_greatest = d->queue_greatest > (int64_t)e->amount ? d->queue_greatest : (int64_t)e->amount;
        d->queue_samples++;
        td_ns_add(&d->queue_sum, (int64_t)e->amount);
        d->queue_empty += e->amount == 0;
        d->queue_places = e->id;
        break;
    case TD_RECORD_ADMIT:
        td_ns_add(&d->admit_ns, ns);
        break;
    case TD_RECORD_CHECKPOINT:
        td_ns_add(&d->checkpoint_ns, ns);
        break;
    case TD_RECORD_CALLBACK:
        td_ns_add(&d->callback_ns, ns);
        break;
    case TD_RECORD_FLUSH:
        td_ns_add(&d->flush_ns, ns);
        break;
    default:
        break;
    }
}

static int64_t count_workers(const td_view *view, int64_t begin_ns, int64_t end_ns)
{
    static const uint64_t one = 1;
    uint64_t seen[MOST_THREADS / 64] = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < view->trace->n_events; i++) {
        const td_trace_event *e = &view->trace->events[i];
        bool counts = (e->kind == TD_RECORD_DATA_FETCH || e->kind == TD_RECORD_DATA_FULL) && td_view_owns(view, e);
        uint64_t bit = one << (e->thread % 64);
        if (!counts || e->begin_ns >= end_ns || e->end_ns <= begin_ns || seen[e->thread / 64] & bit)
            continue;
        seen[e->thread / 64] |= bit;
        n++;
    }
    return n;
}

static bool is_look(const td_view *view, const td_trace_event *e)
{
    return e->kind == TD_RECORD_QUEUE && td_view_owns(view, e);
}

/* The last look at the queue at or before a moment: `looks` are events, in order. -1: none. */
static int64_t last_look(const td_view *view, const int64_t *looks, int64_t n, int64_t ns)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (view->trace->events[looks[middle]].begin_ns <= ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? looks[low - 1] : -1;
}

/* The queue is looked at while a micro-step asks for its batch. */
static td_status *fill_levels(const td_step_trace *trace, const td_data_view *data)
{
    const td_view *view = trace->view;
    int64_t *looks = NULL, n = 0, count = 0;
    for (int64_t i = 0; i < view->trace->n_events; i++)
        count += is_look(view, &view->trace->events[i]);
    TD_TRY(TD_NEW(looks, count + 1));
    for (int64_t i = 0; i < view->trace->n_events; i++)
        if (is_look(view, &view->trace->events[i]))
            looks[n++] = i;
    for (int64_t i = 0; i < trace->n_steps * view->n_micro; i++) {
        const int64_t step = i / view->n_micro;
        const td_view_micro *micro =
            td_view_micro_of(view, td_view_index(view, trace->steps[step].step, i % view->n_micro));
        const int64_t look = micro ? last_look(view, looks, n, micro->data_end_ns) : -1;
        if (look >= 0 && micro->data_end_ns > micro->data_begin_ns &&
            view->trace->events[look].begin_ns >= micro->data_begin_ns)
            data->steps[step].ready = (int64_t)view->trace->events[look].amount;
    }
    td_free(looks);
    return NULL;
}

td_status *td_data_view_fill(const td_step_trace *trace, td_data_view *out_data)
{
    const td_view *view = trace->view;
    int64_t begin_ns = td_view_begin_ns(view), end_ns = td_view_end_ns(view);
    processor used = {0};
    *out_data = (td_data_view){.cores = view->plan->cores};
    TD_TRY(TD_NEW(out_data->steps, trace->n_steps + 1));
    for (int64_t i = 0; i < view->trace->n_events; i++) {
        const td_trace_event *e = &view->trace->events[i];
        if (e->kind == TD_RECORD_PROCESSOR && td_view_counts(view, e->step))
            add_processor(&used, e);
        if (e->end_ns <= begin_ns || e->begin_ns >= end_ns)
            continue;
        out_data->events++;
        if (td_view_owns(view, e))
            add_event(out_data, e);
    }
    out_data->workers = count_workers(view, begin_ns, end_ns);
    for (int64_t i = 0; i < trace->n_steps; i++) {
        int64_t data = trace->steps[i].path_ns[TD_CAUSE_DATA];
        td_ns_add(&out_data->waited_ns, trace->steps[i].data_wait_ns);
        td_ns_add(&out_data->starved_ns, data);
        out_data->steps[i] = (td_data_step){.ready = -1,
                                            .waited_ns = trace->steps[i].data_wait_ns,
                                            .starved = data > 0 && 20 * data >= trace->steps[i].interval_ns};
        out_data->starved_steps += out_data->steps[i].starved;
    }
    TD_TRY(fill_levels(trace, out_data));
    if (used.n > 1 && used.last_ns > used.first_ns)
        out_data->cores_used = td_worker_share(view->trace, view->plan->worker, used.first_ns, used.last_ns) *
                               (double)(used.last_used - used.first_used) / (double)(used.last_ns - used.first_ns);
    double event_ns = json_number_value(json_object_get(view->trace->info, "event_ns"));
    if (trace->wall_ns > 0)
        out_data->events_share = event_ns * (double)out_data->events / (double)trace->wall_ns;
    return NULL;
}

void td_data_view_deinit(td_data_view *data)
{
    td_free(data->steps);
    data->steps = NULL;
}

const char *td_data_starved_text(const td_step_trace *trace, const td_data_view *data, char *buffer, size_t bytes)
{
    enum { ROOM = 64 };
    size_t used = 0;
    int64_t left = data->starved_steps;
    buffer[0] = '\0';
    for (int64_t i = 0, end; i < trace->n_steps; i = end) {
        end = i + 1;
        if (!data->steps[i].starved)
            continue;
        while (end < trace->n_steps && data->steps[end].starved)
            end++;
        if (used + ROOM > bytes) {
            (void)snprintf(buffer + used, bytes - used, " and %" PRId64 " more", left);
            break;
        }
        used += (size_t)snprintf(buffer + used, bytes - used, end > i + 1 ? "%s%" PRId64 " to %" PRId64 : "%s%" PRId64,
                                 used ? ", " : "", trace->steps[i].step, trace->steps[end - 1].step);
        left -= end - i;
    }
    return buffer;
}
