/* The ledger of a plan, for people and for summary.json: bytes by device and by what they are for, beside those of the same run with
 * nothing of the optimizer offloaded; what offloading moves in a step, and how long that takes at rates measured here. */
#ifndef TANDEM_CLI_LEDGER_VIEW_H
#define TANDEM_CLI_LEDGER_VIEW_H

#include <jansson.h>
#include <stdio.h>

#include "tandem/plan.h"

/* Prints nothing where the optimizer is not to be offloaded, one line where `asked` for that moved nothing. No session may be at work. */
td_status *td_ledger_print(const td_plan *plan, td_offload asked, FILE *out) TD_MUST_USE;
/* *out_json: an object; see docs/offload.md. */
td_status *td_ledger_json(const td_plan *plan, json_t **out_json) TD_MUST_USE;

#endif
