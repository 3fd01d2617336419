/* Traces of a job: see job.h. Finding and reading them, and their clocks. Making one of them: job_merge.c. */
#include "profiler/job.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "base/string.h"
#include "profiler/workers.h"

enum { MOST_RANKS = 4096 };

const char *td_job_aligned_name(td_job_aligned aligned)
{
    static const char *const names[] = {"by clock of day", "at the beginning", "at beginning and end", "one clock"};
    return names[aligned];
}

/* ---- clocks ---------------------------------------------------------------------------------------------------------------------- */

/* A moment on the first rank's clock and on another's. */
typedef struct moment {
    int64_t mine_ns, theirs_ns, error_ns;
    bool known;
} moment;

/* Of a rank, from the first one's information. Wild numbers are no reading: a century is enough for any clock. */
static moment reading_of(const td_trace *first, const char *key, int32_t rank)
{
    static const json_int_t most = INT64_C(3000000000000000000);
    const json_t *list = json_object_get(first->info, key), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        json_int_t mine = json_integer_value(json_object_get(item, "mine_ns"));
        json_int_t theirs = json_integer_value(json_object_get(item, "theirs_ns"));
        json_int_t error = json_integer_value(json_object_get(item, "error_ns"));
        if (json_integer_value(json_object_get(item, "rank")) == rank && mine > 0 && mine < most && theirs > 0 &&
            theirs < most && error >= 0 && error < most)
            return (moment){.mine_ns = mine, .theirs_ns = theirs, .error_ns = error, .known = true};
    }
    return (moment){0};
}

static bool is_same(const moment *m)
{
    int64_t apart = m->theirs_ns - m->mine_ns;
    return m->known && (apart < 0 ? -apart : apart) <= m->error_ns;
}

/* Nanoseconds as far as a file may say: within a hundred years. */
static int64_t held(double ns)
{
    const double most = 3e18;
    return (int64_t)(ns > most ? most : ns < -most ? -most : ns);
}

static void align(const td_trace *first, td_rank_trace *r)
{
    moment begin = reading_of(first, "clocks_begin", r->rank), end = reading_of(first, "clocks_end", r->rank);
    const char *host = json_string_value(json_object_get(first->info, "host"));
    const td_trace *trace = r->trace;
    double apart = (double)trace->start_monotonic_ns - (double)first->start_monotonic_ns;
    if (trace == first) {
        r->aligned = TD_JOB_SHARED;
        return;
    }
    if (!begin.known) {
        r->aligned = TD_JOB_UNALIGNED;
        r->shift_ns = held((double)trace->start_unix_ns - (double)first->start_unix_ns);
        return;
    }
    r->aligned = end.known && end.theirs_ns > begin.theirs_ns ? TD_JOB_ALIGNED : TD_JOB_ALIGNED_ONCE;
    if (host && !strcmp(host, r->host) && is_same(&begin) && (!end.known || is_same(&end))) {
        r->aligned = TD_JOB_SHARED;
        r->shift_ns = held(apart);
        return;
    }
    double offset = (double)(begin.theirs_ns - begin.mine_ns);
    r->error_ns = begin.error_ns;
    if (r->aligned == TD_JOB_ALIGNED) {
        double later = (double)(end.theirs_ns - end.mine_ns);
        r->drift = (later - offset) / (double)(end.theirs_ns - begin.theirs_ns);
        r->error_ns = end.error_ns > begin.error_ns ? end.error_ns : begin.error_ns;
        offset += r->drift * ((double)trace->start_monotonic_ns - (double)begin.theirs_ns);
    }
    r->offset_ns = offset;
    r->shift_ns = held(apart - offset);
}

int64_t td_rank_time(const td_rank_trace *rank, int64_t ns)
{
    return (int64_t)((uint64_t)ns + (uint64_t)rank->shift_ns - (uint64_t)held(rank->drift * (double)ns));
}

/* ---- names ----------------------------------------------------------------------------------------------------------------------- */

bool td_job_name_parse(const char *name, int32_t *out_stem, int32_t *out_rank)
{
    size_t length = strlen(name);
    if (length <= 4 || length > 255 || strcmp(name + length - 4, ".tdt") != 0)
        return false;
    const char *rank = strstr(name, ".rank");
    *out_stem = (int32_t)(rank ? (size_t)(rank - name) : length - 4);
    *out_rank = 0;
    if (!rank)
        return true;
    rank += strlen(".rank");
    size_t digits = strspn(rank, "0123456789");
    if (!digits || digits > 6 || rank + digits != name + length - 4)
        return false;
    *out_rank = atoi(rank);
    return *out_rank < MOST_RANKS;
}

/* ---- workers of one rank --------------------------------------------------------------------------------------------------------- */

/* "workers 0, 2 and server 1" becomes "worker 0 and server 1" and "worker 2". */
static void name_worker(td_rank_trace *r, int32_t worker, bool first)
{
    const char *serves = first ? strstr(r->role, " and server") : NULL;
    char rest[sizeof r->role] = "";
    if (serves)
        td_text_cut(rest, sizeof rest, serves);
    (void)snprintf(r->role, sizeof r->role, "worker %d%.40s", worker, rest);
    r->worker = worker;
}

/* A place for each further worker of a rank. */
static td_status *split_workers(td_job_traces *job, int64_t *capacity)
{
    const int32_t ranks = job->n;
    for (int32_t i = 0; i < ranks; i++) {
        int32_t workers[TD_MOST_WORKERS], n = 0;
        if (job->ranks[i].trace)
            TD_TRY(td_status_prefix(td_trace_workers(job->ranks[i].trace, workers, &n), "rank %d", job->ranks[i].rank));
        for (int32_t w = 1; w < n; w++) {
            TD_TRY(td_grow(&job->ranks, capacity, job->n, sizeof *job->ranks));
            td_rank_trace *further = &job->ranks[job->n++];
            *further = job->ranks[i];
            further->shares = true;
            name_worker(further, workers[w], false);
        }
        if (n > 1)
            name_worker(&job->ranks[i], workers[0], true);
    }
    return NULL;
}

bool td_rank_trained(const td_rank_trace *rank)
{
    return rank->trace && rank->trace->n_windows && rank->trace->n_plans;
}

bool td_rank_owns(const td_rank_trace *rank, const td_trace_event *event)
{
    if (rank->worker < 0)
        return true;
    switch (event->kind) {
    case TD_RECORD_STEP:
    case TD_RECORD_PULL:
    case TD_RECORD_PUSH:
    case TD_RECORD_ALL_REDUCE:
    case TD_RECORD_STALENESS:
        return td_event_worker(rank->trace, event) == rank->worker;
    default:
        return !rank->shares; /* what the process does */
    }
}

/* ---- reading --------------------------------------------------------------------------------------------------------------------- */

static void describe(td_rank_trace *r)
{
    const char *role = json_string_value(json_object_get(r->trace->info, "role"));
    const char *host = json_string_value(json_object_get(r->trace->info, "host"));
    td_text_cut(r->role, sizeof r->role, role ? role : "");
    td_text_cut(r->host, sizeof r->host, host ? host : "");
}

static int by_rank(const void *a, const void *b)
{
    const td_rank_trace *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank : x->worker - y->worker;
}

/* A place for a rank. A rank that is there twice is refused. */
static td_status *add_rank(td_job_traces *job, int64_t *capacity, int32_t rank, td_rank_trace **out)
{
    for (int32_t i = 0; i < job->n; i++)
        if (job->ranks[i].rank == rank)
            return TD_ERROR(TD_DATA_ERROR, "two traces are of rank %d", rank);
    TD_TRY(td_grow(&job->ranks, capacity, job->n, sizeof *job->ranks));
    *out = &job->ranks[job->n++];
    **out = (td_rank_trace){.rank = rank, .worker = -1};
    return NULL;
}

/* Whether a recording is of a job that went on without that rank. */
static bool was_lost(const td_job_traces *job, int32_t rank)
{
    for (int32_t i = 0; i < job->n; i++) {
        const json_t *lost = job->ranks[i].trace
                                 ? json_object_get(json_object_get(job->ranks[i].trace->info, "recovery"), "lost")
                                 : NULL;
        for (size_t k = 0; k < json_array_size(lost); k++)
            if (json_integer_value(json_array_get(lost, k)) == rank)
                return true;
    }
    return false;
}

/* Ranks that the job had, by what their traces say, and whose trace is not there: a rank that was lost before it recorded. */
static td_status *list_missing(td_job_traces *job, int64_t *capacity)
{
    json_int_t most = 1;
    for (int32_t i = 0; i < job->n; i++) {
        json_int_t ranks =
            job->ranks[i].trace ? json_integer_value(json_object_get(job->ranks[i].trace->info, "ranks")) : 0;
        most = ranks > most ? ranks : most;
    }
    most = most < MOST_RANKS ? most : MOST_RANKS;
    for (int32_t rank = 0; rank < (int32_t)most; rank++) {
        td_rank_trace *added = NULL;
        if (td_rank_trace_of(job, rank))
            continue;
        TD_TRY(add_rank(job, capacity, rank, &added));
        (void)snprintf(added->problem, sizeof added->problem, "%s",
                       was_lost(job, rank) ? "it was lost before this recording began" : "it recorded nothing");
    }
    return NULL;
}

static td_status *finish(td_job_traces *job, int64_t *capacity)
{
    TD_TRY(list_missing(job, capacity));
    for (int32_t i = 0; i < job->n; i++)
        if (job->ranks[i].trace)
            describe(&job->ranks[i]);
    TD_TRY(split_workers(job, capacity));
    qsort(job->ranks, (size_t)job->n, sizeof *job->ranks, by_rank);
    for (int32_t i = 0; i < job->n; i++) {
        const td_trace *trace = job->ranks[i].trace;
        const bool reads = trace && json_array_size(json_object_get(trace->info, "clocks_begin"));
        if (trace && (!job->base || (reads && !json_array_size(json_object_get(job->base->info, "clocks_begin")))))
            job->base = trace;
    }
    for (int32_t i = 0; i < job->n; i++)
        if (job->ranks[i].trace)
            align(job->base, &job->ranks[i]);
    return NULL;
}

static td_status *read_one(td_job_traces *job, int64_t *capacity, const char *folder, const char *name, int32_t rank,
                           bool must)
{
    td_rank_trace *added = NULL;
    char *path = *folder ? td_format("%s/%s", folder, name) : td_strdup(name);
    td_status *status =
        path ? add_rank(job, capacity, rank, &added) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    if (!status)
        status = td_trace_read(path, &added->trace);
    td_free(path);
    if (!status || must || td_status_code(status) == TD_OUT_OF_MEMORY)
        return status;
    if (added)
        td_text_cut(added->problem, sizeof added->problem, td_status_message(status));
    td_status_destroy(status);
    return NULL;
}

/* Every trace of the folder with the same number, the wanted one among them. */
static td_status *read_all(td_job_traces *job, int64_t *capacity, const char *folder, const char *wanted,
                           int32_t wanted_stem)
{
    DIR *entries = opendir(*folder ? folder : ".");
    bool found = false;
    td_status *status = NULL;
    if (!entries)
        return td_file_error(*folder ? folder : ".", "read", errno);
    for (struct dirent *entry; !status && (entry = readdir(entries));) {
        int32_t stem, rank;
        bool ours = td_job_name_parse(entry->d_name, &stem, &rank) && stem == wanted_stem &&
                    !strncmp(entry->d_name, wanted, (size_t)stem);
        if (!ours)
            continue;
        const bool must = !strcmp(entry->d_name, wanted);
        status = read_one(job, capacity, folder, entry->d_name, rank, must);
        found = found || must;
    }
    (void)closedir(entries);
    if (!status && !found)
        return TD_ERROR(TD_NOT_FOUND, "%s: there is no such trace", wanted);
    return status;
}

td_status *td_job_traces_read(const char *path, td_job_traces **out_job)
{
    td_job_traces *job = NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int32_t stem = 0, rank = 0;
    int64_t capacity = 0;
    *out_job = NULL;
    const bool has_ranks = td_job_name_parse(name, &stem, &rank); /* under another name it stands alone */
    char *folder = td_format("%.*s", slash == path ? 1 : slash ? (int)(slash - path) : 0, path);
    td_status *status = folder ? TD_NEW(job, 1) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    if (!status)
        status =
            has_ranks ? read_all(job, &capacity, folder, name, stem) : read_one(job, &capacity, folder, name, 0, true);
    if (!status)
        status = finish(job, &capacity);
    td_free(folder);
    if (job)
        job->opened = has_ranks ? rank : 0;
    if (status)
        td_job_traces_destroy(job);
    else
        *out_job = job;
    return status;
}

td_status *td_job_traces_of(td_trace **traces, const int32_t *ranks, int32_t n, td_job_traces **out_job)
{
    td_job_traces *job = NULL;
    int64_t capacity = 0;
    *out_job = NULL;
    td_status *status = TD_NEW(job, 1);
    for (int32_t i = 0; i < n; i++) {
        td_rank_trace *added = NULL;
        if (!status)
            status = add_rank(job, &capacity, ranks[i], &added);
        if (added)
            added->trace = traces[i];
        else
            td_trace_destroy(traces[i]);
        traces[i] = NULL;
    }
    if (!status) {
        job->opened = n ? ranks[0] : 0;
        status = finish(job, &capacity);
    }
    if (status)
        td_job_traces_destroy(job);
    else
        *out_job = job;
    return status;
}

void td_job_traces_destroy(td_job_traces *job)
{
    if (!job)
        return;
    for (int32_t i = 0; i < job->n; i++)
        if (!job->ranks[i].shares)
            td_trace_destroy(job->ranks[i].trace);
    td_free(job->ranks);
    td_free(job);
}

const td_rank_trace *td_rank_trace_of(const td_job_traces *job, int32_t rank)
{
    for (int32_t i = 0; i < job->n; i++)
        if (job->ranks[i].rank == rank)
            return &job->ranks[i];
    return NULL;
}

const td_rank_trace *td_rank_trace_of_worker(const td_job_traces *job, int32_t worker)
{
    for (int32_t i = 0; i < job->n; i++)
        for (int64_t p = 0; job->ranks[i].trace && p < job->ranks[i].trace->n_plans; p++) {
            const td_trace_plan *plan = &job->ranks[i].trace->plans[p];
            if (plan->training && plan->worker == worker &&
                (job->ranks[i].worker < 0 || job->ranks[i].worker == worker))
                return &job->ranks[i];
        }
    return NULL;
}
