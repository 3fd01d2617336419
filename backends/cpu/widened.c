/* An f32 kernel on 16-bit operands: see widened.h. */
#include "backends/cpu/widened.h"

#include <string.h>

enum { ALIGNMENT = 64 };

static bool is_narrow(const td_tensor *t)
{
    return t->kind == TD_DENSE && (t->dtype == TD_BF16 || t->dtype == TD_F16);
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

bool td_widened_call(const td_kernel_call *call, td_tensor storage[TD_WIDENED_MOST], td_kernel_call *out_call)
{
    const int32_t n = call->n_inputs + call->n_outputs;
    bool any = false;
    if (n > TD_WIDENED_MOST)
        return false;
    for (int32_t i = 0; i < n; i++) {
        storage[i] = i < call->n_inputs ? call->inputs[i] : call->outputs[i - call->n_inputs];
        if (!is_narrow(&storage[i]))
            continue;
        storage[i].dtype = TD_F32;
        any = true;
    }
    *out_call = *call;
    out_call->inputs = storage;
    out_call->outputs = storage + call->n_inputs;
    return any;
}

size_t td_widened_scratch_bytes(const td_kernel_call *call, size_t inner)
{
    size_t bytes = aligned(inner);
    for (int32_t i = 0; i < call->n_inputs + call->n_outputs; i++) {
        const td_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        bytes += is_narrow(t) ? aligned((size_t)td_cpu_elements(t) * sizeof(float)) : 0;
    }
    return bytes;
}

static td_status *run_cast(const td_cpu_kernel *cast, const td_tensor *from, const td_tensor *to, td_team *team)
{
    td_tensor input = *from, output = *to;
    td_kernel_call call = {
        .struct_size = sizeof call, .op = "cast", .inputs = &input, .outputs = &output, .n_inputs = 1, .n_outputs = 1};
    return cast->run(&call, team, NULL);
}

td_status *td_widened_run(const td_cpu_kernel *kernel, const td_cpu_kernel *cast, size_t inner,
                          const td_kernel_call *call, td_team *team, void *state)
{
    td_tensor storage[TD_WIDENED_MOST];
    td_kernel_call wide;
    char *free_bytes = (char *)call->scratch + aligned(inner);
    (void)td_widened_call(call, storage, &wide);
    for (int32_t i = 0; i < call->n_inputs + call->n_outputs; i++) {
        const td_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (!is_narrow(t))
            continue;
        storage[i].data = free_bytes;
        free_bytes += aligned((size_t)td_cpu_elements(t) * sizeof(float));
        if (i < call->n_inputs)
            TD_TRY(run_cast(cast, t, &storage[i], team));
    }
    wide.scratch_bytes = inner;
    TD_TRY(kernel->run(&wide, team, state));
    for (int32_t i = 0; i < call->n_outputs; i++)
        if (is_narrow(&call->outputs[i]))
            TD_TRY(run_cast(cast, &wide.outputs[i], &call->outputs[i], team));
    return NULL;
}
