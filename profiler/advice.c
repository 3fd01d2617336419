/* Advice: the list, and the analyses that rules look at. See advice.h. */
#include "profiler/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

static const struct {
    const char *name;
    double threshold;
    const char *help;
} rules[] = {
#define TD_ADVICE(name, threshold, help) {#name, threshold, help},
#include "profiler/advice.def"
#undef TD_ADVICE
};

const char *td_advice_name(td_advice_rule rule)
{
    return rules[rule].name;
}

double td_advice_threshold(td_advice_rule rule)
{
    return rules[rule].threshold;
}

const char *td_advice_help(td_advice_rule rule)
{
    return rules[rule].help;
}

double td_advice_share(const td_analysis *analysis, double ns)
{
    const double interval = (double)analysis->steps->average.interval_ns;
    return interval > 0 ? ns / interval : 0;
}

void td_advice_give(td_advice_list *list, td_advice_rule rule, double measured, double gain_ns, const char *format, ...)
{
    va_list arguments;
    if (!(measured > rules[rule].threshold) || list->n == TD_MOST_ADVICE)
        return;
    td_advice *advice = &list->items[list->n++];
    *advice = (td_advice){
        .rule = rules[rule].name, .threshold = rules[rule].threshold, .measured = measured, .gain_ms = 1e-6 * gain_ns};
    va_start(arguments, format);
    (void)vsnprintf(advice->text, sizeof advice->text, format, arguments);
    va_end(arguments);
    td_text_mend(advice->text);
}

static int by_gain(const void *a, const void *b)
{
    const td_advice *x = a, *y = b;
    if (x->gain_ms != y->gain_ms)
        return x->gain_ms > y->gain_ms ? -1 : 1;
    return strcmp(x->rule, y->rule);
}

void td_advise(const td_analysis *analysis, td_advice_list *out_list)
{
    out_list->n = 0;
    td_advice_rules(analysis, out_list);
    td_advice_moves(analysis, out_list);
    if (analysis->ranks)
        td_advice_ranks(analysis, out_list);
    if (out_list->n > 1)
        qsort(out_list->items, (size_t)out_list->n, sizeof *out_list->items, by_gain);
}

static td_status *create(const td_trace *trace, int32_t window, int32_t worker, td_analysis **out_analysis)
{
    td_analysis *a = NULL;
    *out_analysis = NULL;
    TD_TRY(TD_NEW(a, 1));
    td_status *status = td_view_create_of(trace, window, worker, &a->view);
    if (!status)
        status = td_step_trace_create(a->view, &a->steps);
    if (!status)
        status = td_overlaps_create(a->steps, &a->overlaps);
    if (!status)
        status = td_op_statistics_create(a->view, &a->ops);
    if (!status)
        status = td_memory_view_create(a->view, &a->memory);
    if (!status)
        status = td_data_view_fill(a->steps, &a->data);
    if (status)
        td_analysis_destroy(a);
    else
        *out_analysis = a;
    return status;
}

td_status *td_analysis_create(const td_trace *trace, int32_t window, td_analysis **out_analysis)
{
    return create(trace, window, -1, out_analysis);
}

/* The one that was opened where it trained, else the first that did: others have no step. */
static const td_rank_trace *choose_rank(const td_job_traces *job)
{
    const td_rank_trace *opened = td_rank_trace_of(job, job->opened);
    for (int32_t r = opened && td_rank_trained(opened) ? job->n : 0; r < job->n; r++)
        if (td_rank_trained(&job->ranks[r]))
            return &job->ranks[r];
    return opened;
}

static td_status *find_place(const td_job_traces *job, td_whose whose, const td_rank_trace **out)
{
    *out = whose.worker >= 0 ? td_rank_trace_of_worker(job, whose.worker)
           : whose.rank >= 0 ? td_rank_trace_of(job, whose.rank)
                             : choose_rank(job);
    if (*out && whose.worker >= 0 && whose.rank >= 0 && (*out)->rank != whose.rank)
        return TD_ERROR(TD_INVALID_ARGUMENT, "worker %d is of rank %d, not %d", whose.worker, (*out)->rank, whose.rank);
    if (*out)
        return NULL;
    return whose.worker >= 0
               ? TD_ERROR(TD_INVALID_ARGUMENT, "the recording has no worker %d that trained", whose.worker)
               : TD_ERROR(TD_INVALID_ARGUMENT, "the recording has no rank %d: it has 0 to %d", whose.rank,
                          job->n ? job->ranks[job->n - 1].rank : 0);
}

td_status *td_analysis_create_of(const td_job_traces *job, td_whose whose, int32_t window, td_analysis **out_analysis)
{
    const td_rank_trace *of = NULL;
    *out_analysis = NULL;
    TD_TRY(find_place(job, whose, &of));
    if (!of->trace)
        return TD_ERROR(TD_DATA_ERROR, "rank %d has no trace that can be read: %s", of->rank, of->problem);
    if (of->trace->n_windows && !of->trace->n_plans)
        return TD_ERROR(TD_INVALID_ARGUMENT, "rank %d (%s) ran no steps of its own: the table of ranks has what it did",
                        of->rank, of->role);
    TD_TRY(create(of->trace, window, of->worker, out_analysis));
    td_status *status = job->n > 1 ? td_ranks_create(job, window, &(*out_analysis)->ranks) : NULL;
    if (status) {
        td_analysis_destroy(*out_analysis);
        *out_analysis = NULL;
    }
    return status;
}

void td_analysis_destroy(td_analysis *analysis)
{
    if (!analysis)
        return;
    td_ranks_destroy(analysis->ranks);
    td_data_view_deinit(&analysis->data);
    td_memory_view_destroy(analysis->memory);
    td_op_statistics_destroy(analysis->ops);
    td_overlaps_destroy(analysis->overlaps);
    td_step_trace_destroy(analysis->steps);
    td_view_destroy(analysis->view);
    td_free(analysis);
}
