/* cast between f32, f16 and bf16, and copy_out: to nearest, ties to even. Other dtypes run on the reference kernel. */
#include "backends/cpu/kernels/chunks.h"

static void range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    TD_CHUNKED_RANGE(call, begin, end, x[i])
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(cast) = {.op = "cast", .supports = td_cpu_floats_only, .run = run};
const td_cpu_kernel TD_KERNEL(copy_out) = {.op = "copy_out", .supports = td_cpu_floats_only, .run = run};
