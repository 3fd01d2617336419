/* A worker's share of the data: see cli/distributed.h. Every worker goes through all batches, so each knows what the others have
 * of a window: how many samples, and how many before its own; what is in others' the loader need not read. The batches of a window lie replica after replica, so each is the
 * next N of the data's order. A process that is alone is told of each batch what window it is of, and no more. */
#include <string.h>

#include "base/memory.h"
#include "cli/distributed.h"

/* A batch without samples. */
struct td_dealt_batch {
    struct td_dealt_batch *next;
    td_field *fields;
    int64_t offset; /* the one offset of ragged fields */
};
typedef struct td_dealt_batch td_dealt_batch;

static void drop(td_dealt_source *s, td_batch *batch)
{
    s->inner.release(s->inner.self, batch);
}

/* What an empty batch looks like: the fields of the first one, without their data. Names live as long as the source. */
static td_status *remember(td_dealt_source *s, const td_batch *batch)
{
    if (s->fields)
        return NULL;
    TD_TRY(TD_NEW(s->fields, batch->n_fields + 1));
    memcpy(s->fields, batch->fields, (size_t)batch->n_fields * sizeof *s->fields);
    for (int32_t i = 0; i < batch->n_fields; i++) {
        td_tensor *tensor = &s->fields[i].tensor;
        tensor->dims[0] = tensor->entries = 0;
        tensor->data = tensor->index = NULL;
    }
    return NULL;
}

static td_status *make_empty(td_dealt_source *s, const td_batch *like, td_batch *out)
{
    td_dealt_batch *made = NULL;
    TD_TRY(TD_NEW(made, 1));
    made->next = s->empty;
    s->empty = made;
    TD_TRY(TD_NEW(made->fields, like->n_fields + 1));
    memcpy(made->fields, s->fields, (size_t)like->n_fields * sizeof *made->fields);
    for (int32_t i = 0; i < like->n_fields; i++) {
        made->fields[i].tensor.data = &made->offset; /* an address, of no elements */
        if (made->fields[i].tensor.kind == TD_RAGGED)
            made->fields[i].tensor.index = &made->offset;
    }
    *out = *like;
    out->samples = 0;
    out->owner = made;
    out->fields = made->fields;
    return NULL;
}

/* In a process that is alone the replicas of a window are one stretch of the data's order like any other. */
static int32_t replicas_of(const td_job *job)
{
    return job ? td_job_replicas(job) : 1;
}

static bool is_mine(const td_job *job, int32_t replica)
{
    return !job || td_job_replica_worker(job, replica) == td_job_worker(job);
}

/* A window ends when all replicas have their batches, and with the epoch. */
bool td_deal_wants(void *deal, int64_t epoch, int64_t index)
{
    td_deal *d = deal;
    const bool begins = !d->at || d->at == td_plan_window(d->plan, d->step) || epoch != d->epoch;
    (void)index;
    d->step += begins;
    d->at = begins ? 1 : d->at + 1;
    d->epoch = epoch;
    const int64_t accumulate = td_plan_window(d->plan, d->step) / replicas_of(d->job);
    return is_mine(d->job, (int32_t)((d->at - 1) / accumulate));
}

static td_status *look_ahead(td_dealt_source *s)
{
    if (s->has_ahead || s->at_end)
        return NULL;
    TD_TRY(s->inner.next(s->inner.self, &s->ahead, &s->at_end));
    s->has_ahead = !s->at_end;
    return NULL;
}

/* Appends a batch of this worker's. */
static td_status *keep(td_dealt_source *s, const td_batch *batch, int32_t replica, int32_t micro)
{
    TD_TRY(td_grow(&s->mine, &s->capacity, s->n_mine, sizeof *s->mine));
    s->mine[s->n_mine] = *batch;
    s->mine[s->n_mine].replica = replica;
    s->mine[s->n_mine].micro = micro;
    s->n_mine++;
    return NULL;
}

/* The next batch goes to a replica: kept or given back. */
static td_status *deal(td_dealt_source *s, int32_t replica, int32_t micro, td_batch *all)
{
    td_batch batch = s->ahead;
    s->has_ahead = false;
    batch.window_before = all->window_samples;
    all->window_samples += batch.samples;
    all->window_batches++;
    all->epoch = batch.epoch;
    all->index = batch.index;
    TD_TRY(remember(s, &batch));
    if (is_mine(s->job, replica) && batch.n_fields && !batch.fields[0].tensor.data)
        return TD_ERROR(TD_INTERNAL, "batch %lld of epoch %lld was not made", (long long)batch.index,
                        (long long)batch.epoch);
    if (is_mine(s->job, replica))
        return keep(s, &batch, replica, micro);
    drop(s, &batch);
    return NULL;
}

/* *all: the window's epoch, the index of its last batch, how many samples and batches it has. */
static td_status *deal_window(td_dealt_source *s, td_batch *all)
{
    const int64_t accumulate = td_plan_window(s->plan, s->step) / replicas_of(s->job);
    bool ends = false;
    *all = (td_batch){.n_fields = s->ahead.n_fields};
    for (int32_t r = 0; r < replicas_of(s->job) && !ends; r++)
        for (int32_t micro = 0; micro < accumulate && !ends; micro++) {
            TD_TRY(look_ahead(s));
            ends = !s->has_ahead || (all->window_batches && s->ahead.epoch != all->epoch);
            if (!ends)
                TD_TRY(deal(s, r, micro, all));
        }
    return NULL;
}

/* Replicas come in order, so those without a batch are the last. */
static td_status *add_absent(td_dealt_source *s, const td_batch *all)
{
    const int32_t last = s->n_mine ? s->mine[s->n_mine - 1].replica : -1;
    for (int32_t r = last + 1; r < replicas_of(s->job); r++) {
        td_batch none;
        if (!is_mine(s->job, r))
            continue;
        TD_TRY(make_empty(s, all, &none));
        TD_TRY(keep(s, &none, r, 0));
        s->mine[s->n_mine - 1].window_before = all->window_samples;
    }
    return NULL;
}

/* What a batch says of all workers' batches of its window; nothing where there are no others. */
static void tell_of_others(const td_dealt_source *s, const td_batch *all, int32_t i)
{
    td_batch *batch = &s->mine[i];
    if (!s->job) {
        batch->window_before = 0;
        return;
    }
    batch->index = all->index;
    batch->window_samples = all->window_samples;
    batch->window_batches = all->window_batches;
    batch->ends_replica = i + 1 == s->n_mine || batch[1].replica != batch->replica;
}

static td_status *take_window(td_dealt_source *s)
{
    td_batch all;
    s->n_mine = s->given = 0;
    s->step++;
    TD_TRY(deal_window(s, &all));
    TD_TRY(add_absent(s, &all));
    for (int32_t i = 0; i < s->n_mine; i++) {
        td_batch *batch = &s->mine[i];
        tell_of_others(s, &all, i);
        batch->window = s->mine;
        batch->window_at = i;
        batch->n_window = s->n_mine;
    }
    return NULL;
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    td_dealt_source *s = self;
    *out_end = false;
    if (s->given == s->n_mine) {
        TD_TRY(look_ahead(s));
        *out_end = !s->has_ahead;
        if (*out_end)
            return NULL;
        TD_TRY(take_window(s));
    }
    *out_batch = s->mine[s->given++];
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    td_dealt_source *s = self;
    for (td_dealt_batch **at = &s->empty; *at; at = &(*at)->next)
        if (*at == batch->owner) {
            td_dealt_batch *made = *at;
            *at = made->next;
            td_free(made->fields);
            td_free(made);
            return;
        }
    drop(s, batch);
}

td_source td_dealt_source_of(td_dealt_source *dealt)
{
    return (td_source){dealt, next, release};
}

void td_dealt_source_deinit(td_dealt_source *dealt)
{
    if (dealt->has_ahead)
        drop(dealt, &dealt->ahead);
    dealt->has_ahead = false;
    while (dealt->given < dealt->n_mine)
        release(dealt, &dealt->mine[dealt->given++]);
    td_free(dealt->mine);
    dealt->mine = NULL;
    td_free(dealt->fields);
    dealt->fields = NULL;
    while (dealt->empty) {
        td_dealt_batch *made = dealt->empty;
        dealt->empty = made->next;
        td_free(made->fields);
        td_free(made);
    }
}
