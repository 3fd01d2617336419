/* Two recordings: see diff.h. */
#include "profiler/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct spread {
    double median, half, n;
} spread;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts. */
static spread spread_of(double *values, int64_t n)
{
    if (n == 0)
        return (spread){-1, 0, 0};
    qsort(values, (size_t)n, sizeof *values, by_value);
    return (spread){values[n / 2], (values[(3 * n) / 4] - values[n / 4]) / 2, (double)n};
}

static double error_of(spread s)
{
    return s.n > 0 ? 1.4826 * 1.2533 * s.half / sqrt(s.n) : 0;
}

static td_status *add(td_diff *diff, const char *name, spread before, spread after, double least)
{
    TD_TRY(td_grow(&diff->rows, &diff->capacity, diff->n, sizeof *diff->rows));
    td_diff_row *row = &diff->rows[diff->n++];
    *row = (td_diff_row){.before_ns = before.median, .after_ns = after.median};
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    double error = error_of(before) > error_of(after) ? error_of(before) : error_of(after);
    row->band_ns = 3 * error > least * before.median ? 3 * error : least * before.median;
    double by = after.median - before.median;
    if (before.median < 0 || after.median < 0)
        row->verdict = after.median < 0 ? -1 : 1;
    else
        row->verdict = fabs(by) <= row->band_ns ? 0 : by > 0 ? 1 : -1;
    return NULL;
}

/* ---- quantities -------------------------------------------------------------------------------------------------------------------- */

typedef int64_t (*quantity)(const td_step_times *step);

static int64_t interval(const td_step_times *s)
{
    return s->interval_ns;
}
static int64_t data(const td_step_times *s)
{
    return s->path_ns[TD_CAUSE_DATA];
}
static int64_t forward(const td_step_times *s)
{
    return s->forward_ns;
}
static int64_t backward(const td_step_times *s)
{
    return s->backward_ns;
}
static int64_t update(const td_step_times *s)
{
    return s->update_ns;
}
static int64_t copies(const td_step_times *s)
{
    return s->to_device_ns + s->to_host_ns;
}
static int64_t wake_up(const td_step_times *s)
{
    return s->path_ns[TD_CAUSE_WAKE_UP];
}

static spread of_steps(const td_analysis *a, quantity what, double *room)
{
    for (int64_t i = 0; i < a->steps->n_steps; i++)
        room[i] = (double)what(&a->steps->steps[i]);
    return spread_of(room, a->steps->n_steps);
}

/* The one of that name, of several the nth in order; -1: there is none. */
static int32_t find_subgraph(const td_analysis *a, const char *name, int32_t nth)
{
    for (int32_t s = 0; s < a->view->plan->n_subgraphs; s++)
        if (!strcmp(a->view->plan->subgraphs[s].name, name) && nth-- == 0)
            return s;
    return -1;
}

/* Of how many before it a subgraph has the name. */
static int32_t place_of(const td_analysis *a, int32_t subgraph)
{
    int32_t n = 0;
    for (int32_t s = 0; s < subgraph; s++)
        n += !strcmp(a->view->plan->subgraphs[s].name, a->view->plan->subgraphs[subgraph].name);
    return n;
}

static spread of_subgraph(const td_analysis *a, int32_t s, double *room)
{
    int64_t n = 0;
    for (int64_t i = 0; s >= 0 && i < a->steps->n_steps; i++) {
        int64_t ns = 0, first = td_view_index(a->view, a->steps->steps[i].step, 0), ran = 0;
        for (int64_t m = 0; m < a->view->n_micro; m++) {
            const td_view_run *run = td_view_at(a->view, first + m, s);
            ns += run ? td_ns_minus(run->end_ns, run->begin_ns) : 0;
            ran += run != NULL;
        }
        if (ran)
            room[n++] = (double)ns;
    }
    return spread_of(room, n);
}

static int by_difference(const void *a, const void *b)
{
    const td_diff_row *x = a, *y = b;
    double p = fabs(x->after_ns - x->before_ns), q = fabs(y->after_ns - y->before_ns);
    return p != q ? (p > q ? -1 : 1) : strcmp(x->name, y->name);
}

static td_status *compare(td_diff *diff, const td_analysis *before, const td_analysis *after, double least,
                          double *room)
{
    static const struct {
        const char *name;
        quantity what;
    } kinds[] = {{"step", interval}, {"waiting for data", data}, {"forward", forward},        {"backward", backward},
                 {"update", update}, {"copies", copies},         {"waking up lanes", wake_up}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        spread b = of_steps(before, kinds[k].what, room);
        TD_TRY(add(diff, kinds[k].name, b, of_steps(after, kinds[k].what, room), least));
    }
    diff->slower = diff->rows[0].verdict > 0;
    int64_t first = diff->n;
    for (int32_t s = 0; s < before->view->plan->n_subgraphs; s++) {
        const char *name = before->view->plan->subgraphs[s].name;
        spread b = of_subgraph(before, s, room);
        TD_TRY(add(diff, name, b, of_subgraph(after, find_subgraph(after, name, place_of(before, s)), room), least));
    }
    for (int32_t s = 0; s < after->view->plan->n_subgraphs; s++) {
        const char *name = after->view->plan->subgraphs[s].name;
        if (find_subgraph(before, name, place_of(after, s)) < 0)
            TD_TRY(add(diff, name, (spread){-1, 0, 0}, of_subgraph(after, s, room), least));
    }
    qsort(diff->rows + first, (size_t)(diff->n - first), sizeof *diff->rows, by_difference);
    return NULL;
}

td_status *td_diff_create(const td_analysis *before, const td_analysis *after, double least, td_diff **out_diff)
{
    td_diff *diff = NULL;
    double *room = NULL;
    *out_diff = NULL;
    TD_TRY(TD_NEW(diff, 1));
    td_status *status = TD_NEW(room, before->steps->n_steps + after->steps->n_steps + 1);
    if (!status)
        status = td_diff_find_unlike(diff, before, after);
    if (!status)
        status = compare(diff, before, after, least, room);
    td_free(room);
    if (status)
        td_diff_destroy(diff);
    else
        *out_diff = diff;
    return status;
}

void td_diff_destroy(td_diff *diff)
{
    if (!diff)
        return;
    td_free(diff->rows);
    td_free(diff);
}
