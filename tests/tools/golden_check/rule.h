/* optimizers/<rule>.json: one rule on one vector through the whole engine, on the host, on an emulated accelerator, and offloaded
 * from it. */
#ifndef TANDEM_TESTS_GOLDEN_CHECK_RULE_H
#define TANDEM_TESTS_GOLDEN_CHECK_RULE_H

#include "tests/tools/golden_check/case.h"
#include "tests/tools/golden_check/engine.h"

/* Runs the rule of a file on a dense gradient and, where the rule takes one, on a row-sparse gradient with every row in it.
 * Compares the parameter and each state after every step. `devices`: GOLDEN_CPU, GOLDEN_CUT (all of it is on the accelerator) or
 * GOLDEN_OFFLOAD; where it is not the host alone, the bits must be the host's too. Adds to *out_compared how many vectors were compared. */
td_status *golden_rule_check(const char *path, golden_devices devices, golden_deviations *deviations,
                             int32_t *out_compared) TD_MUST_USE;

#endif
