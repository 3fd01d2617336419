/* What changed between two parts of a run: see resumed_settings.c. */
#ifndef TANDEM_CLI_RESUMED_SETTINGS_H
#define TANDEM_CLI_RESUMED_SETTINGS_H

#include "cli/config.h"

/* An error where a setting that must stay is not what it was when the run in that folder began. One line of the log where settings
 * that decide what an update is are not what they were; nothing where all are. */
td_status *td_resumed_settings_check(const char *run, td_section now) TD_MUST_USE;

#endif
