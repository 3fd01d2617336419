/* copy of dense values, and zeros_like: whole buffers, any dtype. */
#include "backends/cpu/kernels/chunks.h"

static bool supports(const td_kernel_call *call)
{
    return call->inputs[0].kind == TD_DENSE && call->outputs[0].kind == TD_DENSE;
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *y = &call->outputs[0];
    size_t bytes = (size_t)td_cpu_elements(y) * td_cpu_element_bytes(y);
    td_copy_rows(team, (td_row_copy){y->data, call->inputs[0].data, bytes, bytes, bytes, 1});
    return NULL;
}

const td_cpu_kernel TD_KERNEL(copy) = {.op = "copy", .supports = supports, .run = run};

static void clear(void *context, int64_t begin, int64_t end)
{
    const td_tensor *y = context;
    size_t size = td_cpu_element_bytes(y);
    memset((char *)y->data + (size_t)begin * size, 0, (size_t)(end - begin) * size);
}

static td_status *run_zeros(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, clear, (void *)(uintptr_t)&call->outputs[0]);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(zeros_like) = {.op = "zeros_like", .run = run_zeros};
