/* relu: y = x > 0 ? x : 0 (NaN gives 0, as the reference does), elementwise. */
#include "backends/cpu/kernel.h"

typedef struct relu_arguments {
    const float *x;
    float *y;
} relu_arguments;

static void relu_range(void *context, int64_t begin, int64_t end)
{
    const relu_arguments *arguments = context;
    const float *x = arguments->x;
    float *y = arguments->y; /* may be x: in place */
    for (int64_t i = begin; i < end; i++)
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    relu_arguments arguments = {call->inputs[0].data, call->outputs[0].data};
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, relu_range, &arguments);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(relu) = {.op = "relu", .supports = supports, .run = run};
