/* Jobs: who does what, the beginning and the end. See tandem/job.h. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "ps/job_state.h"

bool td_job_is_wanted(void)
{
    return td_comm_is_wanted();
}

/* ---- roles ------------------------------------------------------------------------------------------------------------------ */

static td_status *take_roles(td_job *job)
{
    const int32_t ranks = td_comm_size(job->comm), rank = td_comm_rank(job->comm), servers = job->options.servers;
    if (servers < 0 || servers >= ranks)
        return td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT, "%d of %d ranks serve, so none is left to work", servers, ranks),
            "start more ranks (mpirun -n %d), or set ps.servers to less, or to colocated", servers + 1);
    bool colocated = servers == 0;
    job->workers = colocated ? ranks : ranks - servers;
    job->servers = colocated ? ranks : servers;
    job->first_server = colocated ? 0 : job->workers;
    job->worker = rank < job->workers ? rank : -1;
    job->server = rank >= job->first_server ? rank - job->first_server : -1;
    job->roles = td_calloc((size_t)ranks, sizeof *job->roles);
    if (!job->roles)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a job of %d ranks", ranks);
    for (int32_t r = 0; r < ranks; r++) {
        bool works = r < job->workers;
        (void)snprintf(job->roles[r], sizeof job->roles[r], "%s %d",
                       colocated ? "worker and server"
                       : works   ? "worker"
                                 : "server",
                       works ? r : r - job->first_server);
        td_comm_name(job->comm, r, job->roles[r]);
    }
    return NULL;
}

/* ---- serving beside working --------------------------------------------------------------------------------------------------- */

static void *service_main(void *argument)
{
    td_job *job = argument;
    td_status *status = td_server_run(job->serving);
    if (status)
        td_comm_fail(job->comm, status);
    return NULL;
}

static td_status *start_service(td_job *job)
{
    if (job->server < 0)
        return NULL;
    TD_TRY(td_server_create(job->comm, job->server, job->servers, job->workers, &job->serving));
    if (job->worker < 0)
        return NULL; /* td_job_serve */
    if (td_thread_create(&job->service, service_main, job) != 0)
        return TD_ERROR(TD_IO, "no thread for serving tables");
    job->has_service = true;
    return NULL;
}

td_status *td_job_serve(td_job *job)
{
    return td_server_run(job->serving);
}

td_job_served td_job_count_served(const td_job *job)
{
    return job->serving ? td_server_count(job->serving) : (td_job_served){0};
}

/* ---- life -------------------------------------------------------------------------------------------------------------------- */

static void release(td_job *job)
{
    td_client_release(job);
    td_free(job->tables);
    td_free(job->roles);
    td_free(job);
}

td_status *td_job_open(const td_job_options *options, td_job **out_job)
{
    td_job *job = NULL;
    const td_comm_options communication = {
        .deadline_s = options->deadline_s, .patience_s = options->patience_s, .fingerprint = options->fingerprint};
    *out_job = NULL;
    TD_TRY(TD_NEW(job, 1));
    job->options = *options;
    td_status *status = td_comm_open(&communication, &job->comm);
    if (!status)
        status = take_roles(job);
    if (!status)
        status = start_service(job);
    if (status) {
        td_server_destroy(job->serving);
        (void)td_comm_close(job->comm, status);
        release(job);
        return status;
    }
    td_client_fill(job);
    *out_job = job;
    return NULL;
}

bool td_job_close(td_job *job, const td_status *error)
{
    if (!job)
        return true;
    if (job->has_service) {
        if (error)
            td_comm_end_requests(job->comm);
        pthread_join(job->service, NULL);
    }
    td_server_destroy(job->serving); /* its requests are the communication's */
    job->serving = NULL;
    bool finalized = td_comm_close(job->comm, error);
    release(job);
    return finalized;
}

td_status *td_job_leave(td_job *job)
{
    TD_TRY(td_client_settle(job));
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel word = {.peer = job->first_server + s, .kind = TD_ASK_LEAVE, .number = (uint64_t)++job->asked};
        td_comm_send(job->comm, &word);
        TD_TRY(td_comm_wait(job->comm, &word));
    }
    return NULL;
}

td_status *td_job_agree(td_job *job, int64_t mine, int64_t *out_largest)
{
    td_parcel *parcels = NULL;
    const uint64_t number = (uint64_t)++job->agreed;
    td_status *status = NULL;
    *out_largest = mine;
    TD_TRY(TD_NEW(parcels, 2 * job->workers));
    for (int32_t w = 0; w < job->workers; w++) {
        td_parcel *in = &parcels[2 * w], *out = in + 1;
        *in = *out = (td_parcel){.peer = w, .kind = TD_TELL_AGREE, .number = number, .words = {(uint64_t)mine}};
        td_comm_receive(job->comm, in);
        td_comm_send(job->comm, out);
    }
    for (int32_t w = 0; w < job->workers && !status; w++) {
        status = td_comm_wait(job->comm, &parcels[2 * w]);
        if (!status)
            status = td_comm_wait(job->comm, &parcels[2 * w + 1]);
        if (!status && (int64_t)parcels[2 * w].words[0] > *out_largest)
            *out_largest = (int64_t)parcels[2 * w].words[0];
    }
    td_free(parcels);
    return status;
}

/* ---- facts ------------------------------------------------------------------------------------------------------------------- */

int32_t td_job_rank(const td_job *job)
{
    return td_comm_rank(job->comm);
}

int32_t td_job_ranks(const td_job *job)
{
    return td_comm_size(job->comm);
}

int32_t td_job_workers(const td_job *job)
{
    return job->workers;
}

int32_t td_job_servers(const td_job *job)
{
    return job->servers;
}

int32_t td_job_worker(const td_job *job)
{
    return job->worker;
}

int32_t td_job_server(const td_job *job)
{
    return job->server;
}

const char *td_job_role(const td_job *job, int32_t rank)
{
    return job->roles[rank];
}

const char *td_job_host(const td_job *job, int32_t rank)
{
    return td_comm_host(job->comm, rank);
}

int32_t td_job_cores(const td_job *job, int32_t rank)
{
    return td_comm_cores(job->comm, rank);
}

int32_t td_job_threads(const td_job *job, int32_t rank)
{
    int32_t here = 0, cores = td_comm_cores(job->comm, rank);
    for (int32_t r = 0; r < td_comm_size(job->comm); r++)
        here += strcmp(td_comm_host(job->comm, r), td_comm_host(job->comm, rank)) == 0;
    if (!td_comm_is_bound(job->comm, rank)) /* a launcher that binds gives each its own */
        cores /= here;
    return cores > 0 ? cores : 1;
}

bool td_job_is_bound(const td_job *job, int32_t rank)
{
    return td_comm_is_bound(job->comm, rank);
}

const td_remote *td_job_remote(td_job *job)
{
    return job->worker < 0 ? NULL : &job->remote;
}

void td_job_ask_to_stop(td_job *job)
{
    atomic_store(&job->asked_to_stop, true);
}

int64_t td_job_stops_at(const td_job *job)
{
    return atomic_load(&job->stops_at);
}

void td_job_set_step(td_job *job, int64_t step)
{
    td_comm_set_step(job->comm, step);
}
