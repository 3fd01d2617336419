/* softmax_cross_entropy and its gradient, a run of samples at a time. */
#include <inttypes.h>

#include "backends/cpu/kernels/losses.h"
#include "backends/cpu/kernels/vectors.h"
#include "base/math.h"
#include "base/units.h"

enum { ELEMENTS_PER_TASK = 8192 };

static bool supports(const td_kernel_call *call)
{
    return td_loss_takes(call, TD_I64);
}

static int64_t classes_of(const td_kernel_call *call)
{
    return call->inputs[0].dims[call->inputs[0].rank - 1];
}

static int64_t label_at(const td_tensor *label, int64_t sample)
{
    return label->dtype == TD_I64 ? ((const int64_t *)label->data)[sample] : ((const int32_t *)label->data)[sample];
}

static td_status *check_labels(const td_kernel_call *call, int64_t samples)
{
    const int64_t classes = classes_of(call);
    for (int64_t sample = 0; sample < samples; sample++) {
        const int64_t label = label_at(&call->inputs[1], sample);
        if (label < 0 || label >= classes)
            return TD_ERROR(TD_DATA_ERROR, "%s %s: label %" PRId64 " at position %" PRId64 " is outside its %s",
                            call->op, call->name, label, sample, TD_COUNTED(classes, "class"));
    }
    return NULL;
}

/* Which of two equal numbers (zeros of both signs) comes out does not matter: only differences to it are used. */
static float largest(const float *x, int64_t n)
{
    float lanes[TD_SUM_LANES], most = -INFINITY;
    int64_t i = 0;
    for (int lane = 0; lane < TD_SUM_LANES; lane++)
        lanes[lane] = -INFINITY;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int lane = 0; lane < TD_SUM_LANES; lane++)
        most = lanes[lane] > most ? lanes[lane] : most;
    return most;
}

/* ---- loss ---------------------------------------------------------------------------------------------------------------------- */

static float sum_of_exponentials(const float *x, int64_t n, float most)
{
    float sums[TD_SUM_LANES] = {0}, chunk[TD_CHUNK];
    for (int64_t at = 0; at < n; at += TD_CHUNK) {
        const int64_t size = n - at < TD_CHUNK ? n - at : TD_CHUNK;
        for (int64_t i = 0; i < size; i++)
            chunk[i] = td_expf(x[at + i] - most);
        int64_t i = 0;
        for (; i + TD_SUM_LANES <= size; i += TD_SUM_LANES)
            for (int lane = 0; lane < TD_SUM_LANES; lane++)
                sums[lane] += chunk[i + lane];
        for (int lane = 0; i < size; i++, lane++)
            sums[lane] += chunk[i];
    }
    return td_fold_lanes(sums);
}

static void loss_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t classes = classes_of(call);
    float *losses = call->scratch;
    for (int64_t sample = begin; sample < end; sample++) {
        const float *x = (const float *)call->inputs[0].data + sample * classes, most = largest(x, classes);
        losses[sample] =
            td_logf(sum_of_exponentials(x, classes, most)) + (most - x[label_at(&call->inputs[1], sample)]);
    }
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return (size_t)td_cpu_elements(&call->inputs[1]) * sizeof(float);
}

static int64_t samples_per_task(const td_kernel_call *call)
{
    const int64_t classes = classes_of(call);
    return classes && classes < ELEMENTS_PER_TASK ? ELEMENTS_PER_TASK / classes : 1;
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const int64_t samples = td_cpu_elements(&call->inputs[1]);
    const float *losses = call->scratch;
    double total = 0;
    TD_TRY(check_labels(call, samples));
    td_cpu_for(team, samples, samples_per_task(call), loss_range, (void *)(uintptr_t)call);
    for (int64_t at = 0; at < samples; at += TD_SUM_BLOCK)
        total += td_loss_block_sum(losses + at, samples - at < TD_SUM_BLOCK ? samples - at : TD_SUM_BLOCK);
    *(float *)call->outputs[0].data = samples ? (float)(total / (double)samples) : 0;
    return NULL;
}

const td_cpu_kernel TD_KERNEL(softmax_cross_entropy) = {
    .op = "softmax_cross_entropy", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------------ */

/* The exponentials wait in the output for their sum; it may be the input's memory. */
static void gradient_of_sample(const float *x, int64_t classes, int64_t label, float factor, float *out)
{
    const float most = largest(x, classes);
    TD_INDEPENDENT
    for (int64_t i = 0; i < classes; i++)
        out[i] = td_expf(x[i] - most);
    const float sum = v16_sum(out, classes), picked = out[label];
    for (int64_t i = 0; i < classes; i++)
        out[i] = factor * (out[i] / sum);
    out[label] = factor * (picked / sum - 1.0f);
}

static void gradient_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t classes = classes_of(call);
    const float factor = td_loss_factor(&call->inputs[2], td_cpu_elements(&call->inputs[1]));
    for (int64_t sample = begin; sample < end; sample++)
        gradient_of_sample((const float *)call->inputs[0].data + sample * classes, classes,
                           label_at(&call->inputs[1], sample), factor,
                           (float *)call->outputs[0].data + sample * classes);
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const int64_t samples = td_cpu_elements(&call->inputs[1]);
    TD_TRY(check_labels(call, samples));
    td_cpu_for(team, samples, samples_per_task(call), gradient_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(softmax_cross_entropy_gradient) = {
    .op = "softmax_cross_entropy_gradient", .supports = supports, .run = run_gradient};
