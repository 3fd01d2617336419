/* matmul: products of matrices in the last two axes, with transposes and leading batch axes. Reference sums as in linear.c. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "transpose_a", .type = TD_ATTR_BOOL, .help = "a is [.., k, m]"},
    {.name = "transpose_b", .type = TD_ATTR_BOOL, .help = "b is [.., n, k]"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    const td_shape *a = &infer->inputs[0].shape, *b = &infer->inputs[1].shape;
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_dense(infer, 1, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, 1));
    char left[160], right[160];
    td_shape_text(infer->graph, a, left, sizeof left);
    td_shape_text(infer->graph, b, right, sizeof right);
    bool ranks = a->rank >= 2 && (b->rank == 2 || b->rank == a->rank);
    for (int32_t i = 0; ranks && b->rank > 2 && i < a->rank - 2; i++)
        ranks = td_dim_equal(a->dims[i], b->dims[i]);
    if (!ranks)
        return TD_SHAPE_ERROR(
            infer,
            "a is %s and b is %s; both need two dimensions, and the leading ones must be equal or b have "
            "none",
            left, right);
    int32_t ta = td_attr_int(infer->attrs, infer->n_attrs, "transpose_a", 0) != 0;
    int32_t tb = td_attr_int(infer->attrs, infer->n_attrs, "transpose_b", 0) != 0;
    if (!td_dim_equal(a->dims[a->rank - 1 - ta], b->dims[b->rank - 2 + tb]))
        return TD_SHAPE_ERROR(infer, "a is %s%s and b is %s%s; the inner dimensions must be equal", left,
                              ta ? " (transposed)" : "", right, tb ? " (transposed)" : "");
    td_dim rows = a->dims[a->rank - 2 + ta], columns = b->dims[b->rank - 1 - tb];
    infer->outputs[0] = infer->inputs[0];
    infer->outputs[0].shape.dims[a->rank - 2] = rows;
    infer->outputs[0].shape.dims[a->rank - 1] = columns;
    return NULL;
}

static td_value swap_last_two(td_value x)
{
    int32_t order[TD_MAX_RANK], rank = td_value_shape(x).rank;
    for (int32_t i = 0; i < rank; i++)
        order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return td_transpose(x, rank, order);
}

/* With C = A B, A and B as the op reads them: dA = dC B^T and dB = A^T dC, each transposed where the input is stored so. */
static td_status *gradient(td_differentiate *d)
{
    td_value a = d->inputs[0], b = d->inputs[1], dc = d->output_gradients[0];
    bool ta = td_attr_int(d->attrs, d->n_attrs, "transpose_a", 0) != 0;
    bool tb = td_attr_int(d->attrs, d->n_attrs, "transpose_b", 0) != 0;
    bool shared_b = td_value_shape(b).rank < td_value_shape(a).rank; /* one b for all of a's batch */
    if (d->wanted[0]) {
        if (!ta)
            d->input_gradients[0] = td_matmul(dc, b, false, !tb);
        else if (shared_b)
            d->input_gradients[0] = swap_last_two(td_matmul(dc, b, false, !tb));
        else
            d->input_gradients[0] = td_matmul(b, dc, tb, true);
    }
    if (d->wanted[1] && shared_b) {
        td_value rows = ta ? swap_last_two(a) : a;
        d->input_gradients[1] = td_build2("linear_weight_gradient", NULL, tb ? dc : rows, tb ? rows : dc, NULL, 0);
    } else if (d->wanted[1]) {
        d->input_gradients[1] = tb ? td_matmul(dc, a, true, ta) : td_matmul(a, dc, !ta, false);
    }
    return NULL;
}

static int64_t inner_size(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0];
    return a->dims[td_attr_int(call->attrs, call->n_attrs, "transpose_a", 0) ? a->rank - 2 : a->rank - 1];
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 2.0 * (double)td_tensor_elements(&call->outputs[0]) * (double)inner_size(call);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    bool ta = td_attr_int(call->attrs, call->n_attrs, "transpose_a", 0) != 0;
    bool tb = td_attr_int(call->attrs, call->n_attrs, "transpose_b", 0) != 0;
    int64_t m = c->dims[c->rank - 2], n = c->dims[c->rank - 1], k = inner_size(call);
    int64_t batches = td_outer_elements(c, c->rank - 2);
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t a0 = batch * m * k, b0 = b->rank > 2 ? batch * k * n : 0, c0 = batch * m * n;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (int64_t l = 0; l < k; l++)
                    sum += (double)td_get_f32(a, a0 + (ta ? l * m + i : i * k + l)) *
                           (double)td_get_f32(b, b0 + (tb ? j * k + l : l * n + j));
                td_set_f32(c, c0 + i * n + j, (float)sum);
            }
    }
    return NULL;
}

const td_op td_op_matmul = {
    .name = "matmul",
    .summary = "matrix product of the last two axes, over equal leading axes",
    .inputs = {{"a", 0}, {"b", 0}},
    .outputs = {{"c", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .reference = reference,
};

td_value td_matmul(td_value a, td_value b, bool transpose_a, bool transpose_b)
{
    return td_build2("matmul", NULL, a, b,
                     (td_attr[]){TD_FLAG("transpose_a", transpose_a), TD_FLAG("transpose_b", transpose_b)}, 2);
}
