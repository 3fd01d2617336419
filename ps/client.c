/* A worker's side of served tables: td_remote over messages. Tables are cut into ranges of ids, one per server; keys ascend, so
 * what a server is asked is a stretch of them, and its answer a stretch of the rows. See runtime/remote.h for what is promised.
 *
 * Here: tables, and what all messages need. The others: client_pull.c, client_push.c, client_rows.c. */
#include <string.h>

#include "base/memory.h"
#include "ps/job_state.h"

td_status *td_client_room(td_job *job, td_room which, int64_t bytes, void *out_pointer)
{
    TD_TRY(td_comm_buffer_room(job->comm, &job->rooms[which], bytes));
    *(char **)out_pointer = job->rooms[which].data;
    return NULL;
}

/* ---- one question, one answer ------------------------------------------------------------------------------------------------ */

td_status *td_client_ask(td_job *job, int32_t server, td_parcel *question, td_parcel *answer)
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

int64_t td_client_row_bytes(const td_job *job, int32_t table, int32_t array)
{
    return td_shard_array_bytes(&job->tables[table], array);
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
    td_shard_definition made;
    TD_TRY(td_client_define(table, &made));
    for (int64_t t = 0; t < job->n_tables; t++)
        if (strcmp(job->tables[t].name, table->name) == 0) {
            *out_table = (int32_t)t;
            return NULL;
        }
    TD_TRY(td_grow(&job->tables, &job->tables_capacity, job->n_tables, sizeof *job->tables));
    *out_table = (int32_t)job->n_tables;
    job->tables[job->n_tables++] = made;
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel question = {
            .kind = TD_ASK_TABLE, .words = {(uint64_t)*out_table}, .data = &made, .bytes = sizeof made};
        td_parcel answer = {0};
        TD_TRY(td_client_ask(job, s, &question, &answer));
    }
    return NULL;
}

/* ---- a message to each server -------------------------------------------------------------------------------------------------- */

/* Until the servers have read what the last round asked, and have answered where they do. */
static td_status *settle(const td_job *job, td_round *r)
{
    for (int32_t s = 0; s < job->servers && r->under_way; s++) {
        TD_TRY(td_comm_wait(job->comm, &r->questions[s]));
        if (r->questions[s].answer)
            TD_TRY(td_comm_wait(job->comm, r->questions[s].answer));
    }
    r->under_way = false;
    return NULL;
}

td_status *td_client_settle(td_job *job)
{
    TD_TRY(settle(job, &job->pulling));
    TD_TRY(settle(job, &job->pushing));
    return td_client_settle_combining(job);
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
    td_comm_free(comm, job->told, job->told_capacity * (int64_t)sizeof *job->told);
    td_comm_free(comm, job->coefficients, job->coefficients_capacity * (int64_t)sizeof *job->coefficients);
    td_free(job->combining);
    td_comm_free(comm, job->combined, job->combined_capacity * (int64_t)sizeof *job->combined);
    job->combining = NULL;
    job->combined = NULL;
    job->combined_capacity = job->n_combined = 0;
    job->combines = false;
    td_free(job->agreeing);
    job->told = NULL;
    job->coefficients = NULL;
    job->agreeing = NULL;
    job->told_capacity = job->coefficients_capacity = 0;
    for (int32_t i = 0; i < TD_ROOMS; i++)
        td_comm_buffer_free(comm, &job->rooms[i]);
}

td_status *td_client_begin_round(const td_job *job, int32_t parts, td_round *r)
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

/* Where the first row is, from `first` on, whose key is at least `least`. */
static int64_t first_at_least(const td_remote_part *part, bool by_place, int64_t first, int64_t least)
{
    int64_t low = first, high = part->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (part->keys[by_place ? part->places[middle] : middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void td_client_cut(const td_job *job, const td_remote_part *parts, int32_t n, bool by_place, const td_round *r)
{
    for (int32_t p = 0; p < n; p++) {
        const td_shard_definition *d = &job->tables[parts[p].table];
        int64_t first = 0;
        for (int32_t s = 0; s < job->servers; s++) {
            int64_t end = parts[p].n;
            if (s + 1 < job->servers)
                end = first_at_least(&parts[p], by_place, first, td_owner_begin(d, s + 1, job->servers));
            r->stretches[s * n + p] = (td_stretch){first, end - first};
            first = end;
        }
    }
}

/* ---- the table of functions ---------------------------------------------------------------------------------------------------- */

td_status *td_job_staleness(td_job *job, int64_t out_pulls[TD_JOB_STALENESS])
{
    int64_t one[TD_JOB_STALENESS];
    memset(out_pulls, 0, TD_JOB_STALENESS * sizeof *out_pulls);
    for (int32_t s = 0; s < job->servers; s++) {
        td_parcel question = {.kind = TD_ASK_STALENESS};
        td_parcel answer = {.data = one, .bytes = sizeof one, .least = sizeof one};
        TD_TRY(td_client_ask(job, s, &question, &answer));
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
                              .workers = job->workers,
                              .worker = job->worker,
                              .windows = (int32_t)td_job_late_by(job) + 1,
                              .leads = job->worker == 0,
                              .may_be_stale = job->options.ahead != 0,
                              .asks_ahead = job->options.ahead == 0 && job->options.cache_bytes <= 0,
                              .add_table = add_table,
                              .pull = job->options.cache_bytes > 0 ? td_row_cache_pull : td_client_pull,
                              .ask_ahead = td_client_ask_ahead,
                              .forget_rows = td_client_forget_rows,
                              .push = td_client_push,
                              .offer = td_client_offer,
                              .apply = td_client_apply,
                              .forget = td_client_forget,
                              .send = td_client_send,
                              .sum = td_client_sum,
                              .combine = td_client_combine,
                              .gather = td_client_gather,
                              .borrow = td_client_borrow,
                              .asked = td_client_asked,
                              .lend = td_client_lend,
                              .read = td_client_read,
                              .write = td_client_write,
                              .owners = job->servers,
                              .save = td_client_save,
                              .tracks = td_client_tracks,
                              .clear = td_client_clear,
                              .count = td_client_count,
                              .checksum = td_client_checksum};
}
