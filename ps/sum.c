/* Sums over a window's replicas, in their order: what the op rank_sum does. Dense gradients lie one after another in one vector, of
 * which each worker owns a W-th: it gets that stretch of every replica, adds them up in the replicas' order, and sends the sum
 * back (a reduce-scatter and an all-gather by direct exchange). So nobody carries more than a W-th of the adding, and the order is
 * that of one process that runs the replicas one after another. With TD_DENSE_MPI, MPI adds up the workers' vectors. Row-sparse gradients of tables that every worker has go to
 * everybody, and with them each micro-batch's loss.
 *
 * A replica's gradients leave at its last micro-batch; a window's sums are there at the last of this rank's. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "graph/op.h"
#include "ps/fold.h"
#include "ps/job_state.h"
#include "ps/rank_rows.h"
#include "runtime/row_order.h"

/* What a replica brought; without samples it is left out. */
typedef struct contribution {
    const char *rows;  /* n losses; then of each row-sparse gradient n, keys, rows */
    const float *mine; /* its part of this worker's stretch */
    int64_t samples;
} contribution;

/* One window under way. */
struct td_rank_sum {
    td_job *job;
    int64_t window;
    int64_t weight; /* of all its micro-batches, once it is over */
    bool begun;
    bool stops;            /* somebody was asked to, after this window */
    int32_t done;          /* of this worker's replicas */
    int64_t length;        /* elements of all dense gradients */
    int64_t longest;       /* stretch */
    int64_t rows_room;     /* bytes that a message of rows may have */
    td_micro_loss *losses; /* of the replica under way */
    int64_t n_losses, losses_capacity;
    void *room; /* everything below */
    int64_t room_bytes;
    contribution *of;                        /* [replicas] */
    td_parcel *rows_parcels, *dense_parcels; /* [replicas] in */
    td_parcel *sums_in, *sums_out;           /* [workers] */
    td_parcel *out;                          /* [own, workers, rows and dense] */
    td_parcel by_mpi;                        /* where MPI adds up: the whole sum */
    int64_t n_out;
    char *rows_out, *rows_in;   /* messages of rows: [own, rows_room], [replicas, rows_room] */
    float *mine, *theirs, *sum; /* [own, length], [replicas, longest], [length] */
    td_row_order order;
    int64_t rows_bytes; /* of the last message of rows */
};

static bool is_sparse(const td_tensor *t)
{
    return t->kind == TD_ROW_SPARSE;
}

/* Whether workers add up dense gradients, stretch by stretch: there are some, and MPI does not. */
static bool is_ordered(const td_rank_sum *s)
{
    return s->length && s->job->options.dense_sync == TD_DENSE_ORDERED;
}

static int64_t first_of(const td_rank_sum *s, int32_t worker)
{
    return td_range(s->length, worker, s->job->workers);
}

/* ---- a window begins ----------------------------------------------------------------------------------------------------------- */

static void measure(td_rank_sum *s, const td_tensor *inputs, const td_tensor *outputs, int32_t n, int32_t most_micro)
{
    s->length = 0;
    for (int32_t i = 1; i < n; i++)
        s->length += is_sparse(&inputs[i]) ? 0 : td_tensor_elements(&inputs[i]);
    s->rows_room = td_rank_rows_room(most_micro, outputs + 1, n - 1);
    s->longest = s->length / s->job->workers + 1;
}

/* Cuts the room into its parts; with a NULL base only counts. Everything but the floats, which come last, is of 8 bytes. */
static int64_t cut(td_rank_sum *s, char *base)
{
    const int64_t replicas = s->job->replicas, workers = s->job->workers, own = s->job->remote.own;
    const int64_t parcel = sizeof(td_parcel);
    const int64_t bytes[] = {replicas * (int64_t)sizeof(contribution),
                             replicas * parcel,
                             replicas * parcel,
                             workers * parcel,
                             workers * parcel,
                             2 * own * workers * parcel,
                             own * s->rows_room,
                             replicas * s->rows_room,
                             own * s->length * (int64_t)sizeof(float),
                             replicas * s->longest * (int64_t)sizeof(float),
                             s->length * (int64_t)sizeof(float)};
    void *const parts[] = {&s->of,       &s->rows_parcels, &s->dense_parcels, &s->sums_in, &s->sums_out, &s->out,
                           &s->rows_out, &s->rows_in,      &s->mine,          &s->theirs,  &s->sum};
    int64_t at = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; at += bytes[i++])
        if (base)
            *(char **)parts[i] = base + at;
    return at;
}

/* Buffers of the job, which grow and stay. */
static td_status *make_room(td_rank_sum *s)
{
    const int64_t bytes = cut(s, NULL);
    if (bytes > s->room_bytes) {
        td_free(s->room);
        s->room_bytes = 0;
        s->room = td_realloc(NULL, (size_t)bytes, 1);
        if (!s->room)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for sums of %" PRId64 " bytes", bytes);
        s->room_bytes = bytes;
    }
    (void)cut(s, s->room);
    return NULL;
}

/* Of what a replica sends to a worker. */
static uint64_t number_of(const td_rank_sum *s, int32_t replica, int32_t to)
{
    const uint64_t n = (uint64_t)s->window * (uint64_t)s->job->replicas + (uint64_t)replica;
    return n * (uint64_t)s->job->workers + (uint64_t)to;
}

/* What the others' replicas will send goes to its place at once. */
static void expect(td_rank_sum *s)
{
    td_job *job = s->job;
    for (int32_t r = 0; r < job->replicas; r++) {
        if (td_job_runs(job, r))
            continue;
        const td_parcel from = {.peer = job->worker_ranks[job->replica_worker[r]],
                                .number = number_of(s, r, job->worker)};
        s->rows_parcels[r] = s->dense_parcels[r] = from;
        s->rows_parcels[r].kind = TD_TELL_ROWS;
        s->rows_parcels[r].data = s->rows_in + r * s->rows_room;
        s->rows_parcels[r].bytes = s->rows_room;
        td_comm_receive(job->comm, &s->rows_parcels[r]);
        s->dense_parcels[r].kind = TD_TELL_SEGMENT;
        s->dense_parcels[r].data = s->theirs + r * s->longest;
        s->dense_parcels[r].bytes = s->longest * (int64_t)sizeof(float);
        if (is_ordered(s))
            td_comm_receive(job->comm, &s->dense_parcels[r]);
    }
}

static td_status *begin_window(td_rank_sum *s, const td_tensor *inputs, const td_tensor *outputs, int32_t n,
                               int32_t most_micro)
{
    s->window = ++s->job->summed;
    td_comm_set_step(s->job->comm, s->job->first_step + s->job->summed);
    s->begun = true;
    s->stops = atomic_load(&s->job->asked_to_stop);
    s->done = 0;
    s->n_out = 0;
    if (s->job->replicas == 1)
        return NULL;
    measure(s, inputs, outputs, n, most_micro);
    TD_TRY(make_room(s));
    expect(s);
    return NULL;
}

/* ---- what a replica brings ----------------------------------------------------------------------------------------------------- */

static td_status *note_loss(td_rank_sum *s, const td_tensor *loss, const td_remote_place *place)
{
    s->n_losses = place->micro ? s->n_losses : 0;
    if (!place->samples)
        return NULL;
    TD_TRY(td_grow(&s->losses, &s->losses_capacity, s->n_losses, sizeof *s->losses));
    s->losses[s->n_losses++] = (td_micro_loss){(double)*(const float *)loss->data, place->weight};
    return NULL;
}

static void pack_dense(const td_tensor *inputs, int32_t n, float *at)
{
    for (int32_t i = 1; i < n; i++) {
        if (is_sparse(&inputs[i]))
            continue;
        const int64_t count = td_tensor_elements(&inputs[i]);
        memcpy(at, inputs[i].data, (size_t)count * sizeof *at);
        at += count;
    }
}

static void post(td_rank_sum *s, const td_parcel *parcel)
{
    td_parcel *out = &s->out[s->n_out++];
    *out = *parcel;
    td_comm_send(s->job->comm, out);
}

static void add(float *restrict sum, const float *restrict more, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += more[i];
}

/* This worker's replicas in their order; the others' are added by MPI. */
static void begin_by_mpi(td_rank_sum *s)
{
    const td_job *job = s->job;
    memset(s->sum, 0, (size_t)s->length * sizeof *s->sum);
    for (int32_t i = 0; i < job->remote.own; i++)
        if (s->of[job->remote.first + i].samples)
            add(s->sum, s->mine + i * s->length, s->length);
    s->by_mpi = (td_parcel){
        .peer = job->worker_ranks[job->worker], .data = s->sum, .bytes = s->length * (int64_t)sizeof *s->sum};
    td_comm_add_up(job->comm, &s->by_mpi);
}

static td_status *contribute(td_rank_sum *s, const td_tensor *inputs, int32_t n, const td_remote_place *place)
{
    td_job *job = s->job;
    char *rows = s->rows_out + s->done * s->rows_room;
    float *dense = s->mine + s->done * s->length;
    if (job->replicas == 1)
        return NULL;
    if (s->done == job->remote.own || !td_job_runs(job, place->replica))
        return TD_ERROR(TD_INTERNAL, "worker %d does not run replica %d", job->worker, place->replica);
    TD_TRY(td_rank_rows_write(rows, s->losses, s->n_losses, inputs + 1, n - 1, &s->order, &s->rows_bytes));
    if (s->n_losses)
        pack_dense(inputs, n, dense);
    for (int32_t w = 0; w < job->workers; w++) {
        const int64_t begin = first_of(s, w), count = s->n_losses ? first_of(s, w + 1) - begin : 0;
        td_parcel parcel = {.peer = job->worker_ranks[w], .number = number_of(s, place->replica, w)};
        if (w == job->worker)
            continue;
        parcel.kind = TD_TELL_ROWS;
        parcel.data = rows;
        parcel.bytes = s->rows_bytes;
        parcel.words[0] = (uint64_t)s->n_losses;
        parcel.words[1] = s->stops;
        post(s, &parcel);
        parcel.kind = TD_TELL_SEGMENT;
        parcel.data = dense + begin;
        parcel.bytes = count * (int64_t)sizeof(float);
        if (is_ordered(s))
            post(s, &parcel);
    }
    s->of[place->replica] = (contribution){rows, dense + first_of(s, job->worker), s->n_losses};
    s->done++;
    if (s->done == job->remote.own && s->length && !is_ordered(s))
        begin_by_mpi(s);
    return NULL;
}

/* ---- a window's sums ------------------------------------------------------------------------------------------------------------- */

/* A worker has sent other bytes than its part of the window. */
static td_status *other_part(const td_rank_sum *s, const td_parcel *parcel)
{
    return TD_ERROR(TD_INTERNAL,
                    "rank %d on %s sends %" PRId64 " bytes, which are no part of the sums of window %" PRId64,
                    parcel->peer, td_comm_host(s->job->comm, parcel->peer), parcel->bytes, s->window);
}

static td_status *gather_rows(td_rank_sum *s, const td_tensor *inputs, int32_t n)
{
    for (int32_t r = 0; r < s->job->replicas; r++) {
        if (td_job_runs(s->job, r))
            continue;
        const td_parcel *parcel = &s->rows_parcels[r];
        TD_TRY(td_comm_wait(s->job->comm, &s->rows_parcels[r]));
        TD_TRY(td_rank_rows_check(parcel->data, parcel->bytes, (int64_t)parcel->words[0], inputs + 1, n - 1));
        s->of[r] = (contribution){s->rows_in + r * s->rows_room, s->theirs + r * s->longest,
                                  (int64_t)s->rows_parcels[r].words[0]};
        s->stops = s->stops || s->rows_parcels[r].words[1];
    }
    return NULL;
}

/* Adds up micro-batches in order, as one process does. */
static void add_losses(const td_micro_loss *losses, int64_t n, double *sum, int64_t *weight)
{
    for (int64_t i = 0; i < n; i++) {
        *sum += losses[i].loss * (double)losses[i].weight;
        *weight += losses[i].weight;
    }
}

static void mean_loss(td_rank_sum *s, float *out)
{
    double sum = 0;
    int64_t weight = 0, n;
    if (s->job->replicas == 1)
        add_losses(s->losses, s->n_losses, &sum, &weight);
    for (int32_t r = 0; s->job->replicas > 1 && r < s->job->replicas; r++) {
        const td_micro_loss *losses = td_rank_rows_losses(s->of[r].rows, &n);
        add_losses(losses, n, &sum, &weight);
    }
    *out = (float)(sum / (double)weight);
    s->weight = weight;
}

static td_status *fold_gradient(const td_rank_sum *s, const char **at, const td_tensor *input, const td_tensor *output,
                                td_fold *fold)
{
    td_fold_rows rows = td_rank_rows_next(&at[0], input);
    td_fold_begin(fold, &rows);
    for (int32_t r = 1; r < s->job->replicas; r++) {
        rows = td_rank_rows_next(&at[r], input);
        TD_TRY(td_fold_add(fold, &rows));
    }
    rows = td_fold_result(fold);
    if (rows.n > output->entries)
        return TD_ERROR(TD_INTERNAL, "a sum of %lld rows has room for %lld", (long long)rows.n,
                        (long long)output->entries);
    *(int64_t *)output->count = rows.n;
    if (rows.n) {
        memcpy(output->index, rows.keys, (size_t)rows.n * sizeof *rows.keys);
        memcpy(output->data, rows.rows, (size_t)(rows.n * rows.dim) * sizeof *rows.rows);
    }
    return NULL;
}

static td_status *fold_rows(const td_rank_sum *s, const td_tensor *inputs, const td_tensor *outputs, int32_t n)
{
    const char **at = NULL; /* where each replica's message is being read */
    td_fold fold = {0};
    td_status *status = TD_NEW(at, s->job->replicas);
    for (int32_t r = 0; r < s->job->replicas && !status; r++)
        at[r] = td_rank_rows_begin(s->of[r].rows);
    for (int32_t i = 1; i < n && !status; i++)
        if (is_sparse(&inputs[i]))
            status = fold_gradient(s, at, &inputs[i], &outputs[i], &fold);
    td_fold_deinit(&fold);
    td_free(at);
    return status;
}

/* The stretch that this worker owns. */
static td_status *fold_mine(const td_rank_sum *s)
{
    const td_job *job = s->job;
    const int64_t first = first_of(s, job->worker), n = first_of(s, job->worker + 1) - first;
    bool any = false;
    for (int32_t r = 0; r < job->replicas; r++) {
        if (!td_job_runs(job, r))
            TD_TRY(td_comm_wait(job->comm, &s->dense_parcels[r]));
        if (!td_job_runs(job, r) && s->dense_parcels[r].bytes != (s->of[r].samples ? n * (int64_t)sizeof(float) : 0))
            return other_part(s, &s->dense_parcels[r]);
        if (!s->of[r].samples || !n)
            continue;
        if (any)
            add(s->sum + first, s->of[r].mine, n);
        else
            memcpy(s->sum + first, s->of[r].mine, (size_t)n * sizeof *s->sum);
        any = true;
    }
    return NULL;
}

static td_status *wait_others(const td_rank_sum *s, td_parcel *parcels)
{
    for (int32_t w = 0; w < s->job->workers; w++)
        if (w != s->job->worker)
            TD_TRY(td_comm_wait(s->job->comm, &parcels[w]));
    return NULL;
}

static td_status *spread_sums(td_rank_sum *s)
{
    td_job *job = s->job;
    const int64_t first = first_of(s, job->worker), n = first_of(s, job->worker + 1) - first;
    for (int32_t w = 0; w < job->workers; w++) {
        const int64_t begin = first_of(s, w), count = first_of(s, w + 1) - begin;
        if (w == job->worker)
            continue;
        s->sums_in[w] = (td_parcel){
            .peer = job->worker_ranks[w], .kind = TD_TELL_SUM, .number = td_job_number(job, s->window, w, job->worker)};
        s->sums_out[w] = s->sums_in[w];
        s->sums_out[w].number = td_job_number(job, s->window, job->worker, w);
        s->sums_in[w].data = s->sum + begin;
        s->sums_in[w].bytes = count * (int64_t)sizeof(float);
        s->sums_out[w].data = s->sum + first;
        s->sums_out[w].bytes = n * (int64_t)sizeof(float);
        td_comm_receive(job->comm, &s->sums_in[w]);
        td_comm_send(job->comm, &s->sums_out[w]);
    }
    TD_TRY(wait_others(s, s->sums_in));
    return wait_others(s, s->sums_out);
}

static void unpack(const td_rank_sum *s, const td_tensor *outputs, int32_t n)
{
    const float *at = s->sum;
    for (int32_t i = 1; i < n; i++) {
        if (is_sparse(&outputs[i]))
            continue;
        const int64_t count = td_tensor_elements(&outputs[i]);
        memcpy(outputs[i].data, at, (size_t)count * sizeof *at);
        at += count;
    }
}

/* One replica's gradients are the sum. */
static void copy_alone(const td_tensor *inputs, const td_tensor *outputs, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        int64_t elements = td_tensor_elements(&inputs[i]);
        if (is_sparse(&inputs[i])) {
            const int64_t rows = *(const int64_t *)inputs[i].count;
            *(int64_t *)outputs[i].count = rows;
            elements = rows * td_row_elements(&inputs[i]);
            if (rows)
                memcpy(outputs[i].index, inputs[i].index, (size_t)rows * sizeof(int64_t));
        }
        if (elements)
            memcpy(outputs[i].data, inputs[i].data, (size_t)elements * sizeof(float));
    }
}

static td_status *sum_up(td_rank_sum *s, const td_tensor *inputs, const td_tensor *outputs, int32_t n)
{
    TD_TRY(gather_rows(s, inputs, n));
    TD_TRY(fold_rows(s, inputs, outputs, n));
    if (!s->length)
        return NULL;
    if (is_ordered(s)) {
        TD_TRY(fold_mine(s));
        TD_TRY(spread_sums(s));
    } else {
        TD_TRY(td_comm_wait(s->job->comm, &s->by_mpi));
    }
    unpack(s, outputs, n);
    return NULL;
}

/* Every worker sees the same words of a window, and at the same place in its own, so all stop after the same one. */
static void note_stop(const td_rank_sum *s)
{
    if (s->stops && !atomic_load(&s->job->stops_at))
        atomic_store(&s->job->stops_at, s->job->summed);
}

/* Sums of a window that is over: of all its replicas, even if some of them are windows behind. */
static td_status *end_window(td_rank_sum *s, const td_tensor *inputs, td_tensor *outputs, int32_t n)
{
    if (s->job->replicas == 1)
        copy_alone(inputs, outputs, n);
    else
        TD_TRY(sum_up(s, inputs, outputs, n));
    mean_loss(s, outputs[0].data);
    note_stop(s);
    for (int64_t i = 0; i < s->n_out; i++)
        TD_TRY(td_comm_wait(s->job->comm, &s->out[i]));
    return NULL;
}

/* ---- sums that come late --------------------------------------------------------------------------------------------------------- */

/* No update: the first windows of a job whose sums come late. The loss is this worker's own. */
static void nothing_yet(const td_rank_sum *s, td_tensor *outputs, int32_t n)
{
    double sum = 0;
    int64_t weight = 0;
    add_losses(s->losses, s->n_losses, &sum, &weight);
    *(float *)outputs[0].data = weight ? (float)(sum / (double)weight) : 0;
    for (int32_t i = 1; i < n; i++) {
        if (is_sparse(&outputs[i]))
            *(int64_t *)outputs[i].count = 0;
        else
            memset(outputs[i].data, 0, (size_t)td_tensor_elements(&outputs[i]) * sizeof(float));
    }
}

/* The update divides by what this window weighs, the sums are of another. */
static void match_weight(const td_rank_sum *s, td_tensor *outputs, int32_t n, int64_t weight)
{
    if (s->weight == weight || !s->weight)
        return;
    const float factor = (float)((double)weight / (double)s->weight);
    for (int32_t i = 1; i < n; i++) {
        int64_t count = td_tensor_elements(&outputs[i]);
        if (is_sparse(&outputs[i]))
            count = *(const int64_t *)outputs[i].count * td_row_elements(&outputs[i]);
        for (int64_t k = 0; k < count; k++)
            ((float *)outputs[i].data)[k] *= factor;
    }
}

/* So many windows later than its own each worker takes a window's sums: no worker is further ahead of another. */
static int64_t late_by(const td_job *job)
{
    enum { ASYNC = 4 };
    if (job->replicas == 1)
        return 0;
    return job->options.ahead == TD_JOB_ASYNC ? ASYNC : job->options.ahead;
}

static td_status *finish(td_job *job, const td_rank_sum *now, const td_tensor *inputs, td_tensor *outputs, int32_t n,
                         int64_t weight)
{
    const int64_t late = late_by(job);
    if (now->window <= late) {
        nothing_yet(now, outputs, n);
        return NULL;
    }
    td_rank_sum *then = &job->sums[(now->window - late) % (late + 1)];
    TD_TRY(end_window(then, inputs, outputs, n));
    if (late)
        match_weight(then, outputs, n, weight);
    return NULL;
}

static td_status *take_part(td_job *job, const td_tensor *inputs, td_tensor *outputs, int32_t n,
                            const td_remote_place *place)
{
    td_rank_sum *s = job->sum;
    if (!s->begun)
        TD_TRY(begin_window(s, inputs, outputs, n, place->most_micro));
    TD_TRY(note_loss(s, &inputs[0], place));
    if (place->ends_replica)
        TD_TRY(contribute(s, inputs, n, place));
    if (!place->ends_window)
        return NULL;
    s->begun = false;
    return finish(job, s, inputs, outputs, n, place->window_weight);
}

/* The window under way; made at the first. */
static td_status *find_window(td_job *job)
{
    const int64_t late = late_by(job);
    if (job->sum && job->sum->begun)
        return NULL;
    if (!job->sums) {
        TD_TRY(TD_NEW(job->sums, late + 1));
        job->n_sums = late + 1;
        for (int64_t i = 0; i <= late; i++)
            job->sums[i].job = job;
    }
    job->sum = &job->sums[(job->summed + 1) % (late + 1)];
    return NULL;
}

td_status *td_client_sum(void *self, const td_tensor *inputs, td_tensor *outputs, int32_t n,
                         const td_remote_place *place)
{
    td_job *job = self;
    TD_TRY(find_window(job));
    const uint64_t from = td_record_begin();
    td_status *status = take_part(job, inputs, outputs, n, place);
    if (place->ends_replica)
        td_record_end(TD_RECORD_ALL_REDUCE, td_record_current.id, td_record_current.step, from,
                      (uint64_t)(job->sum->rows_bytes + job->sum->length * (int64_t)sizeof(float)));
    return status;
}

void td_job_release_sums(td_job *job)
{
    for (int64_t i = 0; i < job->n_sums; i++) {
        td_row_order_deinit(&job->sums[i].order);
        td_free(job->sums[i].losses);
        td_free(job->sums[i].room);
    }
    td_free(job->sums);
    job->sums = job->sum = NULL;
    job->n_sums = 0;
}
