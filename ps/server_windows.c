/* How pushes become updates. A window's gradients are kept until all replicas' are there, folded in the replicas' order, and update
 * each row once; of offers only the squares are told then, and the update waits for what the workers decide. Where updates may be
 * stale each push is applied as it comes, by itself. */
#include <inttypes.h>
#include <string.h>

#include "base/exact.h"
#include "base/memory.h"
#include "base/record.h"
#include "ps/protocol.h"
#include "ps/request.h"
#include "ps/server_state.h"

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
        TD_TRY(td_server_shard(server, part[i].table, &shard));
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
    for (int32_t r = 1; r < server->replicas; r++)
        if (!td_request_is_alike(pushes[0], pushes[r]))
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

/* One window more is applied; `step`: of the training, 0 while workers do not record. */
static void advance(td_server *server, uint32_t step)
{
    server->applied++;
    server->step = step;
    if (server->profiler)
        td_profiler_follow(server->profiler, step);
}

/* The window is over, whatever became of it. */
static void end_window(td_server *server, td_request **pushes, uint64_t from)
{
    const uint32_t step = (uint32_t)pushes[0]->words[3];
    uint64_t bytes = 0;
    for (int32_t r = 0; r < server->replicas; r++) {
        bytes += (uint64_t)pushes[r]->bytes;
        td_comm_free_request(server->comm, pushes[r]);
        pushes[r] = NULL;
    }
    server->weighed = false;
    td_record_end(TD_RECORD_APPLY, 0, step, from, bytes);
    advance(server, step);
}

static td_request **next_window(const td_server *server)
{
    return server->pushes[(server->applied + 1) % TD_SERVER_WINDOWS];
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
    TD_TRY(td_server_room_for_answer(server, request, bytes, &out));
    memcpy(out, squares, (size_t)bytes);
    return td_server_answer(server, request, 0, 0, bytes);
}

/* Sums up, and tells each worker the squares of all parts. */
static td_status *weigh(td_server *server)
{
    td_request **pushes = next_window(server);
    const int64_t parts = (int64_t)pushes[0]->words[1];
    TD_TRY(fold_window(server, pushes));
    TD_TRY(td_keep_room(&server->squares, &server->squares_capacity, parts, sizeof *server->squares));
    for (int64_t i = 0; i < parts; i++) {
        const td_fold_rows rows = td_fold_result(&server->folds[i]);
        td_exact_clear(&server->squares[i]);
        td_sum_squares_rows(rows.rows, rows.n, rows.dim, &server->squares[i]);
    }
    server->weighed = true;
    td_status *status = NULL;
    for (int32_t r = 0; r < server->replicas && !status; r++)
        if (pushes[r]->words[2] & TD_OFFER_ENDS)
            status = tell_squares(server, pushes[r], server->squares, parts);
    return status;
}

/* A part's rows times the factor, in memory that lasts until the next ones. */
static td_status *scale(td_server *server, td_fold_rows *rows, float factor)
{
    const int64_t n = rows->n * rows->dim;
    TD_TRY(td_keep_room(&server->scaled, &server->scaled_capacity, n, sizeof *server->scaled));
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
        if (factor != 1) /* most windows are not clipped: their rows need no copy */
            TD_TRY(scale(server, &rows, factor));
        TD_TRY(td_shard_push(server->shards[part[i].table], rows.keys, rows.n, rows.rows,
                             coefficients + i * TD_COEFFICIENTS));
    }
    return NULL;
}

td_status *td_server_decide(td_server *server, const td_request *request)
{
    td_request **pushes = next_window(server);
    const uint64_t from = td_record_begin();
    if (!server->weighed || (int64_t)request->words[0] != server->applied + 1)
        return TD_ERROR(TD_INTERNAL, "window %" PRId64 " is decided while %" PRId64 " are applied",
                        (int64_t)request->words[0], server->applied);
    td_status *status = request->words[1] ? NULL : use(server, pushes, request);
    end_window(server, pushes, from);
    return status ? status : td_server_answer_parked(server);
}

/* ---- pushes in turn -------------------------------------------------------------------------------------------------------- */

static bool is_complete(const td_server *server)
{
    td_request *const *pushes = next_window(server);
    for (int32_t r = 0; r < server->replicas; r++)
        if (!pushes[r])
            return false;
    return !server->weighed;
}

/* A replica has pushed so many windows. Those that the slowest has pushed too are applied. */
static void note_clock(td_server *server, int64_t replica, int64_t window, uint32_t step)
{
    int64_t least = window;
    server->clocks[replica] = window;
    for (int32_t r = 0; r < server->replicas; r++)
        least = server->clocks[r] < least ? server->clocks[r] : least;
    if (least > server->applied)
        advance(server, step);
}

/* A replica's push by itself. Takes the request. */
static td_status *push_at_once(td_server *server, td_request *request)
{
    const int64_t window = (int64_t)request->words[0], replica = (int64_t)request->words[2];
    const uint32_t step = (uint32_t)request->words[3];
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
        td_record_end(TD_RECORD_APPLY, 0, step, from, (uint64_t)request->bytes);
        note_clock(server, replica, window, step);
    }
    td_comm_free_request(server->comm, request);
    return status ? status : td_server_answer_parked(server);
}

td_status *td_server_push(td_server *server, td_request *request)
{
    if (server->at_once)
        return push_at_once(server, request);
    const int64_t window = (int64_t)request->words[0], replica = (int64_t)(request->words[2] & ~TD_OFFER_ENDS);
    td_status *status = check_push(server, request);
    bool expected = replica >= 0 && replica < server->replicas && window > server->applied &&
                    window <= server->applied + TD_SERVER_WINDOWS;
    if (!status && (!expected || server->pushes[window % TD_SERVER_WINDOWS][replica]))
        status = TD_ERROR(TD_INTERNAL, "replica %" PRId64 " pushes window %" PRId64 " while %" PRId64 " are applied",
                          replica, window, server->applied);
    if (status) {
        td_comm_free_request(server->comm, request);
        return status;
    }
    server->pushes[window % TD_SERVER_WINDOWS][replica] = request;
    server->served.pushes++;
    while (!status && is_complete(server)) {
        const bool offered = next_window(server)[0]->kind == TD_ASK_OFFER;
        status = offered ? weigh(server) : apply(server);
        if (!status && !offered)
            status = td_server_answer_parked(server);
    }
    return status;
}
