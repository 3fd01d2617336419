/* reduce_to: sums over the axes that broadcasting repeated, so that a gradient gets its input's shape back.
 *
 * Which axes is known when the graph is built, so no reference input keeps the forward value alive. The sum runs over the
 * reduced elements in row-major order, in double, rounded once. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "axes", .type = TD_ATTR_INTS, .required = true, .help = "axes that shrink to one element, ascending"},
    {.name = "drop", .type = TD_ATTR_INT, .help = "how many leading axes, all of them summed, are removed"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    const td_attr *axes = td_attr_find(infer->attrs, infer->n_attrs, "axes");
    int64_t drop = td_attr_int(infer->attrs, infer->n_attrs, "drop", 0);
    td_shape shape = infer->inputs[0].shape;
    for (int32_t i = 0; i < axes->n_ints; i++) {
        if (axes->ints[i] < (i ? axes->ints[i - 1] + 1 : 0) || axes->ints[i] >= shape.rank)
            return TD_SHAPE_ERROR(infer, "axes must be ascending and below the rank %d", (int)shape.rank);
        shape.dims[axes->ints[i]] = td_dim_constant(1);
    }
    if (drop < 0 || drop > axes->n_ints || (drop > 0 && axes->ints[drop - 1] != drop - 1))
        return TD_SHAPE_ERROR(infer, "drop is %lld; the axes removed must be among those summed", (long long)drop);
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape = td_shape_of(shape.rank - (int32_t)drop, shape.dims + drop);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = (double)td_tensor_elements(&call->inputs[0]);
}

/* Where element `i` of the tensor's `n` given axes (row-major among them) lies, the other axes at 0. */
static int64_t offset_of(const td_tensor *t, const int32_t *axes, int32_t n, int64_t i)
{
    int64_t offset = 0;
    for (int32_t k = n - 1; k >= 0; k--) {
        offset += i % t->dims[axes[k]] * td_inner_elements(t, axes[k]);
        i /= t->dims[axes[k]];
    }
    return offset;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const td_attr *axes = td_attr_find(call->attrs, call->n_attrs, "axes");
    int32_t summed[TD_MAX_RANK], kept[TD_MAX_RANK], n_summed = 0, n_kept = 0;
    int64_t terms = 1, n = td_tensor_elements(y);
    for (int32_t axis = 0; axis < x->rank; axis++) {
        if (n_summed < axes->n_ints && axes->ints[n_summed] == axis) {
            terms *= x->dims[axis];
            summed[n_summed++] = axis;
        } else {
            kept[n_kept++] = axis;
        }
    }
    for (int64_t o = 0; o < n; o++) {
        double sum = 0.0;
        int64_t begin = offset_of(x, kept, n_kept, o);
        for (int64_t i = 0; i < terms; i++)
            sum += (double)td_get_f32(x, begin + offset_of(x, summed, n_summed, i));
        td_set_f32(y, o, (float)sum);
    }
    return NULL;
}

const td_op td_op_reduce_to = {
    .name = "reduce_to",
    .summary = "sums over the axes that broadcasting repeated",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is a gradient itself",
    .cost = cost,
    .reference = reference,
};

td_value td_reduce_to(td_value gradient, td_value input)
{
    td_shape from = td_value_shape(gradient), to = td_value_shape(input);
    if (td_shape_equal(&from, &to))
        return gradient;
    int64_t axes[TD_MAX_RANK];
    int32_t n_axes = 0, drop = from.rank - to.rank;
    for (int32_t i = 0; i < from.rank; i++)
        if (i < drop || !td_dim_equal(from.dims[i], to.dims[i - drop]))
            axes[n_axes++] = i;
    return td_build1("reduce_to", NULL, gradient, (td_attr[]){TD_INTS("axes", axes, n_axes), TD_INT("drop", drop)}, 2);
}
