/* Pushes of a worker: a replica's gradients, cut into what each server owns; offers, of which the workers decide afterwards what
 * becomes of them. */
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "ps/job_state.h"

/* ---- push ---------------------------------------------------------------------------------------------------------------------- */

/* Of keys and rows. */
static int64_t bytes_of(const td_job *job, const td_remote_part *parts, int32_t n)
{
    int64_t bytes = 0;
    for (int32_t p = 0; p < n; p++)
        bytes += parts[p].n * (int64_t)(sizeof(int64_t) + (size_t)job->tables[parts[p].table].dim * sizeof(float));
    return bytes;
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
        const int64_t dim = job->tables[parts[p].table].dim;
        if (of[p].n)
            memcpy(numbers, parts[p].gradients + of[p].first * dim, (size_t)(of[p].n * dim) * sizeof *numbers);
        numbers += of[p].n * dim;
    }
    return (char *)numbers - out;
}

/* `answers`: room for each server's, [servers, n]; NULL: they do not answer. */
static td_status *push_round(td_job *job, const td_remote_part *parts, int32_t n, const td_remote_place *place,
                             td_round *r, bool offers, td_exact *answers)
{
    enum { ALIGNED = 8 };
    const uint64_t ends = answers ? TD_OFFER_ENDS : 0;
    char *out = NULL;
    td_client_cut(job, parts, n, true, r);
    TD_TRY(td_client_room(job, TD_ROOM_PUSH, td_client_push_bytes(job->servers, n, bytes_of(job, parts, n)), &out));
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
                                        .bytes = n * (int64_t)sizeof *answers,
                                        .least = n * (int64_t)sizeof *answers};
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
    td_record_end(TD_RECORD_PUSH, td_record_current.id, td_record_current.step, from,
                  from ? (uint64_t)bytes_of(job, parts, n) : 0);
}

/* Returns before the servers have read it: the next push waits for that. Servers keep what is not a worker's last of a window until
 * all is there, so they get that as a copy of their own. */
td_status *td_client_push(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    if (!n)
        return NULL;
    TD_TRY(td_client_begin_round(job, n, &job->pushing));
    td_status *status = push_round(job, parts, n, place, &job->pushing, false, NULL);
    record_push(job, parts, n, from);
    return status;
}

/* ---- offers -------------------------------------------------------------------------------------------------------------------- */

td_status *td_client_offer(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place,
                           td_exact *const *out_squares)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    const bool ends = place->ends_window;
    TD_TRY(td_client_begin_round(job, n, &job->pushing));
    if (ends)
        TD_TRY(td_keep_room(&job->told, &job->told_capacity, (int64_t)job->servers * n, sizeof *job->told));
    TD_TRY(push_round(job, parts, n, place, &job->pushing, true, ends ? job->told : NULL));
    for (int32_t p = 0; p < n && ends; p++) {
        td_exact_clear(out_squares[p]);
        for (int32_t s = 0; s < job->servers; s++)
            td_exact_add_sum(out_squares[p], &job->told[(int64_t)s * n + p]);
        (void)td_exact_round(out_squares[p]); /* moves the carries up: then equal sums are equal words */
    }
    record_push(job, parts, n, from);
    return NULL;
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

td_status *td_client_apply(void *self, const td_remote_part *parts, int32_t n, float factor)
{
    td_job *job = self;
    TD_TRY(td_keep_room(&job->coefficients, &job->coefficients_capacity, (int64_t)n * TD_COEFFICIENTS, sizeof(float)));
    for (int32_t p = 0; p < n; p++)
        memcpy(job->coefficients + p * TD_COEFFICIENTS, parts[p].coefficients, TD_COEFFICIENTS * sizeof(float));
    return decide(job, false, factor, job->coefficients, n);
}

td_status *td_client_forget(void *self)
{
    return decide(self, true, 0, NULL, 0);
}
