/* dot_interaction and its gradient, sample by sample, from memory that fits the first cache.
 *
 * Forward: the sample's vectors are transposed, so that sixteen pairs (i, j .. j + 15) share a fused multiply-add per element;
 * four rows i at a time, in registers. Elements are added in ascending order, as the reference does; pairs on and above the
 * diagonal are computed along and left out. Gradient: four vectors at a time, sixteen elements each, over the partners j in
 * ascending order; the pairs' gradients are read where they lie, row i for partners below i, column i for those above. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/vectors.h"

enum {
    MOST_VECTORS = 256,
    TILE = 4,
    LANES = 16,
    TRANSPOSED_FLOATS = 8192, /* elements of all vectors that are transposed at a time: half of a usual first cache */
    FLOPS_PER_TASK = 1 << 17,
    AHEAD = 4 /* samples: what is asked for before its turn; many streams are more than the hardware follows */
};

/* Elements of a vector: inputs may hold several side by side. */
static int64_t dim_of(const td_kernel_call *call, const td_tensor *tensors)
{
    const int64_t dim = td_cpu_attr_int(call, "dim", 0);
    return dim ? dim : tensors[0].dims[1];
}

static int64_t count_vectors(const td_kernel_call *call, const td_tensor *tensors, int32_t n)
{
    int64_t vectors = 0, dim = td_cpu_attr_int(call, "dim", 0);
    for (int32_t i = 0; i < n; i++)
        vectors += dim ? tensors[i].dims[1] / dim : 1;
    return vectors;
}

static bool supports_from(const td_kernel_call *call, int32_t first)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return count_vectors(call, call->inputs + first, call->n_inputs - first) <= MOST_VECTORS;
}

/* Where the vectors of sample 0 begin, and the distance from each to the same of the next sample. */
static void find_vectors(const td_kernel_call *call, const td_tensor *tensors, int32_t n, float **vectors,
                         int64_t *pitches)
{
    const int64_t dim = td_cpu_attr_int(call, "dim", 0);
    int32_t vector = 0;
    for (int32_t i = 0; i < n; i++) {
        const int64_t here = dim ? tensors[i].dims[1] / dim : 1;
        for (int64_t k = 0; k < here; k++, vector++) {
            vectors[vector] = (float *)tensors[i].data + k * dim;
            pitches[vector] = tensors[i].dims[1];
        }
    }
}

static int64_t samples_per_task(int64_t n, int64_t dim)
{
    const int64_t flops = n * n * dim + 1;
    return flops < FLOPS_PER_TASK ? FLOPS_PER_TASK / flops : 1;
}

/* Where row i of the pairs begins: those of i with 0 .. i - 1. */
static inline int64_t row_of_pairs(int64_t i)
{
    return i * (i - 1) / 2;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------------- */

static bool supports(const td_kernel_call *call)
{
    return supports_from(call, 0);
}

typedef struct sample_work {
    const float *vectors[MOST_VECTORS]; /* at the sample */
    int32_t n, padded;                  /* padded: n rounded up to whole lanes */
    float *out;                         /* the sample's pairs */
    int64_t pairs;
    bool first, last;                                 /* of the pieces that its elements are taken in */
    _Alignas(64) float products[TILE * MOST_VECTORS]; /* of one tile of rows, [TILE, padded] */
    _Alignas(64) float transposed[TRANSPOSED_FLOATS];
} sample_work;

#if defined(__AVX2__)
/* Elements [0, 8) of eight vectors become eight rows of eight, `stride` apart; vectors from `n` on are zero. */
static inline void transpose_block(const float *const *vectors, int32_t n, int64_t begin, float *to, int64_t stride)
{
    __m256 r[8], s[8];
    for (int i = 0; i < 8; i++)
        r[i] = i < n ? _mm256_loadu_ps(vectors[i] + begin) : _mm256_setzero_ps();
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] = _mm256_shuffle_ps(s[i + k], s[i + k + 2], 0x44);
            r[i + 2 * k + 1] = _mm256_shuffle_ps(s[i + k], s[i + k + 2], 0xee);
        }
    for (int k = 0; k < 4; k++) {
        _mm256_storeu_ps(to + k * stride, _mm256_permute2f128_ps(r[k], r[k + 4], 0x20));
        _mm256_storeu_ps(to + (k + 4) * stride, _mm256_permute2f128_ps(r[k], r[k + 4], 0x31));
    }
}
#else
static inline void transpose_block(const float *const *vectors, int32_t n, int64_t begin, float *to, int64_t stride)
{
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++)
            to[k * stride + i] = i < n ? vectors[i][begin + k] : 0;
}
#endif

/* Elements [begin, begin + count) of all vectors, element by element; what pads is zero. */
static void transpose(sample_work *w, int64_t begin, int64_t count)
{
    const int64_t whole = count & ~(int64_t)7;
    for (int32_t i = 0; i < w->padded; i += 8)
        for (int64_t k = 0; k < whole; k += 8)
            transpose_block(w->vectors + i, w->n - i, begin + k, w->transposed + k * w->padded + i, w->padded);
    for (int64_t k = whole; k < count; k++)
        for (int32_t i = 0; i < w->padded; i++)
            w->transposed[k * w->padded + i] = i < w->n ? w->vectors[i][begin + k] : 0;
}

/* Columns [j, j + LANES) of the tile's products, rows from i on, `count` more elements. */
static inline void multiply_tile(sample_work *w, int32_t i, int32_t j, int64_t count)
{
    const int64_t stride = w->padded;
    float *at = w->products + j;
    v16 a = v16_set(0), b = a, c = a, d = a;
    if (!w->first) {
        a = v16_load(at);
        b = v16_load(at + stride);
        c = v16_load(at + 2 * stride);
        d = v16_load(at + 3 * stride);
    }
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

/* A row's products to where they belong. What comes after them there is overwritten, if all of it is still to come. */
static void store_row(const sample_work *w, int32_t i)
{
    const float *from = w->products + (int64_t)(i % TILE) * w->padded;
    const int64_t begin = row_of_pairs(i);
    float *to = w->out + begin;
    const bool may_overrun = w->first && w->last && begin + (i + LANES - 1) / LANES * LANES <= w->pairs;
    for (int64_t j = 0; j < i; j += LANES)
        v16_store_first(to + j, v16_load(from + j), may_overrun ? LANES : i - j);
}

/* What the pieces before this one have summed up. */
static void load_row(sample_work *w, int32_t i)
{
    memcpy(w->products + (int64_t)(i % TILE) * w->padded, w->out + row_of_pairs(i), (size_t)i * sizeof(float));
}

static void multiply(sample_work *w, int64_t count)
{
    for (int32_t i = 0; i < w->n; i += TILE) {
        const int32_t end = i + TILE < w->n ? i + TILE : w->n;
        for (int32_t row = i; !w->first && row < end; row++)
            load_row(w, row);
        for (int32_t j = 0; j < end - 1; j += LANES)
            multiply_tile(w, i, j, count);
        for (int32_t row = i; row < end; row++)
            store_row(w, row);
    }
}

typedef struct forward_work {
    const td_kernel_call *call;
    float *vectors[MOST_VECTORS];
    int64_t pitches[MOST_VECTORS], dim;
    int32_t n;
} forward_work;

static void forward_range(void *context, int64_t begin, int64_t end)
{
    const forward_work *f = context;
    sample_work w = {.n = f->n, .pairs = f->call->outputs[0].dims[1]};
    w.padded = (w.n + LANES - 1) / LANES * LANES;
    const int64_t most = TRANSPOSED_FLOATS / w.padded;
    for (int64_t sample = begin; sample < end; sample++) {
        w.out = (float *)f->call->outputs[0].data + sample * w.pairs;
        for (int32_t i = 0; i < w.n; i++) {
            w.vectors[i] = f->vectors[i] + sample * f->pitches[i];
            __builtin_prefetch(w.vectors[i] + AHEAD * f->pitches[i]);
        }
        for (int64_t k = 0; k < f->dim; k += most) {
            const int64_t count = f->dim - k < most ? f->dim - k : most;
            w.first = k == 0;
            w.last = k + count == f->dim;
            transpose(&w, k, count);
            multiply(&w, count);
        }
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *out = &call->outputs[0];
    forward_work f = {.call = call, .dim = dim_of(call, call->inputs)};
    f.n = (int32_t)count_vectors(call, call->inputs, call->n_inputs);
    find_vectors(call, call->inputs, call->n_inputs, f.vectors, f.pitches);
    if (out->dims[1] > 0 && f.dim == 0)
        memset(out->data, 0, (size_t)td_cpu_elements(out) * sizeof(float));
    else if (out->dims[1] > 0)
        td_cpu_for(team, out->dims[0], samples_per_task(f.n, f.dim), forward_range, &f);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(dot_interaction) = {.op = "dot_interaction", .supports = supports, .run = run};

/* ---- gradient ------------------------------------------------------------------------------------------------------------------ */

static bool supports_gradient(const td_kernel_call *call)
{
    return supports_from(call, 1);
}

typedef struct gradient_work {
    float *vectors[MOST_VECTORS], *outputs[MOST_VECTORS]; /* at the sample */
    const float *pairs;                                   /* the sample's gradient */
    int32_t n;
} gradient_work;

/* Elements [k, k + count) of the gradients of vectors [i, i + tile). */
static inline __attribute__((always_inline)) void gradient_tile(const gradient_work *w, int32_t i, int tile, int64_t k,
                                                                int64_t count)
{
    v16 sums[TILE] = {v16_set(0), v16_set(0), v16_set(0), v16_set(0)};
    const float *below[TILE]; /* the pairs of i + t with the vectors before it */
    for (int t = 0; t < TILE; t++)
        below[t] = w->pairs + row_of_pairs(i + t);
    for (int32_t j = 0; j < i; j++) {
        const v16 x = v16_load_first(w->vectors[j] + k, count);
        for (int t = 0; t < tile; t++)
            sums[t] = v16_fma(v16_set(below[t][j]), x, sums[t]);
    }
    for (int32_t j = i; j < i + tile; j++) {
        const v16 x = v16_load_first(w->vectors[j] + k, count);
        const float *below_j = w->pairs + row_of_pairs(j);
        for (int t = 0; t < tile; t++) {
            const float pair = i + t == j ? 0 : j < i + t ? below[t][j] : below_j[i + t];
            sums[t] = i + t == j ? sums[t] : v16_fma(v16_set(pair), x, sums[t]);
        }
    }
    const float *above = w->pairs + row_of_pairs(i + tile) + i;
    for (int32_t j = i + tile; j < w->n; above += j, j++) {
        const v16 x = v16_load_first(w->vectors[j] + k, count);
        for (int t = 0; t < tile; t++)
            sums[t] = v16_fma(v16_set(above[t]), x, sums[t]);
    }
    for (int t = 0; t < tile; t++)
        v16_store_first(w->outputs[i + t] + k, sums[t], count);
}

/* `count`: LANES wherever the caller knows it, so that nothing is tested per element. */
static inline __attribute__((always_inline)) void gradient_columns(const gradient_work *w, int64_t k, int64_t count)
{
    int32_t i = 0;
    for (; i + TILE <= w->n; i += TILE)
        gradient_tile(w, i, TILE, k, count);
    if (w->n - i == 3)
        gradient_tile(w, i, 3, k, count);
    else if (w->n - i == 2)
        gradient_tile(w, i, 2, k, count);
    else if (w->n - i == 1)
        gradient_tile(w, i, 1, k, count);
}

static void gradient_of_sample(const gradient_work *w, int64_t dim)
{
    int64_t k = 0;
    for (; k + LANES <= dim; k += LANES)
        gradient_columns(w, k, LANES);
    if (k < dim)
        gradient_columns(w, k, dim - k);
}

/* What all samples share: `first` is at sample 0. Vectors and their gradients have the same pitches. */
typedef struct gradient_context {
    gradient_work first;
    int64_t pitches[MOST_VECTORS], dim, pairs;
} gradient_context;

static void gradient_range(void *context, int64_t begin, int64_t end)
{
    const gradient_context *g = context;
    gradient_work w = {.n = g->first.n};
    for (int64_t sample = begin; sample < end; sample++) {
        for (int32_t i = 0; i < w.n; i++) {
            w.vectors[i] = g->first.vectors[i] + sample * g->pitches[i];
            w.outputs[i] = g->first.outputs[i] + sample * g->pitches[i];
            __builtin_prefetch(w.vectors[i] + AHEAD * g->pitches[i]);
            __builtin_prefetch(w.outputs[i] + AHEAD * g->pitches[i], 1);
        }
        w.pairs = g->first.pairs + sample * g->pairs;
        gradient_of_sample(&w, g->dim);
    }
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    gradient_context g = {.first = {.pairs = call->inputs[0].data}, .pairs = call->inputs[0].dims[1]};
    g.dim = dim_of(call, call->outputs);
    g.first.n = (int32_t)count_vectors(call, call->outputs, call->n_outputs);
    find_vectors(call, call->inputs + 1, call->n_outputs, g.first.vectors, g.pitches);
    find_vectors(call, call->outputs, call->n_outputs, g.first.outputs, g.pitches);
    td_cpu_for(team, call->inputs[1].dims[0], samples_per_task(g.first.n, g.dim), gradient_range, &g);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(dot_interaction_gradient) = {
    .op = "dot_interaction_gradient", .supports = supports_gradient, .run = run_gradient};
