/* batch_norm and its gradient, a channel at a time: as graph/ops/batch_norm.c says, in the same order of sums. */
#include <math.h>

#include "backends/cpu/kernels/chunks.h"
#include "backends/cpu/kernels/vectors.h"

enum { X, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VARIANCE, RANDOM };
enum { GRADIENT, INPUT, GAIN, MEAN, RECIPROCAL, GRADIENT_RANDOM };
enum { UPDATE = 1, ELEMENTS_PER_TASK = 8192 };

/* A channel's planes: one of `pixels` numbers for each sample, `step` apart. */
typedef struct channel {
    int64_t samples, pixels, step, first;
} channel;

static bool supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].kind == TD_DENSE && call->inputs[i].dtype != TD_F32)
            return false;
    return true;
}

static channel channel_of(const td_tensor *x, int64_t index)
{
    channel c = {.samples = x->dims[0], .pixels = td_cpu_product(x, 2, x->rank)};
    c.step = x->dims[1] * c.pixels;
    c.first = index * c.pixels;
    return c;
}

static bool is_training(const td_kernel_call *call, int32_t random)
{
    const int64_t *numbers =
        call->n_inputs > random && call->inputs[random].kind != TD_NONE ? call->inputs[random].data : NULL;
    return numbers && numbers[UPDATE] >= 0 && call->inputs[0].dims[0] > 0;
}

/* Channels of a task: enough for the task to be worth sharing. */
static int64_t block_of(const td_tensor *x)
{
    const int64_t elements = x->dims[0] * td_cpu_product(x, 2, x->rank);
    return elements > 0 && elements < ELEMENTS_PER_TASK ? ELEMENTS_PER_TASK / elements : 1;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

static float mean_of(const channel *c, const float *x)
{
    double sum = 0;
    for (int64_t n = 0; n < c->samples; n++)
        sum += (double)v16_sum(x + c->first + n * c->step, c->pixels);
    return (float)(sum / (double)(c->samples * c->pixels));
}

static float plane_squares(const float *x, int64_t n, float mean)
{
    float lanes[TD_SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] = fmaf(x[i + lane] - mean, x[i + lane] - mean, lanes[lane]);
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] = fmaf(x[i] - mean, x[i] - mean, lanes[lane]);
    return td_fold_lanes(lanes);
}

static void train_channel(const td_kernel_call *call, const channel *c, int64_t index, float *out_mean,
                          float *out_variance)
{
    const float momentum = (float)td_cpu_attr_float(call, "momentum", 0.1);
    const double n = (double)(c->samples * c->pixels);
    const float *x = call->inputs[X].data;
    float *running_mean = (float *)call->inputs[RUNNING_MEAN].data + index;
    float *running_variance = (float *)call->inputs[RUNNING_VARIANCE].data + index;
    double squares = 0;
    *out_mean = mean_of(c, x);
    for (int64_t sample = 0; sample < c->samples; sample++)
        squares += (double)plane_squares(x + c->first + sample * c->step, c->pixels, *out_mean);
    *out_variance = (float)(squares / n);
    *running_mean = fmaf(momentum, *out_mean - *running_mean, *running_mean);
    *running_variance = fmaf(momentum, (float)(squares / (n > 1 ? n - 1 : 1)) - *running_variance, *running_variance);
}

static void normalise(const channel *c, const float *x, float mean, float reciprocal, float weight, float bias,
                      float *y)
{
    for (int64_t n = 0; n < c->samples; n++) {
        const float *from = x + c->first + n * c->step;
        float *to = y + c->first + n * c->step;
        TD_INDEPENDENT
        for (int64_t i = 0; i < c->pixels; i++)
            to[i] = fmaf((from[i] - mean) * reciprocal, weight, bias);
    }
}

static void forward_channels(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const float epsilon = (float)td_cpu_attr_float(call, "epsilon", 1e-5);
    const bool training = is_training(call, RANDOM);
    for (int64_t index = begin; index < end; index++) {
        const channel c = channel_of(&call->inputs[X], index);
        float mean = ((const float *)call->inputs[RUNNING_MEAN].data)[index];
        float variance = ((const float *)call->inputs[RUNNING_VARIANCE].data)[index];
        if (training)
            train_channel(call, &c, index, &mean, &variance);
        const float reciprocal = 1.0f / sqrtf(variance + epsilon);
        normalise(&c, call->inputs[X].data, mean, reciprocal, ((const float *)call->inputs[WEIGHT].data)[index],
                  ((const float *)call->inputs[BIAS].data)[index], call->outputs[0].data);
        ((float *)call->outputs[1].data)[index] = mean;
        ((float *)call->outputs[2].data)[index] = reciprocal;
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, call->inputs[X].dims[1], block_of(&call->inputs[X]), forward_channels, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(batch_norm) = {.op = "batch_norm", .supports = supports, .widens = true, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------ */

static float plane_products(const float *dy, const float *x, int64_t n, float mean, float reciprocal)
{
    float lanes[TD_SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] = fmaf(dy[i + lane], (x[i + lane] - mean) * reciprocal, lanes[lane]);
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] = fmaf(dy[i], (x[i] - mean) * reciprocal, lanes[lane]);
    return td_fold_lanes(lanes);
}

/* What the images' gradient needs of a channel. */
typedef struct channel_gradient {
    float mean, reciprocal, factor, mean_dy, mean_product;
} channel_gradient;

static void differentiate(const channel *c, const channel_gradient *g, const float *dy, const float *x, float *dx)
{
    const float mean = g->mean, reciprocal = g->reciprocal, factor = g->factor, mean_dy = g->mean_dy,
                mean_product = g->mean_product;
    for (int64_t n = 0; n < c->samples; n++) {
        const int64_t at = c->first + n * c->step;
        TD_INDEPENDENT
        for (int64_t i = at; i < at + c->pixels; i++)
            dx[i] = factor * fmaf(-((x[i] - mean) * reciprocal), mean_product, dy[i] - mean_dy);
    }
}

static void gradient_channels(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const float *dy = call->inputs[GRADIENT].data, *x = call->inputs[INPUT].data;
    const bool training = is_training(call, GRADIENT_RANDOM);
    for (int64_t index = begin; index < end; index++) {
        const channel c = channel_of(&call->inputs[INPUT], index);
        channel_gradient g = {.mean = ((const float *)call->inputs[MEAN].data)[index],
                              .reciprocal = ((const float *)call->inputs[RECIPROCAL].data)[index]};
        g.factor = ((const float *)call->inputs[GAIN].data)[index] * g.reciprocal;
        double sum = 0, product = 0;
        for (int64_t n = 0; n < c.samples; n++) {
            const int64_t at = c.first + n * c.step;
            product += (double)plane_products(dy + at, x + at, c.pixels, g.mean, g.reciprocal);
            sum += (double)v16_sum(dy + at, c.pixels);
        }
        const double count = training ? (double)(c.samples * c.pixels) : INFINITY;
        g.mean_dy = (float)(sum / count);
        g.mean_product = (float)(product / count);
        differentiate(&c, &g, dy, x, call->outputs[0].data);
        ((float *)call->outputs[1].data)[index] = (float)product;
        ((float *)call->outputs[2].data)[index] = (float)sum;
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, call->inputs[INPUT].dims[1], block_of(&call->inputs[INPUT]), gradient_channels,
               (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(batch_norm_gradient) = {
    .op = "batch_norm_gradient", .supports = supports, .widens = true, .run = run_gradient};
