/* Reference kernels that are written for f32, on 16-bit operands: see in_f32.h. */
#include "graph/ops/in_f32.h"

#include "base/memory.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

enum { MOST = 16 };

static bool is_narrow(const td_tensor *t)
{
    return t->kind == TD_DENSE && (t->dtype == TD_BF16 || t->dtype == TD_F16);
}

static td_status *widen(const td_tensor *from, bool is_input, td_tensor *out)
{
    const int64_t n = td_tensor_elements(from);
    float *data = td_calloc((size_t)n + 1, sizeof *data);
    *out = *from;
    out->dtype = TD_F32;
    out->data = data;
    if (!data)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a reference kernel's operands");
    for (int64_t i = 0; is_input && i < n; i++)
        data[i] = td_get_f32(from, i);
    return NULL;
}

td_status *td_reference_in_f32(const td_kernel_call *call, td_status *(*reference)(const td_kernel_call *call))
{
    td_tensor wide[MOST];
    bool widened[MOST] = {false};
    td_kernel_call inner = *call;
    td_status *status = NULL;
    const int32_t n = call->n_inputs + call->n_outputs;
    if (n > MOST)
        return TD_ERROR(TD_INTERNAL, "%s has %d operands, %d at most are widened", call->op, n, MOST);
    for (int32_t i = 0; i < n && !status; i++) {
        const td_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        wide[i] = *t;
        widened[i] = is_narrow(t);
        if (widened[i])
            status = widen(t, i < call->n_inputs, &wide[i]);
    }
    inner.inputs = wide;
    inner.outputs = wide + call->n_inputs;
    if (!status)
        status = reference(&inner);
    for (int32_t i = 0; i < n; i++) {
        const td_tensor *to = i < call->n_inputs ? NULL : &call->outputs[i - call->n_inputs];
        for (int64_t k = 0; !status && to && widened[i] && k < td_tensor_elements(to); k++)
            td_set_f32(to, k, ((const float *)wide[i].data)[k]);
        if (widened[i])
            td_free(wide[i].data);
    }
    return status;
}
