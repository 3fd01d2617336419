/* softmax: exp(x - max) over its sum, along the last axis; and its gradient from the output.
 *
 * Sums of a row are in double, in the lane order of base/sums.h, rounded once. */
#include <math.h>

#include "base/sums.h"
#include "base/math.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_all_same(infer));
    if (infer->inputs[0].shape.rank < 1)
        return TD_SHAPE_ERROR(infer, "input 0 is []; it needs at least one dimension");
    return NULL;
}

static td_status *gradient(td_differentiate *d)
{
    if (d->wanted[0])
        d->input_gradients[0] = td_build2("softmax_gradient", NULL, d->outputs[0], d->output_gradients[0], NULL, 0);
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = 12.0 * (double)td_tensor_elements(&call->outputs[0]);
}

static float largest(const td_tensor *x, int64_t begin, int64_t n)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        float value = td_get_f32(x, begin + i);
        most = value > most ? value : most;
    }
    return most;
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t rows = td_tensor_rows(x), n = td_tensor_last(x);
    for (int64_t row = 0; row < rows; row++) {
        float most = largest(x, row * n, n);
        double lanes[TD_SUM_LANES] = {0};
        for (int64_t i = 0; i < n; i++)
            lanes[i % TD_SUM_LANES] += (double)td_expf(td_get_f32(x, row * n + i) - most);
        float sum = (float)td_fold_lanes_double(lanes);
        for (int64_t i = 0; i < n; i++)
            td_set_f32(y, row * n + i, td_expf(td_get_f32(x, row * n + i) - most) / sum);
    }
    return NULL;
}

const td_op td_op_softmax = {
    .name = "softmax",
    .summary = "exp(x) over its sum, along the last axis",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .in_place = {{1, 1}},
    .reference = reference,
};

static td_status *reference_gradient(const td_kernel_call *call)
{
    const td_tensor *y = &call->inputs[0], *dy = &call->inputs[1], *dx = &call->outputs[0];
    int64_t rows = td_tensor_rows(y), n = td_tensor_last(y);
    for (int64_t row = 0; row < rows; row++) {
        double lanes[TD_SUM_LANES] = {0};
        for (int64_t i = 0; i < n; i++)
            lanes[i % TD_SUM_LANES] += (double)td_get_f32(y, row * n + i) * (double)td_get_f32(dy, row * n + i);
        float mean = (float)td_fold_lanes_double(lanes);
        for (int64_t i = 0; i < n; i++)
            td_set_f32(dx, row * n + i, td_get_f32(y, row * n + i) * (td_get_f32(dy, row * n + i) - mean));
    }
    return NULL;
}

const td_op td_op_softmax_gradient = {
    .name = "softmax_gradient",
    .summary = "y (dy - sum(y dy)), along the last axis",
    .inputs = {{"y", 0}, {"dy", 0}},
    .outputs = {{"dx", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is a gradient itself",
    .cost = cost,
    .in_place = {{1, 2}, {1, 1}},
    .reference = reference_gradient,
};

td_value td_softmax(td_value x)
{
    return td_build1("softmax", NULL, x, NULL, 0);
}
