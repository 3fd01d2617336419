/* part: elements [begin, begin + size) of a dense value, in row-major order, as one row of numbers. A view: no bytes move. The planner
 * makes it where one parameter is updated in two places (partition/split.c); a part of a parameter or state may be written. */
#include <string.h>

#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "begin", .type = TD_ATTR_INT, .required = true, .help = "the first element"},
    {.name = "size", .type = TD_ATTR_INT, .required = true, .help = "how many elements"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    td_dim elements;
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    const int64_t begin = td_attr_int(infer->attrs, infer->n_attrs, "begin", 0);
    const int64_t size = td_attr_int(infer->attrs, infer->n_attrs, "size", 0);
    const bool known = td_shape_elements(&infer->inputs[0].shape, &elements) && elements.extent < 0;
    char text[160];
    if (!known || begin < 0 || size < 0 || begin > elements.constant || size > elements.constant - begin)
        return TD_SHAPE_ERROR(infer, "x is %s; elements [%lld, %lld + %lld) are not among them",
                              td_shape_text(infer->graph, &infer->inputs[0].shape, text, sizeof text), (long long)begin,
                              (long long)begin, (long long)size);
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape = (td_shape){.rank = 1, .dims = {td_dim_constant(size)}};
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    (void)call;
    *out_cost = (td_cost){0};
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const size_t begin = (size_t)td_attr_int(call->attrs, call->n_attrs, "begin", 0) * td_dtype_bytes(x->dtype);
    if (td_tensor_elements(y) && (const char *)x->data + begin != y->data)
        memmove(y->data, (const char *)x->data + begin, (size_t)td_tensor_bytes(y));
    return NULL;
}

const td_op td_op_part = {
    .name = "part",
    .summary = "some of the elements of a value, in their order (a view)",
    .inputs = {{"x", TD_PORT_NO_GRADIENT}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_VIEW | TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = reference,
};
