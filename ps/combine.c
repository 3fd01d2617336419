/* What the workers of a job tell each other where each has the optimizer state of a stretch of the parameters alone: flags and sums of
 * squares of the gradients, each window, and its stretches of state, while the first worker writes a checkpoint: a piece when that asks
 * for it, so that it has memory for one. The stretches of gradients and parameters go with the buckets (bucket.c). */
#include <string.h>

#include "base/exact.h"
#include "base/memory.h"
#include "graph/op.h"
#include "ps/job_state.h"

/* ---- flags and squares -------------------------------------------------------------------------------------------------------- */

static int64_t words_of(const td_tensor *values, int32_t n)
{
    int64_t words = 0;
    for (int32_t i = 0; i < n; i++)
        words += td_tensor_elements(&values[i]);
    return words;
}

td_status *td_client_settle_combining(td_job *job)
{
    for (int32_t w = 0; w < job->workers && job->combines; w++)
        if (w != job->worker)
            TD_TRY(td_comm_wait(job->comm, &job->combining[2 * w + 1]));
    job->combines = false;
    return NULL;
}

static td_status *room_for(td_job *job, int64_t words, int64_t **out_mine)
{
    TD_TRY(td_client_settle_combining(job));
    TD_TRY(td_client_room(job, TD_ROOM_COMBINE, words * (int64_t)sizeof(int64_t), out_mine));
    if (!job->combining)
        TD_TRY(TD_NEW(job->combining, 2 * job->workers));
    return td_keep_room(&job->combined, &job->combined_capacity, words * job->workers, sizeof *job->combined);
}

static void tell(td_job *job, int64_t *mine, int64_t words)
{
    const int64_t n = ++job->n_combined;
    for (int32_t w = 0; w < job->workers; w++) {
        td_parcel *in = &job->combining[2 * w], *out = in + 1;
        if (w == job->worker)
            continue;
        *in = *out = (td_parcel){.peer = job->worker_ranks[w], .kind = TD_TELL_COMBINE};
        in->number = td_job_number(job, n, w, job->worker);
        in->data = job->combined + w * words;
        in->bytes = words * (int64_t)sizeof *mine;
        in->least = in->bytes;
        in->by_reference = true;
        out->number = td_job_number(job, n, job->worker, w);
        out->data = mine;
        out->bytes = words * (int64_t)sizeof *mine;
        out->buffer = &job->rooms[TD_ROOM_COMBINE];
        td_comm_receive(job->comm, in);
        td_comm_send(job->comm, out);
    }
    job->combines = true;
}

/* A worker's words to what is known so far. Sums of squares are exact: their order is of no account. */
static void add(const td_tensor *combined, int32_t n, const int64_t *words)
{
    for (int32_t i = 0; i < n; words += td_tensor_elements(&combined[i++])) {
        int64_t *known = combined[i].data;
        td_exact sum, more;
        if (td_tensor_elements(&combined[i]) == 1) {
            known[0] = known[0] || words[0];
            continue;
        }
        memcpy(&sum, known, sizeof sum);
        memcpy(&more, words, sizeof more);
        td_exact_add_sum(&sum, &more);
        (void)td_exact_round(&sum); /* moves the carries up: then equal sums are equal words */
        memcpy(known, &sum, sizeof sum);
    }
}

td_status *td_client_combine(void *self, const td_tensor *values, td_tensor *combined, int32_t n)
{
    td_job *job = self;
    const int64_t words = words_of(values, n);
    int64_t *mine = NULL, at = 0;
    TD_TRY(room_for(job, words, &mine));
    for (int32_t i = 0; i < n; i++) {
        const size_t bytes = (size_t)td_tensor_elements(&values[i]) * sizeof *mine;
        memcpy(mine + at, values[i].data, bytes);
        memmove(combined[i].data, values[i].data, bytes);
        at += td_tensor_elements(&values[i]);
    }
    tell(job, mine, words);
    for (int32_t w = 0; w < job->workers; w++) {
        td_parcel *in = &job->combining[2 * w];
        if (w == job->worker)
            continue;
        TD_TRY(td_comm_wait(job->comm, in));
        if (in->bytes != words * (int64_t)sizeof *mine)
            return TD_ERROR(TD_INTERNAL, "rank %d on %s tells %lld bytes about its gradients, not %lld", in->peer,
                            td_comm_host(job->comm, in->peer), (long long)in->bytes,
                            (long long)(words * (int64_t)sizeof *mine));
        add(combined, n, in->data);
        td_comm_release(job->comm, in);
    }
    return NULL;
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------------------- */

/* From worker to worker: the question for a piece, or the piece. No more than one of them is under way between two workers. */
static td_parcel of_state(const td_job *job, int32_t from, int32_t to)
{
    return (td_parcel){.peer = job->worker_ranks[from == job->worker ? to : from],
                       .kind = TD_TELL_STATE,
                       .number = td_job_number(job, 0, from, to)};
}

td_status *td_client_borrow(void *self, int32_t worker, int32_t state, int64_t first, int64_t n, float *out)
{
    td_job *job = self;
    const int64_t bytes = n * (int64_t)sizeof *out;
    td_parcel ask = of_state(job, job->worker, worker), piece = of_state(job, worker, job->worker);
    TD_TRY(td_client_room(job, TD_ROOM_STATE, bytes, &piece.data));
    ask.words[0] = (uint64_t)state;
    ask.words[1] = (uint64_t)first;
    ask.words[2] = (uint64_t)n;
    piece.bytes = piece.least = bytes;
    piece.by_reference = true;
    td_comm_receive(job->comm, &piece);
    td_comm_send(job->comm, &ask);
    TD_TRY(td_comm_wait(job->comm, &ask));
    TD_TRY(td_comm_wait(job->comm, &piece));
    memcpy(out, piece.data, (size_t)bytes);
    td_comm_release(job->comm, &piece);
    return NULL;
}

td_status *td_client_asked(void *self, int32_t *out_state, int64_t *out_first, int64_t *out_n)
{
    td_job *job = self;
    td_parcel ask = of_state(job, 0, job->worker);
    ask.patient = true; /* the first worker writes to its disk in between */
    td_comm_receive(job->comm, &ask);
    TD_TRY(td_comm_wait(job->comm, &ask));
    *out_state = (int32_t)ask.words[0];
    *out_first = (int64_t)ask.words[1];
    *out_n = (int64_t)ask.words[2];
    return NULL;
}

td_status *td_client_lend(void *self, int64_t n, const float *data)
{
    td_job *job = self;
    td_parcel piece = of_state(job, job->worker, 0);
    piece.bytes = n * (int64_t)sizeof *data;
    TD_TRY(td_client_room(job, TD_ROOM_STATE, piece.bytes, &piece.data));
    memcpy(piece.data, data, (size_t)piece.bytes);
    piece.buffer = &job->rooms[TD_ROOM_STATE];
    td_comm_send(job->comm, &piece);
    return td_comm_wait(job->comm, &piece);
}
