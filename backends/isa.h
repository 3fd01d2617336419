/* Which instruction set the CPU kernels use.
 *
 * The best one that this processor has (avx512 wants F, BW, DQ and VL; avx2 wants AVX2, FMA and F16C), or what TANDEM_ISA
 * says. It changes speed, never bits, apart from libraries' own kernels and from matrix products of bf16: avx512_bf16 is avx512
 * with AVX512_BF16, whose instruction for these rounds in its own way, and amx_bf16 that with AMX (AMX_TILE and AMX_BF16), whose
 * instruction rounds in another (backends/cpu/gemm.h). Thread-safe. */
#ifndef TANDEM_BACKENDS_ISA_H
#define TANDEM_BACKENDS_ISA_H

#include <stdbool.h>

#include "tandem/status.h"

typedef enum td_isa {
    TD_ISA_BASELINE = 0,
    TD_ISA_AVX2,
    TD_ISA_AVX512,
    TD_ISA_AVX512_BF16,
    TD_ISA_AMX_BF16,
    TD_ISA_COUNT
} td_isa;

/* "baseline", "avx2", "avx512", "avx512_bf16" or "amx_bf16". */
const char *td_isa_name(td_isa isa);
/* Whether this build has kernels for it and this processor can run them. */
bool td_isa_available(td_isa isa);
/* The best available one: the fastest. */
td_isa td_isa_best(void);
/* What a device that is opened now uses: TANDEM_ISA, or the best. An unknown or unavailable value of TANDEM_ISA is an
 * error that says what is available. */
td_status *td_isa_choose(td_isa *out_isa) TD_MUST_USE;

#endif
