/* add_n: the sum of equal-shaped values, left to right in f32, rounded once. */
#include "backends/cpu/kernels/chunks.h"

static void add_chunk(const td_kernel_call *call, int64_t begin, int64_t n)
{
    float sum[TD_CHUNK], buffer[TD_CHUNK];
    memcpy(sum, td_chunk_load(&call->inputs[0], begin, n, buffer), (size_t)n * sizeof *sum);
    for (int32_t k = 1; k < call->n_inputs; k++) {
        const float *x = td_chunk_load(&call->inputs[k], begin, n, buffer);
        for (int64_t i = 0; i < n; i++)
            sum[i] += x[i];
    }
    if (call->outputs[0].dtype == TD_F32)
        memcpy((float *)call->outputs[0].data + begin, sum, (size_t)n * sizeof *sum);
    td_chunk_store(&call->outputs[0], begin, n, sum);
}

static void range(void *context, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += TD_CHUNK)
        add_chunk(context, at, end - at < TD_CHUNK ? end - at : TD_CHUNK);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(add_n) = {.op = "add_n", .supports = td_cpu_floats_only, .run = run};
