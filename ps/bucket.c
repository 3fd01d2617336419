/* See bucket.h. */
#include "ps/bucket.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"
#include "graph/ops/stretch.h"

enum { MOST_BUCKETS = 1 << 10 }; /* of a window: numbers of messages */

static int64_t size_of(const td_bucket *b, int32_t worker)
{
    return b->bounds[worker + 1] - b->bounds[worker];
}

static int64_t number_of(const td_bucket *b)
{
    return b->window * MOST_BUCKETS + b->index;
}

/* Of what a replica sends to a worker. */
static uint64_t number_to(const td_job *job, const td_bucket *b, int32_t replica, int32_t to)
{
    const uint64_t n = (uint64_t)number_of(b) * (uint64_t)job->replicas + (uint64_t)replica;
    return n * (uint64_t)job->workers + (uint64_t)to;
}

/* ---- a window begins ----------------------------------------------------------------------------------------------------------- */

static td_status *wait_others(const td_job *job, td_parcel *parcels)
{
    for (int32_t w = 0; w < job->workers; w++)
        if (w != job->worker)
            TD_TRY(td_comm_wait(job->comm, &parcels[w]));
    return NULL;
}

/* Until nobody reads this worker's memory any more. */
static td_status *settle(const td_job *job, td_bucket *b)
{
    for (int64_t i = 0; i < b->n_out; i++)
        TD_TRY(td_comm_wait(job->comm, &b->out[i]));
    if (b->spreads)
        TD_TRY(wait_others(job, b->sums_out));
    b->n_out = 0;
    b->spreads = false;
    return NULL;
}

/* What the others' replicas will send. */
static void expect(td_job *job, td_bucket *b)
{
    int64_t others = 0;
    for (int32_t r = 0; r < job->replicas; r++) {
        if (td_job_runs(job, r))
            continue;
        const td_parcel from = {.peer = job->worker_ranks[job->replica_worker[r]],
                                .number = number_to(job, b, r, job->worker),
                                .by_reference = true};
        b->rows_parcels[r] = b->dense_parcels[r] = from;
        b->rows_parcels[r].kind = TD_TELL_ROWS;
        b->rows_parcels[r].data = b->rows_in + others * b->rows_room;
        b->rows_parcels[r].bytes = b->rows_room;
        if (b->rows_room)
            td_comm_receive(job->comm, &b->rows_parcels[r]);
        b->dense_parcels[r].kind = TD_TELL_SEGMENT;
        b->dense_parcels[r].data = b->theirs + others * b->longest;
        b->dense_parcels[r].bytes = b->longest * (int64_t)sizeof(float);
        if (b->ordered)
            td_comm_receive(job->comm, &b->dense_parcels[r]);
        others++;
    }
    b->expects = true;
}

td_status *td_bucket_begin(td_job *job, td_bucket *b, int64_t window)
{
    TD_TRY(settle(job, b));
    b->window = window;
    b->done = 0;
    b->expects = b->folded = false;
    if (b->room)
        expect(job, b);
    return NULL;
}

/* ---- what a replica brings ----------------------------------------------------------------------------------------------------- */

static void pack(const td_tensor *gradients, int32_t n, float *at)
{
    for (int32_t i = 0; i < n; i++) {
        const int64_t count = td_is_sparse(&gradients[i]) ? 0 : td_tensor_elements(&gradients[i]);
        if (count)
            memcpy(at, gradients[i].data, (size_t)count * sizeof *at);
        at += count;
    }
}

static void post(td_job *job, td_bucket *b, const td_parcel *parcel)
{
    td_parcel *out = &b->out[b->n_out++];
    *out = *parcel;
    td_comm_send(job->comm, out);
}

/* To every other worker: rows, and the stretch that it owns. */
static void tell(td_job *job, td_bucket *b, int32_t replica, const td_bucket_news *news, char *rows, float *dense)
{
    for (int32_t w = 0; w < job->workers; w++) {
        const int64_t begin = b->bounds[w], count = news->n_losses ? size_of(b, w) : 0;
        td_parcel parcel = {.peer = job->worker_ranks[w],
                            .number = number_to(job, b, replica, w),
                            .words = {(uint64_t)news->n_losses, news->stops},
                            .buffer = &b->shared};
        if (w == job->worker)
            continue;
        parcel.kind = TD_TELL_ROWS;
        parcel.data = rows;
        parcel.bytes = b->rows_bytes;
        if (b->rows_room)
            post(job, b, &parcel);
        parcel.kind = TD_TELL_SEGMENT;
        parcel.data = dense + begin;
        parcel.bytes = count * (int64_t)sizeof(float);
        if (b->ordered)
            post(job, b, &parcel);
    }
}

static void add(float *restrict sum, const float *restrict more, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += more[i];
}

/* This worker's replicas in their order; the others' are added by MPI. */
static void begin_by_mpi(td_job *job, td_bucket *b)
{
    memset(b->sum, 0, (size_t)b->length * sizeof *b->sum);
    for (int32_t i = 0; i < job->remote.own; i++)
        if (b->of[job->remote.first + i].samples)
            add(b->sum, b->mine + i * b->length, b->length);
    *b->by_mpi = (td_parcel){
        .peer = job->worker_ranks[job->worker], .data = b->sum, .bytes = b->length * (int64_t)sizeof *b->sum};
    td_comm_add_up(job->comm, b->by_mpi);
}

td_status *td_bucket_send(td_job *job, td_bucket *b, const td_remote_place *place, const td_bucket_news *news,
                          const td_tensor *gradients, const td_remote_bucket *of)
{
    if (b->done == job->remote.own || !td_job_runs(job, place->replica))
        return TD_ERROR(TD_INTERNAL, "worker %d does not run replica %d", job->worker, place->replica);
    const int32_t n = of->index ? of->n : 0; /* the loss has been noted */
    TD_TRY(td_bucket_make_room(job, b, gradients, of, place->most_micro));
    if (!b->expects)
        expect(job, b);
    char *rows = b->rows_out + b->done * b->rows_room;
    float *dense = b->mine + b->done * b->length;
    if (b->rows_room)
        TD_TRY(td_rank_rows_write(rows, news->losses, news->n_losses, gradients, n, news->order, &b->rows_bytes));
    if (news->n_losses)
        pack(gradients, n, dense);
    tell(job, b, place->replica, news, rows, dense);
    b->of[place->replica] = (td_contribution){rows, dense + b->bounds[job->worker], news->n_losses};
    b->done++;
    if (b->done == job->remote.own && b->length && !b->ordered)
        begin_by_mpi(job, b);
    return NULL;
}

/* ---- sums ------------------------------------------------------------------------------------------------------------------------ */

bool td_bucket_is_here(td_job *job, td_bucket *b)
{
    if (b->done < job->remote.own)
        return false;
    for (int32_t r = 0; r < job->replicas && b->ordered; r++)
        if (!td_job_runs(job, r) && !td_comm_is_through(job->comm, &b->dense_parcels[r]))
            return false;
    return true;
}

/* Another worker's replica; it has as many bytes as its samples say. */
static td_status *take_stretch(td_job *job, td_bucket *b, int32_t replica, int64_t n)
{
    td_parcel *parcel = &b->dense_parcels[replica];
    TD_TRY(td_comm_wait(job->comm, parcel));
    if (parcel->bytes != (parcel->words[0] ? n * (int64_t)sizeof(float) : 0))
        return TD_ERROR(TD_INTERNAL,
                        "rank %d on %s sends %" PRId64 " bytes, which are no part of the sums of window %" PRId64,
                        parcel->peer, td_comm_host(job->comm, parcel->peer), parcel->bytes, b->window);
    b->of[replica].mine = parcel->data;
    b->of[replica].samples = (int64_t)parcel->words[0];
    return NULL;
}

/* The stretch that this worker owns. */
static td_status *fold_mine(td_job *job, td_bucket *b)
{
    const int64_t n = size_of(b, job->worker);
    bool any = false;
    for (int32_t r = 0; r < job->replicas; r++) {
        const bool own = td_job_runs(job, r);
        if (!own)
            TD_TRY(take_stretch(job, b, r, n));
        if (b->of[r].samples && n && any)
            add(b->sum, b->of[r].mine, n);
        else if (b->of[r].samples && n)
            memcpy(b->sum, b->of[r].mine, (size_t)n * sizeof *b->sum);
        any = any || b->of[r].samples;
        if (!own)
            td_comm_release(job->comm, &b->dense_parcels[r]);
    }
    return NULL;
}

static void spread(td_job *job, td_bucket *b)
{
    const int64_t n = size_of(b, job->worker);
    for (int32_t w = 0; w < job->workers; w++) {
        const int64_t begin = b->bounds[w], count = size_of(b, w);
        if (w == job->worker)
            continue;
        b->sums_in[w] = (td_parcel){.peer = job->worker_ranks[w],
                                    .kind = TD_TELL_SUM,
                                    .number = td_job_number(job, number_of(b), w, job->worker)};
        b->sums_out[w] = b->sums_in[w];
        b->sums_in[w].data = b->sums + begin;
        b->sums_in[w].bytes = b->sums_in[w].least = count * (int64_t)sizeof(float);
        b->sums_in[w].by_reference = true;
        b->sums_out[w].number = td_job_number(job, number_of(b), job->worker, w);
        b->sums_out[w].data = b->sum;
        b->sums_out[w].bytes = n * (int64_t)sizeof(float);
        b->sums_out[w].buffer = &b->shared;
        td_comm_receive(job->comm, &b->sums_in[w]);
        td_comm_send(job->comm, &b->sums_out[w]);
    }
    b->spreads = true;
}

td_status *td_bucket_fold(td_job *job, td_bucket *b)
{
    if (b->folded || !b->ordered)
        return NULL;
    TD_TRY(fold_mine(job, b));
    if (!b->shares)
        spread(job, b);
    b->folded = true;
    return NULL;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------------ */

td_status *td_bucket_gather_rows(td_job *job, td_bucket *b, const td_tensor *gradients, int32_t n, bool *stops)
{
    for (int32_t r = 0; r < job->replicas; r++) {
        td_parcel *parcel = &b->rows_parcels[r];
        if (td_job_runs(job, r))
            continue;
        TD_TRY(td_comm_wait(job->comm, parcel));
        TD_TRY(
            td_status_prefix(td_rank_rows_check(parcel->data, parcel->bytes, (int64_t)parcel->words[0], gradients, n),
                             "rank %d on %s", parcel->peer, td_comm_host(job->comm, parcel->peer)));
        b->of[r].rows = parcel->data;
        *stops = *stops || parcel->words[1];
    }
    return NULL;
}

void td_bucket_release_rows(td_job *job, const td_bucket *b)
{
    for (int32_t r = 0; r < job->replicas; r++)
        if (!td_job_runs(job, r))
            td_comm_release(job->comm, &b->rows_parcels[r]);
}

static td_status *fold_gradient(const td_job *job, td_bucket *b, const td_tensor *gradient, const td_tensor *sum)
{
    td_fold_rows rows = td_rank_rows_next(&b->at[0], gradient);
    td_fold_begin(&b->fold, &rows);
    for (int32_t r = 1; r < job->replicas; r++) {
        rows = td_rank_rows_next(&b->at[r], gradient);
        TD_TRY(td_fold_add(&b->fold, &rows));
    }
    rows = td_fold_result(&b->fold);
    if (rows.n > sum->entries)
        return TD_ERROR(TD_INTERNAL, "a sum of %lld rows has room for %lld", (long long)rows.n,
                        (long long)sum->entries);
    *(int64_t *)sum->count = rows.n;
    if (rows.n) {
        memcpy(sum->index, rows.keys, (size_t)rows.n * sizeof *rows.keys);
        memcpy(sum->data, rows.rows, (size_t)(rows.n * rows.dim) * sizeof *rows.rows);
    }
    return NULL;
}

static td_status *fold_rows(const td_job *job, td_bucket *b, const td_tensor *gradients, const td_tensor *sums,
                            int32_t n)
{
    for (int32_t r = 0; r < job->replicas; r++)
        b->at[r] = td_rank_rows_begin(b->of[r].rows);
    for (int32_t i = 0; i < n; i++)
        if (td_is_sparse(&gradients[i]))
            TD_TRY(fold_gradient(job, b, &gradients[i], &sums[i]));
    return NULL;
}

/* ---- results --------------------------------------------------------------------------------------------------------------------- */

/* A stretch of the vector to the tensors it belongs to, or, with `back`, from them. An element of 16 bit has the room of one of 32. */
static void unpack(float *stretch, int64_t begin, int64_t end, const td_tensor *tensors, int32_t n, bool back)
{
    int64_t at = 0, first = 0; /* of the tensor; of its elements in the stretch */
    for (int32_t i = 0; i < n && at < end; i++) {
        const int64_t count = td_is_sparse(&tensors[i]) ? 0 : td_tensor_elements(&tensors[i]);
        const int64_t inside = td_stretch_of(at, count, begin, end, &first);
        const size_t size = td_dtype_bytes(tensors[i].dtype);
        void *theirs = (char *)tensors[i].data + (size_t)first * size, *here = stretch + (at + first - begin);
        if (inside)
            memcpy(back ? here : theirs, back ? theirs : here, (size_t)inside * size);
        at += count;
    }
}

/* The sums of this worker's stretch, of which each tensor has its part. */
static void take_own(const td_job *job, const td_bucket *b, const td_tensor *sums, int32_t n)
{
    const float *from = b->ordered ? b->sum : b->sum + b->bounds[job->worker];
    for (int32_t i = 0; i < n; i++) {
        const int64_t count = td_is_sparse(&sums[i]) ? 0 : td_tensor_elements(&sums[i]);
        if (count)
            memcpy(sums[i].data, from, (size_t)count * sizeof *from);
        from += count;
    }
}

/* What the workers have of a vector: this one's is in b->sum, theirs come. */
static td_status *take_stretches(td_job *job, td_bucket *b, const td_tensor *tensors, int32_t n, bool own_too)
{
    for (int32_t w = 0; w < job->workers; w++) {
        td_parcel *parcel = &b->sums_in[w];
        const bool own = w == job->worker;
        if (!own)
            TD_TRY(td_comm_wait(job->comm, parcel));
        if (!own || own_too)
            unpack(own ? b->sum : parcel->data, b->bounds[w], b->bounds[w + 1], tensors, n, false);
        if (!own)
            td_comm_release(job->comm, parcel);
    }
    return NULL;
}

static td_status *take_sums(td_job *job, td_bucket *b, const td_tensor *sums, int32_t n)
{
    if (!b->ordered)
        TD_TRY(td_comm_wait(job->comm, b->by_mpi));
    if (b->shares)
        take_own(job, b, sums, n);
    else if (!b->ordered)
        unpack(b->sum, 0, b->length, sums, n, false);
    else
        TD_TRY(take_stretches(job, b, sums, n, true));
    return NULL;
}

td_status *td_bucket_finish(td_job *job, td_bucket *b, const td_tensor *gradients, const td_tensor *sums, int32_t n)
{
    bool stops = false;
    if (b->length)
        TD_TRY(take_sums(job, b, sums, n));
    if (!b->rows_room)
        return NULL;
    TD_TRY(td_bucket_gather_rows(job, b, gradients, n, &stops));
    TD_TRY(fold_rows(job, b, gradients, sums, n));
    td_bucket_release_rows(job, b);
    return NULL;
}

td_status *td_bucket_gather(td_job *job, td_bucket *b, const td_tensor *parameters, int32_t n)
{
    unpack(b->sum, b->bounds[job->worker], b->bounds[job->worker + 1], parameters, n, true);
    spread(job, b);
    return take_stretches(job, b, parameters, n, false);
}
