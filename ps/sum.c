/* Sums over a window's replicas, in their order: what the ops rank_send and rank_sum do. Gradients come in buckets (bucket.h), in the
 * order in which backward makes them. A replica's leave at its last micro-batch, each bucket as soon as it is made; those sent
 * before are added up meanwhile, where the others' are here. What is left when backward ends is the last bucket's way.
 *
 * So nobody carries more than a W-th of the adding, and the order is that of one process that runs the replicas one after another.
 * With TD_DENSE_MPI, MPI adds up the workers' vectors. Row-sparse gradients of tables that every worker has go to everybody. */
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "graph/op.h"
#include "ps/bucket.h"

/* One window under way. */
struct td_rank_sum {
    int64_t window;
    int64_t weight; /* of all its micro-batches, once it is over */
    bool begun;
    bool stops;            /* somebody was asked to, after this window */
    td_micro_loss *losses; /* of the replica under way */
    int64_t n_losses, losses_capacity;
    td_bucket **buckets;
    int64_t n_buckets, buckets_capacity;
    td_row_order order;
};

int64_t td_job_late_by(const td_job *job)
{
    if (job->replicas == 1)
        return 0;
    return job->options.ahead == TD_JOB_ASYNC ? TD_REMOTE_ASYNC_LATE : job->options.ahead;
}

/* ---- what a replica brings ----------------------------------------------------------------------------------------------------- */

static td_status *begin_window(td_job *job)
{
    const int64_t late = td_job_late_by(job);
    if (!job->sums) {
        TD_TRY(TD_NEW(job->sums, late + 1));
        job->n_sums = late + 1;
    }
    td_rank_sum *s = job->sum = &job->sums[++job->summed % (late + 1)];
    s->window = job->summed;
    td_comm_set_step(job->comm, job->first_step + job->summed);
    s->begun = true;
    s->stops = atomic_load(&job->asked_to_stop);
    for (int64_t b = 0; b < s->n_buckets; b++)
        TD_TRY(td_bucket_begin(job, s->buckets[b], s->window));
    return NULL;
}

static td_status *note_loss(td_rank_sum *s, const td_tensor *loss, const td_remote_place *place)
{
    s->n_losses = place->micro ? s->n_losses : 0;
    if (!place->samples)
        return NULL;
    TD_TRY(td_grow(&s->losses, &s->losses_capacity, s->n_losses, sizeof *s->losses));
    s->losses[s->n_losses++] = (td_micro_loss){(double)*(const float *)loss->data, place->weight};
    return NULL;
}

static td_status *find_bucket(td_job *job, td_rank_sum *s, int32_t index, td_bucket **out_bucket)
{
    if (index < 0 || index > s->n_buckets)
        return TD_ERROR(TD_INTERNAL, "bucket %d is sent, of %lld", index, (long long)s->n_buckets);
    if (index == s->n_buckets) {
        TD_TRY(td_grow(&s->buckets, &s->buckets_capacity, s->n_buckets, sizeof *s->buckets));
        TD_TRY(TD_NEW(s->buckets[index], 1));
        s->n_buckets++;
        s->buckets[index]->index = index;
        TD_TRY(td_bucket_begin(job, s->buckets[index], s->window));
    }
    *out_bucket = s->buckets[index];
    return NULL;
}

/* Whatever has come of the buckets before. */
static td_status *fold_what_is_here(td_job *job, const td_rank_sum *s, int32_t before)
{
    for (int32_t b = 0; b < before; b++)
        if (td_bucket_is_here(job, s->buckets[b]))
            TD_TRY(td_bucket_fold(job, s->buckets[b]));
    return NULL;
}

td_status *td_client_send(void *self, const td_remote_bucket *bucket, const td_tensor *values,
                          const td_remote_place *place)
{
    td_job *job = self;
    td_bucket *b = NULL;
    if (!bucket->index) {
        if (!job->sum || !job->sum->begun)
            TD_TRY(begin_window(job));
        TD_TRY(note_loss(job->sum, values, place));
    }
    td_rank_sum *s = job->sum;
    if (!place->ends_replica || job->replicas == 1)
        return NULL;
    const td_bucket_news news = {.losses = s->losses, .n_losses = s->n_losses, .stops = s->stops, .order = &s->order};
    TD_TRY(find_bucket(job, s, bucket->index, &b));
    TD_TRY(td_bucket_send(job, b, place, &news, values, bucket));
    return fold_what_is_here(job, s, bucket->index);
}

/* ---- a window's loss ------------------------------------------------------------------------------------------------------------- */

/* Adds up micro-batches in order, as one process does. */
static void add_losses(const td_micro_loss *losses, int64_t n, double *sum, int64_t *weight)
{
    for (int64_t i = 0; i < n; i++) {
        *sum += losses[i].loss * (double)losses[i].weight;
        *weight += losses[i].weight;
    }
}

static void mean_loss(const td_job *job, td_rank_sum *s, float *out)
{
    double sum = 0;
    int64_t n;
    s->weight = 0;
    if (job->replicas == 1)
        add_losses(s->losses, s->n_losses, &sum, &s->weight);
    for (int32_t r = 0; job->replicas > 1 && r < job->replicas; r++) {
        const td_micro_loss *losses = td_rank_rows_losses(s->buckets[0]->of[r].rows, &n);
        add_losses(losses, n, &sum, &s->weight);
    }
    *out = (float)(sum / (double)s->weight);
}

/* Every worker sees the same words of a window, and at the same place in its own, so all stop after the same one. */
static void note_stop(td_job *job, const td_rank_sum *s)
{
    if (s->stops && !atomic_load(&job->stops_at))
        atomic_store(&job->stops_at, job->summed);
}

/* All replicas have sent all, or will. What this worker adds up for the others goes first. */
static td_status *end_window(td_job *job, td_rank_sum *s, float *out_loss)
{
    if (job->replicas > 1) {
        for (int64_t b = 0; b < s->n_buckets; b++)
            TD_TRY(td_bucket_fold(job, s->buckets[b]));
        TD_TRY(td_bucket_gather_rows(job, s->buckets[0], NULL, 0, &s->stops));
    }
    mean_loss(job, s, out_loss);
    if (job->replicas > 1)
        td_bucket_release_rows(job, s->buckets[0]);
    note_stop(job, s);
    return NULL;
}

/* ---- sums of gradients ----------------------------------------------------------------------------------------------------------- */

/* One replica's gradients are the sum. */
static void copy_alone(const td_tensor *values, const td_tensor *sums, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int64_t elements = td_tensor_elements(&values[i]);
        if (td_is_sparse(&values[i])) {
            const int64_t rows = *(const int64_t *)values[i].count;
            *(int64_t *)sums[i].count = rows;
            elements = rows * td_row_elements(&values[i]);
            if (rows)
                memcpy(sums[i].index, values[i].index, (size_t)rows * sizeof(int64_t));
        }
        if (elements)
            memcpy(sums[i].data, values[i].data, (size_t)elements * sizeof(float));
    }
}

/* No update: the first windows of a job whose sums come late. */
static void no_sums(td_tensor *sums, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (td_is_sparse(&sums[i]))
            *(int64_t *)sums[i].count = 0;
        else
            memset(sums[i].data, 0, (size_t)td_tensor_elements(&sums[i]) * sizeof(float));
    }
}

/* The loss of such a window is this worker's own. */
static void own_loss(const td_rank_sum *s, float *out)
{
    double sum = 0;
    int64_t weight = 0;
    add_losses(s->losses, s->n_losses, &sum, &weight);
    *out = weight ? (float)(sum / (double)weight) : 0;
}

/* The update divides by what this window weighs, the sums are of another. */
static void match_weight(const td_rank_sum *s, td_tensor *sums, int32_t n, int64_t weight)
{
    if (s->weight == weight || !s->weight)
        return;
    const float factor = (float)((double)weight / (double)s->weight);
    for (int32_t i = 0; i < n; i++) {
        int64_t count = td_tensor_elements(&sums[i]);
        if (td_is_sparse(&sums[i]))
            count = *(const int64_t *)sums[i].count * td_row_elements(&sums[i]);
        for (int64_t k = 0; k < count; k++)
            ((float *)sums[i].data)[k] *= factor;
    }
}

static td_status *take(td_job *job, const td_remote_bucket *bucket, const td_tensor *values, td_tensor *sums,
                       int64_t weight)
{
    const int64_t late = td_job_late_by(job);
    const bool none = job->sum->window <= late;
    td_rank_sum *then = &job->sums[(job->sum->window - (none ? 0 : late)) % (late + 1)];
    if (!bucket->index)
        job->sum->begun = false;
    if (!bucket->index && !none)
        return end_window(job, then, sums[0].data);
    if (!bucket->index)
        own_loss(then, sums[0].data);
    else if (none)
        no_sums(sums, bucket->n);
    else if (job->replicas == 1)
        copy_alone(values, sums, bucket->n);
    else
        TD_TRY(td_bucket_finish(job, then->buckets[bucket->index], values, sums, bucket->n));
    if (late && !none)
        match_weight(then, sums, bucket->n, weight);
    return NULL;
}

static int64_t bytes_of(const td_rank_sum *s, int32_t index)
{
    const td_bucket *b = index < s->n_buckets ? s->buckets[index] : NULL;
    return b ? b->rows_bytes + b->length * (int64_t)sizeof(float) : 0;
}

td_status *td_client_sum(void *self, const td_remote_bucket *bucket, const td_tensor *values, td_tensor *sums,
                         const td_remote_place *place)
{
    td_job *job = self;
    if (!place->ends_window)
        return NULL;
    const uint64_t from = td_record_begin();
    td_status *status = take(job, bucket, values, sums, place->window_weight);
    td_record_end(TD_RECORD_ALL_REDUCE, td_record_current.id, td_record_current.step, from,
                  (uint64_t)bytes_of(job->sum, bucket->index));
    return status;
}

td_status *td_client_gather(void *self, const td_remote_bucket *bucket, const td_tensor *parameters)
{
    td_job *job = self;
    td_rank_sum *s = job->sum;
    const uint64_t from = td_record_begin();
    if (!s || bucket->index >= s->n_buckets)
        return TD_ERROR(TD_INTERNAL, "bucket %d has no sums whose parameters could be gathered", bucket->index);
    td_status *status = td_bucket_gather(job, s->buckets[bucket->index], parameters, bucket->n);
    td_record_end(TD_RECORD_ALL_REDUCE, td_record_current.id, td_record_current.step, from,
                  (uint64_t)bytes_of(s, bucket->index));
    return status;
}

/* ---- the end --------------------------------------------------------------------------------------------------------------------- */

void td_job_release_sums(td_job *job, td_comm *comm)
{
    for (int64_t i = 0; i < job->n_sums; i++) {
        td_rank_sum *s = &job->sums[i];
        for (int64_t b = 0; b < s->n_buckets; b++)
            td_bucket_free(s->buckets[b], comm);
        td_free(s->buckets);
        td_row_order_deinit(&s->order);
        td_free(s->losses);
    }
    td_free(job->sums);
    job->sums = job->sum = NULL;
    job->n_sums = 0;
}
