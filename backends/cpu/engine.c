/* Choosing, preparing and running CPU kernels: see engine.h. */
#include "backends/cpu/engine.h"

#include <stdio.h>
#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/gemm_onednn.h"
#include "backends/cpu/widened.h"
#include "base/memory.h"

struct td_cpu_prepared {
    const td_cpu_kernel *kernel; /* NULL: the reference kernel */
    const td_cpu_kernel *cast;   /* of a kernel that runs on widened operands; else NULL */
    size_t inner_scratch_bytes;  /* what that kernel has of the scratch */
    void *state;
    td_status *(*reference)(const td_kernel_call *call);
};

const char *const td_gemm_kind_names[] = {"tiles", "library", "reference", NULL};

td_status *td_cpu_engine_init(td_cpu_engine *engine, const td_host_services *host, td_gemm_kind gemm)
{
    *engine = (td_cpu_engine){.host = host, .gemm = gemm};
#ifndef TANDEM_HAVE_ONEDNN
    if (gemm == TD_GEMM_LIBRARY)
        return TD_ERROR(TD_UNSUPPORTED, "gemm=library: this build has no oneDNN; gemm=reference works");
#endif
    return td_isa_choose(&engine->isa);
}

void td_cpu_engine_describe(const td_cpu_engine *engine, char *out, size_t bytes)
{
    const char *isa = td_isa_name(engine->isa > TD_ISA_AVX512 ? TD_ISA_AVX512 : engine->isa);
    const char *bf16 = !td_gemm_uses_bf16(engine)       ? ""
                       : engine->isa == TD_ISA_AMX_BF16 ? ", bf16 products in hardware (AMX)"
                                                        : ", bf16 products in hardware (AVX512_BF16)";
#ifdef TANDEM_HAVE_ONEDNN
    char version[32];
    td_onednn_version(version, sizeof version);
    if (!td_gemm_uses_onednn(engine))
        (void)snprintf(out, bytes, "own gemm, %s kernels%s", isa, bf16);
    else
        (void)snprintf(out, bytes, "%s%s, %s kernels%s", version, engine->gemm == TD_GEMM_LIBRARY ? " threads" : "",
                       isa, bf16);
#else
    (void)snprintf(out, bytes, "own gemm (built without oneDNN), %s kernels%s", isa, bf16);
#endif
}

double td_cpu_engine_flops_per_s(const td_cpu_engine *engine, int32_t cores)
{
    static const double flops_per_cycle[TD_ISA_COUNT] = {8, 32, 64, 64, 64};
    return 2.5e9 * flops_per_cycle[engine->isa] * cores;
}

static const td_cpu_kernel *find_among(const td_cpu_kernel *const *kernels, int32_t n_kernels,
                                       const td_kernel_call *call)
{
    for (int32_t i = 0; i < n_kernels; i++)
        if (strcmp(kernels[i]->op, call->op) == 0 && (!kernels[i]->supports || kernels[i]->supports(call)))
            return kernels[i];
    return NULL;
}

static const td_cpu_kernel *find_kernel(const td_cpu_engine *engine, const td_kernel_call *call)
{
    int32_t n_kernels = 0;
    if (td_gemm_uses_bf16(engine)) {
        const td_cpu_kernel *const *pairs = td_cpu_pair_kernels(engine->isa, &n_kernels);
        const td_cpu_kernel *kernel = find_among(pairs, n_kernels, call);
        if (kernel)
            return kernel;
    }
    const td_cpu_kernel *const *kernels = td_cpu_kernels(engine->isa, &n_kernels);
    return find_among(kernels, n_kernels, call);
}

/* A kernel that takes the call once its 16-bit operands are widened; `storage` has them then, *out_wide is that call. */
static const td_cpu_kernel *find_widening(const td_cpu_engine *engine, const td_kernel_call *call,
                                          td_tensor storage[TD_WIDENED_MOST], td_kernel_call *out_wide)
{
    if (!td_widened_call(call, storage, out_wide))
        return NULL;
    const td_cpu_kernel *kernel = find_kernel(engine, out_wide);
    return kernel && kernel->widens ? kernel : NULL;
}

/* The kernel's state and scratch, for the call as the kernel sees it. */
static td_status *prepare_kernel(const td_cpu_engine *engine, const td_kernel_call *call, td_cpu_prepared *prepared,
                                 size_t *out_scratch_bytes)
{
    if (prepared->kernel->prepare)
        TD_TRY(prepared->kernel->prepare(engine, call, &prepared->state));
    if (prepared->kernel->scratch_bytes)
        *out_scratch_bytes = prepared->kernel->scratch_bytes(call, prepared->state);
    return NULL;
}

static const td_cpu_kernel *cast_kernel(const td_cpu_engine *engine)
{
    td_tensor from = {.kind = TD_DENSE, .dtype = TD_F16}, to = {.kind = TD_DENSE, .dtype = TD_F32};
    const td_kernel_call call = {.op = "cast", .inputs = &from, .outputs = &to, .n_inputs = 1, .n_outputs = 1};
    return find_kernel(engine, &call);
}

bool td_cpu_engine_supports(const td_cpu_engine *engine, const td_kernel_call *call, char *reason, size_t reason_bytes)
{
    if (find_kernel(engine, call) || engine->host->reference_kernel(call->op))
        return true;
    if (reason && reason_bytes)
        (void)snprintf(reason, reason_bytes,
                       "no CPU kernel and no reference kernel of %s takes these dtypes and shapes", call->op);
    return false;
}

td_status *td_cpu_engine_prepare(const td_cpu_engine *engine, const td_kernel_call *call,
                                 td_cpu_prepared **out_prepared, size_t *out_scratch_bytes)
{
    *out_prepared = NULL;
    *out_scratch_bytes = 0;
    td_cpu_prepared *prepared = NULL;
    TD_TRY(TD_NEW(prepared, 1));
    td_status *status = NULL;
    td_tensor storage[TD_WIDENED_MOST];
    td_kernel_call wide;
    prepared->kernel = find_kernel(engine, call);
    if (!prepared->kernel && (prepared->kernel = find_widening(engine, call, storage, &wide))) {
        prepared->cast = cast_kernel(engine);
        TD_TRY_OR(status, done, prepare_kernel(engine, &wide, prepared, &prepared->inner_scratch_bytes));
        *out_scratch_bytes = td_widened_scratch_bytes(call, prepared->inner_scratch_bytes);
        *out_prepared = prepared;
        return NULL;
    }
    if (!prepared->kernel) {
        prepared->reference = engine->host->reference_kernel(call->op);
        if (!prepared->reference) {
            status =
                TD_ERROR(TD_UNSUPPORTED, "%s %s: no CPU kernel and no reference kernel takes these dtypes and shapes",
                         call->op, call->name ? call->name : "");
            goto done;
        }
        *out_prepared = prepared;
        return NULL;
    }
    TD_TRY_OR(status, done, prepare_kernel(engine, call, prepared, out_scratch_bytes));
    *out_prepared = prepared;
    return NULL;
done:
    td_free(prepared);
    return status;
}

void td_cpu_engine_release(td_cpu_prepared *prepared)
{
    if (!prepared)
        return;
    if (prepared->kernel && prepared->kernel->destroy)
        prepared->kernel->destroy(prepared->state);
    td_free(prepared);
}

td_status *td_cpu_engine_run(td_cpu_prepared *prepared, const td_kernel_call *call, td_team *team)
{
    if (!prepared->kernel)
        return prepared->reference(call);
    if (prepared->cast)
        return td_widened_run(prepared->kernel, prepared->cast, prepared->inner_scratch_bytes, call, team,
                              prepared->state);
    return prepared->kernel->run(call, team, prepared->state);
}

bool td_cpu_engine_is_own(const td_cpu_prepared *prepared)
{
    return prepared->kernel != NULL;
}
