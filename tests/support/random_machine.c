/* Machines, options and batches for random models: see random_machine.h. */
#include "tests/support/random_machine.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

/* ---- machines ------------------------------------------------------------------------------------------------------------ */

td_status *random_machine_open(random_machine *machine)
{
    td_train_options options = td_train_defaults();
    for (int32_t i = 0; i < machine->n_devices; i++)
        td_add_device(&options, machine->devices[i][0], machine->devices[i][1]);
    td_status *status = options.error;
    options.error = NULL;
    if (!status)
        status = td_machine_open(&options, &machine->machine);
    td_train_options_deinit(&options);
    return status;
}

void random_machine_close(random_machine *machine)
{
    td_machine_release(machine->machine);
    machine->machine = NULL;
}

/* ---- options --------------------------------------------------------------------------------------------------------------- */

static td_optimizer draw_optimizer(random_numbers *r, bool row_sparse)
{
    const double lr = 1e-2;
    switch (random_below(r, row_sparse ? 12 : 13)) {
    case 0:
        return td_sgd(lr, .weight_decay = 0.01);
    case 1:
        return td_sgd(lr, .momentum = 0.9);
    case 2:
        return td_sgd(lr, .momentum = 0.9, .nesterov = true);
    case 3:
        return td_adagrad(lr);
    case 4:
        return td_rowwise_adagrad(lr);
    case 5:
        return td_rmsprop(lr);
    case 6:
        return td_adam(lr);
    case 7:
        return td_adamw(lr, .weight_decay = 0.01);
    case 8:
        return td_adam_weight_decay(lr);
    case 9:
        return td_lion(lr);
    case 10:
        return td_lazy_adam(lr);
    case 11:
        return td_ftrl(lr, .l1 = 1e-3);
    default:
        return td_lamb(lr);
    }
}

static void draw_groups(td_train_options *options, uint64_t seed)
{
    static const char *const patterns[] = {"alpha*", "*.bias", "w.*", "?eta*", "*.1?.weight"};
    random_numbers r = {seed * 31 + 7};
    td_group(options, "table*", draw_optimizer(&r, true));
    for (int64_t i = random_below(&r, 3); i > 0; i--)
        td_group(options, patterns[random_below(&r, 5)], draw_optimizer(&r, false));
    td_group(options, "*", draw_optimizer(&r, false));
}

/* What the model computes in: part of the model, for it changes roundings. */
static void draw_precision(td_train_options *options, uint64_t seed)
{
    static const char *const kept[] = {"alpha*", "*linear", "beta*", "*norm*"};
    random_numbers r = {seed * 13 + 5};
    if (random_chance(&r, 50))
        return;
    options->precision = random_chance(&r, 50) ? TD_MIXED_BF16 : TD_MIXED_FP16;
    options->loss_scale = (td_loss_scale_options){.initial = 16, .growth_interval = 2, .hysteresis = 1, .minimum = 1};
    if (random_chance(&r, 30))
        td_keep_fp32(options, kept[random_below(&r, 4)]);
}

static void draw_placing(td_train_options *options, const random_machine *machine, uint64_t seed)
{
    static const char *const patterns[] = {"table*",  "alpha*",     "beta*",    "gamma*",   "delta*",
                                           "*linear", "*gradient*", "*.weight", "*reduce*", "*"};
    static const char *const known[] = {"cpu", "device", "CPU"};
    random_numbers r = {seed * 17 + 3};
    int32_t n = machine->n_devices;
    td_place(options, "host*", "cpu"); /* host functions cannot go where the rules below may say */
    for (int64_t i = random_below(&r, 4); i > 0; i--) {
        int64_t which = random_below(&r, n + 3);
        td_place(options, patterns[random_below(&r, random_chance(&r, 20) ? 10 : 9)],
                 which < n ? machine->devices[which][0] : known[which - n]);
    }
    static const char *const updates[] = {"alpha*/update", "beta*/update", "gamma*/update", "*.bias/update"};
    if (random_chance(&r,
                      40)) /* some updates on the host, whatever runs where; those of tables stay where rows are read */
        td_place(options, updates[random_below(&r, 4)], "cpu");
    options->offload_embedding = random_chance(&r, 30);
    options->no_pipeline = random_chance(&r, 25);
    options->early_lookup = (td_switch)random_below(&r, 3);
    if (random_chance(&r, 30))
        td_recompute(options, "*");
}

td_train_options random_options(const random_machine *machine, uint64_t model_seed, bool placing, uint64_t placing_seed)
{
    td_train_options options = td_train_defaults();
    options.seed = model_seed;
    options.machine = td_machine_retain(machine->machine);
    draw_groups(&options, model_seed);
    draw_precision(&options, model_seed);
    if (placing)
        draw_placing(&options, machine, placing_seed);
    return options;
}

/* ---- batches ------------------------------------------------------------------------------------------------------------------- */

enum { AT_ONCE = 4 };

struct random_source {
    const random_recipe *recipe;
    int64_t steps, at;
    td_field fields[AT_ONCE][RANDOM_STEPS];
    void *data[AT_ONCE][RANDOM_STEPS];
    int64_t *index[AT_ONCE][RANDOM_STEPS];
};

static bool is_input(random_kind kind)
{
    return kind <= RANDOM_LABEL;
}

static int64_t samples_of(const random_source *source, int64_t step)
{
    random_numbers r = {source->recipe->seed * 131 + (uint64_t)step * 7 + 1};
    int64_t batch = source->recipe->batch;
    if (step != source->steps - 1 && !random_chance(&r, 20))
        return batch;
    return 1 + random_below(&r, batch);
}

static void fill_ids(const random_step *step, random_numbers *r, td_tensor *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t id = random_below(r, step->limit);
        if (t->dtype == TD_I32)
            ((int32_t *)t->data)[i] = (int32_t)id;
        else
            ((int64_t *)t->data)[i] = id;
    }
}

/* Bags of 0 to 3 ids. */
static void fill_bags(const random_step *step, random_numbers *r, td_tensor *t, int64_t samples)
{
    int64_t *offsets = t->index;
    offsets[0] = 0;
    for (int64_t i = 0; i < samples; i++)
        offsets[i + 1] = offsets[i] + random_below(r, 4);
    t->entries = offsets[samples];
    fill_ids(step, r, t, t->entries);
}

static void fill_floats(const random_step *step, random_numbers *r, td_tensor *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float uniform = (float)random_below(r, 1 << 20) / (float)(1 << 20);
        ((float *)t->data)[i] = step->kind == RANDOM_LABEL ? (float)(uniform < 0.5f) : 2 * uniform - 1;
    }
}

static random_numbers numbers_of(const random_source *source, const random_step *step, int64_t at)
{
    return (random_numbers){td_hash_string(step->name, source->recipe->seed * 1000003 + (uint64_t)at)};
}

/* How many ids the ragged input of this step has in this batch. */
static int64_t entries_of(const random_source *source, const random_step *step, int64_t at, int64_t samples)
{
    random_numbers r = numbers_of(source, step, at);
    int64_t entries = 0;
    for (int64_t i = 0; i < samples; i++)
        entries += random_below(&r, 4);
    return entries;
}

static void fill_field(random_source *source, int32_t s, int64_t slot, int64_t samples, td_field *field)
{
    const random_step *step = &source->recipe->steps[s];
    random_numbers r = numbers_of(source, step, source->at);
    td_dtype integers = step->kind == RANDOM_LABEL ? TD_I64 : step->flag ? TD_I32 : TD_I64;
    bool ids = step->kind == RANDOM_IDS || step->kind == RANDOM_BAGS || (step->kind == RANDOM_LABEL && step->flag);
    td_tensor t = {.kind = step->kind == RANDOM_BAGS ? TD_RAGGED : TD_DENSE,
                   .dtype = ids ? integers : TD_F32,
                   .rank = step->rank,
                   .data = source->data[slot][s],
                   .index = source->index[slot][s]};
    int64_t n = 1;
    for (int32_t i = 0; i < step->rank; i++) {
        t.dims[i] = step->shape[i].batch ? samples : step->shape[i].n;
        n *= t.dims[i];
    }
    if (step->kind == RANDOM_WEIGHTS) {
        t.rank = 1;
        n = t.dims[0] = entries_of(source, &source->recipe->steps[source->recipe->values[step->inputs[0]].step],
                                   source->at, samples);
    }
    if (step->kind == RANDOM_BAGS)
        fill_bags(step, &r, &t, samples);
    else if (ids)
        fill_ids(step, &r, &t, n);
    else
        fill_floats(step, &r, &t, n);
    *field = (td_field){step->name, t};
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    random_source *source = self;
    int64_t slot = source->at % AT_ONCE, samples = samples_of(source, source->at);
    int32_t n = 0;
    *out_end = source->at == source->steps;
    if (*out_end)
        return NULL;
    for (int32_t s = 0; s < source->recipe->n_steps; s++)
        if (is_input(source->recipe->steps[s].kind))
            fill_field(source, s, slot, samples, &source->fields[slot][n++]);
    *out_batch = (td_batch){.samples = samples, .index = source->at, .n_fields = n, .fields = source->fields[slot]};
    source->at++;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    (void)batch;
}

static td_status *allocate(random_source *source)
{
    for (int32_t s = 0; s < source->recipe->n_steps; s++) {
        const random_step *step = &source->recipe->steps[s];
        int64_t n = source->recipe->batch * 3;
        for (int32_t i = 0; i < step->rank; i++)
            n *= step->shape[i].batch ? 1 : step->shape[i].n;
        for (int64_t slot = 0; is_input(step->kind) && slot < AT_ONCE; slot++) {
            source->data[slot][s] = td_calloc((size_t)n + 1, 8);
            TD_TRY(TD_NEW(source->index[slot][s], source->recipe->batch + 1));
            if (!source->data[slot][s])
                return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a batch");
        }
    }
    return NULL;
}

td_status *random_source_create(const random_recipe *recipe, int64_t steps, random_source **out_source)
{
    random_source *source = NULL;
    *out_source = NULL;
    TD_TRY(TD_NEW(source, 1));
    source->recipe = recipe;
    source->steps = steps;
    td_status *status = allocate(source);
    if (status) {
        random_source_destroy(source);
        return status;
    }
    *out_source = source;
    return NULL;
}

void random_source_destroy(random_source *source)
{
    for (int64_t slot = 0; source && slot < AT_ONCE; slot++)
        for (int32_t s = 0; s < RANDOM_STEPS; s++) {
            td_free(source->data[slot][s]);
            td_free(source->index[slot][s]);
        }
    td_free(source);
}

td_source random_source_begin(random_source *source)
{
    source->at = 0;
    return (td_source){source, next, release};
}
