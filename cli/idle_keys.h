/* Keys that a configuration gives and that change nothing beside the others that it gives: said, not refused, for each is a word that
 * somebody may only have left there. Those that belong to another model or format are refused before (config.def, `when`), names
 * that match nothing are in idle_patterns.h, and what only a job looks at is said by distributed.c. */
#ifndef TANDEM_CLI_IDLE_KEYS_H
#define TANDEM_CLI_IDLE_KEYS_H

#include "cli/config.h"

/* A warning in the log for each, of a resolved configuration. */
void td_warn_of_idle_keys(td_section root);

#endif
