/* commit: bytes from what is held to the state, in pieces. */
#include "backends/cpu/kernels/chunks.h"

static bool supports(const td_kernel_call *call)
{
    return call->inputs[0].kind == TD_DENSE;
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const size_t bytes = (size_t)td_cpu_elements(&call->inputs[0]) * td_cpu_element_bytes(&call->inputs[0]);
    td_copy_rows(team, (td_row_copy){call->inputs[0].data, call->inputs[1].data, bytes, bytes, bytes, 1});
    return NULL;
}

const td_cpu_kernel TD_KERNEL(commit) = {.op = "commit", .supports = supports, .run = run};
