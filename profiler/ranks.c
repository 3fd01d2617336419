/* Ranks beside each other: see ranks.h. */
#include "profiler/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "profiler/workers.h"

/* ---- one rank -------------------------------------------------------------------------------------------------------------------- */

static void add_work(td_rank_work *work, const td_trace_event *e)
{
    work->ns = td_ns_plus(work->ns, td_ns_minus(e->end_ns, e->begin_ns));
    work->bytes = td_ns_plus(work->bytes, (int64_t)e->amount);
    work->n++;
}

static bool is_training(const td_rank_trace *rank, const td_trace_event *e)
{
    int32_t node, subgraph;
    const td_trace_plan *plan = td_trace_find(rank->trace, e->id, &node, &subgraph);
    return plan && plan->training && e->id == plan->first_id && td_rank_owns(rank, e);
}

/* Ends of the steps, and of the one before the first: [n_steps + 1], INT64_MIN where they were not recorded. */
static void add_steps(const td_ranks *ranks, int32_t index, int64_t *ends)
{
    const td_rank_trace *rank = &ranks->job->ranks[index];
    td_rank_times *times = &ranks->times[index];
    for (int64_t i = 0; i <= ranks->n_steps; i++)
        ends[i] = INT64_MIN;
    for (int64_t i = 0; i < rank->trace->n_events; i++) {
        const td_trace_event *e = &rank->trace->events[i];
        int64_t at = (int64_t)e->step - ranks->first_step + 1;
        if (e->kind == TD_RECORD_STEP && at >= 0 && at <= ranks->n_steps && is_training(rank, e))
            ends[at] = e->end_ns;
    }
    for (int64_t i = 1; i <= ranks->n_steps; i++) {
        times->steps += ends[i] != INT64_MIN;
        if (ends[i] == INT64_MIN || ends[i - 1] == INT64_MIN)
            continue;
        times->step_ns = td_ns_plus(times->step_ns, td_ns_minus(ends[i], ends[i - 1]));
        times->intervals++;
    }
}

/* A rank comes to a step's sums when its first one begins. */
static void note_arrival(const td_ranks *ranks, int64_t at, int32_t index, int64_t time_ns)
{
    int64_t *arrival = &ranks->arrivals_ns[at * ranks->job->n + index];
    *arrival = *arrival == INT64_MIN || time_ns < *arrival ? time_ns : *arrival;
}

static void add_event(const td_ranks *ranks, int32_t index, const td_trace_event *e)
{
    td_rank_times *times = &ranks->times[index];
    int64_t at = (int64_t)e->step - ranks->first_step;
    if (at < 0 || at >= ranks->n_steps || !td_rank_owns(&ranks->job->ranks[index], e))
        return;
    switch (e->kind) {
    case TD_RECORD_PULL:
        add_work(&times->pull, e);
        break;
    case TD_RECORD_PUSH:
        add_work(&times->push, e);
        break;
    case TD_RECORD_ANSWER:
        add_work(&times->answer, e);
        break;
    case TD_RECORD_APPLY:
        add_work(&times->apply, e);
        break;
    case TD_RECORD_STALENESS:
        times->behind[e->amount < TD_MOST_BEHIND ? e->amount : TD_MOST_BEHIND - 1]++;
        break;
    case TD_RECORD_ALL_REDUCE:
        add_work(&times->sum, e);
        note_arrival(ranks, at, index, td_rank_time(&ranks->job->ranks[index], e->begin_ns));
        break;
    default:
        break;
    }
}

/* Processor time between the first and the last sample of the window, of a worker among others its share. */
static double cores_used(const td_ranks *ranks, const td_rank_trace *rank)
{
    const td_trace_event *first = NULL, *last = NULL;
    for (int64_t i = 0; i < rank->trace->n_events; i++) {
        const td_trace_event *e = &rank->trace->events[i];
        const int64_t at = (int64_t)e->step - ranks->first_step;
        if (e->kind != TD_RECORD_PROCESSOR || at < 0 || at >= ranks->n_steps)
            continue;
        first = first ? first : e;
        last = e;
    }
    if (!first || last->begin_ns <= first->begin_ns || last->amount < first->amount)
        return 0;
    return td_worker_share(rank->trace, rank->worker, first->begin_ns, last->begin_ns) *
           (double)(last->amount - first->amount) / ((double)last->begin_ns - (double)first->begin_ns);
}

static td_status *add_rank(const td_ranks *ranks, int32_t index)
{
    const td_trace *trace = ranks->job->ranks[index].trace;
    int64_t *ends = NULL;
    if (!trace)
        return NULL;
    TD_TRY(TD_NEW(ends, ranks->n_steps + 1));
    add_steps(ranks, index, ends);
    td_free(ends);
    for (int64_t i = 0; i < trace->n_events; i++)
        add_event(ranks, index, &trace->events[i]);
    ranks->times[index].cores_used = cores_used(ranks, &ranks->job->ranks[index]);
    if (!ranks->times[index].steps)
        ranks->times[index].steps = ranks->times[index].apply.n;
    return NULL;
}

/* ---- who came late ---------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void meet(const td_ranks *ranks, const int64_t *arrivals)
{
    int64_t first = INT64_MAX, last = INT64_MIN, before = INT64_MIN;
    int32_t n = 0, who = -1;
    for (int32_t r = 0; r < ranks->job->n; r++) {
        if (arrivals[r] == INT64_MIN)
            continue;
        n++;
        first = arrivals[r] < first ? arrivals[r] : first;
        if (arrivals[r] > last) {
            before = last;
            last = arrivals[r];
            who = r;
        } else if (arrivals[r] > before) {
            before = arrivals[r];
        }
    }
    for (int32_t r = 0; n > 1 && r < ranks->job->n; r++) {
        int64_t late = arrivals[r] == INT64_MIN ? 0 : td_ns_minus(arrivals[r], first);
        td_rank_times *times = &ranks->times[r];
        times->met += arrivals[r] != INT64_MIN;
        times->late_ns = td_ns_plus(times->late_ns, late);
        times->late_most_ns = late > times->late_most_ns ? late : times->late_most_ns;
    }
    if (n < 2)
        return;
    ranks->times[who].times_last++;
    ranks->times[who].held_up_ns = td_ns_plus(ranks->times[who].held_up_ns, td_ns_minus(last, before));
}

/* Of the sums that rank `index` came to: the median of its lateness, and of what it held up the others for. */
static td_status *find_medians(const td_ranks *ranks, int32_t index)
{
    int64_t *late = NULL, *held = NULL, n = 0;
    td_status *status = TD_NEW(late, ranks->n_steps + 1);
    if (!status)
        status = TD_NEW(held, ranks->n_steps + 1);
    for (int64_t s = 0; !status && s < ranks->n_steps; s++) {
        const int64_t *arrivals = &ranks->arrivals_ns[s * ranks->job->n];
        int64_t first = INT64_MAX, others = INT64_MIN, mine = arrivals[index];
        for (int32_t r = 0; r < ranks->job->n; r++) {
            first = arrivals[r] != INT64_MIN && arrivals[r] < first ? arrivals[r] : first;
            others = r != index && arrivals[r] > others ? arrivals[r] : others;
        }
        if (mine == INT64_MIN || others == INT64_MIN)
            continue;
        late[n] = td_ns_minus(mine, first);
        held[n++] = mine > others ? td_ns_minus(mine, others) : 0;
    }
    if (n) {
        qsort(late, (size_t)n, sizeof *late, by_value);
        qsort(held, (size_t)n, sizeof *held, by_value);
        ranks->times[index].late_median_ns = late[n / 2];
        ranks->times[index].held_up_median_ns = held[n / 2];
    }
    td_free(late);
    td_free(held);
    return status;
}

int32_t td_ranks_slowest(const td_ranks *ranks)
{
    int32_t slowest = -1;
    for (int32_t r = 0; r < ranks->job->n; r++)
        if (ranks->times[r].times_last > (slowest < 0 ? 0 : ranks->times[slowest].times_last))
            slowest = r;
    return slowest;
}

int64_t td_rank_behind(const td_rank_times *times, double *out_mean, int32_t *out_most)
{
    int64_t n = 0;
    double sum = 0;
    *out_most = 0;
    for (int32_t i = 0; i < TD_MOST_BEHIND; i++) {
        n += times->behind[i];
        sum += (double)i * (double)times->behind[i];
        *out_most = times->behind[i] ? i : *out_most;
    }
    *out_mean = n ? sum / (double)n : 0;
    return n;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------------------------ */

double td_ranks_cores_used(const td_ranks *ranks, const char *host)
{
    double used = 0;
    for (int32_t r = 0; r < ranks->job->n; r++)
        used += strcmp(ranks->job->ranks[r].host, host) ? 0 : ranks->times[r].cores_used;
    return used;
}

int32_t td_ranks_on(const td_ranks *ranks, const char *host)
{
    int32_t n = 0;
    for (int32_t r = 0; r < ranks->job->n; r++)
        n += ranks->job->ranks[r].trace && !ranks->job->ranks[r].shares && !strcmp(ranks->job->ranks[r].host, host);
    return n;
}

const td_rank_trace *td_ranks_place(const td_ranks *ranks, const td_trace *trace, int32_t worker)
{
    for (int32_t r = 0; r < ranks->job->n; r++)
        if (ranks->job->ranks[r].trace == trace &&
            (ranks->job->ranks[r].worker < 0 || ranks->job->ranks[r].worker == worker))
            return &ranks->job->ranks[r];
    return NULL;
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------------- */

static td_rank_keys *find_keys(const td_ranks *ranks, const char *tables)
{
    for (int64_t k = 0; k < ranks->n_keys; k++)
        if (!strcmp(ranks->keys[k].tables, tables))
            return &ranks->keys[k];
    return NULL;
}

static td_status *add_keys(td_ranks *ranks, const td_trace *trace)
{
    enum { MOST_GROUPS = 4096 };
    const json_t *list = json_object_get(trace->info, "keys"), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        td_rank_keys told = {0};
        const char *tables = json_string_value(json_object_get(item, "tables"));
        json_int_t ids = json_integer_value(json_object_get(item, "ids"));
        json_int_t distinct = json_integer_value(json_object_get(item, "distinct"));
        td_text_cut(told.tables, sizeof told.tables, tables ? tables : "");
        td_rank_keys *found = find_keys(ranks, told.tables);
        if (ids <= 0 || distinct <= 0 || distinct > ids || (!found && ranks->n_keys == MOST_GROUPS))
            continue;
        if (!found) {
            TD_TRY(td_grow(&ranks->keys, &ranks->keys_capacity, ranks->n_keys, sizeof *ranks->keys));
            found = &ranks->keys[ranks->n_keys++];
            *found = told;
        }
        found->ids = td_ns_plus(found->ids, ids);
        found->distinct = td_ns_plus(found->distinct, distinct);
    }
    return NULL;
}

/* ---- all -------------------------------------------------------------------------------------------------------------------------- */

/* The steps that are looked at; none where no rank has a window. */
static td_status *choose_steps(td_ranks *ranks, int32_t window)
{
    enum { MOST_ARRIVALS = 1 << 26 };
    const td_trace *trace = NULL;
    for (int32_t r = 0; r < ranks->job->n && !trace; r++)
        if (ranks->job->ranks[r].trace && ranks->job->ranks[r].trace->n_windows)
            trace = ranks->job->ranks[r].trace;
    if (!trace)
        return NULL;
    if (window < -1 || window >= trace->n_windows)
        return TD_ERROR(TD_INVALID_ARGUMENT, "the trace has %s; there is no window %d (they count from 0)",
                        TD_COUNTED(trace->n_windows, "recorded window"), window);
    const td_trace_window *w = &trace->windows[window < 0 ? trace->n_windows - 1 : window];
    bool sane = w->first_step >= 0 && w->last_step <= UINT32_MAX && w->first_step <= w->last_step &&
                w->last_step - w->first_step <= trace->n_events; /* a step has an event at least */
    if (!sane || w->last_step - w->first_step >= MOST_ARRIVALS / ranks->job->n)
        return TD_ERROR(TD_DATA_ERROR, "a window of steps %lld to %lld", (long long)w->first_step,
                        (long long)w->last_step);
    ranks->first_step = w->first_step;
    ranks->n_steps = w->last_step - w->first_step + 1;
    return NULL;
}

static td_status *fill(td_ranks *ranks, int32_t window)
{
    TD_TRY(choose_steps(ranks, window));
    TD_TRY(TD_NEW(ranks->times, ranks->job->n + 1));
    TD_TRY(TD_NEW(ranks->arrivals_ns, ranks->n_steps * ranks->job->n + 1));
    for (int64_t i = 0; i < ranks->n_steps * ranks->job->n; i++)
        ranks->arrivals_ns[i] = INT64_MIN;
    for (int32_t r = 0; r < ranks->job->n; r++)
        TD_TRY(add_rank(ranks, r));
    for (int64_t s = 0; s < ranks->n_steps; s++)
        meet(ranks, &ranks->arrivals_ns[s * ranks->job->n]);
    for (int32_t r = 0; r < ranks->job->n; r++)
        TD_TRY(find_medians(ranks, r));
    for (int32_t r = 0; r < ranks->job->n; r++)
        if (ranks->job->ranks[r].trace && !ranks->job->ranks[r].shares)
            TD_TRY(add_keys(ranks, ranks->job->ranks[r].trace));
    return NULL;
}

td_status *td_ranks_create(const td_job_traces *job, int32_t window, td_ranks **out_ranks)
{
    td_ranks *ranks = NULL;
    *out_ranks = NULL;
    TD_TRY(TD_NEW(ranks, 1));
    ranks->job = job;
    td_status *status = fill(ranks, window);
    if (status)
        td_ranks_destroy(ranks);
    else
        *out_ranks = ranks;
    return status;
}

void td_ranks_destroy(td_ranks *ranks)
{
    if (!ranks)
        return;
    td_free(ranks->times);
    td_free(ranks->arrivals_ns);
    td_free(ranks->keys);
    td_free(ranks);
}
