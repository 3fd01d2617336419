/* layer_norm and its gradient, a run of rows at a time. Sums along a row are in the order of base/sums.h; those of weight and
 * bias down the rows are made per block of TD_SUM_ROWS rows, then added in order, column by column. */
#include "backends/cpu/kernels/chunks.h"
#include "backends/cpu/kernels/vectors.h"

enum { ELEMENTS_PER_TASK = 8192, COLUMNS_PER_TASK = 256 };

static bool supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].kind != TD_NONE && !td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

static int64_t columns_of(const td_tensor *t)
{
    return t->dims[t->rank - 1];
}

static int64_t rows_of(const td_tensor *t)
{
    return td_cpu_product(t, 0, t->rank - 1);
}

/* ---- forward ------------------------------------------------------------------------------------------------------------------- */

static float sum_of_squares(const float *x, int64_t n, float mean)
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

static void forward_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t n = columns_of(&call->inputs[0]);
    const float epsilon = (float)td_cpu_attr_float(call, "epsilon", 1e-5);
    const float *weight = call->inputs[1].data;
    const float *bias = call->n_inputs > 2 && call->inputs[2].kind != TD_NONE ? call->inputs[2].data : NULL;
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->inputs[0].data + row * n;
        float *y = (float *)call->outputs[0].data + row * n;
        const float mean = v16_sum(x, n) / (float)n;
        const float reciprocal = 1.0f / sqrtf(sum_of_squares(x, n, mean) / (float)n + epsilon);
        if (bias) {
            TD_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                y[i] = fmaf((x[i] - mean) * reciprocal, weight[i], bias[i]);
        } else {
            TD_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                y[i] = fmaf((x[i] - mean) * reciprocal, weight[i], 0);
        }
        ((float *)call->outputs[1].data)[row] = mean;
        ((float *)call->outputs[2].data)[row] = reciprocal;
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const int64_t n = columns_of(&call->inputs[0]);
    if (n > 0)
        td_cpu_for(team, rows_of(&call->inputs[0]), n < ELEMENTS_PER_TASK ? ELEMENTS_PER_TASK / n : 1, forward_range,
                   (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(layer_norm) = {.op = "layer_norm", .supports = supports, .widens = true, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------------ */

enum { GRADIENT, INPUT, WEIGHT, MEAN, RECIPROCAL };

typedef struct row_work {
    const float *gradient, *x, *weight;
    float *out, *weight_sum, *bias_sum; /* sums of the block */
    float mean, reciprocal;
    int64_t n;
} row_work;

/* Adds the row to the block's sums, and finds its own. */
static void sum_row(const row_work *w, float *out_mean_g, float *out_mean_gh)
{
    float sums[TD_SUM_LANES] = {0}, products[TD_SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= w->n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++) {
            const float g = w->gradient[i + lane] * w->weight[i + lane], h = (w->x[i + lane] - w->mean) * w->reciprocal;
            sums[lane] += g;
            products[lane] = fmaf(g, h, products[lane]);
        }
    for (int lane = 0; i < w->n; i++, lane++) {
        const float g = w->gradient[i] * w->weight[i], h = (w->x[i] - w->mean) * w->reciprocal;
        sums[lane] += g;
        products[lane] = fmaf(g, h, products[lane]);
    }
    *out_mean_g = td_fold_lanes(sums) / (float)w->n;
    *out_mean_gh = td_fold_lanes(products) / (float)w->n;
}

static void gradient_of_row(const row_work *w)
{
    float mean_g, mean_gh;
    sum_row(w, &mean_g, &mean_gh);
    float *restrict weight_sum = w->weight_sum, *restrict bias_sum = w->bias_sum;
    const float mean = w->mean, reciprocal = w->reciprocal;
    TD_INDEPENDENT
    for (int64_t i = 0; i < w->n; i++) {
        const float gradient = w->gradient[i], g = gradient * w->weight[i], h = (w->x[i] - mean) * reciprocal;
        weight_sum[i] = fmaf(gradient, h, weight_sum[i]);
        bias_sum[i] += gradient;
        w->out[i] = reciprocal * fmaf(-h, mean_gh, g - mean_g);
    }
}

/* One block of TD_SUM_ROWS rows. */
static void gradient_block(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t n = columns_of(&call->inputs[INPUT]), block = begin / TD_SUM_ROWS;
    row_work w = {.n = n, .weight = call->inputs[WEIGHT].data, .weight_sum = (float *)call->scratch + 2 * block * n};
    w.bias_sum = w.weight_sum + n;
    memset(w.weight_sum, 0, (size_t)(2 * n) * sizeof(float));
    for (int64_t row = begin; row < end; row++) {
        w.gradient = (const float *)call->inputs[GRADIENT].data + row * n;
        w.x = (const float *)call->inputs[INPUT].data + row * n;
        w.mean = ((const float *)call->inputs[MEAN].data)[row];
        w.reciprocal = ((const float *)call->inputs[RECIPROCAL].data)[row];
        w.out = (float *)call->outputs[0].data + row * n;
        gradient_of_row(&w);
    }
}

static int64_t blocks_of(const td_kernel_call *call)
{
    const int64_t rows = rows_of(&call->inputs[INPUT]);
    return rows / TD_SUM_ROWS + (rows % TD_SUM_ROWS != 0);
}

static void fold_columns(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t n = columns_of(&call->inputs[INPUT]);
    for (int output = 1; output <= 2; output++) {
        float *restrict out = call->outputs[output].data;
        for (int64_t i = begin; i < end; i++)
            out[i] = 0;
        for (int64_t block = 0; block < blocks_of(call); block++) {
            const float *restrict sum = (const float *)call->scratch + (2 * block + output - 1) * n;
            for (int64_t i = begin; i < end; i++)
                out[i] += sum[i];
        }
    }
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return (size_t)(2 * blocks_of(call) * columns_of(&call->inputs[INPUT])) * sizeof(float);
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const int64_t n = columns_of(&call->inputs[INPUT]);
    if (n > 0)
        td_cpu_for(team, rows_of(&call->inputs[INPUT]), TD_SUM_ROWS, gradient_block, (void *)(uintptr_t)call);
    td_cpu_for(team, n, COLUMNS_PER_TASK, fold_columns, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(layer_norm_gradient) = {.op = "layer_norm_gradient",
                                                      .supports = supports,
                                                      .widens = true,
                                                      .scratch_bytes = scratch_bytes,
                                                      .run = run_gradient};
