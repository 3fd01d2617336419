/* embedding_bag_weights_gradient: a row of the table times its bag's gradient, per id; cut into runs of bags by shape. */
#include "backends/cpu/bags.h"

enum { TABLE, IDS };
enum { MOST_NARROW = 4096 }; /* elements of a 16-bit row, widened on the stack */

static bool supports(const td_kernel_call *call)
{
    const td_tensor *table = &call->inputs[TABLE];
    return td_cpu_lookup_takes_table(table) && (table->dtype == TD_F32 || table->dims[1] <= MOST_NARROW) &&
           td_cpu_lookup_takes_ids(&call->inputs[IDS]);
}

static bool is_mean(const td_kernel_call *call)
{
    return strcmp(td_cpu_attr_string(call, "pooling", "sum"), "mean") == 0;
}

typedef struct bag_work {
    td_bags bags;
    const float *gradient;
    float *out;
} bag_work;

static void bags_of(bag_work *work, const td_kernel_call *call)
{
    td_cpu_lookup_init(&work->bags.lookup, call, &call->inputs[IDS], false, &call->inputs[TABLE]);
    work->bags.mean = is_mean(call);
    work->out = call->outputs[0].data;
}

TD_PREFETCHES void prefetch_first(const td_cpu_lookup *lookup, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end && i < begin + TD_LOOKUP_PREFETCH; i++)
        td_cpu_lookup_prefetch(lookup, i);
}

static void weights_gradient_range(void *context, int64_t first, int64_t last)
{
    bag_work *work = context;
    td_cpu_lookup *lookup = &work->bags.lookup;
    const int64_t begin = td_lookup_begin(&lookup->ids, first), end = td_lookup_begin(&lookup->ids, last);
    if (!td_cpu_lookup_good(lookup, begin, end))
        return;
    float wide[MOST_NARROW];
    prefetch_first(lookup, begin, end);
    for (int64_t bag = first, i = begin; bag < last; bag++) {
        const float *gradient = work->gradient + bag * lookup->dim;
        const int64_t stop = td_lookup_begin(&lookup->ids, bag + 1), count = stop - i;
        for (; i < stop; i++) {
            if (i + TD_LOOKUP_PREFETCH < end)
                td_cpu_lookup_prefetch(lookup, i + TD_LOOKUP_PREFETCH);
            const float *row = td_cpu_lookup_row(lookup, i);
            if (lookup->dtype != TD_F32) {
                td_bag_copy_row(lookup, i, wide);
                row = wide;
            }
            const float dot = v16_dot(row, gradient, lookup->dim);
            work->out[i] = work->bags.mean ? dot / (float)count : dot;
        }
    }
}

static td_status *run_weights_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    bag_work work = {.gradient = call->inputs[2].data};
    bags_of(&work, call);
    const td_lookup *ids = &work.bags.lookup.ids;
    TD_TRY(td_lookup_check_offsets(ids));
    td_cpu_for(team, ids->bags, td_cpu_lookup_block(ids->bags, ids->count, work.bags.lookup.dim),
               weights_gradient_range, &work);
    return td_cpu_lookup_result(&work.bags.lookup);
}

const td_cpu_kernel TD_KERNEL(embedding_bag_weights_gradient) = {
    .op = "embedding_bag_weights_gradient", .supports = supports, .run = run_weights_gradient};
