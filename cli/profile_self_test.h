/* What recording costs on this machine. */
#ifndef TANDEM_CLI_PROFILE_SELF_TEST_H
#define TANDEM_CLI_PROFILE_SELF_TEST_H

#include <stdbool.h>
#include <stdio.h>

#include "tandem/status.h"

/* Runs the case dispatch.chain250 with recording on and off by turns, and a DLRM step, and prints: nanoseconds of a recorded event,
 * of a hook that is off, the share of a DLRM step that its events take. Nothing else may record. */
td_status *td_profile_self_test(bool json, FILE *out) TD_MUST_USE;

#endif
