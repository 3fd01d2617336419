/* The loader: batches made ahead by worker threads, handed out in order. See tandem/data.h.
 *
 * Batches are numbered from the run's start; batch k lives in slot k modulo depth. A slot goes free -> filling -> ready
 * -> out -> free. Workers claim numbers in order and wait until their slot is free; `next` waits until the slot whose
 * turn it is is ready. What is in a batch is a function of its number alone, so neither the number of workers nor their
 * timing shows. One mutex guards all states; it is taken twice per batch, never while rows are read. */
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "base/thread.h"
#include "base/units.h"
#include "data/dataset.h"
#include "data/fill.h"
#include "data/order.h"

enum { LEAST_DEPTH = 4, MOST_DEPTH = 1 << 16, MOST_WORKERS = 256 };

typedef enum slot_state { SLOT_FREE = 0, SLOT_FILLING, SLOT_READY, SLOT_OUT } slot_state;

typedef struct slot {
    slot_state state;
    bool wanted;
    td_batch batch;
    td_status *status;  /* of filling it */
    td_field *fields;   /* [n_fields] */
    td_tensor *tensors; /* [n_fields], as given to fill; room for most_rows */
    int64_t *rows;      /* [most_rows] */
} slot;

struct td_loader {
    const td_dataset *dataset;
    td_loader_options options; /* its `fields` is not kept */
    int32_t n_fields;
    int32_t *which;                                   /* [n_fields] of the schema */
    int64_t first_row, part_rows, most_rows, batches; /* of the part; per batch; per epoch */
    int64_t end;                                      /* number of the batch after the last; INT64_MAX: none */
    pthread_mutex_t mutex;
    pthread_cond_t slot_freed, slot_ready;
    bool initialised, stop;
    int64_t next_claim, next_out;
    td_code failed; /* not TD_OK: `next` gave an error, and what */
    char *failure;
    slot *slots; /* [depth] */
    pthread_t *workers;
    int32_t n_started;
    uint32_t record_worker; /* td_record_worker of who made it */
};

td_loader_options td_loader_defaults(void)
{
    return (td_loader_options){.batch = 256, .epochs = 1, .shuffle = true, .depth = 8, .workers = 1};
}

/* ---- what a batch holds --------------------------------------------------------------------------------------------- */

/* Positions [begin, begin + n) of an epoch's order: a permutation of all rows, or of each run of shuffle_buffer rows by itself,
 * with the run's number in the seed. */
static void shuffle_rows(const td_loader *loader, int64_t epoch, int64_t begin, int64_t n, int64_t *rows)
{
    const int64_t all = loader->part_rows, buffer = loader->options.shuffle_buffer;
    const int64_t size = buffer > 0 && buffer < all ? buffer : all;
    int64_t run = -1;
    td_order order = {0};
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = begin + i, first = at / size * size;
        if (at / size != run) {
            run = at / size;
            td_order_init(&order, all - first < size ? all - first : size,
                          loader->options.seed + (uint64_t)run * 0x9e3779b97f4a7c15u, epoch);
        }
        rows[i] = first + td_order_at(&order, at - first);
    }
}

/* Which batch it is, and how many rows it has. */
static void number_batch(const td_loader *loader, int64_t number, td_batch *batch)
{
    batch->epoch = number / loader->batches;
    batch->index = number % loader->batches;
    const int64_t left = loader->part_rows - batch->index * loader->options.batch;
    batch->samples = left < loader->options.batch ? left : loader->options.batch;
}

/* Which rows it has, into slot->rows. */
static void choose_rows(const td_loader *loader, slot *to)
{
    const td_batch *batch = &to->batch;
    const int64_t begin = batch->index * loader->options.batch;
    if (loader->options.shuffle)
        shuffle_rows(loader, batch->epoch, begin, batch->samples, to->rows);
    for (int64_t i = 0; i < batch->samples; i++)
        to->rows[i] = loader->first_row + (loader->options.shuffle ? to->rows[i] : begin + i);
}

static void leave_out(const td_loader *loader, slot *to)
{
    for (int32_t f = 0; f < loader->n_fields; f++) {
        td_tensor *tensor = &to->fields[f].tensor;
        *tensor = to->tensors[f];
        td_fill_dims(&loader->dataset->schema.fields[loader->which[f]], 0, tensor);
        tensor->entries = 0;
        tensor->data = tensor->index = NULL;
    }
}

static void fill_slot(const td_loader *loader, slot *to)
{
    if (!to->wanted) {
        leave_out(loader, to);
        return;
    }
    choose_rows(loader, to);
    to->status = loader->dataset->fill(loader->dataset, to->rows, to->batch.samples, loader->n_fields, loader->which,
                                       to->tensors);
    for (int32_t f = 0; f < loader->n_fields; f++)
        to->fields[f].tensor = to->tensors[f];
}

/* ---- the workers ---------------------------------------------------------------------------------------------------- */

static slot *slot_of(const td_loader *loader, int64_t number)
{
    return &loader->slots[number % loader->options.depth];
}

/* The next number whose slot is free, with the slot claimed; -1: there is nothing more to do. Holds the mutex. */
static int64_t claim(td_loader *loader)
{
    uint64_t from = 0;
    while (!loader->stop && loader->next_claim < loader->end &&
           slot_of(loader, loader->next_claim)->state != SLOT_FREE) {
        from = from ? from : td_record_begin();
        pthread_cond_wait(&loader->slot_freed, &loader->mutex);
    }
    td_record_end(TD_RECORD_DATA_FULL, td_record_worker, 0, from, 0);
    if (loader->stop || loader->next_claim >= loader->end)
        return -1;
    slot *claimed = slot_of(loader, loader->next_claim);
    const td_loader_options *options = &loader->options;
    number_batch(loader, loader->next_claim, &claimed->batch);
    claimed->wanted =
        !options->wants || options->wants(options->wants_context, claimed->batch.epoch, claimed->batch.index);
    claimed->state = SLOT_FILLING;
    return loader->next_claim++;
}

static void *work(void *self)
{
    td_loader *loader = self;
    td_record_worker = loader->record_worker;
    td_record_name_thread("data worker");
    td_thread_run_aside();
    pthread_mutex_lock(&loader->mutex);
    for (int64_t number; (number = claim(loader)) >= 0;) {
        slot *mine = slot_of(loader, number);
        pthread_mutex_unlock(&loader->mutex);
        const uint64_t from = mine->wanted ? td_record_begin() : 0; /* what is left out is no batch that was made */
        fill_slot(loader, mine);
        td_record_end(TD_RECORD_DATA_FETCH, td_record_worker, 0, from, (uint64_t)mine->batch.samples);
        pthread_mutex_lock(&loader->mutex);
        mine->state = SLOT_READY;
        pthread_cond_signal(&loader->slot_ready);
    }
    pthread_cond_broadcast(&loader->slot_freed); /* the end is reached: other workers need not wait for a slot */
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* ---- the source ----------------------------------------------------------------------------------------------------- */

/* Keeps an error, so that every later call gives it again. Holds the mutex. */
static td_status *fail(td_loader *loader, td_status *status)
{
    loader->failed = td_status_code(status);
    loader->failure = td_strdup(td_status_message(status));
    return status;
}

/* How many batches stand ready. Holds the mutex. */
static uint64_t count_ready(const td_loader *loader)
{
    uint64_t n = 0;
    for (int32_t i = 0; i < loader->options.depth; i++)
        n += loader->slots[i].state == SLOT_READY;
    return n;
}

static td_status *take_next(td_loader *loader, td_batch *out_batch, bool *out_end)
{
    if (loader->failed != TD_OK)
        return TD_ERROR(loader->failed, "%s", loader->failure ? loader->failure : "the loader has failed");
    *out_end = loader->next_out >= loader->end;
    if (*out_end)
        return NULL;
    slot *next = slot_of(loader, loader->next_out);
    if (td_record_on())
        td_record_sample(TD_RECORD_QUEUE, (uint32_t)loader->options.depth, 0, count_ready(loader));
    if (next->state == SLOT_OUT)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: all %d batches are out; release one before asking for more",
                        loader->options.depth);
    while (next->state != SLOT_READY)
        pthread_cond_wait(&loader->slot_ready, &loader->mutex);
    if (next->status) {
        td_status *status = next->status;
        next->status = NULL;
        return fail(loader, status);
    }
    next->state = SLOT_OUT;
    loader->next_out++;
    *out_batch = next->batch;
    return NULL;
}

static td_status *source_next(void *self, td_batch *out_batch, bool *out_end)
{
    td_loader *loader = self;
    *out_batch = (td_batch){0};
    *out_end = false;
    pthread_mutex_lock(&loader->mutex);
    td_status *status = take_next(loader, out_batch, out_end);
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

static void source_release(void *self, td_batch *batch)
{
    td_loader *loader = self;
    slot *back = batch->owner;
    if (!back)
        return;
    pthread_mutex_lock(&loader->mutex);
    if (batch->unused && back == slot_of(loader, loader->next_out - 1)) {
        back->state = SLOT_READY;
        loader->next_out--;
    } else {
        back->state = SLOT_FREE;
        pthread_cond_broadcast(&loader->slot_freed);
    }
    pthread_mutex_unlock(&loader->mutex);
    *batch = (td_batch){0};
}

td_source td_loader_source(td_loader *loader)
{
    return (td_source){.self = loader, .next = source_next, .release = source_release};
}

int64_t td_loader_batches(const td_loader *loader)
{
    return loader->batches;
}

/* ---- setting up and tearing down ------------------------------------------------------------------------------------ */

static td_status *check(const td_loader_options *options)
{
    if (options->batch < 1)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.batch is %lld; it must be at least 1", (long long)options->batch);
    if (options->epochs < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "epochs is %lld; 0 is without end", (long long)options->epochs);
    if (options->shuffle_buffer < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.shuffle_buffer is %lld; 0 shuffles all rows",
                        (long long)options->shuffle_buffer);
    if (options->depth < LEAST_DEPTH || options->depth > MOST_DEPTH)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: depth is %d; it must be from %d (three batches may be out) to %d",
                        options->depth, LEAST_DEPTH, MOST_DEPTH);
    if (options->workers < 1 || options->workers > MOST_WORKERS)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: %d workers; it must be 1 to %d", options->workers, MOST_WORKERS);
    if (options->part != TD_PART_TRAIN && options->part != TD_PART_TEST)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: part %d is neither training nor test", (int)options->part);
    return NULL;
}

/* Where the part lies, how many batches an epoch has, where the run begins and ends. */
static td_status *measure(td_loader *loader)
{
    const td_schema *schema = &loader->dataset->schema;
    const td_loader_options *options = &loader->options;
    bool train = options->part == TD_PART_TRAIN;
    loader->first_row = train ? 0 : schema->train_rows;
    loader->part_rows = train ? schema->train_rows : schema->test_rows;
    loader->most_rows = loader->part_rows < options->batch ? loader->part_rows : options->batch;
    loader->batches = loader->part_rows / options->batch;
    loader->batches += !options->drop_remainder && loader->part_rows % options->batch != 0;
    if (loader->batches == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: the %s part has %s, which is no batch of %lld",
                        train ? "training" : "test", TD_COUNTED(loader->part_rows, "row"), (long long)options->batch);
    if (options->start_epoch < 0 || options->start_batch < 0 || options->start_batch > loader->batches)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: there is no epoch %lld, batch %lld; an epoch has %s",
                        (long long)options->start_epoch, (long long)options->start_batch,
                        TD_COUNTED(loader->batches, "batch"));
    int64_t begin;
    loader->end = INT64_MAX;
    if (!td_multiply_checked(options->start_epoch, loader->batches, &begin) ||
        !td_add_checked(begin, options->start_batch, &begin) ||
        (options->epochs && !td_multiply_checked(options->epochs, loader->batches, &loader->end)))
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: more than 2^63 batches");
    loader->next_claim = loader->next_out = begin;
    return NULL;
}

static td_status *choose_fields(td_loader *loader, const td_loader_options *options)
{
    const td_schema *schema = &loader->dataset->schema;
    loader->n_fields = options->n_fields ? options->n_fields : schema->n_fields;
    TD_TRY(TD_NEW(loader->which, loader->n_fields));
    for (int32_t f = 0; f < loader->n_fields; f++) {
        const td_schema_field *found =
            options->n_fields ? td_schema_find(schema, options->fields[f]) : &schema->fields[f];
        if (!found)
            return TD_ERROR(TD_NOT_FOUND, "loader: %s data has no field \"%s\"", schema->format, options->fields[f]);
        loader->which[f] = (int32_t)(found - schema->fields);
    }
    return NULL;
}

static td_status *allocate(void **out_memory, int64_t count, int64_t bytes_each)
{
    int64_t bytes;
    if (!td_multiply_checked(count, bytes_each, &bytes))
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: a batch of more than 2^63 bytes");
    *out_memory = td_calloc_aligned((size_t)bytes);
    return *out_memory ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "loader: out of memory: %lld bytes", (long long)bytes);
}

static td_status *prepare_tensor(const td_schema_field *field, int64_t rows, td_tensor *tensor)
{
    static const int64_t sizes[TD_DTYPE_COUNT] = {[TD_F32] = 4, [TD_I64] = 8, [TD_U8] = 1};
    *tensor = (td_tensor){.kind = field->kind, .dtype = field->dtype, .rank = field->rank};
    int64_t elements;
    if (!td_multiply_checked(rows, field->width, &elements))
        return TD_ERROR(TD_INVALID_ARGUMENT, "loader: field \"%s\" of more than 2^63 elements", field->name);
    TD_TRY(allocate(&tensor->data, elements, sizes[field->dtype]));
    return field->kind == TD_RAGGED ? allocate(&tensor->index, rows + 1, (int64_t)sizeof(int64_t)) : NULL;
}

static td_status *prepare_slot(const td_loader *loader, slot *to)
{
    TD_TRY(TD_NEW(to->rows, loader->most_rows));
    TD_TRY(TD_NEW(to->fields, loader->n_fields));
    TD_TRY(TD_NEW(to->tensors, loader->n_fields));
    for (int32_t f = 0; f < loader->n_fields; f++) {
        const td_schema_field *field = &loader->dataset->schema.fields[loader->which[f]];
        to->fields[f].name = field->name;
        TD_TRY(prepare_tensor(field, loader->most_rows, &to->tensors[f]));
    }
    to->batch = (td_batch){.n_fields = loader->n_fields, .fields = to->fields, .owner = to};
    return NULL;
}

static td_status *start_workers(td_loader *loader)
{
    int error = 0;
    while (!error && loader->n_started < loader->options.workers) {
        error = td_thread_create(&loader->workers[loader->n_started], work, loader);
        loader->n_started += !error;
    }
    return error ? TD_ERROR(TD_IO, "loader: a thread cannot be started: %s", strerror(error)) : NULL;
}

static td_status *set_up(td_loader *loader, const td_loader_options *options)
{
    TD_TRY(measure(loader));
    TD_TRY(choose_fields(loader, options));
    TD_TRY(TD_NEW(loader->slots, loader->options.depth));
    for (int32_t i = 0; i < loader->options.depth; i++)
        TD_TRY(prepare_slot(loader, &loader->slots[i]));
    TD_TRY(TD_NEW(loader->workers, loader->options.workers));
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->slot_freed, NULL);
    pthread_cond_init(&loader->slot_ready, NULL);
    loader->initialised = true;
    return start_workers(loader);
}

td_status *td_loader_create(const td_dataset *dataset, const td_loader_options *options, td_loader **out_loader)
{
    *out_loader = NULL;
    TD_TRY(check(options));
    td_loader *loader = NULL;
    TD_TRY(TD_NEW(loader, 1));
    loader->dataset = dataset;
    loader->options = *options;
    loader->options.fields = NULL;
    loader->record_worker = td_record_worker;
    td_status *status = set_up(loader, options);
    if (status) {
        td_loader_destroy(loader);
        return td_status_pass(status, __FILE__, __LINE__);
    }
    *out_loader = loader;
    return NULL;
}

static void destroy_slot(slot *gone, int32_t n_fields)
{
    for (int32_t f = 0; gone->tensors && f < n_fields; f++) {
        td_free(gone->tensors[f].data);
        td_free(gone->tensors[f].index);
    }
    td_status_destroy(gone->status);
    td_free(gone->tensors);
    td_free(gone->fields);
    td_free(gone->rows);
}

static void stop_workers(td_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->stop = true;
    pthread_cond_broadcast(&loader->slot_freed);
    pthread_mutex_unlock(&loader->mutex);
    for (int32_t i = 0; i < loader->n_started; i++)
        pthread_join(loader->workers[i], NULL);
    pthread_cond_destroy(&loader->slot_ready);
    pthread_cond_destroy(&loader->slot_freed);
    pthread_mutex_destroy(&loader->mutex);
}

void td_loader_destroy(td_loader *loader)
{
    if (!loader)
        return;
    if (loader->initialised)
        stop_workers(loader);
    for (int32_t i = 0; loader->slots && i < loader->options.depth; i++)
        destroy_slot(&loader->slots[i], loader->n_fields);
    td_free(loader->slots);
    td_free(loader->workers);
    td_free(loader->which);
    td_free(loader->failure);
    td_free(loader);
}
