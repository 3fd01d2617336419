/* A trace made by hand, opened with all analyses and advice: what tests of either share. */
#ifndef TANDEM_TESTS_PROFILER_OPEN_MADE_H
#define TANDEM_TESTS_PROFILER_OPEN_MADE_H

#include "tests/profiler/made_trace.h"

#include "profiler/advice.h"

static inline const char *path(void)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "analysis-%d.tdt", (int)getpid());
    return text;
}

typedef struct opened {
    td_trace *trace;
    td_analysis *a;
    td_advice_list advice;
} opened;

static inline opened open_made(const made *m)
{
    opened o = {0};
    made_file(path(), m);
    OK(td_trace_read(path(), &o.trace));
    OK(td_analysis_create(o.trace, -1, &o.a));
    td_advise(o.a, &o.advice);
    (void)unlink(path());
    return o;
}

static inline void close_made(opened *o)
{
    td_analysis_destroy(o->a);
    td_trace_destroy(o->trace);
}

static inline const td_advice *find(const opened *o, const char *rule)
{
    for (int32_t i = 0; i < o->advice.n; i++)
        if (!strcmp(o->advice.items[i].rule, rule))
            return &o->advice.items[i];
    return NULL;
}

static inline void near(double value, double wanted)
{
    if (value < 0.95 * wanted || value > 1.05 * wanted)
        fail_msg("%g is not within 5 %% of %g", value, wanted);
}

#endif
