/* lookup_early and lookup_rest: a lookup in two parts (graph/ops/lookup_early.c says when and why). Which rows the batch
 * before names is a hash set in scratch, built by one thread; bags are then shared out. Each bag's sum is taken in position
 * order, so neither the split nor the threads change a bit. */
#include <string.h>

#include "backends/cpu/bags.h"

enum { TABLE, IDS, PREVIOUS, EARLY_WEIGHTS };
enum { PARTIAL_IN = 2, READY_IN = 3, REST_WEIGHTS = 4 };
enum { PARTIAL, READY, N_READY };
enum { BAGS_PER_TASK = 32 };

typedef enum pooling { PLAIN, SUM, MEAN } pooling;

typedef struct job {
    const td_kernel_call *call;
    td_bags bags;
    pooling pooling;
    int64_t dim;
    float *out;
    uint8_t *ready;
    const int64_t *set; /* open addressing: row + 1, 0 is empty */
    uint64_t mask;
} job;

static pooling pooling_of(const td_kernel_call *call)
{
    const char *name = td_cpu_attr_string(call, "pooling", "none");
    return strcmp(name, "none") == 0 ? PLAIN : strcmp(name, "mean") == 0 ? MEAN : SUM;
}

static void init_lookup(td_lookup *lookup, const td_kernel_call *call, const td_tensor *ids)
{
    td_lookup_init(lookup, call, ids, pooling_of(call) == PLAIN, td_cpu_attr_int(call, "offset", 0),
                   call->inputs[TABLE].dims[0]);
}

static void init_job(job *j, const td_kernel_call *call, int32_t weights)
{
    memset(j, 0, sizeof *j);
    j->call = call;
    j->pooling = pooling_of(call);
    j->dim = call->inputs[TABLE].dims[1];
    j->bags.mean = j->pooling == MEAN;
    j->bags.weights = td_cpu_optional(call, weights);
    td_cpu_lookup_init(&j->bags.lookup, call, &call->inputs[IDS], j->pooling == PLAIN, &call->inputs[TABLE]);
}

static const td_lookup *ids_of(const job *j)
{
    return &j->bags.lookup.ids;
}

/* One bag; `limit`: positions after it that may be asked for ahead. */
static void look_up(const job *j, int64_t bag, int64_t limit)
{
    const int64_t begin = td_lookup_begin(ids_of(j), bag), end = td_lookup_begin(ids_of(j), bag + 1);
    if (j->pooling == PLAIN)
        td_bag_copy_row(&j->bags.lookup, bag, j->out + bag * j->dim);
    else
        td_bag_pool(&j->bags, begin, end, limit, j->out + bag * j->dim);
}

/* ---- the rows of the batch before ------------------------------------------------------------------------------------------------ */

static uint64_t slots_for(int64_t ids)
{
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)ids)
        slots *= 2;
    return slots;
}

static uint64_t slot_of(int64_t key, uint64_t mask)
{
    uint64_t h = (uint64_t)key * 0x9E3779B97F4A7C15u;
    return (h ^ (h >> 32)) & mask;
}

static void build_set(int64_t *set, uint64_t mask, const td_lookup *previous)
{
    memset(set, 0, (mask + 1) * sizeof *set);
    for (int64_t i = 0; i < previous->count; i++) {
        const int64_t key = td_lookup_row(previous, i) + 1;
        uint64_t at = slot_of(key, mask);
        while (set[at] && set[at] != key)
            at = (at + 1) & mask;
        set[at] = key;
    }
}

static bool is_in_set(const job *j, int64_t row)
{
    const int64_t key = row + 1;
    for (uint64_t at = slot_of(key, j->mask); j->set[at]; at = (at + 1) & j->mask)
        if (j->set[at] == key)
            return true;
    return false;
}

/* ---- the two kernels ---------------------------------------------------------------------------------------------------------------- */

static void early_bags(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t limit = td_lookup_begin(ids_of(j), end);
    for (int64_t bag = begin; bag < end; bag++) {
        bool shared = false;
        for (int64_t i = td_lookup_begin(ids_of(j), bag); i < td_lookup_begin(ids_of(j), bag + 1) && !shared; i++)
            shared = is_in_set(j, td_lookup_row(ids_of(j), i));
        j->ready[bag] = !shared;
        if (!shared)
            look_up(j, bag, limit);
    }
}

static td_status *run_early(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    job j;
    td_lookup previous;
    init_job(&j, call, EARLY_WEIGHTS);
    init_lookup(&previous, call, &call->inputs[PREVIOUS]);
    TD_TRY(td_lookup_check(ids_of(&j)));
    j.mask = slots_for(previous.count) - 1;
    j.set = call->scratch;
    j.out = call->outputs[PARTIAL].data;
    j.ready = call->outputs[READY].data;
    build_set(call->scratch, j.mask, &previous);
    td_cpu_for(team, ids_of(&j)->bags, BAGS_PER_TASK, early_bags, &j);
    int64_t n_ready = 0;
    for (int64_t bag = 0; bag < ids_of(&j)->bags; bag++)
        n_ready += j.ready[bag];
    memcpy(call->outputs[N_READY].data, &n_ready, sizeof n_ready);
    return NULL;
}

static size_t early_scratch(const td_kernel_call *call, const void *state)
{
    (void)state;
    const td_tensor *ids = &call->inputs[PREVIOUS];
    const int64_t n = ids->kind == TD_RAGGED ? ids->entries : td_cpu_elements(ids);
    return slots_for(n) * sizeof(int64_t);
}

static void rest_bags(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const float *partial = j->call->inputs[PARTIAL_IN].data;
    const int64_t limit = td_lookup_begin(ids_of(j), end);
    if (partial != j->out && begin < end)
        memcpy(j->out + begin * j->dim, partial + begin * j->dim, (size_t)((end - begin) * j->dim) * sizeof *partial);
    for (int64_t bag = begin; bag < end; bag++)
        if (!j->ready[bag])
            look_up(j, bag, limit);
}

static td_status *run_rest(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    job j;
    init_job(&j, call, REST_WEIGHTS); /* ids were checked by lookup_early */
    j.out = call->outputs[0].data;
    j.ready = call->inputs[READY_IN].data;
    td_cpu_for(team, ids_of(&j)->bags, BAGS_PER_TASK, rest_bags, &j);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(lookup_early) = {.op = "lookup_early", .scratch_bytes = early_scratch, .run = run_early};
const td_cpu_kernel TD_KERNEL(lookup_rest) = {.op = "lookup_rest", .run = run_rest};
