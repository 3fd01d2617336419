/* A worker's side of served tables: td_remote over messages. Tables are cut into ranges of ids, one per server; keys ascend, so
 * what a server is asked is a stretch of them, and its answer a stretch of the rows. See runtime/remote.h for what is promised. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/record.h"
#include "ps/job_state.h"
#include "ps/owner_file.h"

td_status *td_client_room(td_job *job, td_room which, int64_t bytes, void *out_pointer)
{
    TD_TRY(td_comm_buffer_room(job->comm, &job->rooms[which], bytes));
    *(char **)out_pointer = job->rooms[which].data;
    return NULL;
}

/* ---- one question, one answer ------------------------------------------------------------------------------------------------ */

/* Words and bytes to a server; its words and bytes back, answer->bytes being the room. */
static td_status *ask(td_job *job, int32_t server, td_parcel *question, td_parcel *answer)
{
    question->peer = answer->peer = job->server_ranks[server];
    question->number = answer->number = td_job_next_question(job);
    question->words[TD_WORD_APPLIED] = (uint64_t)job->pushed;
    answer->kind = td_reply_of(question->kind);
    td_comm_receive(job->comm, answer);
    td_comm_send(job->comm, question);
    TD_TRY(td_comm_wait(job->comm, question));
    return td_comm_wait(job->comm, answer);
}

static int32_t owner_of(const td_job *job, int32_t table, int64_t id)
{
    const td_shard_definition *d = &job->tables[table].definition;
    return td_owner_of(d, d->kind == TD_SHARD_HASH ? td_key_of_id(id) : id, job->servers);
}

static int64_t row_bytes_of(const td_job *job, int32_t table, int32_t array)
{
    return td_shard_array_bytes(&job->tables[table].definition, array);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------ */

/* Field by field over zeros: owners compare the bytes of what different workers say. */
td_status *td_client_define(const td_remote_table *table, td_shard_definition *out)
{
    memset(out, 0, sizeof *out);
    out->kind = table->hashed ? TD_SHARD_HASH : TD_SHARD_ARRAY;
    out->hash.admit_count = table->hash.admit_count;
    out->hash.admit_probability = table->hash.admit_probability;
    out->hash.capacity = table->hash.capacity;
    out->hash.live = table->hash.live;
    out->hash.evict = table->hash.evict;
    out->dtype = (int32_t)table->dtype;
    out->rows = table->rows;
    out->dim = table->dim;
    out->seed = table->seed;
    out->initial.kind = table->initial.kind;
    out->initial.a = table->initial.a;
    out->initial.b = table->initial.b;
    out->n_states = table->n_states;
    if (strlen(table->name) >= sizeof out->name)
        return TD_ERROR(TD_INVALID_ARGUMENT, "a served table's name has at most %d characters: \"%s\"",
                        TD_SHARD_NAME - 1, table->name);
    (void)strncpy(out->name, table->name, sizeof out->name - 1);
    (void)strncpy(out->rule, table->rule ? table->rule : "", sizeof out->rule - 1);
    for (int32_t s = 0; s < table->n_states; s++) {
        (void)strncpy(out->state_names[s], table->state_names[s], sizeof out->state_names[s] - 1);
        out->state_per_row[s] = table->state_per_row[s];
        out->state_initial[s] = table->state_initial[s];
    }
    return NULL;
}

static td_status *add_table(void *self, const td_remote_table *table, int32_t *out_table)
{
    td_job *job = self;
    td_client_table made;
    memset(&made, 0, sizeof made);
    TD_TRY(td_client_define(table, &made.definition));
    for (int64_t t = 0; t < job->n_tables; t++)
        if (strcmp(job->tables[t].definition.name, table->name) == 0) {
            *out_table = (int32_t)t;
            return NULL;
        }
    TD_TRY(td_grow(&job->tables, &job->tables_capacity, job->n_tables, sizeof *job->tables));
    *out_table = (int32_t)job->n_tables;
    job->tables[job->n_tables++] = made;
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel question = {.kind = TD_ASK_TABLE,
                              .words = {(uint64_t)*out_table},
                              .data = &made.definition,
                              .bytes = sizeof made.definition};
        td_parcel answer = {0};
        TD_TRY(ask(job, s, &question, &answer));
    }
    return NULL;
}

/* ---- a message to each server -------------------------------------------------------------------------------------------------- */

static int64_t stretch_end(const td_job *job, const td_remote_part *part, const int64_t *keys, int64_t n,
                           int32_t server)
{
    const td_shard_definition *d = &job->tables[part->table].definition;
    return server + 1 == job->servers ? n : td_first_at_least(keys, n, td_owner_begin(d, server + 1, job->servers));
}

/* Until the servers have read what the last round asked. */
static td_status *settle(const td_job *job, td_round *r)
{
    for (int32_t s = 0; s < job->servers && r->under_way; s++)
        TD_TRY(td_comm_wait(job->comm, &r->questions[s]));
    r->under_way = false;
    return NULL;
}

td_status *td_client_settle(td_job *job)
{
    TD_TRY(settle(job, &job->pulling));
    return settle(job, &job->pushing);
}

static void free_round(td_round *r)
{
    td_free(r->questions);
    td_free(r->answers);
    td_free(r->stretches);
    *r = (td_round){0};
}

void td_client_release(td_job *job, td_comm *comm)
{
    free_round(&job->pulling);
    free_round(&job->pushing);
    for (int32_t i = 0; i < TD_ROOMS; i++)
        td_comm_buffer_free(comm, &job->rooms[i]);
}

static td_status *begin_round(const td_job *job, int32_t parts, td_round *r)
{
    TD_TRY(settle(job, r));
    if (r->questions && parts <= r->most_parts)
        return NULL;
    free_round(r);
    TD_TRY(TD_NEW(r->questions, job->servers));
    TD_TRY(TD_NEW(r->answers, job->servers));
    TD_TRY(TD_NEW(r->stretches, (int64_t)job->servers * parts + 1));
    r->most_parts = parts;
    return NULL;
}

/* ---- pull ---------------------------------------------------------------------------------------------------------------------- */

static void cut_pull(const td_job *job, const td_remote_part *parts, int32_t n, const td_round *r)
{
    for (int32_t p = 0; p < n; p++) {
        int64_t first = 0;
        for (int32_t s = 0; s < job->servers; s++) {
            const int64_t end = stretch_end(job, &parts[p], parts[p].keys, parts[p].n, s);
            r->stretches[s * n + p] = (td_stretch){first, end - first};
            first = end;
        }
    }
}

/* Writes a server's question at `out`; returns its bytes, and those of the answer. */
static int64_t write_pull(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of, char *out,
                          int64_t *out_answer)
{
    td_wire_part *wire = (td_wire_part *)(void *)out;
    char *keys = out + n * (int64_t)sizeof *wire;
    *out_answer = 0;
    for (int32_t p = 0; p < n; p++) {
        wire[p] = (td_wire_part){parts[p].table, of[p].n};
        if (of[p].n)
            memcpy(keys, parts[p].keys + of[p].first, (size_t)of[p].n * sizeof(int64_t));
        keys += of[p].n * (int64_t)sizeof(int64_t);
        *out_answer += of[p].n * row_bytes_of(job, parts[p].table, 0);
    }
    return keys - out;
}

/* Rows of a server's answer to where the parts want them. */
static void spread(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of, const char *rows)
{
    for (int32_t p = 0; p < n; p++) {
        const int64_t row_bytes = row_bytes_of(job, parts[p].table, 0);
        if (of[p].n)
            memcpy((char *)parts[p].rows + of[p].first * row_bytes, rows, (size_t)(of[p].n * row_bytes));
        rows += of[p].n * row_bytes;
    }
}

/* One part's rows lie one after another: they are brought straight to where they are wanted, unless servers of this host write
 * them into memory of ours. */
static td_status *room_for_rows(td_job *job, const td_remote_part *parts, int32_t n, char **out_rows)
{
    int64_t bytes = 0;
    bool all_far = true;
    for (int32_t p = 0; p < n; p++)
        bytes += parts[p].n * row_bytes_of(job, parts[p].table, 0);
    for (int32_t s = 0; s < job->servers; s++)
        all_far = all_far && job->server_ranks[s] != td_comm_rank(job->comm) &&
                  !td_comm_is_near(job->comm, job->server_ranks[s]);
    *out_rows = parts[0].rows;
    return n > 1 || !all_far ? td_client_room(job, TD_ROOM_PULL_ROWS, bytes + 1, out_rows) : NULL;
}

static td_status *pull_round(td_job *job, const td_remote_part *parts, int32_t n, bool begin, td_round *r)
{
    int64_t keys = 0;
    char *questions = NULL, *answers = NULL;
    cut_pull(job, parts, n, r);
    for (int32_t p = 0; p < n; p++)
        keys += parts[p].n;
    TD_TRY(td_client_room(job, TD_ROOM_PULL_KEYS,
                          job->servers * n * (int64_t)sizeof(td_wire_part) + keys * (int64_t)sizeof(int64_t),
                          &questions));
    TD_TRY(room_for_rows(job, parts, n, &answers));
    const bool spreads = answers != parts[0].rows;
    const int64_t ahead = begin ? job->options.ahead : 0, needed = job->pushed > ahead ? job->pushed - ahead : 0;
    for (int32_t s = 0; s < job->servers; s++) {
        int64_t answer = 0;
        const int64_t question = write_pull(job, parts, n, &r->stretches[s * n], questions, &answer);
        const uint64_t number = td_job_next_question(job);
        r->answers[s] = (td_parcel){.peer = job->server_ranks[s],
                                    .kind = td_reply_of(TD_ASK_PULL),
                                    .number = number,
                                    .data = answers,
                                    .bytes = answer,
                                    .buffer = spreads ? &job->rooms[TD_ROOM_PULL_ROWS] : NULL};
        r->questions[s] =
            (td_parcel){.peer = job->server_ranks[s],
                        .kind = TD_ASK_PULL,
                        .number = number,
                        .words = {(uint64_t)n, begin, (uint64_t)job->pushed, [TD_WORD_APPLIED] = (uint64_t)needed},
                        .data = questions,
                        .bytes = question,
                        .buffer = &job->rooms[TD_ROOM_PULL_KEYS],
                        .answer = &r->answers[s]};
        td_comm_receive(job->comm, &r->answers[s]);
        td_comm_send(job->comm, &r->questions[s]);
        questions += question;
        answers += answer;
    }
    r->under_way = true;
    for (int32_t s = 0; s < job->servers; s++) {
        TD_TRY(td_comm_wait(job->comm, &r->answers[s]));
        if (spreads)
            spread(job, parts, n, &r->stretches[s * n], r->answers[s].data);
    }
    return NULL;
}

static void record_pull(const td_job *job, const td_remote_part *parts, int32_t n, uint64_t from)
{
    int64_t bytes = 0;
    for (int32_t p = 0; p < n && from; p++)
        bytes += parts[p].n * row_bytes_of(job, parts[p].table, 0);
    td_record_end(TD_RECORD_PULL, td_record_current.id, td_record_current.step, from, (uint64_t)bytes);
}

td_status *td_client_pull(void *self, const td_remote_part *parts, int32_t n, bool begin)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    if (!n)
        return NULL;
    TD_TRY(begin_round(job, n, &job->pulling));
    td_status *status = pull_round(job, parts, n, begin, &job->pulling);
    record_pull(job, parts, n, from);
    return status;
}

/* ---- push ---------------------------------------------------------------------------------------------------------------------- */

/* Places ascend with their keys, so the rows of a server are a stretch of the gradient too. */
static void cut_push(const td_job *job, const td_remote_part *parts, int32_t n, const td_round *r)
{
    for (int32_t p = 0; p < n; p++) {
        int64_t first = 0;
        for (int32_t s = 0; s < job->servers; s++) {
            const td_shard_definition *d = &job->tables[parts[p].table].definition;
            const int64_t least = s + 1 < job->servers ? td_owner_begin(d, s + 1, job->servers) : 0;
            int64_t end = parts[p].n, low = first;
            while (s + 1 < job->servers && low < end) {
                const int64_t middle = low + (end - low) / 2;
                if (parts[p].keys[parts[p].places[middle]] < least)
                    low = middle + 1;
                else
                    end = middle;
            }
            r->stretches[s * n + p] = (td_stretch){first, end - first};
            first = end;
        }
    }
}

static int64_t write_push(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of, char *out)
{
    td_wire_part *wire = (td_wire_part *)(void *)out;
    int64_t *keys = (int64_t *)(void *)(wire + n);
    for (int32_t p = 0; p < n; p++) {
        wire[p] = (td_wire_part){parts[p].table, of[p].n};
        for (int64_t i = 0; i < of[p].n; i++)
            *keys++ = parts[p].keys[parts[p].places[of[p].first + i]];
    }
    float *numbers = (float *)(void *)keys;
    for (int32_t p = 0; p < n; p++, numbers += TD_COEFFICIENTS)
        memcpy(numbers, parts[p].coefficients, TD_COEFFICIENTS * sizeof *numbers);
    for (int32_t p = 0; p < n; p++) {
        const int64_t dim = job->tables[parts[p].table].definition.dim;
        if (of[p].n)
            memcpy(numbers, parts[p].gradients + of[p].first * dim, (size_t)(of[p].n * dim) * sizeof *numbers);
        numbers += of[p].n * dim;
    }
    const int64_t bytes = (char *)numbers - out;
    return bytes;
}

/* `answers`: room for each server's, [servers, n]; NULL: they do not answer. */
static td_status *push_round(td_job *job, const td_remote_part *parts, int32_t n, const td_remote_place *place,
                             td_round *r, bool offers, td_exact *answers)
{
    enum { ALIGNED = 8 };
    const uint64_t ends = answers ? TD_OFFER_ENDS : 0;
    int64_t bytes =
        job->servers * (n * (int64_t)(sizeof(td_wire_part) + TD_COEFFICIENTS * sizeof(float)) + (int64_t)ALIGNED);
    char *out = NULL;
    cut_push(job, parts, n, r);
    for (int32_t p = 0; p < n; p++)
        bytes += parts[p].n *
                 (int64_t)(sizeof(int64_t) + (size_t)job->tables[parts[p].table].definition.dim * sizeof(float));
    TD_TRY(td_client_room(job, TD_ROOM_PUSH, bytes, &out));
    for (int32_t s = 0; s < job->servers; s++) {
        const int64_t length = write_push(job, parts, n, &r->stretches[s * n], out);
        r->questions[s] = (td_parcel){
            .peer = job->server_ranks[s],
            .kind = offers ? TD_ASK_OFFER : TD_ASK_PUSH,
            .number = td_job_next_question(job),
            .words = {(uint64_t)job->pushed + 1, (uint64_t)n, (uint64_t)place->replica | ends, td_record_current.step},
            .data = out,
            .bytes = length,
            .buffer = place->ends_window ? &job->rooms[TD_ROOM_PUSH] : NULL};
        if (answers) {
            r->answers[s] = (td_parcel){.peer = job->server_ranks[s],
                                        .kind = td_reply_of(TD_ASK_OFFER),
                                        .number = r->questions[s].number,
                                        .data = answers + (int64_t)s * n,
                                        .bytes = n * (int64_t)sizeof *answers};
            td_comm_receive(job->comm, &r->answers[s]);
        }
        td_comm_send(job->comm, &r->questions[s]);
        out += (length + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    r->under_way = true;
    for (int32_t s = 0; s < job->servers && answers; s++)
        TD_TRY(td_comm_wait(job->comm, &r->answers[s]));
    job->pushed += place->ends_window;
    return NULL;
}

static void record_push(const td_job *job, const td_remote_part *parts, int32_t n, uint64_t from)
{
    int64_t bytes = 0;
    for (int32_t p = 0; p < n && from; p++)
        bytes += parts[p].n *
                 (int64_t)(sizeof(int64_t) + (size_t)job->tables[parts[p].table].definition.dim * sizeof(float));
    td_record_end(TD_RECORD_PUSH, td_record_current.id, td_record_current.step, from, (uint64_t)bytes);
}

/* Returns before the servers have read it: the next push waits for that. Servers keep what is not a worker's last of a window until
 * all is there, so they get that as a copy of their own. */
static td_status *push(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    if (!n)
        return NULL;
    TD_TRY(begin_round(job, n, &job->pushing));
    td_status *status = push_round(job, parts, n, place, &job->pushing, false, NULL);
    record_push(job, parts, n, from);
    return status;
}

/* ---- offers -------------------------------------------------------------------------------------------------------------------- */

static td_status *offer(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place,
                        td_exact *const *out_squares)
{
    td_job *job = self;
    td_exact *answers = NULL;
    const uint64_t from = td_record_begin();
    TD_TRY(begin_round(job, n, &job->pushing));
    td_status *status = place->ends_window ? TD_NEW(answers, (int64_t)job->servers * n) : NULL;
    if (!status)
        status = push_round(job, parts, n, place, &job->pushing, true, answers);
    for (int32_t p = 0; p < n && answers && !status; p++) {
        td_exact_clear(out_squares[p]);
        for (int32_t s = 0; s < job->servers; s++)
            td_exact_add_sum(out_squares[p], &answers[(int64_t)s * n + p]);
        (void)td_exact_round(out_squares[p]); /* moves the carries up: then equal sums are equal words */
    }
    td_free(answers);
    record_push(job, parts, n, from);
    return status;
}

/* What becomes of the window offered last: the first worker tells for all, who have come to the same. */
static td_status *decide(td_job *job, bool forgotten, float factor, const float *coefficients, int64_t n)
{
    uint32_t bits;
    memcpy(&bits, &factor, sizeof bits);
    for (int32_t s = 0; s < job->servers && job->worker == 0; s++) {
        td_parcel word = {.peer = job->server_ranks[s],
                          .kind = TD_ASK_DECIDE,
                          .number = td_job_next_question(job),
                          .words = {(uint64_t)job->pushed, forgotten, bits},
                          .data = (void *)(uintptr_t)coefficients,
                          .bytes = n * TD_COEFFICIENTS * (int64_t)sizeof *coefficients};
        td_comm_send(job->comm, &word);
        TD_TRY(td_comm_wait(job->comm, &word));
    }
    return NULL;
}

static td_status *apply(void *self, const td_remote_part *parts, int32_t n, float factor)
{
    float *coefficients = NULL;
    TD_TRY(TD_NEW(coefficients, n * TD_COEFFICIENTS));
    for (int32_t p = 0; p < n; p++)
        memcpy(coefficients + p * TD_COEFFICIENTS, parts[p].coefficients, TD_COEFFICIENTS * sizeof *coefficients);
    td_status *status = decide(self, false, factor, coefficients, n);
    td_free(coefficients);
    return status;
}

static td_status *forget(void *self)
{
    return decide(self, true, 0, NULL, 0);
}

/* ---- rows in and out ------------------------------------------------------------------------------------------------------------- */

/* The cursor says the server in its upper bits, and that server's own cursor below. */
enum { CURSOR_BITS = 48 };

static td_status *read_rows(void *self, int32_t table, int32_t array, int64_t *cursor, int64_t most, int64_t *out_keys,
                            void *out_rows, int64_t *out_n)
{
    td_job *job = self;
    const int64_t row_bytes = row_bytes_of(job, table, array), mask = (INT64_C(1) << CURSOR_BITS) - 1;
    int32_t server = (int32_t)(*cursor >> CURSOR_BITS);
    char *room = NULL;
    *out_n = 0;
    TD_TRY(td_client_room(job, TD_ROOM_ROWS_IN, most * (row_bytes + (int64_t)sizeof *out_keys), &room));
    td_parcel question = {.kind = TD_ASK_READ,
                          .words = {(uint64_t)table, (uint64_t)array, (uint64_t)(*cursor & mask), (uint64_t)most}};
    td_parcel answer = {.data = room, .bytes = most * (row_bytes + (int64_t)sizeof *out_keys)};
    TD_TRY(ask(job, server, &question, &answer));
    const int64_t n = (int64_t)answer.words[0];
    if (n < 0 || n > most || answer.bytes != n * (row_bytes + (int64_t)sizeof *out_keys))
        return TD_ERROR(TD_INTERNAL, "server %d answers with %" PRId64 " rows in %" PRId64 " bytes", server, n,
                        answer.bytes);
    *out_n = n;
    memcpy(out_keys, room, (size_t)*out_n * sizeof *out_keys);
    memcpy(out_rows, room + *out_n * (int64_t)sizeof *out_keys, (size_t)(*out_n * row_bytes));
    *cursor = (int64_t)answer.words[1];
    if (*cursor >= 0)
        *cursor |= (int64_t)server << CURSOR_BITS;
    else if (server + 1 < job->servers)
        *cursor = (int64_t)(server + 1) << CURSOR_BITS;
    return NULL;
}

static void forget_rows(void *self)
{
    td_job *job = self;
    job->forgotten++;
}

/* What is in the room: n ids and their rows. */
static td_status *write_some(td_job *job, int32_t server, int32_t table, int32_t array, int64_t n, void *room)
{
    td_parcel question = {.kind = TD_ASK_WRITE,
                          .words = {(uint64_t)table, (uint64_t)array, (uint64_t)n},
                          .data = room,
                          .bytes = n * (row_bytes_of(job, table, array) + (int64_t)sizeof(int64_t))};
    td_parcel answer = {0};
    return ask(job, server, &question, &answer);
}

/* A message to each server, with the rows that are its own. */
static td_status *write_rows(void *self, int32_t table, int32_t array, const int64_t *ids, int64_t n, const void *rows)
{
    td_job *job = self;
    const int64_t row_bytes = row_bytes_of(job, table, array);
    char *room = NULL;
    forget_rows(job);
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
static td_status *save(void *self, const char *directory, int64_t steps, bool changes, bool track,
                       td_remote_file *out_files)
{
    td_job *job = self;
    td_parcel *questions = NULL, *answers = NULL;
    char *absolute = realpath(directory, NULL); /* the C library's own allocation */
    td_status *status =
        absolute ? TD_NEW(questions, job->servers) : TD_ERROR(TD_IO, "%s: %s", directory, strerror(errno));
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

/* A question about a table to all servers; the sum of their answers. */
static td_status *about_table(td_job *job, uint32_t kind, int32_t table, uint64_t *out_sum)
{
    *out_sum = 0;
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel question = {.kind = kind, .words = {(uint64_t)table}};
        td_parcel answer = {0};
        TD_TRY(ask(job, s, &question, &answer));
        *out_sum += answer.words[0];
    }
    return NULL;
}

static td_status *clear(void *self, int32_t table)
{
    uint64_t none;
    return about_table(self, TD_ASK_CLEAR, table, &none);
}

static td_status *count(void *self, int32_t table, int64_t *out_rows)
{
    uint64_t rows = 0;
    td_status *status = about_table(self, TD_ASK_COUNT, table, &rows);
    *out_rows = (int64_t)rows;
    return status;
}

static td_status *tracks(void *self, bool *out_all)
{
    uint64_t lacking = 0;
    td_status *status = about_table(self, TD_ASK_TRACKS, 0, &lacking);
    *out_all = lacking == 0;
    return status;
}

static td_status *checksum(void *self, int32_t table, uint64_t *out_sum)
{
    return about_table(self, TD_ASK_CHECKSUM, table, out_sum);
}

td_status *td_job_staleness(td_job *job, int64_t out_pulls[TD_JOB_STALENESS])
{
    int64_t one[TD_JOB_STALENESS];
    memset(out_pulls, 0, TD_JOB_STALENESS * sizeof *out_pulls);
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel question = {.kind = TD_ASK_STALENESS};
        td_parcel answer = {.data = one, .bytes = sizeof one};
        TD_TRY(ask(job, s, &question, &answer));
        for (int32_t i = 0; i < TD_JOB_STALENESS; i++)
            out_pulls[i] += one[i];
    }
    return NULL;
}

void td_client_fill(td_job *job)
{
    job->remote = (td_remote){.self = job,
                              .replicas = job->replicas,
                              .own = td_job_own_replicas(job),
                              .first = td_job_first_replica(job),
                              .leads = job->worker == 0,
                              .may_be_stale = job->options.ahead != 0,
                              .add_table = add_table,
                              .pull = job->options.cache_bytes > 0 ? td_row_cache_pull : td_client_pull,
                              .forget_rows = forget_rows,
                              .push = push,
                              .offer = offer,
                              .apply = apply,
                              .forget = forget,
                              .sum = td_client_sum,
                              .read = read_rows,
                              .write = write_rows,
                              .owners = job->servers,
                              .save = save,
                              .tracks = tracks,
                              .clear = clear,
                              .count = count,
                              .checksum = checksum};
}
