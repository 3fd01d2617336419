/* Pulls of a worker: a question to each server with the keys that are its own, and the rows of all answers to where they are
 * wanted. */
#include <string.h>

#include "base/record.h"
#include "ps/job_state.h"

static int64_t bytes_of(const td_job *job, const td_remote_part *parts, int32_t n)
{
    int64_t bytes = 0;
    for (int32_t p = 0; p < n; p++)
        bytes += parts[p].n * td_client_row_bytes(job, parts[p].table, 0);
    return bytes;
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
        *out_answer += of[p].n * td_client_row_bytes(job, parts[p].table, 0);
    }
    return keys - out;
}

/* Rows of a server's answer to where the parts want them. */
static void spread(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of, const char *rows)
{
    for (int32_t p = 0; p < n; p++) {
        const int64_t row_bytes = td_client_row_bytes(job, parts[p].table, 0);
        if (of[p].n)
            memcpy((char *)parts[p].rows + of[p].first * row_bytes, rows, (size_t)(of[p].n * row_bytes));
        rows += of[p].n * row_bytes;
    }
}

/* One part's rows lie one after another: they are brought straight to where they are wanted, unless servers of this host write
 * them into memory of ours. */
static td_status *room_for_rows(td_job *job, const td_remote_part *parts, int32_t n, char **out_rows)
{
    bool all_far = true;
    for (int32_t s = 0; s < job->servers; s++)
        all_far = all_far && job->server_ranks[s] != td_comm_rank(job->comm) &&
                  !td_comm_is_near(job->comm, job->server_ranks[s]);
    *out_rows = parts[0].rows;
    return n > 1 || !all_far ? td_client_room(job, TD_ROOM_PULL_ROWS, bytes_of(job, parts, n) + 1, out_rows) : NULL;
}

static td_status *pull_round(td_job *job, const td_remote_part *parts, int32_t n, bool begin, td_round *r)
{
    int64_t keys = 0;
    char *questions = NULL, *answers = NULL;
    td_client_cut(job, parts, n, false, r);
    for (int32_t p = 0; p < n; p++)
        keys += parts[p].n;
    TD_TRY(td_client_room(job, TD_ROOM_PULL_KEYS, td_client_pull_bytes(job->servers, n, keys), &questions));
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
        if (begin && job->options.ahead)
            td_record_sample(TD_RECORD_STALENESS, td_record_current.id, td_record_current.step, r->answers[s].words[0]);
        if (spreads)
            spread(job, parts, n, &r->stretches[s * n], r->answers[s].data);
    }
    return NULL;
}

td_status *td_client_pull(void *self, const td_remote_part *parts, int32_t n, bool begin)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    if (!n)
        return NULL;
    TD_TRY(td_client_begin_round(job, n, &job->pulling));
    td_status *status = pull_round(job, parts, n, begin, &job->pulling);
    td_record_end(TD_RECORD_PULL, td_record_current.id, td_record_current.step, from,
                  from ? (uint64_t)bytes_of(job, parts, n) : 0);
    return status;
}
