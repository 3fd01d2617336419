/* What train.recompute saves: the plan beside the same plan without it. */
#ifndef TANDEM_CLI_RECOMPUTE_VIEW_H
#define TANDEM_CLI_RECOMPUTE_VIEW_H

#include <jansson.h>
#include <stdio.h>

#include "cli/setup.h"

/* "recompute" of `tandem plan --json`: rules, ops (that run again), devices [{name, activation_bytes, activation_bytes_without}];
 * the last is null where the plan without it does not fit. NULL where nothing is to be recomputed. */
td_status *td_recompute_json(td_setup *setup, const td_plan *plan, json_t **out_json) TD_MUST_USE;
/* The same as lines for people. `json`: of td_recompute_json; NULL prints nothing. */
void td_recompute_print(const json_t *json, FILE *out);

#endif
