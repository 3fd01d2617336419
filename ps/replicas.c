/* Which worker runs which of a window's replicas: one table, the same on every rank. Results depend on how many replicas there are,
 * not on who runs them, so it may change between windows. */
#include "base/memory.h"
#include "base/units.h"
#include "ps/job_state.h"

td_status *td_job_share_replicas(td_job *job)
{
    job->replicas = job->options.replicas ? job->options.replicas : job->workers;
    if (job->replicas < 0 || job->replicas % job->workers)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "train.replicas is %d, which %s cannot share out evenly",
                                       job->replicas, TD_COUNTED(job->workers, "worker")),
                              "leave it out (one each), or make it a multiple of the workers");
    TD_TRY(TD_NEW(job->replica_worker, job->replicas));
    for (int32_t r = 0; r < job->replicas; r++)
        job->replica_worker[r] = r / (job->replicas / job->workers);
    return NULL;
}

int32_t td_job_replicas(const td_job *job)
{
    return job->replicas;
}

int32_t td_job_replica_worker(const td_job *job, int32_t replica)
{
    return job->replica_worker[replica];
}

bool td_job_runs(const td_job *job, int32_t replica)
{
    return job->replica_worker[replica] == job->worker;
}

int32_t td_job_own_replicas(const td_job *job)
{
    int32_t n = 0;
    for (int32_t r = 0; r < job->replicas; r++)
        n += td_job_runs(job, r);
    return n;
}

int32_t td_job_first_replica(const td_job *job)
{
    for (int32_t r = 0; r < job->replicas; r++)
        if (td_job_runs(job, r))
            return r;
    return -1;
}
