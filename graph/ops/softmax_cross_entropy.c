/* softmax_cross_entropy: -ln softmax(logit)[label] over the last axis, mean over samples, and its gradient.
 *
 * With m the largest logit and s = sum of e^(x - m) in the order of base/sums.h, a sample's loss is ln s + (m - x[label]),
 * and its gradient (e^(x - m) / s - [i = label]) times the output's gradient over the number of samples. */
#include <inttypes.h>

#include "base/math.h"
#include "base/units.h"
#include "graph/ops/loss.h"

enum { FLOPS = 20 };

static td_status *require_labels(const td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    const td_type *logit = &infer->inputs[0], *label = &infer->inputs[1];
    if (label->kind != TD_DENSE || (label->dtype != TD_I64 && label->dtype != TD_I32))
        return TD_SHAPE_ERROR(infer, "labels must be dense integers, i64 or i32");
    td_shape samples = logit->shape;
    samples.rank--;
    char have[128], want[128];
    if (logit->shape.rank < 1 || !td_shape_equal(&samples, &label->shape))
        return TD_SHAPE_ERROR(infer, "logits %s need one label per sample, not %s",
                              td_shape_text(infer->graph, &logit->shape, want, sizeof want),
                              td_shape_text(infer->graph, &label->shape, have, sizeof have));
    return NULL;
}

static td_status *entropy_infer(td_infer *infer)
{
    TD_TRY(require_labels(infer));
    loss_infer_output(infer);
    return NULL;
}

static void entropy_cost(const td_kernel_call *call, td_cost *out)
{
    loss_cost(call, FLOPS, out);
}

static int64_t label_at(const td_tensor *label, int64_t sample)
{
    return label->dtype == TD_I64 ? ((const int64_t *)label->data)[sample] : ((const int32_t *)label->data)[sample];
}

static td_status *check_labels(const td_kernel_call *call)
{
    const int64_t samples = td_tensor_elements(&call->inputs[1]), classes = td_tensor_last(&call->inputs[0]);
    for (int64_t sample = 0; sample < samples; sample++) {
        const int64_t label = label_at(&call->inputs[1], sample);
        if (label < 0 || label >= classes)
            return TD_ERROR(TD_DATA_ERROR, "%s %s: label %" PRId64 " at position %" PRId64 " is outside its %s",
                            call->op, call->name, label, sample, TD_COUNTED(classes, "class"));
    }
    return NULL;
}

static float largest(const float *x, int64_t n)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static float sum_of_exponentials(const float *x, int64_t n, float most)
{
    float lanes[TD_SUM_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lanes[i % TD_SUM_LANES] += td_expf(x[i] - most);
    return td_fold_lanes(lanes);
}

static float sample_loss(const td_kernel_call *call, int64_t sample)
{
    const int64_t classes = td_tensor_last(&call->inputs[0]);
    const float *x = (const float *)call->inputs[0].data + sample * classes;
    const float most = largest(x, classes);
    return td_logf(sum_of_exponentials(x, classes, most)) + (most - x[label_at(&call->inputs[1], sample)]);
}

static td_status *entropy_reference(const td_kernel_call *call)
{
    TD_TRY(check_labels(call));
    *(float *)call->outputs[0].data = loss_mean(call, td_tensor_elements(&call->inputs[1]), sample_loss);
    return NULL;
}

static td_status *entropy_gradient(td_differentiate *d)
{
    const td_value inputs[3] = {d->inputs[0], d->inputs[1], d->output_gradients[0]};
    d->input_gradients[0] = td_graph_add1(d->graph, "softmax_cross_entropy_gradient", NULL, inputs, 3, NULL, 0);
    return NULL;
}

const td_op td_op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .summary = "mean cross entropy of softmax(logit) over the last axis against class labels",
    .inputs = {{"logit", 0}, {"label", TD_PORT_NO_GRADIENT}},
    .outputs = {{"loss", 0}},
    .flags = TD_OP_LOSS,
    .infer = entropy_infer,
    .gradient = entropy_gradient,
    .cost = entropy_cost,
    .reference = entropy_reference,
};

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(require_labels(infer));
    TD_TRY(loss_require_gradient(infer, 2));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    TD_TRY(check_labels(call));
    const int64_t samples = td_tensor_elements(&call->inputs[1]), classes = td_tensor_last(&call->inputs[0]);
    const float factor = loss_factor(&call->inputs[2], samples);
    for (int64_t sample = 0; sample < samples; sample++) {
        const float *x = (const float *)call->inputs[0].data + sample * classes;
        float *out = (float *)call->outputs[0].data + sample * classes;
        const int64_t label = label_at(&call->inputs[1], sample);
        const float most = largest(x, classes), sum = sum_of_exponentials(x, classes, most);
        for (int64_t i = 0; i < classes; i++)
            out[i] = factor * (td_expf(x[i] - most) / sum - (i == label ? 1.0f : 0.0f));
    }
    return NULL;
}

const td_op td_op_softmax_cross_entropy_gradient = {
    .name = "softmax_cross_entropy_gradient",
    .summary = "gradient of softmax_cross_entropy's logit",
    .inputs = {{"logit", 0}, {"label", TD_PORT_NO_GRADIENT}, {"gradient", 0}},
    .outputs = {{"logit_gradient", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is a gradient",
    .cost = entropy_cost,
    .in_place = {{1, 1}},
    .reference = gradient_reference,
};

td_value td_softmax_cross_entropy(td_value logit, td_value label)
{
    const td_value inputs[2] = {logit, label};
    return td_graph_add1(logit.graph, "softmax_cross_entropy", NULL, inputs, 2, NULL, 0);
}
