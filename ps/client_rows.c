/* What a worker asks of tables besides training: rows in and out, checkpoints, how many rows there are. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "ps/job_state.h"
#include "ps/owner_file.h"

/* ---- rows in and out ------------------------------------------------------------------------------------------------------------- */

static int32_t owner_of(const td_job *job, int32_t table, int64_t id)
{
    const td_shard_definition *d = &job->tables[table];
    return td_owner_of(d, d->kind == TD_SHARD_HASH ? td_key_of_id(id) : id, job->servers);
}

/* The cursor says the server in its upper bits, and that server's own cursor below. */
enum { CURSOR_BITS = 48 };

td_status *td_client_read(void *self, int32_t table, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                          void *out_rows, int64_t *out_n)
{
    td_job *job = self;
    const int64_t row_bytes = td_client_row_bytes(job, table, array), mask = (INT64_C(1) << CURSOR_BITS) - 1;
    int32_t server = (int32_t)(*cursor >> CURSOR_BITS);
    char *room = NULL;
    *out_n = 0;
    TD_TRY(td_client_room(job, TD_ROOM_ROWS_IN, most * (row_bytes + (int64_t)sizeof *out_ids), &room));
    td_parcel question = {.kind = TD_ASK_READ,
                          .words = {(uint64_t)table, (uint64_t)array, (uint64_t)(*cursor & mask), (uint64_t)most}};
    td_parcel answer = {.data = room, .bytes = most * (row_bytes + (int64_t)sizeof *out_ids)};
    TD_TRY(td_client_ask(job, server, &question, &answer));
    const int64_t n = (int64_t)answer.words[0];
    if (n < 0 || n > most || answer.bytes != n * (row_bytes + (int64_t)sizeof *out_ids))
        return TD_ERROR(TD_INTERNAL, "server %d answers with %" PRId64 " rows in %" PRId64 " bytes", server, n,
                        answer.bytes);
    *out_n = n;
    memcpy(out_ids, room, (size_t)*out_n * sizeof *out_ids);
    memcpy(out_rows, room + *out_n * (int64_t)sizeof *out_ids, (size_t)(*out_n * row_bytes));
    *cursor = (int64_t)answer.words[1];
    if (*cursor >= 0)
        *cursor |= (int64_t)server << CURSOR_BITS;
    else if (server + 1 < job->servers)
        *cursor = (int64_t)(server + 1) << CURSOR_BITS;
    return NULL;
}

void td_client_forget_rows(void *self)
{
    td_job *job = self;
    job->forgotten++;
    job->pulling.ahead = 0; /* what was asked for before is of rows as they were */
}

/* What is in the room: n ids and their rows. */
static td_status *write_some(td_job *job, int32_t server, int32_t table, int32_t array, int64_t n, void *room)
{
    td_parcel question = {.kind = TD_ASK_WRITE,
                          .words = {(uint64_t)table, (uint64_t)array, (uint64_t)n},
                          .data = room,
                          .bytes = n * (td_client_row_bytes(job, table, array) + (int64_t)sizeof(int64_t))};
    td_parcel answer = {0};
    return td_client_ask(job, server, &question, &answer);
}

/* A message to each server, with the rows that are its own. */
td_status *td_client_write(void *self, int32_t table, int32_t array, const int64_t *ids, int64_t n, const void *rows)
{
    td_job *job = self;
    const int64_t row_bytes = td_client_row_bytes(job, table, array);
    char *room = NULL;
    td_client_forget_rows(job);
    TD_TRY(td_client_room(job, TD_ROOM_ROWS_OUT, n * (row_bytes + (int64_t)sizeof *ids) + 1, &room));
    for (int32_t s = 0; s < job->servers; s++) {
        int64_t count = 0, done = 0;
        for (int64_t i = 0; i < n; i++)
            if (array == TD_SHARD_WINDOWS || owner_of(job, table, ids[i]) == s)
                ((int64_t *)(void *)room)[count++] = ids[i];
        char *out = room + count * (int64_t)sizeof *ids;
        for (int64_t i = 0; i < n && done < count; i++)
            if (((int64_t *)(void *)room)[done] == ids[i]) /* in the same order */
                memcpy(out + done++ * row_bytes, (const char *)rows + i * row_bytes, (size_t)row_bytes);
        if (count)
            TD_TRY(write_some(job, s, table, array, count, room));
    }
    return NULL;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------------ */

/* All owners write at the same time. */
static td_status *save_round(td_job *job, const char *directory, td_parcel *questions, td_parcel *answers,
                             int64_t steps, bool changes, bool track)
{
    for (int32_t s = 0; s < job->servers; s++) {
        const uint64_t number = td_job_next_question(job);
        questions[s] =
            (td_parcel){.peer = job->server_ranks[s],
                        .kind = TD_ASK_SAVE,
                        .number = number,
                        .words = {(uint64_t)steps, changes, track, [TD_WORD_APPLIED] = (uint64_t)job->pushed},
                        .data = (void *)(uintptr_t)directory,
                        .bytes = (int64_t)strlen(directory)};
        answers[s] = (td_parcel){
            .peer = job->server_ranks[s], .kind = td_reply_of(TD_ASK_SAVE), .number = number, .patient = true};
        td_comm_receive(job->comm, &answers[s]);
        td_comm_send(job->comm, &questions[s]);
    }
    td_status *first = NULL;
    for (int32_t i = 0; i < 2 * job->servers; i++) { /* all of them: they are freed afterwards */
        td_status *status = td_comm_wait(job->comm, i % 2 ? &answers[i / 2] : &questions[i / 2]);
        if (first)
            td_status_destroy(status);
        else
            first = status;
    }
    return first;
}

/* Owners may have another working folder. */
td_status *td_client_save(void *self, const char *directory, int64_t steps, bool changes, bool track,
                          td_remote_file *out_files)
{
    td_job *job = self;
    td_parcel *questions = NULL, *answers = NULL;
    char *absolute = realpath(directory, NULL); /* the C library's own allocation */
    td_status *status = absolute ? TD_NEW(questions, job->servers) : td_file_error(directory, "open", errno);
    if (!status)
        status = TD_NEW(answers, job->servers);
    if (!status)
        status = save_round(job, absolute, questions, answers, steps, changes, track);
    for (int32_t s = 0; s < job->servers && !status; s++) {
        out_files[s] = (td_remote_file){.bytes = (int64_t)answers[s].words[0], .xxh64 = answers[s].words[1]};
        (void)snprintf(out_files[s].name, sizeof out_files[s].name, TD_OWNER_FILE, s);
    }
    free(absolute);
    td_free(questions);
    td_free(answers);
    return status;
}

/* ---- questions about a table ---------------------------------------------------------------------------------------------------- */

/* A question about a table to all servers; the sum of their answers. */
static td_status *about_table(td_job *job, uint32_t kind, int32_t table, uint64_t *out_sum)
{
    *out_sum = 0;
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel question = {.kind = kind, .words = {(uint64_t)table}};
        td_parcel answer = {0};
        TD_TRY(td_client_ask(job, s, &question, &answer));
        *out_sum += answer.words[0];
    }
    return NULL;
}

td_status *td_client_clear(void *self, int32_t table)
{
    uint64_t none;
    return about_table(self, TD_ASK_CLEAR, table, &none);
}

td_status *td_client_count(void *self, int32_t table, int64_t *out_rows)
{
    uint64_t rows = 0;
    td_status *status = about_table(self, TD_ASK_COUNT, table, &rows);
    *out_rows = (int64_t)rows;
    return status;
}

td_status *td_client_tracks(void *self, bool *out_all)
{
    uint64_t lacking = 0;
    td_status *status = about_table(self, TD_ASK_TRACKS, 0, &lacking);
    *out_all = lacking == 0;
    return status;
}

td_status *td_client_checksum(void *self, int32_t table, uint64_t *out_sum)
{
    return about_table(self, TD_ASK_CHECKSUM, table, out_sum);
}
