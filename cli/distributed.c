/* See cli/distributed.h. */
#include "cli/distributed.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/launcher.h"
#include "cli/version.h"
#include "runtime/remote.h"

static bool must_leave;

bool td_distributed_must_leave(void)
{
    return must_leave;
}

/* ---- opening ----------------------------------------------------------------------------------------------------------------- */

static td_status *read_servers(td_section root, int32_t *out_servers)
{
    const char *text = td_section_string(root, "ps.servers");
    char *end = NULL;
    *out_servers = 0;
    if (!strcmp(text, "colocated"))
        return NULL;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < 1 || n > 1 << 20)
        return TD_SECTION_ERROR(root, "ps.servers", "ps.servers is \"%s\"; it must be a number of ranks, or colocated",
                                text);
    *out_servers = (int32_t)n;
    return NULL;
}

static int64_t read_ahead(td_section root)
{
    const char *consistency = td_section_string(root, "ps.consistency");
    return !strcmp(consistency, "async")   ? TD_JOB_ASYNC
           : !strcmp(consistency, "stale") ? td_section_int(root, "ps.stale")
                                           : 0;
}

/* Of everything that makes the plan: ranks with other configurations would wait for each other without end. */
static td_status *fingerprint(const td_config *config, uint64_t *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a configuration");
    td_config_print(config, stream);
    fclose(stream);
    *out = td_hash_bytes(text, bytes, td_hash_string(TANDEM_VERSION, 0));
    free(text);
    return NULL;
}

/* What the job has settled on: one for each worker, where the configuration does not say. */
static td_status *set_replicas(td_config *config, const td_job *job)
{
    char *assignment = td_format("train.replicas=%d", td_job_replicas(job));
    td_status *status =
        assignment ? td_config_set(config, assignment) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a setting");
    td_free(assignment);
    return status;
}

/* Each rank computes with its share of the host's cores, where the configuration does not say otherwise. */
static td_status *share_cores(td_config *config, const td_job *job)
{
    TD_TRY(set_replicas(config, job));
    if (td_section_given(td_config_root(config), "cpu.threads"))
        return td_config_resolve(config);
    char *assignment = td_format("cpu.threads=%d", td_job_threads(job, td_job_rank(job)));
    td_status *status =
        assignment ? td_config_set(config, assignment) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a setting");
    td_free(assignment);
    return status ? status : td_config_resolve(config);
}

/* mpirun kills the others when a process dies, unless it was told not to. */
static bool recovers(td_section root)
{
    const char *wanted = td_section_string(root, "ps.recovery");
    return !strcmp(wanted, "auto") ? td_launcher_leaves_others() : !strcmp(wanted, "on");
}

/* ---- in one process ---------------------------------------------------------------------------------------------------------- */

/* What a job alone looks at. */
static const char *const keys_of_jobs[] = {"ps.servers",         "ps.consistency", "ps.dense_sync",
                                           "ps.shard_optimizer", "ps.cache",       "ps.deadline",
                                           "ps.notice",          "ps.spares",      "ps.recovery"};

/* How it is started as a job: two workers, and the ranks that do not work. */
static td_status *help_to_start(td_status *status, const td_job_options *options)
{
    return td_status_help(status,
                          "as a job: mpirun --oversubscribe -n %d tandem train ...; in one process: leave the key out",
                          2 + options->servers + options->spares);
}

/* One process trains as a job in sync mode does; so it says which keys it does not look at, and refuses one that asks for other results.
 * Where tables are to be served the plan refuses, and says how to start. */
static td_status *settle_alone(td_section root, const td_job_options *options)
{
    enum { MOST = 160 };
    char given[MOST] = "";
    int n = 0;
    const char *consistency = td_section_string(root, "ps.consistency");
    if (strcmp(consistency, "sync") != 0)
        return help_to_start(TD_SECTION_ERROR(root, "ps.consistency",
                                              "ps.consistency is %s, and one process has no other to run ahead of",
                                              consistency),
                             options);
    for (size_t i = 0; i < sizeof keys_of_jobs / sizeof *keys_of_jobs; i++) {
        if (!td_section_given(root, keys_of_jobs[i]) || !strcmp(keys_of_jobs[i], "ps.consistency"))
            continue;
        const size_t at = strlen(given);
        (void)snprintf(given + at, MOST - at, "%s%s", n++ ? ", " : "", keys_of_jobs[i]);
    }
    if (n && strcmp(td_section_string(root, "offload.embedding"), "ps") != 0)
        td_log(TD_LOG_WARNING,
               "%s ha%s no effect in one process; as a job: mpirun --oversubscribe -n %d tandem train ...", given,
               n > 1 ? "ve" : "s", 2 + options->servers + options->spares);
    return NULL;
}

td_status *td_distributed_open(td_config *config, td_distributed *out)
{
    td_section root = td_config_root(config);
    td_job_options options = {.deadline_s = td_section_seconds(root, "ps.deadline"),
                              .notice_s = td_section_seconds(root, "ps.notice"),
                              .spares = (int32_t)td_section_int(root, "ps.spares"),
                              .recover = recovers(root),
                              .cache_bytes = td_section_size(root, "ps.cache")};
    *out = (td_distributed){.leads = true};
    TD_TRY(read_servers(root, &options.servers)); /* what is wrong is wrong without mpirun too */
    if (!td_job_is_wanted())
        return settle_alone(root, &options);
    if (td_section_given(root, "train.replicas"))
        options.replicas = (int32_t)td_section_int(root, "train.replicas");
    if (!strcmp(td_section_string(root, "ps.dense_sync"), "mpi"))
        options.dense_sync = TD_DENSE_MPI;
    options.ahead = read_ahead(root);
    TD_TRY(fingerprint(config, &options.fingerprint));
    td_status *status = td_job_open(&options, &out->job);
    must_leave = status != NULL; /* MPI may have started, and is not finalized */
    TD_TRY(status);
    out->leads = td_job_worker(out->job) == 0;
    if (!out->leads)
        td_log_set_level(TD_LOG_NULL); /* the first worker tells */
    if (options.spares && !td_job_recovers(out->job))
        td_log(TD_LOG_WARNING,
               "ps.spares is %d, but the job ends when a rank is lost, so no spare ever works; to go on: mpirun "
               "--enable-recovery",
               options.spares);
    return share_cores(config, out->job);
}

/* ---- closing ----------------------------------------------------------------------------------------------------------------- */

void td_distributed_close(td_distributed *d, const td_status *error)
{
    if (!d->job)
        return;
    bool cancelled = td_status_code(error) == TD_CANCELLED, told = false;
    td_status *left = NULL;
    if (error)
        (void)signal(SIGTERM,
                     SIG_IGN); /* mpirun's, when another rank is gone first: who speaks must not be cut short */
    for (int32_t i = 0; i < td_job_workers_here(d->job) && (!error || cancelled) && !left; i++)
        left = td_job_leave(td_job_of_worker(d->job, i));
    if (left && td_job_may_go_on(d->job)) { /* a server that is gone after all work is done */
        td_status_destroy(left);
        left = NULL;
    }
    must_leave = !td_job_close(d->job, cancelled ? left : error ? error : left, &told);
    td_status_destroy(left);
    d->job = NULL;
    if (!d->leads && error && (told || cancelled) && !freopen("/dev/null", "w", stderr))
        must_leave = true;
}

/* ---- going on ---------------------------------------------------------------------------------------------------------------- */

bool td_distributed_go_on(td_distributed *d, td_section root, td_status **status, char **out_loss)
{
    bool done = false;
    *out_loss = NULL;
    if (!d->job || !*status || !td_job_may_go_on(d->job))
        return false;
    td_status *loss = td_job_failure(d->job);
    td_status_destroy(*status);
    *status = td_job_go_on(d->job, &done);
    td_log_level level = TD_LOG_INFO;
    d->leads = !*status && td_job_worker(d->job) == 0;
    if (d->leads && !done && td_log_level_parse(td_section_string(root, "log.level"), &level)) {
        td_log_set_level(level);
        td_log(TD_LOG_WARNING, "%s", td_status_message(loss));
    }
    *out_loss = td_strdup(td_status_message(loss));
    td_status_destroy(loss);
    return !*status && !done;
}

/* ---- a worker's run ------------------------------------------------------------------------------------------------------------ */

void td_distributed_options(const td_distributed *d, td_section root, td_train_options *options)
{
    options->serve_embedding = !strcmp(td_section_string(root, "offload.embedding"), "ps");
    if (!d->job)
        return;
    options->remote = td_job_remote(d->job);
    options->shard_optimizer = td_section_bool(root, "ps.shard_optimizer");
    options->replicas = 0; /* of the window's, those that this worker runs */
    for (int32_t r = 0; r < td_job_replicas(d->job); r++)
        options->replicas += td_job_replica_worker(d->job, r) == td_job_worker(d->job);
}

td_status *td_distributed_plan_options(td_section root, td_train_options *options, td_remote *job)
{
    int32_t servers = 0;
    TD_TRY(read_servers(root, &servers));
    *job = (td_remote){.own = 1}; /* a plan asks it nothing */
    options->serve_embedding = !strcmp(td_section_string(root, "offload.embedding"), "ps");
    options->shard_optimizer = td_section_bool(root, "ps.shard_optimizer") && options->replicas > 1;
    if (!options->serve_embedding && !options->shard_optimizer)
        return NULL;
    job->workers = job->replicas = options->replicas > 1 ? options->replicas : 1;
    const int64_t ahead = read_ahead(root);
    job->asks_ahead = ahead == 0 && td_section_size(root, "ps.cache") <= 0;
    job->windows = 1 + (int32_t)(ahead == TD_JOB_ASYNC ? TD_REMOTE_ASYNC_LATE : ahead);
    options->replicas = 1;
    options->remote = job;
    return NULL;
}

/* What about the ranks' cores will hurt, and the flag that mends it. */
static void warn(const td_job *job, FILE *stream)
{
    int32_t crowded = 0, bound = 0;
    for (int32_t r = 0; r < td_job_ranks(job); r++) {
        if (td_job_is_lost(job, r))
            continue;
        crowded += !td_job_is_bound(job, r) && td_job_threads(job, r) == 1 && td_job_cores(job, r) > 1;
        bound += td_job_is_bound(job, r) && td_job_cores(job, r) == 1;
    }
    if (crowded)
        fprintf(stream, "%s with one thread share their host's cores; fewer ranks a host compute faster\n",
                TD_COUNTED(crowded, "rank"));
    if (bound)
        fprintf(stream,
                "mpirun binds %s to one core each, to compute with one thread; for more: mpirun --bind-to none\n",
                TD_COUNTED(bound, "rank"));
}

void td_distributed_print(const td_distributed *d, FILE *stream)
{
    if (!d->job || !stream)
        return;
    for (int32_t r = 0; r < td_job_ranks(d->job); r++)
        if (!td_job_is_lost(d->job, r))
            fprintf(stream, "rank %d  %s on %s, %s\n", r, td_job_role(d->job, r), td_job_host(d->job, r),
                    TD_COUNTED(td_job_threads(d->job, r), "thread"));
    warn(d->job, stream);
}

int64_t td_distributed_window(const td_distributed *d, const td_train_options *options)
{
    int64_t most = options->accumulate;
    for (int64_t i = 0; i < options->accumulate_changes.n; i++)
        if (options->accumulate_changes.items[i].accumulate > most)
            most = options->accumulate_changes.items[i].accumulate;
    int64_t window = INT64_MAX;
    const bool in_job = d && d->job;
    if (!in_job && !options->hashes.n)
        return 1;
    return td_multiply_checked(most, in_job ? td_job_replicas(d->job) : options->replicas, &window) ? window
                                                                                                    : INT64_MAX;
}

td_status *td_distributed_meet(const td_distributed *d)
{
    int64_t none = 0;
    return d->job ? td_job_agree(d->job, 0, &none) : NULL;
}
