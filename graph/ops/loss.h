/* What the losses share: the mean over samples in a fixed order, and the factor that their gradients start from. Not an op.
 *
 * A loss adds up FP32 losses of single elements (or samples) in double, in blocks of TD_SUM_BLOCK (base/sums.h), block sums in
 * order, and divides once by the number that are there. No samples: the loss is 0. */
#ifndef TANDEM_GRAPH_OPS_LOSS_H
#define TANDEM_GRAPH_OPS_LOSS_H

#include "base/sums.h"
#include "graph/op.h"

/* The loss of one element or sample. */
typedef float (*loss_of_one_fn)(const td_kernel_call *call, int64_t index);

static inline float loss_mean(const td_kernel_call *call, int64_t n, loss_of_one_fn loss_of_one)
{
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += TD_SUM_BLOCK) {
        double lanes[TD_SUM_LANES] = {0};
        for (int64_t i = begin; i < n && i < begin + TD_SUM_BLOCK; i++)
            lanes[(i - begin) % TD_SUM_LANES] += (double)loss_of_one(call, i);
        total += td_fold_lanes_double(lanes);
    }
    return n ? (float)(total / (double)n) : 0;
}

/* The gradient of the loss (a scalar or a dense [1], f32 or f64), shared by n samples: divided in double, rounded once. */
static inline float loss_factor(const td_tensor *gradient, int64_t n)
{
    const double seed =
        gradient->dtype == TD_F64 ? *(const double *)gradient->data : (double)*(const float *)gradient->data;
    return n ? (float)(seed / (double)n) : 0;
}

/* Input `index` is one number, f32 or f64, passed by value or dense [1]. */
static inline td_status *loss_require_gradient(const td_infer *infer, int32_t index)
{
    const td_type *gradient = &infer->inputs[index];
    if (gradient->kind != TD_SCALAR && gradient->kind != TD_DENSE)
        return TD_SHAPE_ERROR(infer, "the loss's gradient must be a scalar or dense");
    if (gradient->dtype != TD_F32 && gradient->dtype != TD_F64)
        return TD_SHAPE_ERROR(infer, "the loss's gradient must be f32 or f64, not %s", td_dtype_name(gradient->dtype));
    td_dim elements;
    if (!td_shape_elements(&gradient->shape, &elements) || !td_dim_is(elements, 1))
        return TD_SHAPE_ERROR(infer, "the loss's gradient must be one number");
    return NULL;
}

/* Inputs 0 and 1 are f32 and of one shape. */
static inline td_status *loss_require_alike(const td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    TD_TRY(td_infer_require(infer, 1, TD_DENSE, TD_F32));
    char a[128], b[128];
    if (td_shape_equal(&infer->inputs[0].shape, &infer->inputs[1].shape))
        return NULL;
    return TD_SHAPE_ERROR(infer, "%s and %s must be of one shape",
                          td_shape_text(infer->graph, &infer->inputs[0].shape, a, sizeof a),
                          td_shape_text(infer->graph, &infer->inputs[1].shape, b, sizeof b));
}

/* outputs[0] is the loss: f32 [1]. */
static inline void loss_infer_output(td_infer *infer)
{
    const td_dim one = td_dim_constant(1);
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(1, &one)};
}

/* `flops` per element of input 0. */
static inline void loss_cost(const td_kernel_call *call, double flops, td_cost *out)
{
    const double bytes = (double)td_tensor_bytes(&call->inputs[0]);
    *out = (td_cost){flops * bytes / 4, bytes + (double)td_tensor_bytes(&call->inputs[1]),
                     (double)td_tensor_bytes(&call->outputs[0])};
}

#endif
