/* scale and scale_by: times a number of the graph, or of the step. */
#include "backends/cpu/kernels/chunks.h"

typedef struct scaling {
    const td_kernel_call *call;
    float factor;
} scaling;

static void range(void *context, int64_t begin, int64_t end)
{
    const scaling *s = context;
    const float factor = s->factor;
    TD_CHUNKED_RANGE(s->call, begin, end, x[i] * factor)
}

static td_status *run_scale(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    scaling s = {call, (float)td_cpu_attr_float(call, "factor", 1.0)};
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, range, &s);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(scale) = {.op = "scale", .supports = td_cpu_floats_only, .run = run_scale};

static bool supports_scale_by(const td_kernel_call *call)
{
    return td_cpu_is_float(&call->inputs[0]) && td_cpu_is(&call->inputs[1], TD_SCALAR, TD_F32);
}

static td_status *run_scale_by(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    scaling s = {call, *(const float *)call->inputs[1].data};
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, range, &s);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(scale_by) = {.op = "scale_by", .supports = supports_scale_by, .run = run_scale_by};
