/* What a plan says of the ranks of a job: of tables that servers own, what each server holds, and what travels; of optimizer state that
 * workers share, what each has. */
#ifndef TANDEM_CLI_SERVED_VIEW_H
#define TANDEM_CLI_SERVED_VIEW_H

#include <stdio.h>

#include "cli/config.h"
#include "tandem/plan.h"

/* Nothing where no table is served. `root`: says how many servers, 1 where that depends on how many ranks are started. */
void td_served_print(td_section root, const td_plan *plan, FILE *out);

/* Who has how much of the optimizer state that workers share (ps.shard_optimizer). Nothing where it is off. */
void td_shared_print(td_section root, const td_plan *plan, FILE *out);

#endif
