/* <op>: what it computes, from which inputs, and the order of every reduction. Copy this file, then add one row to
 * kernels.def. What holds for all kernels: backends/cpu/kernel.h.
 *
 * This example scales the rows of x [rows, columns] by s [rows]; its unit of work is a row. */
#include "backends/cpu/kernel.h"

typedef struct scale_rows_arguments {
    const float *x, *s;
    float *y;
    int64_t columns;
} scale_rows_arguments;

static void scale_rows(void *context, int64_t begin, int64_t end)
{
    const scale_rows_arguments *arguments = context;
    for (int64_t row = begin; row < end; row++) {
        const float *x = arguments->x + row * arguments->columns;
        float *y = arguments->y + row * arguments->columns;
        float s = arguments->s[row];
        for (int64_t i = 0; i < arguments->columns; i++)
            y[i] = x[i] * s;
    }
}

/* Only what holds for all extents up to the capacities may be asked here. */
static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32) && td_cpu_is(&call->inputs[1], TD_DENSE, TD_F32);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state; /* what `prepare` made, if the kernel has one */
    int64_t rows = call->inputs[0].dims[0], columns = td_cpu_product(&call->inputs[0], 1, call->inputs[0].rank);
    scale_rows_arguments arguments = {call->inputs[0].data, call->inputs[1].data, call->outputs[0].data, columns};
    int64_t block = columns ? 1 + TD_CPU_BLOCK / columns : 1; /* by shape, never by threads */
    td_cpu_for(team, rows, block, scale_rows, &arguments);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(scale_rows) = {.op = "scale_rows", .supports = supports, .run = run};
