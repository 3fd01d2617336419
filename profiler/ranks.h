/* What the ranks of a job did beside each other over the steps of a window: their steps, what they waited for from other ranks, who
 * came late to sums and by how much, what servers answered and updated, how often ids repeat and which come most.
 *
 * A rank arrives at a sum when it calls for it; nobody leaves before the last has arrived. How late a rank is, is counted from the
 * first to arrive. What others waited for one rank alone is the time between its arrival, as the last, and that of the one before.
 * A rank that runs several workers counts as one of each.
 * All times are nanoseconds; those of different ranks are on one clock, as exact as td_rank_trace.error_ns says. */
#ifndef TANDEM_PROFILER_RANKS_H
#define TANDEM_PROFILER_RANKS_H

#include "profiler/job.h"

/* Sums over the window; `steps` of them. */
typedef struct td_rank_work {
    int64_t ns, bytes, n;
} td_rank_work;

enum { TD_MOST_BEHIND = 66 };

typedef struct td_rank_times {
    /* of the window that this rank recorded: by their ends, or of a rank that serves only by its updates */
    int64_t steps;
    int64_t step_ns; /* their intervals, summed; of `intervals` of them */
    int64_t intervals;
    td_rank_work pull, push, sum, answer, apply;
    /* answers to its pulls by how many windows they were behind; the last: all beyond */
    int64_t behind[TD_MOST_BEHIND];
    int64_t met;     /* sums at which it and another rank were seen */
    int64_t late_ns; /* summed over these */
    int64_t late_median_ns, late_most_ns;
    int64_t times_last;
    int64_t held_up_ns; /* what the others waited for it alone, summed */
    int64_t held_up_median_ns;
    double cores_used; /* of its process (a worker among others: its share), in the mean; 0: not sampled */
} td_rank_times;

/* Ids of served tables, as the workers counted them. */
typedef struct td_rank_keys {
    char tables[96];
    int64_t ids, distinct; /* of all batches */
} td_rank_keys;

typedef struct td_ranks {
    const td_job_traces *job;
    td_rank_times *times; /* of each of job->ranks */
    int64_t first_step, n_steps;
    int64_t *arrivals_ns; /* [n_steps][job->n], on the first rank's clock; INT64_MIN: not seen */
    td_rank_keys *keys;   /* of all workers, by group of tables */
    int64_t n_keys, keys_capacity;
} td_ranks;

/* Of the window (from 0, or -1 for the last) of the first rank that has one; where none has, nothing but what was told. Borrows
 * the job. */
td_status *td_ranks_create(const td_job_traces *job, int32_t window, td_ranks **out_ranks) TD_MUST_USE;
void td_ranks_destroy(td_ranks *ranks);
/* Cores that all ranks of a host use together, in the mean. */
double td_ranks_cores_used(const td_ranks *ranks, const char *host);
/* How many ranks are on a host. */
int32_t td_ranks_on(const td_ranks *ranks, const char *host);
/* The place whose trace and worker a view is of; NULL: none. */
const td_rank_trace *td_ranks_place(const td_ranks *ranks, const td_trace *trace, int32_t worker);
/* The rank that came last most often, by its place in job->ranks; -1: there are no two that met. */
int32_t td_ranks_slowest(const td_ranks *ranks);
/* Answers to a rank's pulls of which it is known how far they were behind; the mean, and the most windows. */
int64_t td_rank_behind(const td_rank_times *times, double *out_mean, int32_t *out_most);

#endif
