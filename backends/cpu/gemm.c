/* Matrix products: who computes them, and what follows their sums. See gemm.h. */
#include "backends/cpu/gemm.h"

#include "backends/cpu/gemm_library.h"
#include "backends/cpu/gemm_own.h"
#include "backends/cpu/gemm_tiles.h"
#include "base/memory.h"

struct td_gemm {
    const td_gemm_own_kernels *own;
    td_gemm_shape capacity;
#ifdef TANDEM_HAVE_ONEDNN
    td_gemm_tiles *tiles;     /* or NULL */
    td_gemm_library *library; /* or NULL: without either, it is the own kernel */
#endif
};

/* Without fma in vectors the own kernel is slow. */
bool td_gemm_uses_onednn(const td_cpu_engine *engine)
{
#ifdef TANDEM_HAVE_ONEDNN
    return engine->gemm == TD_GEMM_LIBRARY || (engine->gemm == TD_GEMM_TILES && engine->isa == TD_ISA_BASELINE);
#else
    (void)engine;
    return false;
#endif
}

bool td_gemm_uses_bf16(const td_cpu_engine *engine)
{
    return engine->isa >= TD_ISA_AVX512_BF16 && engine->gemm != TD_GEMM_REFERENCE;
}

static const td_gemm_own_kernels *kernels_of(const td_cpu_engine *engine, td_gemm_narrow narrow)
{
    if (narrow != TD_GEMM_BF16 || !td_gemm_uses_bf16(engine))
        return td_gemm_own_kernels_of(engine->isa);
    return engine->isa == TD_ISA_AMX_BF16 ? td_gemm_amx_kernels() : td_gemm_pair_kernels();
}

#ifdef TANDEM_HAVE_ONEDNN
/* Where oneDNN computes it: it is not asked for f16, nor for bf16 without instructions for it. */
static td_status *create_onednn(const td_cpu_engine *engine, const td_gemm_shape *capacity, td_gemm *gemm)
{
    if (!td_gemm_uses_onednn(engine))
        return NULL;
    if (engine->gemm == TD_GEMM_TILES)
        return capacity->narrow ? NULL : td_gemm_tiles_create(capacity, &gemm->tiles);
    if (capacity->narrow && !(capacity->narrow == TD_GEMM_BF16 && td_gemm_uses_bf16(engine)))
        return NULL;
    td_status *status = td_gemm_library_create(capacity, &gemm->library);
    if (!capacity->narrow || td_status_code(status) != TD_UNSUPPORTED)
        return status;
    td_status_destroy(status); /* oneDNN lacks it, or was told to do without: the own kernel has it */
    return NULL;
}
#endif

td_status *td_gemm_create(const td_cpu_engine *engine, const td_gemm_shape *capacity, td_gemm **out_gemm)
{
    *out_gemm = NULL;
    td_gemm *gemm = NULL;
    TD_TRY(TD_NEW(gemm, 1));
    gemm->own = kernels_of(engine, capacity->narrow);
    gemm->capacity = *capacity;
#ifdef TANDEM_HAVE_ONEDNN
    td_status *status = create_onednn(engine, capacity, gemm);
    if (status) {
        td_gemm_destroy(gemm);
        return status;
    }
#endif
    *out_gemm = gemm;
    return NULL;
}

void td_gemm_destroy(td_gemm *gemm)
{
    if (!gemm)
        return;
#ifdef TANDEM_HAVE_ONEDNN
    td_gemm_tiles_destroy(gemm->tiles);
    td_gemm_library_destroy(gemm->library);
#endif
    td_free(gemm);
}

/* For 16 bit that of the own kernel, whoever computes: a plan does not depend on what a processor has, and empty sums are the own
 * kernel's. */
size_t td_gemm_scratch_bytes(const td_gemm *gemm)
{
#ifdef TANDEM_HAVE_ONEDNN
    if (gemm->tiles)
        return td_gemm_tiles_scratch_bytes(gemm->tiles);
    if (gemm->library && !gemm->capacity.narrow)
        return 0;
#endif
    return td_gemm_own_scratch_bytes(&gemm->capacity);
}

void td_gemm_finish_row(const td_gemm_shape *shape, const td_gemm_operands *operands, bool bias_is_one, int64_t row,
                        float *c)
{
    const float *bias = operands->bias;
    for (int64_t j = 0; shape->has_bias && j < shape->n; j++)
        c[j] += bias[bias_is_one ? 0 : j];
    for (int64_t j = 0; shape->relu && j < shape->n; j++)
        c[j] = c[j] < 0.0f ? 0.0f : c[j];
    const float *mask = shape->has_mask ? (const float *)operands->mask + row * shape->n : NULL;
    for (int64_t j = 0; mask && j < shape->n; j++)
        c[j] = mask[j] <= 0.0f ? 0.0f : c[j];
}

/* k = 0: empty sums. */
static void run_empty_sum(const td_gemm_shape *shape, const td_gemm_operands *operands)
{
    float *c = operands->c;
    for (int64_t row = 0; row < shape->batch * shape->m; row++, c += shape->n) {
        for (int64_t j = 0; j < shape->n; j++)
            c[j] = 0.0f;
        td_gemm_finish_row(shape, operands, false, row, c);
    }
}

td_status *td_gemm_run(td_gemm *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands, td_team *team)
{
    if (shape->batch == 0 || shape->m == 0 || shape->n == 0)
        return NULL;
    if (shape->k == 0 && !shape->narrow) {
        run_empty_sum(shape, operands);
        return NULL;
    }
#ifdef TANDEM_HAVE_ONEDNN
    if (gemm->tiles)
        return td_gemm_tiles_run(gemm->tiles, shape, operands, team);
    if (gemm->library && shape->k > 0)
        return td_gemm_library_run(gemm->library, shape, operands, team);
#endif
    td_gemm_own_run(gemm->own, &gemm->capacity, shape, operands, team);
    return NULL;
}
