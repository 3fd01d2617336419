/* A trace made by hand, opened with all analyses and advice: what tests of either share. */
#ifndef TANDEM_TESTS_PROFILER_OPEN_MADE_H
#define TANDEM_TESTS_PROFILER_OPEN_MADE_H

#include "tests/profiler/made_trace.h"

#include "tests/profiler/judged.h"

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
    return find_among(o->advice.items, o->advice.n, rule);
}

#endif
