/* A plan as tables for people, from the same facts as its JSON. */
#ifndef TANDEM_CLI_PLAN_VIEW_H
#define TANDEM_CLI_PLAN_VIEW_H

#include <stdio.h>

#include "cli/setup.h"

/* Devices, subgraphs, copies and the bound of a step. */
td_status *td_plan_view_print(const td_setup *setup, const td_plan *plan, FILE *out) TD_MUST_USE;

#endif
