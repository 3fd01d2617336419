/* What tests of analyses and of jobs ask of advice and of figures. */
#ifndef TANDEM_TESTS_PROFILER_JUDGED_H
#define TANDEM_TESTS_PROFILER_JUDGED_H

#include <math.h>
#include <string.h>

#include "profiler/advice.h"

static inline const td_advice *find_among(const td_advice *items, int32_t n, const char *rule)
{
    for (int32_t i = 0; i < n; i++)
        if (!strcmp(items[i].rule, rule))
            return &items[i];
    return NULL;
}

static inline void near(double value, double wanted)
{
    if (fabs(value - wanted) > 0.05 * fabs(wanted))
        fail_msg("%g is not within 5 %% of %g", value, wanted);
}

#endif
