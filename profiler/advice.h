/* Advice: what to change, and what it would gain, from the numbers of a recording.
 *
 * A rule has a name and a threshold (advice.def) and looks at the analyses; it speaks when its number is above the threshold, with
 * that number. Gains are estimates, and at most what the critical path or the busiest lane allows. */
#ifndef TANDEM_PROFILER_ADVICE_H
#define TANDEM_PROFILER_ADVICE_H

#include "base/units.h"
#include "profiler/data.h"
#include "profiler/memory.h"
#include "profiler/ops.h"
#include "profiler/overlap.h"
#include "profiler/ranks.h"
#include "profiler/steps.h"

/* All analyses of a window. */
typedef struct td_analysis {
    td_view *view;
    td_step_trace *steps;
    td_overlaps *overlaps;
    td_op_statistics *ops;
    td_memory_view *memory;
    td_data_view data;
    td_ranks *ranks; /* of a job; NULL: of one process */
} td_analysis;

td_status *td_analysis_create(const td_trace *trace, int32_t window, td_analysis **out_analysis) TD_MUST_USE;
/* Whose steps of a job: -1 where it does not matter. */
typedef struct td_whose {
    int32_t rank, worker;
} td_whose;
/* Of one rank of a job, or one worker, and all ranks beside each other. Neither given: the rank that was opened, or the first that
 * trained; of a rank of several workers the first. Borrows the job. */
td_status *td_analysis_create_of(const td_job_traces *job, td_whose whose, int32_t window,
                                 td_analysis **out_analysis) TD_MUST_USE;
void td_analysis_destroy(td_analysis *analysis);

typedef struct td_advice {
    const char *rule;
    double threshold;
    double measured; /* what the threshold is compared with */
    double gain_ms;  /* a step; 0: none is known */
    char text[512];  /* one line: what is, and what to do */
} td_advice;

enum { TD_MOST_ADVICE = 32 };
typedef struct td_advice_list {
    td_advice items[TD_MOST_ADVICE]; /* most gain first */
    int32_t n;
} td_advice_list;

void td_advise(const td_analysis *analysis, td_advice_list *out_list);

/* ---- for rules ---- */
typedef enum td_advice_rule {
#define TD_ADVICE(name, threshold, help) TD_ADVICE_##name,
#include "profiler/advice.def"
#undef TD_ADVICE
    TD_ADVICE_RULES
} td_advice_rule;
const char *td_advice_name(td_advice_rule rule);
double td_advice_threshold(td_advice_rule rule);
const char *td_advice_help(td_advice_rule rule);
/* A time as its reader has it, "7.08 ms": lives until the end of the block. */
#define TD_ADVICE_TIME(ns) td_format_seconds((td_unit_text){0}.text, 1e-9 * (double)(ns))
/* Of a step's interval, on average. */
double td_advice_share(const td_analysis *analysis, double ns);
/* Speaks when `measured` is above the rule's threshold. */
void td_advice_give(td_advice_list *list, td_advice_rule rule, double measured, double gain_ns, const char *format, ...)
    TD_PRINTF(5, 6);
void td_advice_rules(const td_analysis *analysis, td_advice_list *list); /* advice_rules.c: what one number says */
void td_advice_moves(const td_analysis *analysis, td_advice_list *list); /* advice_moves.c: what to place elsewhere */
void td_advice_ranks(const td_analysis *analysis, td_advice_list *list); /* advice_ranks.c: of the ranks of a job */

#endif
