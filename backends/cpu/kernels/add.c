/* add of two f32 tensors of equal shape, elementwise. Broadcasting runs on the reference kernel. */
#include "backends/cpu/kernel.h"

typedef struct add_arguments {
    const float *a, *b;
    float *y;
} add_arguments;

static void add_range(void *context, int64_t begin, int64_t end)
{
    const add_arguments *arguments = context;
    const float *a = arguments->a, *b = arguments->b;
    float *y = arguments->y; /* may be a or b: in place */
    for (int64_t i = begin; i < end; i++)
        y[i] = a[i] + b[i];
}

/* Equal shapes at capacity hold equally many elements at all extents: the shape rule lets only equal extents, or a 1, meet,
 * and a capacity of 1 that meets a 1 leaves 1 or nothing. */
static bool supports(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1];
    return td_cpu_is(a, TD_DENSE, TD_F32) && td_cpu_is(b, TD_DENSE, TD_F32) && td_cpu_same_dims(a, b);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    add_arguments arguments = {call->inputs[0].data, call->inputs[1].data, call->outputs[0].data};
    td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, add_range, &arguments);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(add) = {.op = "add", .supports = supports, .run = run};
