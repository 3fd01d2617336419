/* reshape: the same elements in row-major order under another shape. A view: no bytes move. */
#include <string.h>

#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "as many elements as x, for every extent"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    infer->outputs[0] = infer->inputs[0];
    TD_TRY(td_infer_shape_attr(infer, &infer->outputs[0].shape));
    char from[160], to[160];
    if (!td_shape_same_elements(&infer->inputs[0].shape, &infer->outputs[0].shape))
        return TD_SHAPE_ERROR(infer, "x is %s and the shape is %s; both must hold as many elements at every extent",
                              td_shape_text(infer->graph, &infer->inputs[0].shape, from, sizeof from),
                              td_shape_text(infer->graph, &infer->outputs[0].shape, to, sizeof to));
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    if (d->wanted[0])
        d->input_gradients[0] = td_reshape(d->output_gradients[0], td_value_shape(d->inputs[0]));
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
    if (td_tensor_elements(y) && x->data != y->data)
        memmove(y->data, x->data, (size_t)td_tensor_bytes(y));
    return NULL;
}

const td_op td_op_reshape = {
    .name = "reshape",
    .summary = "the same elements under another shape (a view)",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_VIEW,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .in_place = {{1, 1}},
    .reference = reference,
};

/* The dimension that -1 stands for: whatever makes the elements equal. Left as it is, and refused by the shape rule, where
 * there is none. */
static void resolve_open_dimension(const td_shape *from, td_shape *shape)
{
    int32_t open = -1;
    td_dim total, rest = td_dim_constant(1);
    for (int32_t i = 0; i < shape->rank; i++) {
        if (open < 0 && td_dim_is(shape->dims[i], -1))
            open = i;
        else if (!td_dim_multiply(rest, shape->dims[i], &rest))
            return;
    }
    if (open < 0 || !td_shape_elements(from, &total))
        return;
    if (rest.extent < 0 && rest.constant > 0 && total.constant % rest.constant == 0 &&
        (total.extent < 0 || total.multiple % rest.constant == 0)) {
        shape->dims[open] = td_dim_constant(total.constant / rest.constant);
        if (total.extent >= 0)
            shape->dims[open] = (td_dim){total.extent, total.multiple / rest.constant, total.constant / rest.constant};
    } else if (rest.extent >= 0 && rest.extent == total.extent && rest.multiple > 0 &&
               total.multiple % rest.multiple == 0) {
        shape->dims[open] = td_dim_constant(total.multiple / rest.multiple);
    }
}

td_value td_reshape(td_value x, td_shape shape)
{
    int64_t numbers[3 * TD_MAX_RANK];
    td_shape from = td_value_shape(x);
    resolve_open_dimension(&from, &shape);
    return td_build1("reshape", NULL, x, (td_attr[]){td_shape_attr(&shape, numbers)}, 1);
}
