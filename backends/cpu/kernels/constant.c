/* ones and constant: one number in every element. */
#include "backends/cpu/kernels/chunks.h"

typedef struct filling {
    const td_tensor *y;
    float value;
} filling;

static void range(void *context, int64_t begin, int64_t end)
{
    const filling *f = context;
    for (int64_t at = begin; at < end; at += TD_CHUNK) {
        float buffer[TD_CHUNK];
        const int64_t n = end - at < TD_CHUNK ? end - at : TD_CHUNK;
        float *y = td_chunk_target(f->y, at, buffer);
        for (int64_t i = 0; i < n; i++)
            y[i] = f->value;
        td_chunk_store(f->y, at, n, y);
    }
}

static td_status *fill(const td_kernel_call *call, td_team *team, float value)
{
    filling f = {&call->outputs[0], value};
    td_cpu_for(team, td_cpu_elements(f.y), TD_CPU_BLOCK, range, &f);
    return NULL;
}

static td_status *run_ones(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return fill(call, team, 1);
}

static td_status *run_constant(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return fill(call, team, (float)td_cpu_attr_float(call, "value", 0));
}

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is_float(&call->outputs[0]);
}

const td_cpu_kernel TD_KERNEL(ones) = {.op = "ones", .supports = supports, .run = run_ones};
const td_cpu_kernel TD_KERNEL(constant) = {.op = "constant", .supports = supports, .run = run_constant};
