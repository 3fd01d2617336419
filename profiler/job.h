/* The traces of a job, one for each of its ranks, on one clock.
 *
 *     td_job_traces *job = NULL;
 *     TD_TRY(td_job_traces_read("runs/x/profile/trace-0001.tdt", &job));    // and trace-0001.rank1.tdt, ... beside it
 *     int64_t at = td_rank_time(&job->ranks[2], event->begin_ns);            // on the clock of the first rank
 *     TD_TRY(td_job_traces_merge(job, &merged));                            // one trace with all threads, for timelines
 *
 * The first worker's trace has readings of every rank's clock beside its own, from the beginning and from the end ("clocks" of its
 * information); times between them lie on the line through them. Ranks that a clock proves to share (one host, and readings that
 * agree within their error) need no correction. A rank whose trace is missing, or cannot be read, is listed without one.
 *
 * A rank may run several workers, those that are lost having been given to it: each has a place of its own here, and they share its trace. */
#ifndef TANDEM_PROFILER_JOB_H
#define TANDEM_PROFILER_JOB_H

#include "profiler/trace.h"

typedef enum td_job_aligned {
    TD_JOB_UNALIGNED = 0, /* by the hosts' own clocks of day: nobody knows how exact */
    TD_JOB_ALIGNED_ONCE,  /* at the beginning: as if the clocks did not drift */
    TD_JOB_ALIGNED,       /* at the beginning and at the end */
    TD_JOB_SHARED         /* it is the same clock */
} td_job_aligned;
const char *td_job_aligned_name(td_job_aligned aligned);

typedef struct td_rank_trace {
    int32_t rank;
    int32_t worker; /* whose plans of the trace are meant; -1: all, as there are no others */
    bool shares;    /* the trace, which is the place's before it */
    char role[64], host[64];
    td_trace *trace;   /* NULL: there is none, and `problem` says why */
    char problem[256]; /* "" where there is none */
    td_job_aligned aligned;
    /* its clock less the first one's when its trace begins, and how much faster it runs: 1e-6 is 1 ppm */
    double offset_ns, drift;
    int64_t error_ns; /* of times after alignment, at most; of UNALIGNED ones not known */
    int64_t shift_ns; /* what td_rank_time adds when its trace begins */
} td_rank_trace;

typedef struct td_job_traces {
    td_rank_trace *ranks; /* by rank, then by worker */
    int32_t n;
    /* whose clock is everybody's: the one that read the others', else the first; NULL: there is no trace */
    const td_trace *base;
    int32_t opened; /* the rank whose trace was asked for */
} td_job_traces;

/* All ranks' traces beside `path`, which is any of them. One rank: a run without a job. An error where `path` itself cannot be
 * read. */
td_status *td_job_traces_read(const char *path, td_job_traces **out_job) TD_MUST_USE;
/* Traces that were read before, of these ranks; the first one was asked for. They are taken: also after an error. */
td_status *td_job_traces_of(td_trace **traces, const int32_t *ranks, int32_t n, td_job_traces **out_job) TD_MUST_USE;
void td_job_traces_destroy(td_job_traces *job);
/* The first of a rank; NULL: there is none. */
const td_rank_trace *td_rank_trace_of(const td_job_traces *job, int32_t rank);
/* Of a worker; NULL: there is none, or no trace says. */
const td_rank_trace *td_rank_trace_of_worker(const td_job_traces *job, int32_t worker);
/* Whether it ran steps of its own: a rank that only serves has none. */
bool td_rank_trained(const td_rank_trace *rank);
/* Whether an event is of a place's worker, not of another one of its rank. */
bool td_rank_owns(const td_rank_trace *rank, const td_trace_event *event);
/* A time of a rank's trace on the first one's clock, from where the first one's trace begins. */
int64_t td_rank_time(const td_rank_trace *rank, int64_t ns);
/* One trace of all: threads and plans of every rank, `ranks` filled, events in order. Windows are the first one's. */
td_status *td_job_traces_merge(const td_job_traces *job, td_trace **out_trace) TD_MUST_USE;
/* "trace-0001.rank2.tdt": the length of "trace-0001", and 2; of "trace-0001.tdt" 0. False: no name of a trace. */
bool td_job_name_parse(const char *name, int32_t *out_stem, int32_t *out_rank);

#endif
