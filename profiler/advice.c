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

td_status *td_analysis_create(const td_trace *trace, int32_t window, td_analysis **out_analysis)
{
    td_analysis *a = NULL;
    *out_analysis = NULL;
    TD_TRY(TD_NEW(a, 1));
    td_status *status = td_view_create(trace, window, &a->view);
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

static bool has_trained(const td_rank_trace *rank)
{
    return rank && rank->trace && rank->trace->n_windows && rank->trace->n_plans;
}

/* The one that was opened where it trained, else the first that did: others have no step. */
static const td_rank_trace *choose_rank(const td_job_traces *job)
{
    const td_rank_trace *opened = td_rank_trace_of(job, job->opened);
    for (int32_t r = -1; r < job->n; r++)
        if (has_trained(r < 0 ? opened : &job->ranks[r]))
            return r < 0 ? opened : &job->ranks[r];
    return opened;
}

td_status *td_analysis_create_of(const td_job_traces *job, int32_t rank, int32_t window, td_analysis **out_analysis)
{
    const td_rank_trace *of = rank < 0 ? choose_rank(job) : td_rank_trace_of(job, rank);
    *out_analysis = NULL;
    if (!of)
        return TD_ERROR(TD_INVALID_ARGUMENT, "the recording has no rank %d: it has %d", rank, job->n);
    if (!of->trace)
        return TD_ERROR(TD_DATA_ERROR, "rank %d has no trace that can be read: %s", of->rank, of->problem);
    if (of->trace->n_windows && !of->trace->n_plans)
        return TD_ERROR(TD_INVALID_ARGUMENT, "rank %d (%s) ran no steps of its own: the table of ranks has what it did",
                        of->rank, of->role);
    TD_TRY(td_analysis_create(of->trace, window, out_analysis));
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
