/* Advice: what to change, and what it would gain, from the numbers of a recording.
 *
 * A rule has a name and a threshold (advice.def) and looks at the analyses; it speaks when its number is above the threshold, with
 * that number. Gains are estimates, and at most what the critical path or the busiest lane allows. */
#ifndef TANDEM_PROFILER_ADVICE_H
#define TANDEM_PROFILER_ADVICE_H

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
/* Of one rank of a job, and all ranks beside each other; rank -1: the one that was opened, or the first that trained. Borrows the job. */
td_status *td_analysis_create_of(const td_job_traces *job, int32_t rank, int32_t window,
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
/* Speaks when `measured` is above the rule's threshold. */
void td_advice_give(td_advice_list *list, td_advice_rule rule, double measured, double gain_ns, const char *format, ...)
    TD_PRINTF(5, 6);
void td_advice_rules(const td_analysis *analysis, td_advice_list *list); /* advice_rules.c: what one number says */
void td_advice_moves(const td_analysis *analysis, td_advice_list *list); /* advice_moves.c: what to place elsewhere */
void td_advice_ranks(const td_analysis *analysis, td_advice_list *list); /* advice_ranks.c: of the ranks of a job */

#endif
