/* What a recording shows, for people: tables on a stream. */
#ifndef TANDEM_CLI_PROFILE_VIEW_H
#define TANDEM_CLI_PROFILE_VIEW_H

#include <stdio.h>

#include "profiler/diff.h"

/* The steps, where their time went, subgraphs, copies, lanes. */
td_status *td_profile_print_steps(const td_analysis *analysis, FILE *out) TD_MUST_USE;
/* One step: its numbers and its critical path, piece by piece. */
td_status *td_profile_print_step(const td_analysis *analysis, int64_t step, FILE *out) TD_MUST_USE;

/* ---- profile_together.c ---- */
/* [view->n_micro] times of a training that accumulates; nothing where it does not (NULL). */
td_status *td_profile_print_micros(const td_step_trace *trace, const td_step_times *micros, FILE *out) TD_MUST_USE;
/* The pairs of activities that went on together longest: of all steps (-1), or in the step at that place of trace->steps. */
td_status *td_profile_print_overlaps(const td_overlaps *overlaps, int64_t step, FILE *out) TD_MUST_USE;

/* ---- profile_ops.c ---- */
/* Time by device and by type of op, and the ops that take most. */
td_status *td_profile_print_ops(const td_analysis *analysis, FILE *out) TD_MUST_USE;
/* Every op: type, count, shapes, attributes, what the planner inserted. */
td_status *td_profile_print_op_info(const td_analysis *analysis, FILE *out) TD_MUST_USE;
/* Data pipeline, processor time, memory of devices, and advice. */
td_status *td_profile_print_rest(const td_analysis *analysis, FILE *out) TD_MUST_USE;

/* ---- profile_ranks.c ---- */
/* The ranks of a job beside each other. */
td_status *td_profile_print_ranks(const td_ranks *ranks, FILE *out) TD_MUST_USE;

/* ---- profile_diff.c ---- */
td_status *td_profile_print_diff(const td_diff *diff, FILE *out) TD_MUST_USE;
td_status *td_profile_print_diff_json(const td_diff *diff, FILE *out) TD_MUST_USE;

#endif
