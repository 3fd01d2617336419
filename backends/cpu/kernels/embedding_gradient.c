/* Gradients of the tables of embedding and embedding_bag: ids grouped by row, then rows summed side by side.
 *
 * A row takes its positions in ascending order: out_gradient[bag] times the weight, divided by the bag's number of ids, each
 * rounded. In the row-sparse form the first position is taken as it is; the dense form adds all to zero, as a scatter into a
 * cleared table would. */
#include "backends/cpu/lookups.h"
#include "base/dedup.h"

enum { IDS, GRADIENT, WEIGHTS, ROWS_PER_TASK = 64 };

static bool supports(const td_kernel_call *call)
{
    return td_cpu_lookup_takes_ids(&call->inputs[IDS]) && td_cpu_is(&call->inputs[GRADIENT], TD_DENSE, TD_F32);
}

/* Ids that each are their own bag: those of embedding. */
static bool is_plain(const td_kernel_call *call)
{
    return strncmp(call->op, "embedding_bag", strlen("embedding_bag")) != 0;
}

typedef struct sum_work {
    td_lookup lookup;
    td_dedup dedup;
    const float *gradient, *weights;
    const int64_t *bags; /* of each position; NULL where a division tells */
    float *out;
    int64_t dim;
    bool mean, dense;
} sum_work;

static void lookup_of(td_lookup *lookup, const td_kernel_call *call)
{
    td_lookup_init(lookup, call, &call->inputs[IDS], is_plain(call), td_cpu_attr_int(call, "offset", 0),
                   call->outputs[0].dims[0]);
}

/* The groups; and the bag of each position where bags differ in size. */
static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    td_lookup lookup;
    lookup_of(&lookup, call);
    return td_dedup_scratch_bytes(lookup.count) + (size_t)lookup.count * sizeof(int64_t);
}

static void fill_bags(const td_lookup *lookup, int64_t *bags)
{
    for (int64_t bag = 0; bag < lookup->bags; bag++)
        for (int64_t i = lookup->offsets[bag]; i < lookup->offsets[bag + 1]; i++)
            bags[i] = bag;
}

static void add_position(const sum_work *work, int64_t position, bool first, float *restrict sum)
{
    const int64_t bag = work->bags ? work->bags[position] : position / work->lookup.length, dim = work->dim;
    const float *restrict gradient = work->gradient + bag * dim;
    const float weight = work->weights ? work->weights[position] : 1;
    const float count =
        work->mean ? (float)(td_lookup_begin(&work->lookup, bag + 1) - td_lookup_begin(&work->lookup, bag)) : 1;
    if (first)
        for (int64_t k = 0; k < dim; k++)
            sum[k] = gradient[k] * weight / count;
    else if (weight == 1 && count == 1)
        for (int64_t k = 0; k < dim; k++)
            sum[k] += gradient[k];
    else
        for (int64_t k = 0; k < dim; k++)
            sum[k] += gradient[k] * weight / count;
}

static void sum_rows(void *context, int64_t begin, int64_t end)
{
    const sum_work *work = context;
    for (int64_t r = begin; r < end; r++) {
        float *sum = work->out + (work->dense ? work->dedup.rows[r] : r) * work->dim;
        const int64_t first = work->dedup.starts[r], last = work->dedup.starts[r + 1];
        for (int64_t k = first; k < last; k++)
            add_position(work, work->dedup.positions[k], !work->dense && k == first, sum);
    }
}

static void clear_range(void *context, int64_t begin, int64_t end)
{
    memset((float *)context + begin, 0, (size_t)(end - begin) * sizeof(float));
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *out = &call->outputs[0];
    sum_work work = {.gradient = call->inputs[GRADIENT].data,
                     .weights = td_cpu_optional(call, WEIGHTS),
                     .out = out->data,
                     .dim = out->dims[1],
                     .dense = out->kind == TD_DENSE,
                     .mean = !is_plain(call) && strcmp(td_cpu_attr_string(call, "pooling", "sum"), "mean") == 0};
    lookup_of(&work.lookup, call);
    TD_TRY(td_lookup_check(&work.lookup));
    TD_TRY(td_dedup_group(work.lookup.ids, work.lookup.wide ? TD_I64 : TD_I32, work.lookup.count, work.lookup.offset,
                          work.lookup.rows, call->scratch, &work.dedup));
    if (work.lookup.offsets) {
        int64_t *bags = (int64_t *)((char *)call->scratch + td_dedup_scratch_bytes(work.lookup.count));
        fill_bags(&work.lookup, bags);
        work.bags = bags;
    }
    if (work.dense) {
        td_cpu_for(team, td_cpu_elements(out), TD_CPU_BLOCK, clear_range, out->data);
    } else {
        if (work.dedup.n_rows)
            memcpy(out->index, work.dedup.rows, (size_t)work.dedup.n_rows * sizeof(int64_t));
        *(int64_t *)out->count = work.dedup.n_rows;
    }
    td_cpu_for(team, work.dedup.n_rows, ROWS_PER_TASK, sum_rows, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(embedding_gradient) = {
    .op = "embedding_gradient", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
const td_cpu_kernel TD_KERNEL(embedding_gradient_dense) = {
    .op = "embedding_gradient_dense", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
const td_cpu_kernel TD_KERNEL(embedding_bag_gradient) = {
    .op = "embedding_bag_gradient", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
const td_cpu_kernel TD_KERNEL(embedding_bag_gradient_dense) = {
    .op = "embedding_bag_gradient_dense", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
