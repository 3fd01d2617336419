/* cross_layer and its gradient: elementwise, one pass. */
#include "backends/cpu/kernels/chunks.h"

#include <math.h>

static bool supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < 3; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

static void forward_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const float *x0 = call->inputs[0].data, *x = call->inputs[1].data, *inner = call->inputs[2].data;
    float *out = call->outputs[0].data;
    TD_INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        out[i] = fmaf(x0[i], inner[i], x[i]);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, forward_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(cross_layer) = {.op = "cross_layer", .supports = supports, .run = run};

static void gradient_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const float *gradient = call->inputs[0].data, *x0 = call->inputs[1].data, *inner = call->inputs[2].data;
    float *x0_gradient = call->outputs[0].data, *inner_gradient = call->outputs[1].data;
    TD_INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        x0_gradient[i] = gradient[i] * inner[i];
        inner_gradient[i] = gradient[i] * x0[i];
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, gradient_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(cross_layer_gradient) = {
    .op = "cross_layer_gradient", .supports = supports, .run = run_gradient};
