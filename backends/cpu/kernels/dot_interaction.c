/* dot_interaction and its gradient, sample by sample, from memory that fits the first cache.
 *
 * Forward: the sample's vectors are transposed, so that sixteen pairs (i, j .. j + 15) share a fused multiply-add per element;
 * four rows i at a time. Elements are added in ascending order, as the reference does; pairs on and above the diagonal are
 * computed along and left out. Gradient: four vectors at a time, sixteen elements each, over the partners j in ascending order. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/vectors.h"

enum {
    MOST_VECTORS = 80,
    TILE = 4,
    LANES = 16,
    TRANSPOSED_FLOATS = 4096, /* elements of all vectors that are transposed at a time */
    FLOPS_PER_TASK = 1 << 17
};

static bool supports_from(const td_kernel_call *call, int32_t first)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return call->n_inputs - first <= MOST_VECTORS;
}

static int64_t samples_per_task(int64_t n, int64_t dim)
{
    const int64_t flops = n * n * dim + 1;
    return flops < FLOPS_PER_TASK ? FLOPS_PER_TASK / flops : 1;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------------- */

static bool supports(const td_kernel_call *call)
{
    return supports_from(call, 0);
}

typedef struct sample_work {
    const float *vectors[MOST_VECTORS];
    int32_t n, padded; /* padded: n rounded up to whole lanes */
    /* Dot products so far, [n rounded up to TILE, padded]. */
    float products[(MOST_VECTORS + TILE) * MOST_VECTORS];
    float transposed[TRANSPOSED_FLOATS];
} sample_work;

/* Elements [begin, begin + count) of all vectors, element by element; what pads is zero. */
static void transpose(sample_work *w, int64_t begin, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        memset(w->transposed + k * w->padded + w->n, 0, (size_t)(w->padded - w->n) * sizeof(float));
    for (int32_t i = 0; i < w->n; i++)
        for (int64_t k = 0; k < count; k++)
            w->transposed[k * w->padded + i] = w->vectors[i][begin + k];
}

/* Rows [i, i + TILE) and columns [j, j + LANES) of the products, `count` more elements. */
static void multiply_tile(sample_work *w, int32_t i, int32_t j, int64_t count)
{
    float *at = w->products + (int64_t)i * w->padded + j;
    const int64_t stride = w->padded;
    v16 a = v16_load(at), b = v16_load(at + stride), c = v16_load(at + 2 * stride), d = v16_load(at + 3 * stride);
    for (int64_t k = 0; k < count; k++) {
        const float *row = w->transposed + k * stride;
        const v16 columns = v16_load(row + j);
        a = v16_fma(v16_set(row[i]), columns, a);
        b = v16_fma(v16_set(row[i + 1]), columns, b);
        c = v16_fma(v16_set(row[i + 2]), columns, c);
        d = v16_fma(v16_set(row[i + 3]), columns, d);
    }
    v16_store(at, a);
    v16_store(at + stride, b);
    v16_store(at + 2 * stride, c);
    v16_store(at + 3 * stride, d);
}

static void multiply(sample_work *w, int64_t dim)
{
    const int64_t most = TRANSPOSED_FLOATS / w->padded;
    memset(w->products, 0, (size_t)((w->n + TILE) * w->padded) * sizeof(float));
    for (int64_t begin = 0; begin < dim; begin += most) {
        const int64_t count = dim - begin < most ? dim - begin : most;
        transpose(w, begin, count);
        for (int32_t i = 0; i < w->n; i += TILE)
            for (int32_t j = 0; j < i + TILE - 1 && j < w->n; j += LANES)
                multiply_tile(w, i, j, count);
    }
}

static void forward_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t dim = call->inputs[0].dims[1], pairs = call->outputs[0].dims[1];
    sample_work w = {.n = call->n_inputs, .padded = (call->n_inputs + LANES - 1) / LANES * LANES};
    for (int64_t sample = begin; sample < end; sample++) {
        float *out = (float *)call->outputs[0].data + sample * pairs;
        for (int32_t i = 0; i < w.n; i++)
            w.vectors[i] = (const float *)call->inputs[i].data + sample * dim;
        multiply(&w, dim);
        for (int32_t i = 1; i < w.n; out += i, i++)
            memcpy(out, w.products + (int64_t)i * w.padded, (size_t)i * sizeof(float));
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    if (call->outputs[0].dims[1] > 0)
        td_cpu_for(team, call->outputs[0].dims[0], samples_per_task(call->n_inputs, call->inputs[0].dims[1]),
                   forward_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(dot_interaction) = {.op = "dot_interaction", .supports = supports, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------------ */

static bool supports_gradient(const td_kernel_call *call)
{
    return supports_from(call, 1);
}

typedef struct gradient_work {
    const float *vectors[MOST_VECTORS];
    float *outputs[MOST_VECTORS];
    int32_t n;
    /* The pairs' gradients as a symmetric matrix [n, n + TILE]; the diagonal is not used. */
    float pairs[MOST_VECTORS * (MOST_VECTORS + TILE)];
} gradient_work;

static void spread_pairs(gradient_work *w, const float *gradient)
{
    const int64_t stride = w->n + TILE;
    for (int32_t i = 1; i < w->n; i++)
        for (int32_t j = 0; j < i; j++, gradient++)
            w->pairs[i * stride + j] = w->pairs[j * stride + i] = *gradient;
}

/* Elements [k, k + count) of the gradients of vectors [i, i + tile). */
static inline __attribute__((always_inline)) void gradient_tile(const gradient_work *w, int32_t i, int tile, int64_t k,
                                                                int64_t count)
{
    v16 sums[TILE] = {v16_set(0), v16_set(0), v16_set(0), v16_set(0)};
    for (int32_t j = 0; j < w->n; j++) {
        const float *row = w->pairs + j * (w->n + TILE) + i;
        const v16 x = v16_load_first(w->vectors[j] + k, count);
        if (j < i || j >= i + tile) {
            for (int t = 0; t < tile; t++)
                sums[t] = v16_fma(v16_set(row[t]), x, sums[t]);
            continue;
        }
        for (int t = 0; t < tile; t++)
            sums[t] = i + t == j ? sums[t] : v16_fma(v16_set(row[t]), x, sums[t]);
    }
    for (int t = 0; t < tile; t++)
        v16_store_first(w->outputs[i + t] + k, sums[t], count);
}

static void gradient_of_sample(const gradient_work *w, int64_t dim)
{
    for (int64_t k = 0; k < dim; k += LANES) {
        const int64_t count = dim - k < LANES ? dim - k : LANES;
        int32_t i = 0;
        for (; i + TILE <= w->n; i += TILE)
            gradient_tile(w, i, TILE, k, count);
        for (; i < w->n; i++)
            gradient_tile(w, i, 1, k, count);
    }
}

static void gradient_range(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const int64_t dim = call->inputs[1].dims[1], pairs = call->inputs[0].dims[1];
    gradient_work w = {.n = call->n_outputs};
    for (int64_t sample = begin; sample < end; sample++) {
        for (int32_t i = 0; i < w.n; i++) {
            w.vectors[i] = (const float *)call->inputs[i + 1].data + sample * dim;
            w.outputs[i] = (float *)call->outputs[i].data + sample * dim;
        }
        spread_pairs(&w, (const float *)call->inputs[0].data + sample * pairs);
        gradient_of_sample(&w, dim);
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, call->inputs[1].dims[0], samples_per_task(call->n_outputs, call->inputs[1].dims[1]),
               gradient_range, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(dot_interaction_gradient) = {
    .op = "dot_interaction_gradient", .supports = supports_gradient, .run = run_gradient};
