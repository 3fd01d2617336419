/* The CPU kernels without a device around them: choosing, preparing and running one for a call.
 *
 * The cpu and the emulated device both compute with this, which is what makes them agree bit for bit. An op that no kernel
 * of kernels.def takes runs on the host's reference kernel, on one thread. */
#ifndef TANDEM_BACKENDS_CPU_ENGINE_H
#define TANDEM_BACKENDS_CPU_ENGINE_H

#include "backends/cpu/kernel.h"
#include "backends/isa.h"

/* How matrix products are computed (backends/cpu/gemm.h). */
typedef enum td_gemm_kind {
    /* One thread per tile, bits do not depend on threads: the own kernel where vectors have fma, else oneDNN. Products of bf16 by
     * the processor's instructions for them, where it has them (TD_ISA_AVX512_BF16). */
    TD_GEMM_TILES = 0,
    TD_GEMM_LIBRARY, /* oneDNN's own threading: bits may depend on threads */
    TD_GEMM_REFERENCE /* the own kernel everywhere, without bf16 instructions: the same bits on every instruction set too */
} td_gemm_kind;
/* NULL-terminated, in the order of td_gemm_kind, for td_options_parse. */
extern const char *const td_gemm_kind_names[];

struct td_cpu_engine {
    const td_host_services *host;
    td_isa isa;
    td_gemm_kind gemm;
};

typedef struct td_cpu_prepared td_cpu_prepared;

/* Reads TANDEM_ISA. A build without oneDNN has own kernels only: TD_GEMM_LIBRARY is refused there. */
td_status *td_cpu_engine_init(td_cpu_engine *engine, const td_host_services *host, td_gemm_kind gemm) TD_MUST_USE;
/* "own gemm, avx512 kernels, bf16 products in hardware" */
void td_cpu_engine_describe(const td_cpu_engine *engine, char *out, size_t bytes);
/* Nominal peaks for planning, not measurements: every core at 2.5 GHz with two vector multiply-adds a cycle; one channel. */
double td_cpu_engine_flops_per_s(const td_cpu_engine *engine, int32_t cores);
#define TD_CPU_MEMORY_BYTES_PER_S 12e9
/* See td_backend_api. Thread-safe. */
bool td_cpu_engine_supports(const td_cpu_engine *engine, const td_kernel_call *call, char *reason, size_t reason_bytes);
td_status *td_cpu_engine_prepare(const td_cpu_engine *engine, const td_kernel_call *call,
                                 td_cpu_prepared **out_prepared, size_t *out_scratch_bytes) TD_MUST_USE;
void td_cpu_engine_release(td_cpu_prepared *prepared);
td_status *td_cpu_engine_run(td_cpu_prepared *prepared, const td_kernel_call *call, td_team *team) TD_MUST_USE;
/* Whether a kernel of kernels.def was chosen, rather than the reference kernel. */
bool td_cpu_engine_is_own(const td_cpu_prepared *prepared);

/* The kernels of kernels.def for an available instruction set; *out_count of them. */
const td_cpu_kernel *const *td_cpu_kernels(td_isa isa, int32_t *out_count);
/* Besides these, and before them, on TD_ISA_AVX512_BF16 and TD_ISA_AMX_BF16: kernels of bf16 whose products are in pairs, or in
 * tiles. */
const td_cpu_kernel *const *td_cpu_pair_kernels(td_isa isa, int32_t *out_count);

#endif
