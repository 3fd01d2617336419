/* What a recording shows, for people: tables on a stream. */
#ifndef TANDEM_CLI_PROFILE_VIEW_H
#define TANDEM_CLI_PROFILE_VIEW_H

#include <stdio.h>

#include "profiler/steps.h"

/* The steps, where their time went, subgraphs, copies, lanes. */
td_status *td_profile_print_steps(const td_step_trace *trace, FILE *out) TD_MUST_USE;
/* One step: its numbers and its critical path, piece by piece. */
td_status *td_profile_print_step(const td_step_trace *trace, int64_t step, FILE *out) TD_MUST_USE;

#endif
