/* gelu, erf and tanh form, and its gradient from the input. The formulas are in base/gelu.h. */
#include "backends/cpu/kernels/chunks.h"
#include "base/gelu.h"

static bool uses_tanh(const td_kernel_call *call)
{
    return strcmp(td_cpu_attr_string(call, "form", "erf"), "tanh") == 0;
}

static void forward_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    if (uses_tanh(call)) {
        TD_CHUNKED_RANGE(call, begin, end, td_gelu_tanh(x[i]))
    } else {
        TD_CHUNKED_RANGE(call, begin, end, td_gelu_erf(x[i]))
    }
}

static td_status *run_forward(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK / 4, forward_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gelu) = {.op = "gelu", .supports = td_cpu_floats_only, .run = run_forward};

static void gradient_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    if (uses_tanh(call)) {
        TD_CHUNKED_RANGE(call, begin, end, z[i] * td_gelu_tanh_slope(x[i]))
    } else {
        TD_CHUNKED_RANGE(call, begin, end, z[i] * td_gelu_erf_slope(x[i]))
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK / 4, gradient_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gelu_gradient) = {
    .op = "gelu_gradient", .supports = td_cpu_floats_only, .run = run_gradient};
