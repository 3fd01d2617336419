/* Whether a plan is what it promises to be, found out without the passes' own code: edges from inputs and declared writes,
 * reachability by plain search over what the runtime really waits for, users of each byte from the offsets. */
#ifndef TANDEM_TESTS_SUPPORT_PLAN_CHECK_H
#define TANDEM_TESTS_SUPPORT_PLAN_CHECK_H

#include "partition/plan.h"

enum { PLAN_PROBLEM_BYTES = 400 };

/* True when everything holds; else `problem` has one line. No memory counts as a problem. */
bool plan_check(const td_plan *plan, char problem[PLAN_PROBLEM_BYTES]);

#endif
