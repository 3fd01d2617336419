/* Sums over the workers, in their order: what the op rank_sum does. Dense gradients lie one after another in one vector, of which
 * each worker owns a W-th: it gets that stretch from all, adds them up in the workers' order, and sends the sum back (a
 * reduce-scatter and an all-gather by direct exchange). So nobody carries more than a W-th of the adding, and the order is that of
 * one process that runs the replicas one after another. Row-sparse gradients of tables that every worker has go to everybody. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "graph/op.h"
#include "ps/fold.h"
#include "ps/job_state.h"

typedef struct summing {
    td_job *job;
    const td_tensor *inputs;
    td_tensor *outputs;
    int32_t n;                  /* the first is the loss */
    bool stops;                 /* this worker was asked to */
    int64_t samples, length;    /* of this worker; elements of all dense gradients */
    float *mine, *theirs, *sum; /* [length]; [workers, longest stretch]; [length] */
    char *rows_out, *rows_in;   /* messages of rows: this worker's, and [workers, rows_room] */
    int64_t rows_bytes, rows_room;
    td_parcel *in, *out;
    int64_t *present; /* samples of each worker */
    double *losses;
} summing;

static bool is_sparse(const td_tensor *t)
{
    return t->kind == TD_ROW_SPARSE;
}

static int64_t row_elements(const td_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 1; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static int64_t first_of(const summing *s, int32_t worker)
{
    return td_range(s->length, worker, s->job->workers);
}

/* ---- rows of everybody to everybody -------------------------------------------------------------------------------------------- */

static void pack_rows(summing *s)
{
    char *at = s->rows_out;
    for (int32_t i = 1; i < s->n; i++) {
        const td_tensor *t = &s->inputs[i];
        if (!is_sparse(t))
            continue;
        const int64_t n = s->samples ? *(const int64_t *)t->count : 0;
        const size_t keys = (size_t)n * sizeof(int64_t), rows = (size_t)(n * row_elements(t)) * sizeof(float);
        memcpy(at, &n, sizeof n);
        at += sizeof n;
        if (n) {
            memcpy(at, t->index, keys);
            memcpy(at + keys, t->data, rows);
        }
        at += (keys + rows + 7) / 8 * 8;
    }
    s->rows_bytes = at - s->rows_out;
}

static td_fold_rows rows_at(const char **at, const td_tensor *t)
{
    td_fold_rows rows = {.dim = row_elements(t)};
    memcpy(&rows.n, *at, sizeof rows.n);
    rows.keys = (const int64_t *)(const void *)(*at + sizeof rows.n);
    rows.rows = (const float *)(const void *)(rows.keys + rows.n);
    const size_t bytes = (size_t)rows.n * (sizeof(int64_t) + (size_t)rows.dim * sizeof(float));
    *at += sizeof rows.n + (bytes + 7) / 8 * 8;
    return rows;
}

/* Where each worker's message is being read. */
static td_status *fold_rows(const summing *s)
{
    const char **at = NULL;
    td_fold fold = {0};
    td_status *status = TD_NEW(at, s->job->workers);
    for (int32_t w = 0; w < s->job->workers && !status; w++)
        at[w] = w == s->job->worker ? s->rows_out : s->rows_in + w * s->rows_room;
    for (int32_t i = 1; i < s->n && !status; i++) {
        if (!is_sparse(&s->inputs[i]))
            continue;
        td_fold_rows rows = rows_at(&at[0], &s->inputs[i]);
        td_fold_begin(&fold, &rows);
        for (int32_t w = 1; w < s->job->workers && !status; w++) {
            rows = rows_at(&at[w], &s->inputs[i]);
            status = td_fold_add(&fold, &rows);
        }
        rows = td_fold_result(&fold);
        if (!status && rows.n > s->outputs[i].entries)
            status = TD_ERROR(TD_INTERNAL, "a sum of %lld rows has room for %lld", (long long)rows.n,
                              (long long)s->outputs[i].entries);
        if (status)
            break;
        *(int64_t *)s->outputs[i].count = rows.n;
        if (rows.n) {
            memcpy(s->outputs[i].index, rows.keys, (size_t)rows.n * sizeof *rows.keys);
            memcpy(s->outputs[i].data, rows.rows, (size_t)(rows.n * rows.dim) * sizeof *rows.rows);
        }
    }
    td_fold_deinit(&fold);
    td_free(at);
    return status;
}

static void send_rows(summing *s)
{
    td_job *job = s->job;
    uint32_t bits;
    memcpy(&bits, s->inputs[0].data, sizeof bits);
    for (int32_t w = 0; w < job->workers; w++) {
        if (w == job->worker)
            continue;
        s->in[w] = (td_parcel){.peer = job->worker_ranks[w],
                               .kind = TD_TELL_ROWS,
                               .number = td_job_number(job, job->summed, w, job->worker),
                               .data = s->rows_in + w * s->rows_room,
                               .bytes = s->rows_room};
        s->out[w] = (td_parcel){.peer = job->worker_ranks[w],
                                .kind = TD_TELL_ROWS,
                                .number = td_job_number(job, job->summed, job->worker, w),
                                .words = {(uint64_t)s->samples, bits, s->stops},
                                .data = s->rows_out,
                                .bytes = s->rows_bytes};
        td_comm_receive(job->comm, &s->in[w]);
        td_comm_send(job->comm, &s->out[w]);
    }
}

static td_status *wait_all(const summing *s, td_parcel *parcels)
{
    for (int32_t w = 0; w < s->job->workers; w++)
        if (w != s->job->worker)
            TD_TRY(td_comm_wait(s->job->comm, &parcels[w]));
    return NULL;
}

static td_status *exchange_rows(summing *s)
{
    pack_rows(s);
    send_rows(s);
    TD_TRY(wait_all(s, s->in));
    TD_TRY(wait_all(s, s->out));
    for (int32_t w = 0; w < s->job->workers; w++) {
        float loss;
        uint32_t bits = w == s->job->worker ? 0 : (uint32_t)s->in[w].words[1];
        memcpy(&loss, w == s->job->worker ? s->inputs[0].data : &bits, sizeof loss);
        s->present[w] = w == s->job->worker ? s->samples : (int64_t)s->in[w].words[0];
        s->losses[w] = (double)loss;
        s->stops = s->stops || (w != s->job->worker && s->in[w].words[2]);
    }
    return fold_rows(s);
}

/* The mean over all samples: what one process reports of a window. */
static void mean_loss(const summing *s)
{
    double sum = 0;
    int64_t samples = 0;
    for (int32_t w = 0; w < s->job->workers; w++) {
        if (!s->present[w])
            continue;
        sum += s->losses[w] * (double)s->present[w];
        samples += s->present[w];
    }
    *(float *)s->outputs[0].data = (float)(sum / (double)samples);
}

/* ---- dense ones: each worker owns a stretch ------------------------------------------------------------------------------------ */

static void pack(const summing *s)
{
    float *at = s->mine;
    for (int32_t i = 1; i < s->n; i++) {
        if (is_sparse(&s->inputs[i]))
            continue;
        const int64_t n = td_tensor_elements(&s->inputs[i]);
        memcpy(at, s->inputs[i].data, (size_t)n * sizeof *at);
        at += n;
    }
}

static void unpack(const summing *s)
{
    const float *at = s->sum;
    for (int32_t i = 1; i < s->n; i++) {
        if (is_sparse(&s->inputs[i]))
            continue;
        const int64_t n = td_tensor_elements(&s->inputs[i]);
        memcpy(s->outputs[i].data, at, (size_t)n * sizeof *at);
        at += n;
    }
}

/* A stretch of mine to its owner, and theirs of mine to me; or the sums back. */
static void trade(summing *s, uint32_t kind, bool back)
{
    td_job *job = s->job;
    const int64_t first = first_of(s, job->worker), n = first_of(s, job->worker + 1) - first;
    for (int32_t w = 0; w < job->workers; w++) {
        const int64_t begin = first_of(s, w), count = first_of(s, w + 1) - begin;
        if (w == job->worker)
            continue;
        s->in[w] = (td_parcel){
            .peer = job->worker_ranks[w], .kind = kind, .number = td_job_number(job, job->summed, w, job->worker)};
        s->out[w] = s->in[w];
        s->out[w].number = td_job_number(job, job->summed, job->worker, w);
        s->in[w].data = back ? s->sum + begin : s->theirs + w * n;
        s->in[w].bytes = (back ? count : n) * (int64_t)sizeof(float);
        s->out[w].data = back ? s->sum + first : s->mine + begin;
        s->out[w].bytes = (back ? n : count) * (int64_t)sizeof(float);
        td_comm_receive(job->comm, &s->in[w]);
        td_comm_send(job->comm, &s->out[w]);
    }
}

static void add(float *restrict sum, const float *restrict more, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += more[i];
}

static td_status *fold_mine(const summing *s)
{
    const td_job *job = s->job;
    const int64_t first = first_of(s, job->worker), n = first_of(s, job->worker + 1) - first;
    bool any = false;
    for (int32_t w = 0; w < job->workers; w++) {
        const float *from = w == job->worker ? s->mine + first : s->theirs + w * n;
        if (w != job->worker)
            TD_TRY(td_comm_wait(job->comm, &s->in[w]));
        if (!s->present[w])
            continue;
        if (any)
            add(s->sum + first, from, n);
        else if (n)
            memcpy(s->sum + first, from, (size_t)n * sizeof *from);
        any = true;
    }
    return NULL;
}

static td_status *exchange_dense(summing *s)
{
    if (!s->length)
        return NULL;
    pack(s);
    trade(s, TD_TELL_SEGMENT, false);
    TD_TRY(fold_mine(s));
    TD_TRY(wait_all(s, s->out));
    trade(s, TD_TELL_SUM, true);
    TD_TRY(wait_all(s, s->in));
    TD_TRY(wait_all(s, s->out));
    unpack(s);
    return NULL;
}

/* ---- together -------------------------------------------------------------------------------------------------------------------- */

static void copy_alone(const td_tensor *inputs, td_tensor *outputs, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int64_t elements = td_tensor_elements(&inputs[i]);
        if (is_sparse(&inputs[i])) {
            const int64_t rows = *(const int64_t *)inputs[i].count;
            *(int64_t *)outputs[i].count = rows;
            elements = rows * row_elements(&inputs[i]);
            if (rows)
                memcpy(outputs[i].index, inputs[i].index, (size_t)rows * sizeof(int64_t));
        }
        if (elements)
            memcpy(outputs[i].data, inputs[i].data, (size_t)elements * sizeof(float));
    }
}

/* Buffers of the job, which grow and stay. */
static td_status *make_room(summing *s)
{
    td_job *job = s->job;
    const int64_t workers = job->workers;
    s->rows_room = 8;
    for (int32_t i = 1; i < s->n; i++) {
        const td_tensor *t = &s->inputs[i];
        if (is_sparse(t)) /* the result has room for any worker's rows, whatever this one has */
            s->rows_room +=
                16 + s->outputs[i].entries * (int64_t)(sizeof(int64_t) + (size_t)row_elements(t) * sizeof(float));
        else
            s->length += td_tensor_elements(t);
    }
    const int64_t longest = s->length / workers + 1, floats = 2 * s->length + workers * longest;
    s->rows_room = (s->rows_room + 7) / 8 * 8;
    const int64_t parcels = 2 * workers * (int64_t)sizeof(td_parcel), numbers = 2 * workers * 8;
    char *room = NULL;
    TD_TRY(td_client_room(job, TD_ROOM_SUM, (1 + workers) * s->rows_room + parcels + numbers + floats * 4, &room));
    s->rows_out = room;
    s->rows_in = room + s->rows_room;
    s->in = (td_parcel *)(void *)(room + (1 + workers) * s->rows_room);
    s->out = s->in + workers;
    s->present = (int64_t *)(void *)(s->out + workers);
    s->losses = (double *)(void *)(s->present + workers);
    s->mine = (float *)(void *)(s->losses + workers);
    s->sum = s->mine + s->length;
    s->theirs = s->sum + s->length;
    return NULL;
}

/* Every worker sees the same words of a window, so all know the same of it. */
static void note_stop(const summing *s)
{
    if (s->stops && !atomic_load(&s->job->stops_at))
        atomic_store(&s->job->stops_at, s->job->summed);
}

static td_status *sum_up(summing *s)
{
    if (s->job->workers == 1) {
        copy_alone(s->inputs, s->outputs, s->n);
        note_stop(s);
        return NULL;
    }
    TD_TRY(make_room(s));
    TD_TRY(exchange_rows(s));
    note_stop(s);
    mean_loss(s);
    return exchange_dense(s);
}

td_status *td_client_sum(void *self, const td_tensor *inputs, td_tensor *outputs, int32_t n, int64_t samples)
{
    td_job *job = self;
    const uint64_t from = td_record_begin();
    summing s = {.job = job,
                 .inputs = inputs,
                 .outputs = outputs,
                 .n = n,
                 .samples = samples,
                 .stops = atomic_load(&job->asked_to_stop)};
    job->summed++;
    td_comm_set_step(job->comm, job->first_step + job->summed);
    td_status *status = sum_up(&s);
    td_record_end(TD_RECORD_ALL_REDUCE, td_record_current.id, td_record_current.step, from,
                  (uint64_t)(s.rows_bytes + s.length * (int64_t)sizeof(float)));
    return status;
}
