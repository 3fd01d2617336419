/* gelu, erf and tanh form, and its gradient from the input. Expressions as in graph/ops/gelu.c, where the formulas are. */
#include "backends/cpu/kernels/chunks.h"

static const float sqrt_half = 0.70710678118654752f, sqrt_two_over_pi = 0.79788456080286536f,
                   one_over_sqrt_two_pi = 0.39894228040143268f, cubic = 0.044715f;

static bool uses_tanh(const td_kernel_call *call)
{
    return strcmp(td_cpu_attr_string(call, "form", "erf"), "tanh") == 0;
}

static inline float gelu_erf(float x)
{
    return 0.5f * x * (1.0f + td_erff(x * sqrt_half));
}

static inline float gelu_tanh(float x)
{
    float u = sqrt_two_over_pi * (x + cubic * (x * x * x));
    return 0.5f * x * (1.0f + td_tanhf(u));
}

static inline float slope_erf(float x)
{
    float distribution = 0.5f * (1.0f + td_erff(x * sqrt_half));
    float density = one_over_sqrt_two_pi * td_expf(-0.5f * (x * x));
    return distribution + x * density;
}

static inline float slope_tanh(float x)
{
    float u = sqrt_two_over_pi * (x + cubic * (x * x * x));
    float t = td_tanhf(u);
    float du = sqrt_two_over_pi * (1.0f + 3.0f * cubic * (x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * ((1.0f - t * t) * du);
}

static void forward_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    if (uses_tanh(call)) {
        TD_CHUNKED_RANGE(call, begin, end, gelu_tanh(x[i]))
    } else {
        TD_CHUNKED_RANGE(call, begin, end, gelu_erf(x[i]))
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
        TD_CHUNKED_RANGE(call, begin, end, z[i] * slope_tanh(x[i]))
    } else {
        TD_CHUNKED_RANGE(call, begin, end, z[i] * slope_erf(x[i]))
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
