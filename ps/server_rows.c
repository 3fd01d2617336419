/* A server's answers to questions about rows as they are: pulls, rows in and out, checkpoints. Those that must see more windows than
 * are applied yet are parked until they are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "ps/owner_file.h"
#include "ps/pieces.h"
#include "ps/protocol.h"
#include "ps/request.h"
#include "ps/server_state.h"

/* ---- pulls ----------------------------------------------------------------------------------------------------------------- */

/* An answer as it is written. */
typedef struct answer {
    td_pieces *pieces; /* NULL: nobody reads it before it is whole */
    char *rows;
    int64_t written, told; /* bytes */
} answer;

static td_status *pull_part(td_shard *shard, const int64_t *keys, int64_t n, bool begin, answer *a)
{
    const int64_t bytes = shard->arrays[0].row_bytes, most = TD_PIECE_BYTES / bytes;
    const int64_t some = a->pieces ? (most ? most : 1) : n;
    for (int64_t first = 0; first < n; first += some) {
        const int64_t count = n - first < some ? n - first : some;
        TD_TRY(td_shard_pull(shard, keys + first, count, begin, a->rows + a->written));
        a->written += count * bytes;
        if (a->pieces && a->written - a->told >= TD_PIECE_BYTES) {
            td_pieces_write(a->pieces, a->written);
            a->told = a->written;
        }
    }
    return NULL;
}

static td_status *pull(td_server *server, const td_request *request)
{
    const int64_t parts = (int64_t)request->words[0];
    const td_wire_part *part = request->data;
    int64_t all = 0, bytes = 0;
    answer a = {0};
    char *room = NULL;
    const uint64_t from = td_record_begin();
    TD_TRY(td_request_check_parts(request, parts, &all));
    const int64_t *keys = (const int64_t *)(part + parts), head = request->words[3] ? TD_PIECES_HEAD : 0;
    for (int64_t i = 0; i < parts; i++) {
        td_shard *shard = NULL;
        TD_TRY(td_server_shard(server, part[i].table, &shard));
        bytes += part[i].n * shard->arrays[0].row_bytes;
    }
    TD_TRY(td_server_room_for_answer(server, request, head + bytes, &room));
    a.pieces = head && room == request->answer ? (td_pieces *)(void *)room : NULL;
    if (head && !a.pieces)
        memset(room, 0, (size_t)head);
    a.rows = room + head;
    for (int64_t i = 0; i < parts; keys += part[i++].n)
        TD_TRY(pull_part(server->shards[part[i].table], keys, part[i].n, request->words[1] != 0, &a));
    if (a.pieces)
        td_pieces_write(a.pieces, TD_PIECES_ALL);
    server->served.pulls++;
    int64_t behind = request->words[1] ? (int64_t)request->words[2] - server->applied : 0;
    behind = behind < 0 ? 0 : behind < TD_JOB_STALENESS ? behind : TD_JOB_STALENESS - 1;
    server->staleness[behind] += request->words[1] != 0;
    td_status *status = td_server_answer(server, request, (uint64_t)behind, 0, head + bytes);
    td_record_end(TD_RECORD_ANSWER, 0, server->step + 1, from, (uint64_t)bytes);
    return status;
}

/* ---- rows in and out --------------------------------------------------------------------------------------------------------- */

static td_status *read_rows(td_server *server, const td_request *request)
{
    td_shard *shard = NULL;
    const int32_t array = (int32_t)request->words[1];
    int64_t cursor = (int64_t)request->words[2], most = (int64_t)request->words[3];
    TD_TRY(td_server_shard(server, (int64_t)request->words[0], &shard));
    if (array < 0 || array >= shard->n_arrays || most < 1 || most > INT32_MAX)
        return TD_ERROR(TD_INTERNAL, "\"%s\" has no array %d", shard->definition.name, array);
    const int64_t row_bytes = shard->arrays[array].row_bytes;
    int64_t *keys = NULL;
    TD_TRY(td_server_room_for_answer(server, request, most * (row_bytes + (int64_t)sizeof *keys), &keys));
    const int64_t n = td_shard_read(shard, array, &cursor, most, keys, keys + most);
    memmove(keys + n, keys + most, (size_t)(n * row_bytes));
    return td_server_answer(server, request, (uint64_t)n, (uint64_t)cursor, n * (row_bytes + (int64_t)sizeof *keys));
}

static td_status *write_rows(td_server *server, const td_request *request)
{
    td_shard *shard = NULL;
    const int32_t array = (int32_t)request->words[1];
    const int64_t n = (int64_t)request->words[2];
    TD_TRY(td_server_shard(server, (int64_t)request->words[0], &shard));
    const int64_t row_bytes = td_shard_array_bytes(&shard->definition, array);
    if (row_bytes < 0)
        return TD_ERROR(TD_INTERNAL, "\"%s\" has no array %d", shard->definition.name, array);
    TD_TRY(td_request_check_rows(request, n, row_bytes));
    const int64_t *keys = request->data;
    TD_TRY(td_shard_write(shard, array, keys, n, keys + n));
    return td_server_answer(server, request, 0, 0, 0);
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
    return status ? status : td_server_answer(server, request, (uint64_t)bytes, hash, 0);
}

static td_status *tracks(td_server *server, const td_request *request)
{
    bool all = true;
    for (int64_t t = 0; t < server->n_shards; t++)
        all = all && server->shards[t]->tracks;
    return td_server_answer(server, request, !all, 0, 0);
}

static td_status *about_table(td_server *server, const td_request *request)
{
    td_shard *shard = NULL;
    uint64_t word = 0;
    TD_TRY(td_server_shard(server, (int64_t)request->words[0], &shard));
    if (request->kind == TD_ASK_CLEAR)
        TD_TRY(td_shard_clear(shard));
    else if (request->kind == TD_ASK_COUNT)
        word = (uint64_t)shard->n;
    else
        TD_TRY(td_shard_checksum(shard, &word));
    return td_server_answer(server, request, word, 0, 0);
}

/* ---- which of them, and when --------------------------------------------------------------------------------------------------- */

td_status *td_server_answer_of_rows(td_server *server, const td_request *request)
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

td_status *td_server_answer_parked(td_server *server)
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
        status = td_server_answer_of_rows(server, request);
        td_comm_free_request(server->comm, request);
    }
    return status;
}
