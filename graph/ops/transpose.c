/* transpose: axes in another order; its gradient is the inverse transpose. */
#include <string.h>

#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "permutation",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "output axis i is input axis permutation[i]"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    const td_attr *order = td_attr_find(infer->attrs, infer->n_attrs, "permutation");
    const td_shape *x = &infer->inputs[0].shape;
    unsigned seen = 0;
    bool valid = order->n_ints == x->rank;
    infer->outputs[0] = infer->inputs[0];
    for (int32_t i = 0; valid && i < x->rank; i++) {
        valid = order->ints[i] >= 0 && order->ints[i] < x->rank && !(seen >> order->ints[i] & 1u);
        if (!valid)
            break;
        seen |= 1u << order->ints[i];
        infer->outputs[0].shape.dims[i] = x->dims[order->ints[i]];
    }
    char text[160];
    if (!valid)
        return TD_SHAPE_ERROR(infer, "x is %s; the permutation must name each of its %d axes once",
                              td_shape_text(infer->graph, x, text, sizeof text), (int)x->rank);
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    const td_attr *order = td_attr_find(d->attrs, d->n_attrs, "permutation");
    int32_t inverse[TD_MAX_RANK] = {0};
    for (int32_t i = 0; i < order->n_ints; i++)
        inverse[order->ints[i]] = i;
    if (d->wanted[0])
        d->input_gradients[0] = td_transpose(d->output_gradients[0], order->n_ints, inverse);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const td_attr *order = td_attr_find(call->attrs, call->n_attrs, "permutation");
    int64_t n = td_tensor_elements(y);
    size_t size = td_dtype_bytes(x->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from = 0;
        for (int32_t axis = y->rank - 1; axis >= 0; axis--) {
            from += rest % y->dims[axis] * td_inner_elements(x, (int32_t)order->ints[axis]);
            rest /= y->dims[axis];
        }
        memcpy((char *)y->data + (size_t)i * size, (const char *)x->data + (size_t)from * size, size);
    }
    return NULL;
}

const td_op td_op_transpose = {
    .name = "transpose",
    .summary = "axes in another order",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

td_value td_transpose(td_value x, int32_t rank, const int32_t *permutation)
{
    int64_t order[TD_MAX_RANK];
    int32_t n = rank < 0 ? 0 : rank > TD_MAX_RANK ? TD_MAX_RANK : rank;
    for (int32_t i = 0; i < n; i++)
        order[i] = permutation[i];
    return td_build1("transpose", NULL, x, (td_attr[]){TD_INTS("permutation", order, n)}, 1);
}
