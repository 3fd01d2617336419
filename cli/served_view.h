/* The tables of a plan that servers own: what each server holds, and what travels. */
#ifndef TANDEM_CLI_SERVED_VIEW_H
#define TANDEM_CLI_SERVED_VIEW_H

#include <stdio.h>

#include "cli/config.h"
#include "tandem/plan.h"

/* Nothing where no table is served. `root`: says how many servers, 1 where that depends on how many ranks are started. */
void td_served_print(td_section root, const td_plan *plan, FILE *out);

#endif
