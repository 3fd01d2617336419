/* slice, slice_gradient and split: rows of bytes out of, or into, an axis; any dtype. */
#include "backends/cpu/kernels/chunks.h"

/* The bytes of one step along `axis`. */
static size_t step_bytes(const td_tensor *t, int32_t axis)
{
    return (size_t)td_cpu_product(t, axis + 1, t->rank) * td_cpu_element_bytes(t);
}

static td_status *run_slice(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int32_t axis = (int32_t)td_cpu_attr_int(call, "axis", 0);
    size_t step = step_bytes(x, axis), bytes = (size_t)y->dims[axis] * step;
    if (td_cpu_elements(y) == 0)
        return NULL;
    td_copy_rows(team, (td_row_copy){y->data, (const char *)x->data + (size_t)td_cpu_attr_int(call, "begin", 0) * step,
                                     bytes, (size_t)x->dims[axis] * step, bytes, td_cpu_product(x, 0, axis)});
    return NULL;
}

const td_cpu_kernel TD_KERNEL(slice) = {.op = "slice", .run = run_slice};

/* Rows of dx: zeros, dy, zeros. */
typedef struct padding {
    char *to;
    const char *from;
    size_t before, bytes, after;
} padding;

static void pad_rows(void *context, int64_t begin, int64_t end)
{
    const padding *p = context;
    size_t stride = p->before + p->bytes + p->after;
    for (int64_t row = begin; row < end; row++) {
        char *to = p->to + (size_t)row * stride;
        memset(to, 0, p->before);
        if (p->bytes)
            memcpy(to + p->before, p->from + (size_t)row * p->bytes, p->bytes);
        memset(to + p->before + p->bytes, 0, p->after);
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    int32_t axis = (int32_t)td_cpu_attr_int(call, "axis", 0);
    size_t step = step_bytes(dx, axis), whole = (size_t)dx->dims[axis] * step;
    if (td_cpu_elements(dx) == 0)
        return NULL;
    padding p = {.to = dx->data, .from = dy->data, .bytes = (size_t)dy->dims[axis] * step};
    p.before = (size_t)td_cpu_attr_int(call, "begin", 0) * step;
    p.after = whole - p.before - p.bytes;
    td_cpu_for(team, td_cpu_product(dx, 0, axis), 1 + (int64_t)((size_t)TD_CPU_BLOCK * 4 / whole), pad_rows, &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(slice_gradient) = {.op = "slice_gradient", .run = run_gradient};

static td_status *run_split(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *x = &call->inputs[0];
    int32_t axis = (int32_t)td_cpu_attr_int(call, "axis", 0);
    size_t whole = (size_t)x->dims[axis] * step_bytes(x, axis), bytes = whole / (size_t)call->n_outputs;
    if (td_cpu_elements(x) == 0)
        return NULL;
    for (int32_t i = 0; i < call->n_outputs; i++)
        td_copy_rows(team, (td_row_copy){call->outputs[i].data, (const char *)x->data + (size_t)i * bytes, bytes, whole,
                                         bytes, td_cpu_product(x, 0, axis)});
    return NULL;
}

const td_cpu_kernel TD_KERNEL(split) = {.op = "split", .run = run_split};
