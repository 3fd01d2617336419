/* See server.h. */
#include "ps/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/exact.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/record.h"
#include "ps/fold.h"
#include "ps/near.h"
#include "ps/owner_file.h"
#include "ps/protocol.h"
#include "ps/request.h"
#include "runtime/profiler.h"

enum {
    MOST_WINDOWS =
        2 /* that workers may be ahead of each other: who has pushed one waits for all before its next pull */
};

struct td_server {
    td_comm *comm;
    int32_t index, servers, workers, replicas, left;
    td_shard **shards; /* by the workers' numbers of tables */
    int64_t n_shards, shards_capacity;
    int64_t applied;                     /* windows, of all replicas */
    bool at_once;                        /* what a replica pushes is applied as it comes, by itself */
    int64_t *clocks;                     /* of each replica then, its windows */
    int64_t staleness[TD_JOB_STALENESS]; /* of pulls for training */
    uint32_t step;                       /* of the training, of the window applied last, while workers record; else 0 */
    td_request **pushes[MOST_WINDOWS];   /* of the windows applied + 1, + 2: each replica's, or NULL */
    td_request *parked;                  /* pulls that wait */
    td_fold *folds;                      /* of each part of a window */
    int64_t n_folds, folds_capacity;
    bool weighed;  /* the next window's sums are in `folds`, and it is yet to be decided what becomes of them */
    float *scaled; /* a part's rows times the factor */
    int64_t scaled_capacity;
    td_buffer answer; /* of pulls and reads */
    td_job_served served;
    td_profiler *profiler; /* of a rank that only serves; NULL: nobody asked for one */
};

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

td_status *td_server_create(td_comm *comm, int32_t index, int32_t servers, int32_t workers, int32_t replicas,
                            bool at_once, td_server **out_server)
{
    td_server *server = NULL;
    *out_server = NULL;
    TD_TRY(TD_NEW(server, 1));
    *server = (td_server){.comm = comm, .index = index, .servers = servers, .workers = workers, .replicas = replicas};
    td_status *status = NULL;
    for (int32_t i = 0; i < MOST_WINDOWS && !status; i++)
        status = TD_NEW(server->pushes[i], replicas);
    server->at_once = at_once;
    if (!status)
        status = TD_NEW(server->clocks, replicas);
    if (status) {
        td_server_destroy(server);
        return status;
    }
    *out_server = server;
    return NULL;
}

void td_server_destroy(td_server *server)
{
    if (!server)
        return;
    for (int64_t i = 0; i < server->n_shards; i++)
        td_shard_destroy(server->shards[i]);
    for (int32_t i = 0; i < MOST_WINDOWS; i++) {
        for (int32_t r = 0; server->pushes[i] && r < server->replicas; r++)
            td_comm_free_request(server->comm, server->pushes[i][r]);
        td_free(server->pushes[i]);
    }
    while (server->parked) {
        td_request *request = server->parked;
        server->parked = request->next;
        td_comm_free_request(server->comm, request);
    }
    td_profiler_destroy(server->profiler);
    td_free(server->clocks);
    for (int64_t i = 0; i < server->n_folds; i++)
        td_fold_deinit(&server->folds[i]);
    td_free(server->folds);
    td_free(server->scaled);
    td_free(server->shards);
    td_comm_buffer_free(server->comm, &server->answer);
    td_free(server);
}

td_job_served td_server_count(const td_server *server)
{
    td_job_served served = server->served;
    served.tables = server->n_shards;
    served.windows = server->applied;
    for (int64_t i = 0; i < server->n_shards; i++) {
        int64_t rows, overhead;
        td_shard_bytes(server->shards[i], &rows, &overhead);
        served.rows += server->shards[i]->n;
        served.row_bytes += rows;
        served.overhead_bytes += overhead;
    }
    return served;
}

/* ---- answers --------------------------------------------------------------------------------------------------------------- */

/* The asker's memory where it is near, or ours. */
static td_status *room_for_answer(td_server *server, const td_request *request, int64_t bytes, void *out_pointer)
{
    *(void **)out_pointer = request->answer;
    if (request->answer && bytes <= request->answer_bytes)
        return NULL;
    TD_TRY(td_comm_buffer_room(server->comm, &server->answer, bytes));
    *(char **)out_pointer = server->answer.data;
    return NULL;
}

static td_status *answer(td_server *server, const td_request *request, uint64_t word0, uint64_t word1, int64_t bytes)
{
    td_parcel parcel = {.peer = request->from,
                        .kind = td_reply_of(request->kind),
                        .number = request->number,
                        .words = {word0, word1},
                        .data = server->answer.data,
                        .bytes = bytes,
                        .buffer = &server->answer,
                        .in_place = request->answer && bytes && bytes <= request->answer_bytes};
    td_comm_send(server->comm, &parcel);
    return td_comm_wait(server->comm, &parcel);
}

static td_status *shard_of(const td_server *server, int64_t table, td_shard **out_shard)
{
    if (table < 0 || table >= server->n_shards)
        return TD_ERROR(TD_INTERNAL, "a worker asks for table %" PRId64 " of %" PRId64, table, server->n_shards);
    *out_shard = server->shards[table];
    return NULL;
}

/* ---- tables ---------------------------------------------------------------------------------------------------------------- */

static td_status *make_shard(td_server *server, const td_request *request)
{
    const int64_t table = (int64_t)request->words[0];
    td_shard_definition d;
    TD_TRY(td_request_definition(request, server->n_shards, &d));
    if (d.kind == TD_SHARD_ARRAY) {
        const int64_t rows = d.rows;
        d.first = td_range(rows, server->index, server->servers);
        d.rows = td_range(rows, server->index + 1, server->servers) - d.first;
    }
    if (table < server->n_shards) {
        if (memcmp(&server->shards[table]->definition, &d, sizeof d) != 0)
            return TD_ERROR(TD_INVALID_ARGUMENT, "workers disagree about table %" PRId64 ", \"%s\" and \"%s\"", table,
                            server->shards[table]->definition.name, d.name);
        return answer(server, request, 0, 0, 0);
    }
    TD_TRY(td_grow(&server->shards, &server->shards_capacity, server->n_shards, sizeof *server->shards));
    TD_TRY(td_shard_create(&d, &server->shards[server->n_shards]));
    server->n_shards++;
    return answer(server, request, 0, 0, 0);
}

/* ---- pulls ----------------------------------------------------------------------------------------------------------------- */

static td_status *pull(td_server *server, const td_request *request)
{
    const int64_t parts = (int64_t)request->words[0];
    const td_wire_part *part = request->data;
    int64_t all = 0, bytes = 0;
    char *rows = NULL;
    const uint64_t from = td_record_begin();
    TD_TRY(td_request_check_parts(request, parts, &all));
    const int64_t *keys = (const int64_t *)(part + parts);
    for (int64_t i = 0; i < parts; i++) {
        td_shard *shard = NULL;
        TD_TRY(shard_of(server, part[i].table, &shard));
        bytes += part[i].n * shard->arrays[0].row_bytes;
    }
    TD_TRY(room_for_answer(server, request, bytes, &rows));
    for (int64_t i = 0; i < parts; keys += part[i++].n) {
        td_shard *shard = server->shards[part[i].table];
        TD_TRY(td_shard_pull(shard, keys, part[i].n, request->words[1] != 0, rows));
        rows += part[i].n * shard->arrays[0].row_bytes;
    }
    server->served.pulls++;
    if (request->words[1]) {
        const int64_t behind = (int64_t)request->words[2] - server->applied;
        server->staleness[behind < 0 ? 0 : behind < TD_JOB_STALENESS ? behind : TD_JOB_STALENESS - 1]++;
    }
    td_status *status = answer(server, request, 0, 0, bytes);
    td_record_end(TD_RECORD_ANSWER, 0, server->step + 1, from, (uint64_t)bytes);
    return status;
}

static td_status *answer_of_rows(td_server *server, const td_request *request);

/* Answers what waits and may be answered now. */
static td_status *answer_parked(td_server *server)
{
    td_request **at = &server->parked;
    td_status *status = NULL;
    while (*at && !status) {
        td_request *request = *at;
        if ((int64_t)request->words[TD_WORD_APPLIED] > server->applied) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        status = answer_of_rows(server, request);
        td_comm_free_request(server->comm, request);
    }
    return status;
}

/* ---- pushes ---------------------------------------------------------------------------------------------------------------- */

/* Where part `i` of a push lies. */
static void locate(const td_server *server, const td_request *request, int64_t i, td_fold_rows *out,
                   const float **out_coefficients)
{
    const int64_t parts = (int64_t)request->words[1];
    const td_wire_part *part = request->data;
    const int64_t *keys = (const int64_t *)(part + parts);
    int64_t all = 0, before = 0, rows_before = 0;
    for (int64_t k = 0; k < parts; k++) {
        all += part[k].n;
        before += k < i ? part[k].n : 0;
        rows_before += k < i ? part[k].n * server->shards[part[k].table]->definition.dim : 0;
    }
    const float *coefficients = (const float *)(keys + all);
    *out_coefficients = coefficients + i * TD_COEFFICIENTS;
    *out = (td_fold_rows){.n = part[i].n,
                          .dim = server->shards[part[i].table]->definition.dim,
                          .keys = keys + before,
                          .rows = coefficients + parts * TD_COEFFICIENTS + rows_before};
}

static td_status *check_push(const td_server *server, const td_request *request)
{
    const int64_t parts = (int64_t)request->words[1];
    int64_t all = 0, bytes = 0;
    TD_TRY(td_request_check_parts(request, parts, &all));
    const td_wire_part *part = request->data;
    bytes = parts * (int64_t)(sizeof *part + TD_COEFFICIENTS * sizeof(float)) + all * (int64_t)sizeof(int64_t);
    for (int64_t i = 0; i < parts; i++) {
        td_shard *shard = NULL;
        TD_TRY(shard_of(server, part[i].table, &shard));
        bytes += part[i].n * shard->definition.dim * (int64_t)sizeof(float);
    }
    if (bytes == request->bytes)
        return NULL;
    return TD_ERROR(TD_INTERNAL, "a push of %" PRId64 " bytes, not %" PRId64, request->bytes, bytes);
}

/* One table's gradients of all replicas: the first that has rows begins, the others are added in order. */
static td_status *fold_part(const td_server *server, td_request *const *pushes, int64_t i, td_fold *fold)
{
    td_fold_rows rows;
    const float *coefficients = NULL;
    locate(server, pushes[0], i, &rows, &coefficients);
    td_fold_begin(fold, &rows);
    for (int32_t r = 1; r < server->replicas; r++) {
        locate(server, pushes[r], i, &rows, &coefficients);
        TD_TRY(td_fold_add(fold, &rows));
    }
    return NULL;
}

static td_status *fold_window(td_server *server, td_request *const *pushes)
{
    const int64_t parts = (int64_t)pushes[0]->words[1];
    for (int32_t r = 0; r < server->replicas; r++)
        if ((int64_t)pushes[r]->words[1] != parts || pushes[r]->kind != pushes[0]->kind)
            return TD_ERROR(TD_INTERNAL, "workers push different tables");
    for (; server->n_folds < parts; server->n_folds++) {
        TD_TRY(td_grow(&server->folds, &server->folds_capacity, server->n_folds, sizeof *server->folds));
        server->folds[server->n_folds] = (td_fold){0};
    }
    for (int64_t i = 0; i < parts; i++)
        TD_TRY(fold_part(server, pushes, i, &server->folds[i]));
    return NULL;
}

static td_status *update(td_server *server, td_request *const *pushes)
{
    const td_wire_part *part = pushes[0]->data;
    for (int64_t i = 0; i < (int64_t)pushes[0]->words[1]; i++) {
        td_fold_rows first, rows = td_fold_result(&server->folds[i]);
        const float *coefficients = NULL;
        locate(server, pushes[0], i, &first, &coefficients);
        TD_TRY(td_shard_push(server->shards[part[i].table], rows.keys, rows.n, rows.rows, coefficients));
    }
    return NULL;
}

/* The window is over, whatever became of it. */
static void end_window(td_server *server, td_request **pushes, uint64_t from)
{
    uint64_t bytes = 0;
    server->step = (uint32_t)pushes[0]->words[3];
    for (int32_t r = 0; r < server->replicas; r++) {
        bytes += (uint64_t)pushes[r]->bytes;
        td_comm_free_request(server->comm, pushes[r]);
        pushes[r] = NULL;
    }
    server->weighed = false;
    server->applied++;
    td_record_end(TD_RECORD_APPLY, 0, server->step, from, bytes);
    if (server->profiler)
        td_profiler_follow(server->profiler, server->step);
}

static td_request **next_window(td_server *server)
{
    return server->pushes[(server->applied + 1) % MOST_WINDOWS];
}

static td_status *apply(td_server *server)
{
    td_request **pushes = next_window(server);
    const uint64_t from = td_record_begin();
    td_status *status = fold_window(server, pushes);
    if (!status)
        status = update(server, pushes);
    end_window(server, pushes, from);
    return status;
}

/* ---- offers: sums first, updates when it is decided --------------------------------------------------------------------------- */

static td_status *tell_squares(td_server *server, const td_request *request, const td_exact *squares, int64_t n)
{
    const int64_t bytes = n * (int64_t)sizeof *squares;
    void *out = NULL;
    TD_TRY(room_for_answer(server, request, bytes, &out));
    memcpy(out, squares, (size_t)bytes);
    return answer(server, request, 0, 0, bytes);
}

/* Sums up, and tells each worker the squares of all parts. */
static td_status *weigh(td_server *server)
{
    td_request **pushes = next_window(server);
    const int64_t parts = (int64_t)pushes[0]->words[1];
    td_exact *squares = NULL;
    TD_TRY(fold_window(server, pushes));
    TD_TRY(TD_NEW(squares, parts + 1));
    for (int64_t i = 0; i < parts; i++) {
        const td_fold_rows rows = td_fold_result(&server->folds[i]);
        td_exact_clear(&squares[i]);
        td_sum_squares_rows(rows.rows, rows.n, rows.dim, &squares[i]);
    }
    server->weighed = true;
    td_status *status = NULL;
    for (int32_t r = 0; r < server->replicas && !status; r++)
        if (pushes[r]->words[2] & TD_OFFER_ENDS)
            status = tell_squares(server, pushes[r], squares, parts);
    td_free(squares);
    return status;
}

/* A part's rows times the factor, in memory that lasts until the next ones. */
static td_status *scale(td_server *server, td_fold_rows *rows, float factor)
{
    const int64_t n = rows->n * rows->dim;
    if (n > server->scaled_capacity) {
        td_free(server->scaled);
        server->scaled_capacity = 0;
        TD_TRY(TD_NEW(server->scaled, n));
        server->scaled_capacity = n;
    }
    for (int64_t i = 0; i < n; i++)
        server->scaled[i] = factor * rows->rows[i];
    rows->rows = server->scaled;
    return NULL;
}

static td_status *use(td_server *server, td_request *const *pushes, const td_request *request)
{
    const uint32_t bits = (uint32_t)request->words[2];
    const float *coefficients = request->data;
    const td_wire_part *part = pushes[0]->data;
    float factor;
    memcpy(&factor, &bits, sizeof factor);
    if (request->bytes != (int64_t)pushes[0]->words[1] * TD_COEFFICIENTS * (int64_t)sizeof(float))
        return TD_ERROR(TD_INTERNAL, "coefficients of %" PRId64 " bytes for %" PRId64 " parts", request->bytes,
                        (int64_t)pushes[0]->words[1]);
    for (int64_t i = 0; i < (int64_t)pushes[0]->words[1]; i++) {
        td_fold_rows rows = td_fold_result(&server->folds[i]);
        TD_TRY(scale(server, &rows, factor));
        TD_TRY(td_shard_push(server->shards[part[i].table], rows.keys, rows.n, rows.rows,
                             coefficients + i * TD_COEFFICIENTS));
    }
    return NULL;
}

static td_status *decide(td_server *server, const td_request *request)
{
    td_request **pushes = next_window(server);
    const uint64_t from = td_record_begin();
    if (!server->weighed || (int64_t)request->words[0] != server->applied + 1)
        return TD_ERROR(TD_INTERNAL, "window %" PRId64 " is decided while %" PRId64 " are applied",
                        (int64_t)request->words[0], server->applied);
    td_status *status = request->words[1] ? NULL : use(server, pushes, request);
    end_window(server, pushes, from);
    return status ? status : answer_parked(server);
}

static bool is_complete(const td_server *server)
{
    td_request *const *pushes = server->pushes[(server->applied + 1) % MOST_WINDOWS];
    for (int32_t r = 0; r < server->replicas; r++)
        if (!pushes[r])
            return false;
    return !server->weighed;
}

/* A replica's push by itself. Takes the request. */
static td_status *push_at_once(td_server *server, td_request *request)
{
    const int64_t window = (int64_t)request->words[0], replica = (int64_t)request->words[2];
    const td_wire_part *part = request->data;
    const uint64_t from = td_record_begin();
    td_status *status = check_push(server, request);
    if (!status && (replica < 0 || replica >= server->replicas || window != server->clocks[replica] + 1))
        status = TD_ERROR(TD_INTERNAL, "replica %" PRId64 " pushes window %" PRId64 " out of turn", replica, window);
    for (int64_t i = 0; !status && i < (int64_t)request->words[1]; i++) {
        td_fold_rows rows;
        const float *coefficients = NULL;
        locate(server, request, i, &rows, &coefficients);
        status = td_shard_push(server->shards[part[i].table], rows.keys, rows.n, rows.rows, coefficients);
    }
    if (!status) {
        server->served.pushes++;
        server->clocks[replica] = window;
        server->applied = window;
        for (int32_t r = 0; r < server->replicas; r++)
            server->applied = server->clocks[r] < server->applied ? server->clocks[r] : server->applied;
        td_record_end(TD_RECORD_APPLY, 0, (uint32_t)request->words[3], from, (uint64_t)request->bytes);
    }
    td_comm_free_request(server->comm, request);
    return status ? status : answer_parked(server);
}

/* Takes the request. */
static td_status *push(td_server *server, td_request *request)
{
    if (server->at_once)
        return push_at_once(server, request);
    const int64_t window = (int64_t)request->words[0], replica = (int64_t)(request->words[2] & ~TD_OFFER_ENDS);
    td_status *status = check_push(server, request);
    bool expected = replica >= 0 && replica < server->replicas && window > server->applied &&
                    window <= server->applied + MOST_WINDOWS;
    if (!status && (!expected || server->pushes[window % MOST_WINDOWS][replica]))
        status = TD_ERROR(TD_INTERNAL, "replica %" PRId64 " pushes window %" PRId64 " while %" PRId64 " are applied",
                          replica, window, server->applied);
    if (status) {
        td_comm_free_request(server->comm, request);
        return status;
    }
    server->pushes[window % MOST_WINDOWS][replica] = request;
    server->served.pushes++;
    while (!status && is_complete(server)) {
        const bool offered = next_window(server)[0]->kind == TD_ASK_OFFER;
        status = offered ? weigh(server) : apply(server);
        if (!status && !offered)
            status = answer_parked(server);
    }
    return status;
}

/* ---- rows in and out --------------------------------------------------------------------------------------------------------- */

static td_status *read_rows(td_server *server, const td_request *request)
{
    td_shard *shard = NULL;
    const int32_t array = (int32_t)request->words[1];
    int64_t cursor = (int64_t)request->words[2], most = (int64_t)request->words[3];
    TD_TRY(shard_of(server, (int64_t)request->words[0], &shard));
    if (array < 0 || array >= shard->n_arrays || most < 1 || most > INT32_MAX)
        return TD_ERROR(TD_INTERNAL, "\"%s\" has no array %d", shard->definition.name, array);
    const int64_t row_bytes = shard->arrays[array].row_bytes;
    int64_t *keys = NULL;
    TD_TRY(room_for_answer(server, request, most * (row_bytes + (int64_t)sizeof *keys), &keys));
    const int64_t n = td_shard_read(shard, array, &cursor, most, keys, keys + most);
    memmove(keys + n, keys + most, (size_t)(n * row_bytes));
    return answer(server, request, (uint64_t)n, (uint64_t)cursor, n * (row_bytes + (int64_t)sizeof *keys));
}

static td_status *write_rows(td_server *server, const td_request *request)
{
    td_shard *shard = NULL;
    const int32_t array = (int32_t)request->words[1];
    const int64_t n = (int64_t)request->words[2];
    TD_TRY(shard_of(server, (int64_t)request->words[0], &shard));
    const int64_t row_bytes = td_shard_array_bytes(&shard->definition, array);
    if (row_bytes < 0)
        return TD_ERROR(TD_INTERNAL, "\"%s\" has no array %d", shard->definition.name, array);
    TD_TRY(td_request_check_rows(request, n, row_bytes));
    const int64_t *keys = request->data;
    TD_TRY(td_shard_write(shard, array, keys, n, keys + n));
    return answer(server, request, 0, 0, 0);
}

static td_status *save(td_server *server, const td_request *request)
{
    char name[32];
    int64_t bytes = 0;
    uint64_t hash = 0;
    (void)snprintf(name, sizeof name, TD_OWNER_FILE, server->index);
    char *path = td_format("%.*s/%s", (int)request->bytes, (const char *)request->data, name);
    td_status *status = path ? td_owner_file_write(server->shards, server->n_shards, path, (int64_t)request->words[0],
                                                   request->words[1] != 0, request->words[2] != 0, &bytes, &hash)
                             : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
    td_free(path);
    return status ? status : answer(server, request, (uint64_t)bytes, hash, 0);
}

static td_status *tracks(td_server *server, const td_request *request)
{
    bool all = true;
    for (int64_t t = 0; t < server->n_shards; t++)
        all = all && server->shards[t]->tracks;
    return answer(server, request, !all, 0, 0);
}

static td_status *about_table(td_server *server, const td_request *request)
{
    td_shard *shard = NULL;
    uint64_t word = 0;
    TD_TRY(shard_of(server, (int64_t)request->words[0], &shard));
    if (request->kind == TD_ASK_CLEAR)
        TD_TRY(td_shard_clear(shard));
    else if (request->kind == TD_ASK_COUNT)
        word = (uint64_t)shard->n;
    else
        TD_TRY(td_shard_checksum(shard, &word));
    return answer(server, request, word, 0, 0);
}

/* ---- recording --------------------------------------------------------------------------------------------------------------- */

/* A recording that fails is none, and the job goes on. */
static void begin_recording(td_server *server, const td_request *request)
{
    char folder[sizeof((td_job_recording *)0)->folder] = "", role[32];
    td_profiler_options options = td_profiler_defaults();
    if (server->profiler || request->bytes >= (int64_t)sizeof folder)
        return;
    memcpy(folder, request->data, (size_t)request->bytes);
    (void)snprintf(role, sizeof role, "server %d", server->index);
    options.directory = folder;
    options.number = (int32_t)request->words[0];
    options.rank = td_comm_rank(server->comm);
    options.ranks = td_comm_size(server->comm);
    options.role = role;
    options.start = false; /* it follows the workers */
    td_status *status = td_profiler_create(&options, &server->profiler);
    if (status)
        td_log(TD_LOG_WARNING, "server %d does not record: %s", server->index, td_status_message(status));
    td_status_destroy(status);
}

/* A question about rows as they are now. */
static td_status *answer_of_rows(td_server *server, const td_request *request)
{
    switch (request->kind) {
    case TD_ASK_PULL:
        return pull(server, request);
    case TD_ASK_READ:
        return read_rows(server, request);
    case TD_ASK_WRITE:
        return write_rows(server, request);
    case TD_ASK_CLEAR:
    case TD_ASK_COUNT:
    case TD_ASK_CHECKSUM:
        return about_table(server, request);
    case TD_ASK_SAVE:
        return save(server, request);
    case TD_ASK_TRACKS:
        return tracks(server, request);
    default:
        return TD_ERROR(TD_INTERNAL, "rank %d asks for %u, which no server knows", request->from, request->kind);
    }
}

static td_status *answer_staleness(td_server *server, const td_request *request)
{
    void *out = NULL;
    TD_TRY(room_for_answer(server, request, sizeof server->staleness, &out));
    memcpy(out, server->staleness, sizeof server->staleness);
    return answer(server, request, 0, 0, sizeof server->staleness);
}

/* ---- requests in turn -------------------------------------------------------------------------------------------------------- */

/* Takes the request where *out_taken. */
static td_status *handle(td_server *server, td_request *request, bool *out_taken)
{
    *out_taken = false;
    if (td_asks_of_rows(request->kind)) {
        *out_taken = (int64_t)request->words[TD_WORD_APPLIED] > server->applied;
        if (!*out_taken)
            return answer_of_rows(server, request);
        request->next = server->parked;
        server->parked = request;
        return NULL;
    }
    switch (request->kind) {
    case TD_ASK_TABLE:
        return make_shard(server, request);
    case TD_ASK_PUSH:
    case TD_ASK_OFFER:
        *out_taken = true;
        return push(server, request);
    case TD_ASK_DECIDE:
        return decide(server, request);
    case TD_ASK_LEAVE:
        server->left++;
        return NULL;
    case TD_ASK_RECORD:
        begin_recording(server, request);
        return NULL;
    case TD_ASK_STALENESS:
        return answer_staleness(server, request);
    case TD_ASK_CLOCK:
        return answer(server, request, (uint64_t)td_clock_ns(), 0, 0);
    default:
        return TD_ERROR(TD_INTERNAL, "rank %d sends %u, which no server takes", request->from, request->kind);
    }
}

td_status *td_server_run(td_server *server)
{
    td_status *status = NULL;
    td_record_name_thread("server %d", server->index);
    while (!status && server->left < server->workers) {
        td_request *request = NULL;
        bool taken = false;
        status = td_comm_next_request(server->comm, &request);
        if (status || !request)
            break;
        td_comm_set_step(server->comm, td_comm_latest_step(server->comm));
        status = handle(server, request, &taken);
        if (!taken)
            td_comm_free_request(server->comm, request);
    }
    return status;
}
