/* Keys of a configuration that name nothing of the model or its data: most likely words that are spelled wrong.
 * Where a training would be another one than was meant that is an error, where only a recording lacks something a warning. */
#ifndef TANDEM_CLI_IDLE_PATTERNS_H
#define TANDEM_CLI_IDLE_PATTERNS_H

#include "cli/setup.h"

/* An error for an item of tables.hash that matches no parameter, or one of train.keep_fp32 that matches no op. */
td_status *td_check_idle_patterns(const td_setup *setup) TD_MUST_USE;

/* A warning for each key of the section summary that has nothing to record. */
void td_warn_of_idle_summaries(const td_setup *setup);

#endif
