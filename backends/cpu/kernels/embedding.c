/* embedding: copies rows, several asked for ahead of the one being copied. */
#include "backends/cpu/lookups.h"

enum { TABLE, IDS };

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[TABLE], TD_DENSE, TD_F32) && td_cpu_lookup_takes_ids(&call->inputs[IDS]);
}

typedef struct copy_work {
    td_cpu_lookup lookup;
    float *out;
} copy_work;

static void copy_range(void *context, int64_t begin, int64_t end)
{
    copy_work *work = context;
    const int64_t dim = work->lookup.dim;
    if (!td_cpu_lookup_good(&work->lookup, begin, end))
        return;
    for (int64_t i = begin; i < end && i < begin + TD_LOOKUP_PREFETCH; i++)
        td_cpu_lookup_prefetch(&work->lookup, i);
    for (int64_t i = begin; i < end; i++) {
        if (i + TD_LOOKUP_PREFETCH < end)
            td_cpu_lookup_prefetch(&work->lookup, i + TD_LOOKUP_PREFETCH);
        memcpy(work->out + i * dim, td_cpu_lookup_row(&work->lookup, i), (size_t)dim * sizeof(float));
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *table = &call->inputs[TABLE];
    copy_work work = {.out = call->outputs[0].data};
    td_cpu_lookup_init(&work.lookup, call, &call->inputs[IDS], true, table->data, table->dims[0], table->dims[1]);
    td_cpu_for(team, work.lookup.ids.count, td_cpu_lookup_block(1, 0, work.lookup.dim), copy_range, &work);
    return td_cpu_lookup_result(&work.lookup);
}

const td_cpu_kernel TD_KERNEL(embedding) = {.op = "embedding", .supports = supports, .run = run};
