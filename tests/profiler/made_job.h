/* Traces of a job's ranks, made by hand, in a folder that enter makes and leave removes: the names of their files, what a worker's
 * records hold, and opening them all. */
#ifndef TANDEM_TESTS_PROFILER_MADE_JOB_H
#define TANDEM_TESTS_PROFILER_MADE_JOB_H

#include "tests/profiler/made_trace.h"

#include <math.h>

#include "tests/profiler/judged.h"
#include "tests/base/folder.h"

enum { MS = 1000000 };

static folder here;

static inline const char *trace_name(int rank)
{
    char name[64];
    if (rank)
        (void)snprintf(name, sizeof name, "trace-0003.rank%d.tdt", rank);
    return in_folder(&here, rank ? name : "trace-0003.tdt");
}

static inline made worker(int rank, int ranks)
{
    made m = made_defaults();
    m.rank = rank;
    m.ranks = ranks;
    m.sum = 50000;
    m.steps = 6;
    return m;
}

/* So many workers that come to their sums together; one may be late, and then the others wait in theirs. */
static inline void write_workers(int n, int late_rank, int64_t late)
{
    for (int r = 0; r < n; r++) {
        made m = worker(r, n);
        m.late = r == late_rank ? late : 0;
        m.sum += r == late_rank ? 0 : late;
        made_file(trace_name(r), &m);
    }
}

typedef struct opened {
    td_job_traces *job;
    td_analysis *a;
    td_advice_list advice;
} opened;

static inline opened open_job(void)
{
    opened o = {0};
    OK(td_job_traces_read(trace_name(0), &o.job));
    OK(td_analysis_create_of(o.job, (td_whose){-1, -1}, -1, &o.a));
    td_advise(o.a, &o.advice);
    return o;
}

static inline void close_job(opened *o)
{
    td_analysis_destroy(o->a);
    td_job_traces_destroy(o->job);
    for (int r = 0; r < 8; r++)
        (void)unlink(trace_name(r));
}

static inline const td_advice *find(const opened *o, const char *rule)
{
    return find_among(o->advice.items, o->advice.n, rule);
}

static inline int enter(void **state)
{
    (void)state;
    here = make_folder();
    return 0;
}

static inline int leave(void **state)
{
    (void)state;
    remove_folder(&here);
    return 0;
}

#endif
