/* Matrix products left to oneDNN: see gemm_library.h. */
#include "backends/cpu/gemm_library.h"

#ifdef TANDEM_HAVE_ONEDNN

#include "backends/cpu/gemm_cut.h"
#include "backends/cpu/gemm_onednn.h"
#include "base/half.h"
#include "base/memory.h"

struct td_gemm_library {
    td_onednn *onednn;
};

/* A whole product. */
static td_gemm_tile tile_of(const td_gemm_shape *shape)
{
    return (td_gemm_tile){.m = shape->m,
                          .n = shape->n,
                          .k = shape->k,
                          .lda = shape->transpose_a ? shape->m : shape->k,
                          .ldb = shape->transpose_b ? shape->k : shape->n,
                          .ldc = shape->n,
                          .transpose_a = shape->transpose_a,
                          .transpose_b = shape->transpose_b,
                          .has_bias = shape->has_bias,
                          .is_bf16 = shape->narrow == TD_GEMM_BF16};
}

/* oneDNN knows bf16 on some processors only; f32 everywhere. */
static td_status *prepare_capacity(td_gemm_library *gemm, const td_gemm_shape *capacity)
{
    TD_TRY(td_onednn_create(&gemm->onednn));
    if (!capacity->narrow || capacity->m == 0 || capacity->n == 0 || capacity->k == 0)
        return NULL;
    const td_gemm_tile tile = tile_of(capacity);
    td_onednn_primitive *primitive = NULL;
    return td_onednn_prepare(gemm->onednn, &tile, 1, 1, &primitive);
}

td_status *td_gemm_library_create(const td_gemm_shape *capacity, td_gemm_library **out_gemm)
{
    *out_gemm = NULL;
    td_gemm_library *gemm = NULL;
    TD_TRY(TD_NEW(gemm, 1));
    td_status *status = prepare_capacity(gemm, capacity);
    if (status)
        td_gemm_library_destroy(gemm);
    else
        *out_gemm = gemm;
    return status;
}

void td_gemm_library_destroy(td_gemm_library *gemm)
{
    if (!gemm)
        return;
    td_onednn_destroy(gemm->onednn);
    td_free(gemm);
}

/* ---- what follows the sums and is not oneDNN's ------------------------------------------------------------------------------- */

enum { FINISH_ROWS = 16 };

typedef struct finishing {
    const td_gemm_shape *shape; /* without the bias */
    const td_gemm_operands *operands;
} finishing;

/* Making a number zero commutes with rounding it, so this may come after. */
static void finish_bf16_row(const finishing *f, int64_t row)
{
    const int64_t n = f->shape->n;
    uint16_t *c = (uint16_t *)f->operands->c + row * n;
    const uint16_t *mask = f->shape->has_mask ? (const uint16_t *)f->operands->mask + row * n : NULL;
    for (int64_t j = 0; f->shape->relu && j < n; j++)
        c[j] = td_bf16_to_f32(c[j]) < 0.0f ? 0 : c[j];
    for (int64_t j = 0; mask && j < n; j++)
        c[j] = td_bf16_to_f32(mask[j]) <= 0.0f ? 0 : c[j];
}

static void finish_rows(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const finishing *f = context;
    const int64_t rows = f->shape->batch * f->shape->m;
    const int64_t end = td_clamp(rows, 0, (index + 1) * FINISH_ROWS);
    for (int64_t row = index * FINISH_ROWS; row < end; row++)
        if (f->shape->narrow)
            finish_bf16_row(f, row);
        else
            td_gemm_finish_row(f->shape, f->operands, false, row, (float *)f->operands->c + row * f->shape->n);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------ */

/* One product after the other, each cut by the library over as many threads as the team has. */
static td_status *run_products(td_gemm_library *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands,
                               td_team *team)
{
    const td_gemm_tile tile = tile_of(shape);
    const int64_t element = shape->narrow ? 2 : 4;
    td_onednn_primitive *primitive = NULL;
    TD_TRY(td_onednn_prepare(gemm->onednn, &tile, td_team_threads(team), 1, &primitive));
    int32_t before = td_onednn_threads();
    bool ran = true;
    for (int64_t p = 0; p < shape->batch && ran; p++)
        ran = td_onednn_run(primitive, 0, (const char *)operands->a + p * shape->m * shape->k * element,
                            (const char *)operands->b + (shape->shared_b ? 0 : p * shape->k * shape->n * element),
                            operands->bias, (char *)operands->c + p * shape->m * shape->n * element, NULL);
    td_onednn_set_threads(before);
    return ran ? NULL
               : TD_ERROR(TD_INTERNAL, "oneDNN failed to run a product of %lld x %lld x %lld", (long long)shape->m,
                          (long long)shape->n, (long long)shape->k);
}

td_status *td_gemm_library_run(td_gemm_library *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands,
                               td_team *team)
{
    TD_TRY(run_products(gemm, shape, operands, team));
    td_gemm_shape rest = *shape;
    rest.has_bias = false;
    finishing f = {.shape = &rest, .operands = operands};
    if (shape->relu || shape->has_mask)
        td_team_run(team, td_divide_up(shape->batch * shape->m, FINISH_ROWS), finish_rows, &f);
    return NULL;
}

#endif
