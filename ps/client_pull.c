/* Pulls of a worker: a question to each server with the keys that are its own, and the rows of all answers to where they are
 * wanted.
 *
 * What the next pull will want may be asked for before its place is free (td_client_ask_ahead): the servers answer once they have
 * applied what was pushed by then, and the rows wait in memory of messages. The pull that comes looks whether its keys are those. */
#include <string.h>

#include "base/clock.h"
#include "base/record.h"
#include "ps/job_state.h"

static int64_t bytes_of(const td_job *job, const td_remote_part *parts, int32_t n)
{
    int64_t bytes = 0;
    for (int32_t p = 0; p < n; p++)
        bytes += parts[p].n * td_client_row_bytes(job, parts[p].table, 0);
    return bytes;
}

static int64_t answer_bytes(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of)
{
    int64_t bytes = 0;
    for (int32_t p = 0; p < n; p++)
        bytes += of[p].n * td_client_row_bytes(job, parts[p].table, 0);
    return bytes;
}

/* Writes a server's question at `out`; returns its bytes. */
static int64_t write_pull(const td_remote_part *parts, int32_t n, const td_stretch *of, char *out)
{
    td_wire_part *wire = (td_wire_part *)(void *)out;
    char *keys = out + n * (int64_t)sizeof *wire;
    for (int32_t p = 0; p < n; p++) {
        wire[p] = (td_wire_part){parts[p].table, of[p].n};
        if (of[p].n)
            memcpy(keys, parts[p].keys + of[p].first, (size_t)of[p].n * sizeof(int64_t));
        keys += of[p].n * (int64_t)sizeof(int64_t);
    }
    return keys - out;
}

/* Bytes [from, to) of a server's answer to where the parts want them. */
static void spread(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of, const char *rows,
                   int64_t from, int64_t to)
{
    int64_t first = 0;
    for (int32_t p = 0; p < n && first < to; p++) {
        const int64_t row_bytes = td_client_row_bytes(job, parts[p].table, 0), end = first + of[p].n * row_bytes;
        const int64_t begin = from > first ? from : first, stop = to < end ? to : end;
        if (begin < stop)
            memcpy((char *)parts[p].rows + of[p].first * row_bytes + (begin - first), rows + begin,
                   (size_t)(stop - begin));
        first = end;
    }
}

/* Takes what is written of an answer while more comes; returns how much that was. Less than all where the answer has come
 * otherwise, or nothing of it for some time: then it is waited for like any other. */
static int64_t take_pieces(const td_job *job, const td_remote_part *parts, int32_t n, const td_stretch *of,
                           const td_parcel *answer, int64_t all)
{
    enum { LOOK_NS = 2000000, LONG_NS = 200000000 };
    char *head = answer->data;
    int64_t have = 0, until = td_clock_ns() + LONG_NS;
    while (have < all && td_clock_ns() < until && !td_comm_is_through(job->comm, answer)) {
        const int64_t written = td_pieces_wait((td_pieces *)(void *)head, have, all, LOOK_NS);
        if (written == have)
            continue;
        spread(job, parts, n, of, head + TD_PIECES_HEAD, have, written);
        have = written;
        until = td_clock_ns() + LONG_NS;
    }
    return have;
}

/* An answer that came in pieces is not waited for any more: the next round does. */
static td_status *take_answer(td_job *job, const td_remote_part *parts, int32_t n, const td_round *r, int32_t s)
{
    td_parcel *answer = &r->answers[s];
    const td_stretch *of = &r->stretches[(int64_t)s * n];
    const bool in_pieces = r->questions[s].words[3] != 0;
    const int64_t all = answer_bytes(job, parts, n, of);
    const int64_t have = in_pieces ? take_pieces(job, parts, n, of, answer, all) : 0;
    if (in_pieces && have == all)
        return NULL;
    TD_TRY(td_comm_wait(job->comm, answer));
    spread(job, parts, n, of, (char *)answer->data + (in_pieces ? TD_PIECES_HEAD : 0), have, all);
    return NULL;
}

/* One part's rows lie one after another: they are brought straight to where they are wanted, unless servers of this host write
 * them into memory of ours, or that place is not free yet. */
static td_status *room_for_rows(td_job *job, const td_remote_part *parts, int32_t n, char **out_rows)
{
    bool all_far = true;
    for (int32_t s = 0; s < job->servers; s++)
        all_far = all_far && job->server_ranks[s] != td_comm_rank(job->comm) &&
                  !td_comm_is_near(job->comm, job->server_ranks[s]);
    *out_rows = parts[0].rows;
    /* in a job that goes on after losses late bytes may come, which must find memory of messages */
    return n > 1 || !all_far || job->options.recover || !*out_rows
               ? td_client_room(job, TD_ROOM_PULL_ROWS, td_client_rows_bytes(job->servers, bytes_of(job, parts, n)),
                                out_rows)
               : NULL;
}

static td_status *ask(td_job *job, const td_remote_part *parts, int32_t n, bool begin, td_round *r)
{
    int64_t keys = 0;
    char *questions = NULL, *answers = NULL;
    TD_TRY(td_client_begin_round(job, n, r));
    td_client_cut(job, parts, n, false, r);
    for (int32_t p = 0; p < n; p++)
        keys += parts[p].n;
    TD_TRY(td_client_room(job, TD_ROOM_PULL_KEYS, td_client_pull_bytes(job->servers, n, keys), &questions));
    TD_TRY(room_for_rows(job, parts, n, &answers));
    r->spreads = answers != parts[0].rows;
    const int64_t ahead = begin ? job->options.ahead : 0, needed = job->pushed > ahead ? job->pushed - ahead : 0;
    for (int32_t s = 0; s < job->servers; s++) {
        const int32_t rank = job->server_ranks[s];
        const td_stretch *of = &r->stretches[(int64_t)s * n];
        const bool in_pieces = r->spreads && (rank == td_comm_rank(job->comm) || td_comm_is_near(job->comm, rank));
        const int64_t question = write_pull(parts, n, of, questions);
        const int64_t answer = answer_bytes(job, parts, n, of) + (in_pieces ? TD_PIECES_HEAD : 0);
        const uint64_t number = td_job_next_question(job);
        r->answers[s] = (td_parcel){.peer = rank,
                                    .kind = td_reply_of(TD_ASK_PULL),
                                    .number = number,
                                    .data = answers,
                                    .bytes = answer,
                                    .least = answer,
                                    .buffer = r->spreads ? &job->rooms[TD_ROOM_PULL_ROWS] : NULL};
        r->questions[s] = (td_parcel){
            .peer = rank,
            .kind = TD_ASK_PULL,
            .number = number,
            .words = {(uint64_t)n, begin, (uint64_t)job->pushed, in_pieces, [TD_WORD_APPLIED] = (uint64_t)needed},
            .data = questions,
            .bytes = question,
            .buffer = &job->rooms[TD_ROOM_PULL_KEYS],
            .answer = &r->answers[s]};
        if (in_pieces)
            td_pieces_begin((td_pieces *)(void *)answers);
        td_comm_receive(job->comm, &r->answers[s]);
        td_comm_send(job->comm, &r->questions[s]);
        questions += question;
        answers += r->spreads ? td_pieces_aligned(answer) : answer;
    }
    r->under_way = true;
    return NULL;
}

static td_status *take(td_job *job, const td_remote_part *parts, int32_t n, bool begin, const td_round *r)
{
    const bool counts = begin && job->options.ahead; /* how far behind the rows are, which the message says */
    for (int32_t s = 0; s < job->servers; s++) {
        if (r->spreads)
            TD_TRY(take_answer(job, parts, n, r, s));
        if (!r->spreads || counts)
            TD_TRY(td_comm_wait(job->comm, &r->answers[s]));
        if (counts)
            td_record_sample(TD_RECORD_STALENESS, td_record_current.id, td_record_current.step, r->answers[s].words[0]);
    }
    return NULL;
}

/* ---- asking ahead -------------------------------------------------------------------------------------------------------------- */

static bool asks_the_same(const td_remote_part *part, const td_parcel *question, int32_t n, int32_t p,
                          const td_stretch *of)
{
    const td_wire_part *wire = question->data;
    const int64_t *keys = (const int64_t *)(wire + n);
    for (int32_t before = 0; before < p; before++)
        keys += wire[before].n;
    return wire[p].table == part->table && of->first + of->n <= part->n &&
           (!of->n || memcmp(keys, part->keys + of->first, (size_t)of->n * sizeof *keys) == 0);
}

/* Whether the round that was asked ahead is of these keys. */
static bool was_asked(const td_job *job, const td_remote_part *parts, int32_t n, bool begin, const td_round *r)
{
    bool same = r->ahead == n && begin;
    for (int32_t p = 0; p < n && same; p++) {
        int64_t keys = 0;
        for (int32_t s = 0; s < job->servers && same; s++) {
            const td_stretch *of = &r->stretches[(int64_t)s * n + p];
            same = asks_the_same(&parts[p], &r->questions[s], n, p, of);
            keys += of->n;
        }
        same = same && keys == parts[p].n;
    }
    return same;
}

td_status *td_client_ask_ahead(void *self, const td_remote_part *parts, int32_t n)
{
    td_job *job = self;
    TD_TRY(ask(job, parts, n, true, &job->pulling));
    job->pulling.ahead = n;
    return NULL;
}

td_status *td_client_pull(void *self, const td_remote_part *parts, int32_t n, bool begin)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    if (!n)
        return NULL;
    const bool asked = was_asked(job, parts, n, begin, &job->pulling);
    job->pulling.ahead = 0;
    td_status *status = asked ? NULL : ask(job, parts, n, begin, &job->pulling);
    if (!status)
        status = take(job, parts, n, begin, &job->pulling);
    td_record_end(TD_RECORD_PULL, td_record_current.id, td_record_current.step, from,
                  from ? (uint64_t)bytes_of(job, parts, n) : 0);
    return status;
}
