/* Jobs: who does what, the beginning and the end. See tandem/job.h. */
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "ps/job_state.h"

bool td_job_is_wanted(void)
{
    return td_comm_is_wanted();
}

/* ---- roles ------------------------------------------------------------------------------------------------------------------ */

/* A further worker of this rank: a job of its own, which borrows everything but what a worker has for itself. */
static td_status *add_worker(td_job *job, int32_t worker)
{
    td_job *other = NULL;
    TD_TRY(TD_NEW(other, 1));
    job->others[job->n_others++] = other;
    other->comm = job->comm;
    other->options = job->options;
    other->members = job->members;
    other->workers = job->workers;
    other->servers = job->servers;
    other->worker_ranks = job->worker_ranks;
    other->server_ranks = job->server_ranks;
    other->worker = worker;
    other->server = -1;
    TD_TRY(td_job_share_replicas(other));
    td_client_fill(other);
    return NULL;
}

/* What this rank is, as the members say: its first worker, and a job for each further one. */
static td_status *take_roles(td_job *job)
{
    const td_members *members = job->members;
    const int32_t rank = td_comm_rank(job->comm), mine = td_members_count_workers(members, rank);
    job->workers = members->workers;
    job->servers = members->servers;
    job->worker_ranks = members->worker_ranks;
    job->server_ranks = members->server_ranks;
    job->server = td_members_server(members, rank);
    job->worker = -1;
    for (int32_t r = 0; r < members->ranks; r++)
        td_comm_name(job->comm, r, members->roles[r]);
    td_comm_set_speaker(job->comm, job->worker_ranks[0]);
    TD_TRY(TD_NEW(job->others, mine + 1));
    for (int32_t w = 0; w < job->workers; w++) {
        if (job->worker_ranks[w] != rank)
            continue;
        if (job->worker < 0)
            job->worker = w;
        else
            TD_TRY(add_worker(job, w));
    }
    TD_TRY(td_job_share_replicas(job));
    td_client_fill(job);
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
    if (job->server < 0 && job->worker >= 0)
        return NULL;
    /* a spare serves no table, and learns as servers do when the work is done */
    TD_TRY(td_server_create(job->comm, job->server < 0 ? 0 : job->server, job->servers, job->workers, job->replicas,
                            job->options.ahead != 0, &job->serving));
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

td_job_cached td_job_count_cached(const td_job *job)
{
    return td_row_cache_count(job->cache);
}

/* What belongs to one worker. comm: NULL once that is closed. */
static void release_worker(td_job *job, td_comm *comm)
{
    td_client_release(job, comm);
    td_job_release_sums(job, comm);
    td_free(job->replica_worker);
    job->replica_worker = NULL;
    td_row_cache_destroy(job->cache);
    job->cache = NULL;
    td_free(job->tables);
    job->tables = NULL;
    job->n_tables = job->tables_capacity = 0;
    job->pushed = job->asked = job->agreed = job->summed = 0;
    atomic_store(&job->stops_at, 0);
}

static void release_roles(td_job *job, td_comm *comm)
{
    td_server_destroy(job->serving); /* it may have what workers lend */
    job->serving = NULL;
    release_worker(job, comm);
    for (int32_t i = 0; i < job->n_others; i++) {
        release_worker(job->others[i], comm);
        td_free(job->others[i]);
    }
    td_free(job->others);
    job->others = NULL;
    job->n_others = 0;
}

static void release(td_job *job)
{
    release_roles(job, NULL);
    td_members_destroy(job->members);
    td_free(job);
}

static td_status *settle_recovery(td_job *job)
{
    job->options.recover = td_comm_recovers(job->comm);
    if (job->options.dense_sync != TD_DENSE_MPI || !job->options.recover)
        return NULL;
    return td_status_help(
        TD_ERROR(TD_INVALID_ARGUMENT,
                 "a job that goes on without ranks that are lost cannot sum by MPI: a sum that one of "
                 "them takes part in never ends"),
        "ps.dense_sync: ordered, or ps.recovery: off");
}

td_status *td_job_open(const td_job_options *options, td_job **out_job)
{
    td_job *job = NULL;
    *out_job = NULL;
    TD_TRY(TD_NEW(job, 1));
    job->options = *options;
    const td_comm_options communication = {.deadline_s = options->deadline_s,
                                           .patience_s = options->patience_s,
                                           .notice_s = options->notice_s,
                                           .fingerprint = options->fingerprint,
                                           .recover = options->recover,
                                           .adds_up = options->dense_sync == TD_DENSE_MPI,
                                           .apart = options->servers + options->spares,
                                           .asked_to_stop = &job->asked_to_stop};
    td_status *status = td_comm_open(&communication, &job->comm);
    if (!status)
        status = settle_recovery(job);
    if (!status)
        status = td_members_create(td_comm_size(job->comm), options->servers, options->spares, &job->members);
    if (!status)
        status = take_roles(job);
    if (!status)
        status = start_service(job);
    if (status) {
        td_server_destroy(job->serving);
        job->serving = NULL;
        (void)td_comm_close(job->comm, status, NULL);
        release(job);
        return status;
    }
    *out_job = job;
    return NULL;
}

static void join_service(td_job *job)
{
    if (job->has_service)
        pthread_join(job->service, NULL);
    job->has_service = false;
}

bool td_job_close(td_job *job, const td_status *error, bool *out_told)
{
    if (!job)
        return true;
    if (error)
        td_comm_end_requests(job->comm);
    join_service(job);
    td_server_destroy(job->serving); /* its requests are the communication's */
    job->serving = NULL;
    bool finalized = td_comm_close(job->comm, error, out_told);
    release(job);
    return finalized;
}

/* ---- going on without ranks that are lost ----------------------------------------------------------------------------------- */

bool td_job_recovers(const td_job *job)
{
    return job->options.recover;
}

bool td_job_may_go_on(td_job *job)
{
    return td_comm_may_recover(job->comm);
}

td_status *td_job_go_on(td_job *job, bool *out_done)
{
    join_service(job);
    release_roles(job, job->comm);
    TD_TRY(td_comm_recover(job->comm, out_done));
    if (*out_done)
        return NULL;
    td_members_replace(job->members, job->comm);
    TD_TRY(take_roles(job));
    return start_service(job);
}

void td_job_fail(td_job *job, const td_status *error)
{
    td_comm_fail(job->comm, TD_ERROR(td_status_code(error), "%s", td_status_message(error)));
}

td_status *td_job_failure(td_job *job)
{
    return td_comm_failure(job->comm);
}

int32_t td_job_workers_here(const td_job *job)
{
    return job->worker < 0 ? 0 : 1 + job->n_others;
}

td_job *td_job_of_worker(td_job *job, int32_t index)
{
    return index ? job->others[index - 1] : job;
}

td_status *td_job_leave(td_job *job)
{
    TD_TRY(td_client_settle(job));
    for (int32_t r = 0; r < job->members->ranks; r++) {
        const bool serves = td_members_server(job->members, r) >= 0;
        if (td_comm_is_lost(job->comm, r) || (!serves && td_members_count_workers(job->members, r)))
            continue;
        td_parcel word = {.peer = r, .kind = TD_ASK_LEAVE, .number = td_job_next_question(job)};
        td_comm_send(job->comm, &word);
        TD_TRY(td_comm_wait(job->comm, &word));
    }
    return NULL;
}

td_status *td_job_agree(td_job *job, int64_t mine, int64_t *out_largest)
{
    const int64_t n = ++job->agreed;
    td_status *status = NULL;
    *out_largest = mine;
    if (!job->agreeing)
        TD_TRY(TD_NEW(job->agreeing, 2 * job->workers));
    td_parcel *parcels = job->agreeing;
    for (int32_t w = 0; w < job->workers; w++) {
        td_parcel *in = &parcels[2 * w], *out = in + 1;
        *in = *out = (td_parcel){
            .peer = job->worker_ranks[w], .kind = TD_TELL_AGREE, .words = {(uint64_t)mine}, .patient = true};
        in->number = td_job_number(job, n, w, job->worker);
        out->number = td_job_number(job, n, job->worker, w);
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
    return job->members->roles[rank];
}

bool td_job_is_lost(const td_job *job, int32_t rank)
{
    return td_comm_is_lost(job->comm, rank);
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

bool td_job_is_asked_to_stop(const td_job *job)
{
    return atomic_load(&job->asked_to_stop);
}

int64_t td_job_stops_at(const td_job *job)
{
    return atomic_load(&job->stops_at);
}

void td_job_set_step(td_job *job, int64_t step)
{
    job->first_step = step;
    td_comm_set_step(job->comm, step);
}
