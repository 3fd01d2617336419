/* See server.h: its life, tables, and requests in turn. What questions about rows are answered with is in server_rows.c, how pushes
 * become updates in server_windows.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/record.h"
#include "ps/protocol.h"
#include "ps/request.h"
#include "ps/server_state.h"

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

td_status *td_server_create(td_comm *comm, int32_t index, int32_t servers, int32_t workers, int32_t replicas,
                            bool at_once, td_server **out_server)
{
    td_server *server = NULL;
    *out_server = NULL;
    TD_TRY(TD_NEW(server, 1));
    *server = (td_server){.comm = comm, .index = index, .servers = servers, .workers = workers, .replicas = replicas};
    td_status *status = NULL;
    for (int32_t i = 0; i < TD_SERVER_WINDOWS && !status; i++)
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
    for (int32_t i = 0; i < TD_SERVER_WINDOWS; i++) {
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
    td_free(server->squares);
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

td_status *td_server_room_for_answer(td_server *server, const td_request *request, int64_t bytes, void *out_pointer)
{
    *(void **)out_pointer = request->answer;
    if (request->answer && bytes <= request->answer_bytes)
        return NULL;
    TD_TRY(td_comm_buffer_room(server->comm, &server->answer, bytes));
    *(char **)out_pointer = server->answer.data;
    return NULL;
}

td_status *td_server_answer(td_server *server, const td_request *request, uint64_t word0, uint64_t word1, int64_t bytes)
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

td_status *td_server_shard(const td_server *server, int64_t table, td_shard **out_shard)
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
        return td_server_answer(server, request, 0, 0, 0);
    }
    TD_TRY(td_grow(&server->shards, &server->shards_capacity, server->n_shards, sizeof *server->shards));
    TD_TRY(td_shard_create(&d, &server->shards[server->n_shards]));
    server->n_shards++;
    return td_server_answer(server, request, 0, 0, 0);
}

/* ---- recording --------------------------------------------------------------------------------------------------------------- */

/* What is asked: the folder and, after its end, what this rank is called. A recording that fails is none, and the job goes on. */
static void begin_recording(td_server *server, const td_request *request)
{
    char text[sizeof((td_job_recording *)0)->folder + TD_COMM_NAME] = "";
    td_profiler_options options = td_profiler_defaults();
    if (server->profiler || request->bytes >= (int64_t)sizeof text - 1)
        return;
    memcpy(text, request->data, (size_t)request->bytes);
    options.directory = text;
    options.number = (int32_t)request->words[0];
    options.rank = td_comm_rank(server->comm);
    options.ranks = td_comm_size(server->comm);
    options.role = text + strlen(text) + 1;
    options.start = false; /* it follows the workers */
    td_status *status = td_profiler_create(&options, &server->profiler);
    if (status)
        td_log(TD_LOG_WARNING, "%s does not record: %s", options.role, td_status_message(status));
    td_status_destroy(status);
}

/* ---- requests in turn -------------------------------------------------------------------------------------------------------- */

static td_status *answer_staleness(td_server *server, const td_request *request)
{
    void *out = NULL;
    TD_TRY(td_server_room_for_answer(server, request, sizeof server->staleness, &out));
    memcpy(out, server->staleness, sizeof server->staleness);
    return td_server_answer(server, request, 0, 0, sizeof server->staleness);
}

/* Takes the request where *out_taken. */
static td_status *handle(td_server *server, td_request *request, bool *out_taken)
{
    *out_taken = false;
    if (td_asks_of_rows(request->kind)) {
        *out_taken = (int64_t)request->words[TD_WORD_APPLIED] > server->applied;
        if (!*out_taken)
            return td_server_answer_of_rows(server, request);
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
        return td_server_push(server, request);
    case TD_ASK_DECIDE:
        return td_server_decide(server, request);
    case TD_ASK_LEAVE:
        server->left++;
        return NULL;
    case TD_ASK_RECORD:
        begin_recording(server, request);
        return NULL;
    case TD_ASK_STALENESS:
        return answer_staleness(server, request);
    case TD_ASK_CLOCK:
        return td_server_answer(server, request, (uint64_t)td_clock_ns(), 0, 0);
    default:
        return TD_ERROR(TD_INTERNAL, "rank %d sends %u, which no server takes", request->from, request->kind);
    }
}

/* What is wrong with a request is its sender's; what ends the job has its own words. */
static td_status *name_sender(td_server *server, td_status *status, int32_t from)
{
    if (td_status_code(status) != TD_INTERNAL)
        return status;
    td_status *failure = td_comm_failure(server->comm);
    if (!failure)
        return td_status_prefix(status, "rank %d on %s", from, td_comm_host(server->comm, from));
    td_status_destroy(failure);
    return status;
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
        const int32_t from = request->from;
        status = name_sender(server, handle(server, request, &taken), from);
        if (!taken)
            td_comm_free_request(server->comm, request);
    }
    return status;
}
