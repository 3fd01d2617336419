/* embedding_update: groups the ids of a batch by row, then sums and updates each touched row, without locks.
 *
 * The gradient of a row: its positions in ascending order, the first taken as it is, each out_gradient[bag] times its
 * weight, divided by the bag's number of ids, each step rounded. Leaving out a weight of 1 or a count of 1 changes nothing.
 * Rows are independent of each other, so neither partitions nor threads show in the bits. */
#include <string.h>

#include "backends/cpu/row_groups.h"
#include "backends/cpu/update.h"

enum { TABLE, GRADIENT, IDS, WEIGHTS, COEFFICIENTS, STATES };

#define DECLARE(rule) extern const td_update_rule TD_KERNEL(update_##rule);
TD_UPDATE_RULES(DECLARE)
#undef DECLARE

static const td_update_rule *find_rule(const td_kernel_call *call)
{
#define ADDRESS(rule) &TD_KERNEL(update_##rule),
    static const td_update_rule *const rules[] = {TD_UPDATE_RULES(ADDRESS)};
#undef ADDRESS
    const char *name = td_cpu_attr_string(call, "rule", "");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

static bool supports(const td_kernel_call *call)
{
    const td_update_rule *rule = find_rule(call);
    return rule && td_update_takes(rule, call, STATES) && td_cpu_is(&call->inputs[GRADIENT], TD_DENSE, TD_F32) &&
           (call->inputs[IDS].dtype == TD_I64 || call->inputs[IDS].dtype == TD_I32);
}

static bool pooling_is(const td_kernel_call *call, const char *pooling)
{
    return strcmp(td_cpu_attr_string(call, "pooling", "sum"), pooling) == 0;
}

static void lookup_of(td_lookup *lookup, const td_kernel_call *call)
{
    td_lookup_init(lookup, call, &call->inputs[IDS], pooling_is(call, "none"), td_cpu_attr_int(call, "offset", 0),
                   call->inputs[TABLE].dims[0]);
}

/* The groups, then a row for each partition to sum in, from the next cache line on. */
static size_t groups_bytes(int64_t count)
{
    return (td_row_groups_scratch_bytes(count) + 63) / 64 * 64;
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    td_lookup lookup;
    lookup_of(&lookup, call);
    size_t sums = (size_t)td_row_groups_partitions(lookup.count) * (size_t)call->inputs[TABLE].dims[1] * sizeof(float);
    return groups_bytes(lookup.count) + sums;
}

typedef struct update_work {
    td_update_target target;
    td_row_groups groups;
    td_lookup lookup;
    const float *gradient, *weights;
    float *sums; /* [partitions, dim] */
    bool mean;
} update_work;

static void add_plain(float *restrict sum, const float *restrict gradient, int64_t dim)
{
    for (int64_t k = 0; k < dim; k++)
        sum[k] += gradient[k];
}

static void add_scaled(float *restrict sum, const float *restrict gradient, float weight, float count, int64_t dim)
{
    for (int64_t k = 0; k < dim; k++)
        sum[k] += gradient[k] * weight / count;
}

static void put_scaled(float *restrict sum, const float *restrict gradient, float weight, float count, int64_t dim)
{
    for (int64_t k = 0; k < dim; k++)
        sum[k] = gradient[k] * weight / count;
}

/* Adds one position's gradient to sum, or puts it there. */
static void take_position(const update_work *work, int64_t position, bool first, float *sum)
{
    int64_t bag = td_row_groups_bag(&work->groups, position), dim = work->target.dim;
    const float *gradient = work->gradient + bag * dim;
    float weight = work->weights ? work->weights[position] : 1.0f;
    int64_t ids = work->mean ? td_lookup_begin(&work->lookup, bag + 1) - td_lookup_begin(&work->lookup, bag) : 1;
    if (first)
        put_scaled(sum, gradient, weight, (float)ids, dim);
    else if (weight == 1.0f && ids == 1)
        add_plain(sum, gradient, dim);
    else
        add_scaled(sum, gradient, weight, (float)ids, dim);
}

/* The gradient of one row: a row of the input itself where that is all, else in `sum`. */
static const float *row_gradient(const update_work *work, const int64_t *positions, int64_t n, float *sum)
{
    if (n == 1 && !work->weights && !work->mean)
        return work->gradient + td_row_groups_bag(&work->groups, positions[0]) * work->target.dim;
    for (int64_t k = 0; k < n; k++)
        take_position(work, positions[k], k == 0, sum);
    return sum;
}

static void update_partition(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const update_work *work = context;
    int32_t partition = work->groups.order[index];
    float *sum = work->sums + partition * work->target.dim;
    td_dedup dedup;
    td_row_groups_group(&work->groups, partition, &dedup);
    for (int64_t r = 0; r < dedup.n_rows && r < TD_UPDATE_PREFETCH_ROWS; r++)
        td_update_prefetch(&work->target, dedup.rows[r]);
    for (int64_t r = 0; r < dedup.n_rows; r++) {
        if (r + TD_UPDATE_PREFETCH_ROWS < dedup.n_rows)
            td_update_prefetch(&work->target, dedup.rows[r + TD_UPDATE_PREFETCH_ROWS]);
        int64_t begin = dedup.starts[r];
        td_update_row(&work->target, dedup.rows[r],
                      row_gradient(work, dedup.positions + begin, dedup.starts[r + 1] - begin, sum));
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    update_work work = {.gradient = call->inputs[GRADIENT].data, .mean = pooling_is(call, "mean")};
    if (call->inputs[WEIGHTS].kind != TD_NONE)
        work.weights = call->inputs[WEIGHTS].data;
    td_update_bind(&work.target, find_rule(call), call, COEFFICIENTS, STATES);
    lookup_of(&work.lookup, call);
    work.sums = (float *)((char *)call->scratch + groups_bytes(work.lookup.count));
    TD_TRY(td_row_groups_deal(&work.lookup, team, call->scratch, &work.groups));
    td_team_run_dynamic(team, work.groups.partitions, update_partition, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(embedding_update) = {
    .op = "embedding_update", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
