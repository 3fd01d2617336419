/* The memory of a bucket: what other ranks read, and what comes from them. One allocation each, cut into arrays, whose bytes
 * td_job_staging tells before there is one (staging.c). See bucket.h. */
#include <inttypes.h>

#include "base/memory.h"
#include "graph/op.h"
#include "ps/bucket.h"

/* An array of a bucket's and its bytes. */
typedef struct part {
    void *place;
    int64_t bytes;
} part;

/* Cuts memory into parts; with a NULL base only counts. */
static int64_t cut(const part *parts, size_t n, char *base)
{
    int64_t at = 0;
    for (size_t i = 0; i < n; at += (parts[i++].bytes + 7) / 8 * 8)
        if (base)
            *(char **)parts[i].place = base + at;
    return at;
}

static int64_t cut_private(const td_bucket_size *s, td_bucket *b)
{
    const int64_t replicas = s->replicas, others = replicas - s->own, workers = s->workers, parcel = sizeof(td_parcel);
    const int64_t theirs = s->ordered ? others * s->longest : 0;
    const int64_t sums = workers > 1 && (s->ordered || s->shares) ? s->length : 0;
    const part parts[] = {{&b->bounds, (workers + 1) * (int64_t)sizeof *b->bounds},
                          {&b->of, replicas * (int64_t)sizeof *b->of},
                          {&b->rows_parcels, replicas * parcel},
                          {&b->dense_parcels, replicas * parcel},
                          {&b->sums_in, workers * parcel},
                          {&b->sums_out, workers * parcel},
                          {&b->out, 2 * s->own * workers * parcel},
                          {&b->by_mpi, parcel},
                          {&b->rows_in, others * s->rows_room},
                          {&b->theirs, theirs * (int64_t)sizeof(float)},
                          {&b->sums, sums * (int64_t)sizeof(float)},
                          {&b->at, replicas * (int64_t)sizeof *b->at}};
    return cut(parts, sizeof parts / sizeof *parts, b->room);
}

static int64_t cut_shared(const td_bucket_size *s, td_bucket *b)
{
    const int64_t own = s->own, summed = s->ordered ? s->longest : s->length;
    const part parts[] = {{&b->rows_out, own * s->rows_room},
                          {&b->mine, own * s->length * (int64_t)sizeof(float)},
                          {&b->sum, summed * (int64_t)sizeof(float)}};
    return cut(parts, sizeof parts / sizeof *parts, b->shared.data) + 1;
}

int64_t td_bucket_private_bytes(const td_bucket_size *size)
{
    td_bucket none = {0};
    return (int64_t)sizeof none + cut_private(size, &none);
}

int64_t td_bucket_shared_bytes(const td_bucket_size *size)
{
    td_bucket none = {0};
    return td_buffer_bytes(cut_shared(size, &none));
}

/* ---- making it ----------------------------------------------------------------------------------------------------------------- */

/* Where a worker's stretch begins. */
static int64_t begin_of(const td_job *job, const td_bucket *b, const td_remote_bucket *of, int32_t worker)
{
    return of->bounds ? of->bounds[worker] : td_range(b->length, worker, job->workers);
}

static td_status *allocate(const td_job *job, td_bucket *b)
{
    const td_bucket_size size = {.length = b->length,
                                 .longest = b->longest,
                                 .rows_room = b->rows_room,
                                 .workers = job->workers,
                                 .replicas = job->replicas,
                                 .own = job->remote.own,
                                 .ordered = b->ordered,
                                 .shares = b->shares};
    td_bucket none = {0};
    const int64_t bytes = cut_private(&size, &none);
    TD_TRY(td_comm_buffer_room(job->comm, &b->shared, cut_shared(&size, &none)));
    (void)cut_shared(&size, b);
    b->room = td_realloc(NULL, (size_t)bytes, 1);
    if (!b->room)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for sums of %" PRId64 " bytes", bytes);
    b->room_bytes = bytes;
    (void)cut_private(&size, b);
    return NULL;
}

td_status *td_bucket_make_room(const td_job *job, td_bucket *b, const td_tensor *gradients, const td_remote_bucket *of,
                               int32_t most_micro)
{
    const bool has_rows = !of->index || of->rows_bytes;
    const int64_t rows_room = has_rows ? td_rank_rows_room(most_micro, of->rows_bytes) : 0;
    int64_t length = 0;
    for (int32_t i = 0; i < of->n && of->index; i++) /* the first one has the loss */
        length += td_is_sparse(&gradients[i]) ? 0 : td_tensor_elements(&gradients[i]);
    if (b->room && (length != b->length || rows_room != b->rows_room))
        return TD_ERROR(TD_INTERNAL, "bucket %d of a window is not that of the window before", of->index);
    if (b->room)
        return NULL;
    b->length = length;
    b->rows_room = rows_room;
    b->shares = of->bounds != NULL;
    b->ordered = length && job->options.dense_sync == TD_DENSE_ORDERED;
    b->longest = 0;
    for (int32_t w = 0; w < job->workers; w++) {
        const int64_t size = begin_of(job, b, of, w + 1) - begin_of(job, b, of, w);
        b->longest = size > b->longest ? size : b->longest;
    }
    TD_TRY(allocate(job, b));
    for (int32_t w = 0; w <= job->workers; w++)
        b->bounds[w] = begin_of(job, b, of, w);
    return NULL;
}

void td_bucket_free(td_bucket *b, td_comm *comm)
{
    td_comm_buffer_free(comm, &b->shared);
    td_fold_deinit(&b->fold);
    td_comm_free(comm, b->room, b->room_bytes); /* others' stretches and sums come to it */
    td_free(b);
}
